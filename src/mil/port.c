/* Ports by name, and the types of a function's inputs for given shapes. */
#include "mil/port.h"
#include <stdio.h>
#include <string.h>

int mil_port_find(const struct mil_port *ports, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0)
            return i;
    return -1;
}

/* Does the description allow the shape? Enumerated shapes and ranges limit what the program leaves open; a
 * model without a description of the input leaves it open. */
static bool shape_is_allowed(const struct mil_model *m, const char *function, const struct mil_input_shape *s)
{
    const struct mil_function_description *d = mil_function_description_find(m, function);
    const struct mil_feature *in = NULL;
    for (int i = 0; d && i < d->n_inputs && !in; i++)
        if (strcmp(d->inputs[i].name, s->input) == 0)
            in = &d->inputs[i];
    if (!in)
        return true;
    for (int i = 0; i < in->n_enumerated; i++) {
        bool same = in->enumerated_ranks[i] == s->rank;
        for (int k = 0; same && k < s->rank; k++)
            same = in->enumerated[i][k] == s->dims[k];
        if (same)
            return true;
    }
    if (in->n_enumerated > 0)
        return false;
    for (int i = 0; i < in->n_ranges && i < s->rank; i++)
        if (s->dims[i] < in->ranges[i].lower ||
            (in->ranges[i].upper >= 0 && s->dims[i] > in->ranges[i].upper))
            return false;
    return true;
}

bool mil_input_types(const struct mil_type **types, const struct mil_model *m, const struct mil_function *f,
                     const struct mil_input_shape *shapes, int n_shapes, struct arena *a, struct err *e)
{
    for (int i = 0; i < n_shapes; i++) {
        int k = 0;
        while (k < f->n_inputs && strcmp(f->inputs[k]->name, shapes[i].input) != 0)
            k++;
        if (k == f->n_inputs || f->inputs[k]->type->kind != MIL_TYPE_TENSOR)
            return err_set(e, ERR_USAGE, "function %s has no tensor input %s", f->name, shapes[i].input);
        const struct mil_type *t = f->inputs[k]->type;
        bool fits = t->rank == shapes[i].rank;
        for (int d = 0; fits && d < t->rank; d++)
            fits =
                shapes[i].dims[d] > 0 && (t->dims[d] == MIL_DIM_UNKNOWN || t->dims[d] == shapes[i].dims[d]);
        if (!fits || !shape_is_allowed(m, f->name, &shapes[i])) {
            char asked[128] = "";
            for (int d = 0; d < shapes[i].rank && d < MIL_RANK_MAX; d++)
                snprintf(asked + strlen(asked), sizeof asked - strlen(asked), d ? ", %lld" : "%lld",
                         (long long)shapes[i].dims[d]);
            return err_set(e, ERR_USAGE, "function %s: the model does not allow the shape [%s] for input %s",
                           f->name, asked, shapes[i].input);
        }
        types[k] = mil_type_new_tensor(a, t->dtype, shapes[i].rank, shapes[i].dims);
    }
    return true;
}
