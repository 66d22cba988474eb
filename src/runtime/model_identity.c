/* Identity of a model: its programs, value by value, and its weights in pieces that threads share. */
#include "runtime/model_identity.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Weights are hashed in pieces of this size, whatever the number of threads. */
#define PIECE_BYTES ((size_t)4 << 20)

/* A weight that an op refers to; many functions refer to the same bytes. */
struct reference {
    const uint8_t *data;
    size_t bytes;
    size_t order;   /* of the reference in the programs */
    size_t ordinal; /* of the weight among all, by its first reference */
};

struct piece {
    const uint8_t *data;
    size_t bytes;
    uint8_t digest[16];
};

struct collector {
    XXH3_state_t *programs;
    struct reference *references;
    size_t n, capacity;
};

static void put_digest(uint8_t digest[16], XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(digest, canonical.digest, 16);
}

/* --- programs --- */

static void put_number(struct collector *c, uint64_t v)
{
    XXH3_128bits_update(c->programs, &v, sizeof v);
}

static void put_string(struct collector *c, const char *s, size_t n)
{
    put_number(c, n);
    XXH3_128bits_update(c->programs, s, n);
}

static void put_value(struct collector *c, const struct mil_value *v)
{
    char type[256];
    if (!v) {
        put_number(c, UINT64_MAX);
        return;
    }
    mil_type_text(type, sizeof type, v->type);
    put_number(c, v->kind);
    put_string(c, type, strlen(type));
    if (v->kind == MIL_VALUE_ITEMS) {
        put_number(c, (uint64_t)v->n_items);
        for (int i = 0; i < v->n_items; i++)
            put_value(c, v->items[i]);
    } else if (v->strings) {
        for (int64_t i = 0; i < v->n_elems; i++)
            put_string(c, v->strings[i].p, v->strings[i].n);
    } else if (v->kind == MIL_VALUE_BLOB && v->data) {
        c->references = mem_grow(c->references, c->n, &c->capacity, sizeof *c->references);
        c->references[c->n] = (struct reference){.data = v->data, .bytes = v->bytes, .order = c->n};
        c->n++;
    } else if (v->data) {
        put_string(c, v->data, v->bytes);
    }
}

static int by_input_name(const void *a, const void *b)
{
    const struct mil_var *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

static int by_argument_name(const void *a, const void *b)
{
    const struct mil_arg *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

static int by_attribute_name(const void *a, const void *b)
{
    const struct mil_named_value *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

/* Inputs are known by their names, other variables by the order in which they are defined. */
static void put_variable(struct collector *c, const struct mil_var *v, const uint64_t *ordinals)
{
    if (v->op)
        put_number(c, ordinals[v->id]);
    else
        put_string(c, v->name, strlen(v->name));
}

/* The two forms of a package order inputs, arguments and attributes in their own ways, so these go by their names. */
static void put_op(struct collector *c, const struct mil_op *op, const uint64_t *ordinals)
{
    const struct mil_arg **args = xcalloc((size_t)op->n_args + 1, sizeof *args);
    const struct mil_named_value **attributes = xcalloc((size_t)op->n_attributes + 1, sizeof *attributes);
    for (int i = 0; i < op->n_args; i++)
        args[i] = &op->args[i];
    for (int i = 0; i < op->n_attributes; i++)
        attributes[i] = &op->attributes[i];
    qsort(args, (size_t)op->n_args, sizeof *args, by_argument_name);
    qsort(attributes, (size_t)op->n_attributes, sizeof *attributes, by_attribute_name);
    put_string(c, op->type, strlen(op->type));
    for (int i = 0; i < op->n_attributes; i++) {
        if (strcmp(attributes[i]->name, "name") == 0)
            continue;
        put_string(c, attributes[i]->name, strlen(attributes[i]->name));
        put_value(c, attributes[i]->value);
    }
    for (int i = 0; i < op->n_args; i++) {
        put_string(c, args[i]->name, strlen(args[i]->name));
        for (int k = 0; k < args[i]->n; k++) {
            const struct mil_binding *b = &args[i]->bindings[k];
            if (b->var)
                put_variable(c, b->var, ordinals);
            else
                put_value(c, b->value);
        }
    }
    free(args);
    free(attributes);
}

static void put_function(struct collector *c, const struct mil_function *f)
{
    char type[256];
    const struct mil_var **inputs = xcalloc((size_t)f->n_inputs + 1, sizeof *inputs);
    uint64_t *ordinals = xcalloc((size_t)f->n_vars + 1, sizeof *ordinals), n = 0;
    for (int i = 0; i < f->n_inputs; i++)
        inputs[i] = f->inputs[i];
    qsort(inputs, (size_t)f->n_inputs, sizeof *inputs, by_input_name);
    put_string(c, f->name, strlen(f->name));
    for (int i = 0; i < f->n_inputs; i++) {
        mil_type_text(type, sizeof type, inputs[i]->type);
        put_string(c, type, strlen(type));
        put_string(c, inputs[i]->name, strlen(inputs[i]->name));
    }
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        put_op(c, op, ordinals);
        for (int k = 0; k < op->n_outputs; k++)
            ordinals[op->outputs[k]->id] = n++;
    }
    for (int i = 0; i < f->block->n_outputs; i++)
        put_variable(c, f->block->outputs[i], ordinals);
    free(inputs);
    free(ordinals);
}

/* --- weights --- */

static int by_data(const void *a, const void *b)
{
    const struct reference *p = a, *q = b;
    if (p->data != q->data)
        return p->data < q->data ? -1 : 1;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? -1 : 1;
    return (p->order > q->order) - (p->order < q->order);
}

static int by_order(const void *a, const void *b)
{
    const struct reference *p = a, *q = b;
    return (p->order > q->order) - (p->order < q->order);
}

/* Says which weight each reference means, and keeps the first reference of each. */
static void merge_references(struct collector *c)
{
    size_t n = 0;
    qsort(c->references, c->n, sizeof *c->references, by_data);
    for (size_t i = 0, first = 0; i < c->n; i++) {
        struct reference *r = &c->references[i];
        if (r->data != c->references[first].data || r->bytes != c->references[first].bytes)
            first = i;
        r->ordinal = c->references[first].order;
    }
    qsort(c->references, c->n, sizeof *c->references, by_order);
    for (size_t i = 0; i < c->n; i++) {
        put_number(c, c->references[i].ordinal);
        if (c->references[i].ordinal == i)
            c->references[n++] = c->references[i];
    }
    c->n = n;
}

struct work {
    struct piece *pieces;
    size_t n;
    uint64_t bytes;
};

/* A thread takes the pieces that begin in its share of the bytes. */
static void hash_pieces(void *context, int i_thread, int n_threads)
{
    const struct work *w = context;
    uint64_t share = w->bytes / (uint64_t)n_threads + 1, at = 0;
    for (size_t i = 0; i < w->n; at += w->pieces[i++].bytes)
        if (at / share == (uint64_t)i_thread)
            put_digest(w->pieces[i].digest, XXH3_128bits(w->pieces[i].data, w->pieces[i].bytes));
}

/* state: of the hash over all pieces. */
static void hash_weights(const struct collector *c, struct pool *pool, XXH3_state_t *state,
                         uint8_t digest[16])
{
    struct work w = {0};
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->references[i].bytes / PIECE_BYTES + 1;
    w.pieces = xcalloc(n + 1, sizeof *w.pieces);
    for (size_t i = 0; i < c->n; i++) {
        const struct reference *r = &c->references[i];
        for (size_t at = 0; at < r->bytes; at += PIECE_BYTES) {
            size_t left = r->bytes - at;
            w.pieces[w.n++] =
                (struct piece){.data = r->data + at, .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
        }
        w.bytes += r->bytes;
    }
    pool_run(pool, hash_pieces, &w);
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < w.n; i++) {
        uint64_t bytes = w.pieces[i].bytes;
        XXH3_128bits_update(state, &bytes, sizeof bytes);
        XXH3_128bits_update(state, w.pieces[i].digest, sizeof w.pieces[i].digest);
    }
    put_digest(digest, XXH3_128bits_digest(state));
    free(w.pieces);
}

bool model_identify(const struct model *m, struct model_identity *out, struct err *e)
{
    struct collector c = {.programs = XXH3_createState()};
    if (!c.programs)
        return err_set(e, ERR_NOMEM, "no memory to look at the weights");
    XXH3_128bits_reset(c.programs);
    put_number(&c, (uint64_t)m->context_length);
    put_number(&c, (uint64_t)m->vocab_size);
    for (int i = -1; i <= m->n_chunks; i++) {
        const struct model_part *part = i < 0 ? &m->embeddings : i == m->n_chunks ? &m->head : &m->chunks[i];
        const struct mil_model *files[2] = {part->mil, part->second};
        for (int j = 0; j < 2; j++) {
            int n = files[j] ? files[j]->program->n_functions : 0;
            put_number(&c, (uint64_t)n);
            for (int k = 0; k < n; k++)
                put_function(&c, files[j]->program->functions[k]);
        }
    }
    merge_references(&c);
    put_digest(out->programs, XXH3_128bits_digest(c.programs));
    hash_weights(&c, m->pool, c.programs, out->weights);
    XXH3_freeState(c.programs);
    free(c.references);
    return true;
}
