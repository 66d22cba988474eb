/* Making the residual stream inside a chunk visible: the variables that milkit's converter names layers_N_output become
 * outputs of the program in memory, before functions are made of it. Packages of other converters show it at the borders of
 * their chunks alone, where com.anemll.layers says which layers a chunk has. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "runtime/model_int.h"

/* The layer whose output a name stands for, -1: none. */
static int64_t layer_of_name(const char *name)
{
    static const char begin[] = "layers_";
    char *end;
    if (strncmp(name, begin, sizeof begin - 1) != 0 || name[sizeof begin - 1] < '0' ||
        name[sizeof begin - 1] > '9')
        return -1;
    long long layer = strtoll(name + sizeof begin - 1, &end, 10);
    return strcmp(end, "_output") == 0 && layer < INT_MAX ? (int64_t)layer : -1;
}

static bool is_output(const struct mil_block *b, const struct mil_var *v)
{
    for (int i = 0; i < b->n_outputs; i++)
        if (b->outputs[i] == v)
            return true;
    return false;
}

void model_add_watches(struct mil_model *mil)
{
    for (int i = 0; i < mil->program->n_functions; i++) {
        struct mil_block *b = mil->program->functions[i]->block;
        struct mil_var **outputs = ARENA_ARRAY(mil->arena, struct mil_var *, b->n_outputs + b->n_ops + 1);
        int n = b->n_outputs;
        memcpy(outputs, b->outputs, sizeof *outputs * (size_t)n);
        for (int k = 0; k < b->n_ops; k++)
            if (b->ops[k]->n_outputs == 1 && layer_of_name(b->ops[k]->outputs[0]->name) >= 0 &&
                !is_output(b, b->ops[k]->outputs[0]))
                outputs[n++] = b->ops[k]->outputs[0];
        b->outputs = outputs;
        b->n_outputs = n;
    }
}

/* The last layer of a chunk by its metadata ("4-7"), -1: it does not say. */
static int64_t last_layer(const struct mil_model *mil)
{
    const struct mil_description *d = &mil->description;
    for (int i = 0; i < d->n_user_defined; i++) {
        const char *dash = strchr(d->user_defined[i].value, '-');
        char *end;
        if (strcmp(d->user_defined[i].key, "com.anemll.layers") != 0 || !dash)
            continue;
        long long layer = strtoll(dash + 1, &end, 10);
        return end > dash + 1 && *end == '\0' && layer >= 0 && layer < INT_MAX ? (int64_t)layer : -1;
    }
    return -1;
}

/* An output [1, tokens, hidden]; others can't be a residual stream, whatever their name. */
static bool has_rows(const struct backend_function *f, int i, int64_t tokens, int64_t hidden)
{
    if (i < 0)
        return false;
    const struct mil_port *port = &f->outputs[i];
    return !port->is_int && port->rank == 3 && port->dims[0] == 1 && port->dims[1] == tokens &&
           port->dims[2] == hidden;
}

static void add_watch(const struct model *m, struct model_part *part, int64_t layer, const char *name)
{
    struct model_watch w = {.layer = layer};
    for (int f = 0; f < MODEL_FUNCTIONS; f++) {
        const struct backend_function *p = part->functions[f];
        bool is_batch = f == MODEL_PREFILL || f == MODEL_PREFILL_ROTATE;
        w.outputs[f] = p ? backend_find_output(p, name) : -1;
        if (p && !has_rows(p, w.outputs[f], is_batch ? m->batch_size : 1, m->hidden_size))
            return;
    }
    int at = part->n_watches;
    while (at > 0 && part->watches[at - 1].layer >= layer)
        at--;
    if (at < part->n_watches && part->watches[at].layer == layer)
        return;
    part->watches = xrealloc(part->watches, sizeof *part->watches * (size_t)(part->n_watches + 1));
    memmove(part->watches + at + 1, part->watches + at,
            sizeof *part->watches * (size_t)(part->n_watches - at));
    part->watches[at] = w;
    part->n_watches++;
}

void model_find_watches(const struct model *m, struct model_part *part, bool is_last)
{
    int64_t border = last_layer(part->mil);
    if (!is_last && border >= 0)
        add_watch(m, part, border, PORT_OUTPUT_HIDDEN_STATES);
    const struct backend_function *infer = part->functions[MODEL_INFER];
    for (int i = 0; i < infer->n_outputs; i++) {
        const char *name = infer->outputs[i].name;
        int64_t layer = layer_of_name(name);
        if (layer >= 0)
            add_watch(m, part, layer, name);
    }
}
