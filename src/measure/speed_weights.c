/* What weights a package's programs refer to: how many, how they are stored, which are multiplied with every token.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "format/json.h"
#include "measure/speed.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

struct counting {
    struct speed_weights *out;
    struct table *blobs, *weights; /* by file and offset, each once */
    double products;
    bool is_fixed;
};

/* Where a weight is stored: its largest blob. NULL: nowhere in a file. */
static const struct mil_value *find_blob(const struct mil_op *op)
{
    const struct mil_value *largest = NULL;
    for (int i = 0; i < op->n_attributes; i++) {
        const struct mil_value *v = op->attributes[i].value;
        if (v && v->kind == MIL_VALUE_BLOB && (!largest || v->bytes > largest->bytes))
            largest = v;
    }
    for (int i = 0; i < op->n_args; i++)
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = mil_binding_value(&op->args[i].bindings[k]);
            if (v && v->kind == MIL_VALUE_BLOB && (!largest || v->bytes > largest->bytes))
                largest = v;
        }
    return largest;
}

/* Is it seen for the first time? Blobs of two files of the same name are told apart by their model. */
static bool is_new(struct table *t, const struct mil_model *m, const struct mil_value *v)
{
    char *key = xasprintf("%" PRIu64 "@%s@%s", v->offset, v->file, m->path);
    bool put = table_put(t, key, t);
    free(key);
    return put;
}

static void add_bytes(struct counting *c, const struct mil_model *m, const struct mil_value *v)
{
    if (v && v->kind == MIL_VALUE_BLOB && v->file && is_new(c->blobs, m, v)) {
        int64_t bytes = mil_type_bytes(v->type);
        c->out->bytes += bytes > 0 ? (uint64_t)bytes : 0;
    }
}

/* Of all that an op refers to: codes, tables, scales. */
static uint64_t bytes_of(const struct mil_op *op)
{
    uint64_t sum = 0;
    for (int i = 0; i < op->n_attributes; i++)
        if (op->attributes[i].value && op->attributes[i].value->kind == MIL_VALUE_BLOB)
            sum += op->attributes[i].value->bytes;
    for (int i = 0; i < op->n_args; i++)
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = mil_binding_value(&op->args[i].bindings[k]);
            sum += v && v->kind == MIL_VALUE_BLOB ? v->bytes : 0;
        }
    return sum;
}

static bool is_constexpr(const struct mil_op *op)
{
    return strncmp(op->type, "constexpr_", 10) == 0;
}

/* A weight that an op uses: all but what is only looked up (RoPE tables), where the program is not that of the embeddings. */
static void add_use(struct counting *c, const struct mil_model *m, const struct mil_op *user,
                    const struct mil_var *v, bool is_embeddings)
{
    const struct mil_op *op = v ? v->op : NULL;
    bool is_product = mil_op_is(user, "conv") || mil_op_is(user, "linear") || mil_op_is(user, "matmul");
    if (!op || !(mil_op_is(op, "const") || is_constexpr(op)) || is_constexpr(user))
        return;
    const struct mil_value *blob = find_blob(op);
    int64_t n = mil_type_elems(v->type);
    if (!blob || !blob->file || n <= 0 || (mil_op_is(user, "gather") && !is_embeddings) ||
        strncmp(user->type, "slice", 5) == 0 || !is_new(c->weights, m, blob))
        return;
    c->out->n_params += n;
    if (!is_embeddings) /* a row of them is nothing */
        c->out->token_bytes += bytes_of(op);
    if (is_product && v->type->rank >= 2) {
        c->products += (double)n;
        c->is_fixed = c->is_fixed || is_constexpr(op);
    }
}

static void count_model(struct counting *c, const struct mil_model *m, bool is_embeddings)
{
    for (int f = 0; m && f < m->program->n_functions; f++) {
        const struct mil_block *b = m->program->functions[f]->block;
        for (int i = 0; b && i < b->n_ops; i++) {
            const struct mil_op *op = b->ops[i];
            for (int k = 0; k < op->n_attributes; k++)
                add_bytes(c, m, op->attributes[k].value);
            for (int k = 0; k < op->n_args; k++)
                for (int n = 0; n < op->args[k].n; n++) {
                    add_bytes(c, m, op->args[k].bindings[n].value);
                    add_use(c, m, op, op->args[k].bindings[n].var, is_embeddings);
                }
        }
    }
}

/* Whether the checkpoint has one weight for both: only its copied settings tell. */
static bool is_tied(const struct package *p)
{
    char *path = path_join(p->path, "config.json");
    cJSON *config = NULL;
    struct err ignored = {0};
    bool tied = false;
    if (path_exists(path) && json_read_file(&config, path, CONFIG_BYTES_MAX, &ignored)) {
        const cJSON *text = json_get(config, "text_config");
        bool known = json_get_bool(config, "tie_word_embeddings", &tied, path, &ignored) &&
                     (!text || json_get_bool(text, "tie_word_embeddings", &tied, path, &ignored));
        tied = tied && known;
    }
    cJSON_Delete(config);
    free(path);
    return tied;
}

void speed_weights_of(struct speed_weights *out, const struct model *m)
{
    struct counting c = {.out = out, .blobs = table_new(), .weights = table_new()};
    memset(out, 0, sizeof *out);
    count_model(&c, m->embeddings.mil, true);
    c.products = 0;
    c.is_fixed = false;
    for (int i = 0; i < m->n_chunks; i++) {
        count_model(&c, m->chunks[i].mil, m->is_monolithic);
        count_model(&c, m->chunks[i].second, false);
    }
    out->is_fixed = c.is_fixed;
    out->chunk_products = m->package->meta->moe_experts > 0 || m->is_monolithic ? 0 : c.products;
    c.products = 0;
    int64_t before = out->n_params;
    count_model(&c, m->head.mil, false);
    out->head_products = c.products;
    if (is_tied(m->package))
        out->n_params = before;
    if (m->package->meta->moe_experts > 0)
        out->token_bytes = 0;
    table_free(c.blobs);
    table_free(c.weights);
}
