/* meta.yaml, reading: one table says what each key is; three nestings are laid over one another. */
#include "format/meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "format/yaml.h"

#define META_BYTES_MAX ((size_t)256 << 10)
#define SIZE_MAX_ANY INT32_MAX /* of any size or count: products of two fit 64 bits */

struct context {
    struct meta *m;
    const char *where;
    int n_known; /* keys that mean something */
};

typedef bool (*read_fn)(struct context *c, const struct yaml_node *n, struct err *e);

enum kind {
    KIND_STRING,
    KIND_INT,   /* int, in [min, max] */
    KIND_INT64, /* the same */
    KIND_BOOL,
    KIND_DOUBLE,
    KIND_LUT, /* int: "none" or bits */
    KIND_OWN, /* read by a function */
    KIND_IGNORED
};

/* What a bad value does. */
enum duty {
    CALLS,  /* an error: the key says how the package is called or where its files are */
    INFORMS /* a warning, and the key counts as absent */
};

struct field {
    const char *key;
    enum kind kind;
    enum duty duty;
    size_t offset;
    int64_t min, max;
    read_fn read;
};

static bool read_chunk_sizes(struct context *c, const struct yaml_node *n, struct err *e);
static bool read_sampling(struct context *c, const struct yaml_node *n, struct err *e);
static bool read_moe(struct context *c, const struct yaml_node *n, struct err *e);
static bool read_layer_types(struct context *c, const struct yaml_node *n, struct err *e);
static bool read_states(struct context *c, const struct yaml_node *n, struct err *e);
static bool read_kv_shared(struct context *c, const struct yaml_node *n, struct err *e);

#define AT(name) offsetof(struct meta, name)
#define STRING(name, duty)                                                                                   \
    {                                                                                                        \
#name, KIND_STRING, duty, AT(name), 0, 0, NULL                                                       \
    }
#define INT(name, duty, min, max)                                                                            \
    {                                                                                                        \
#name, KIND_INT, duty, AT(name), min, max, NULL                                                      \
    }
#define INT64(name, duty, min)                                                                               \
    {                                                                                                        \
#name, KIND_INT64, duty, AT(name), min, SIZE_MAX_ANY, NULL                                           \
    }
#define BOOL(name, duty)                                                                                     \
    {                                                                                                        \
#name, KIND_BOOL, duty, AT(name), 0, 0, NULL                                                         \
    }
#define DOUBLE(name, duty)                                                                                   \
    {                                                                                                        \
#name, KIND_DOUBLE, duty, AT(name), 0, 0, NULL                                                       \
    }
#define LUT(name)                                                                                            \
    {                                                                                                        \
#name, KIND_LUT, CALLS, AT(name), 1, 16, NULL                                                        \
    }
#define OWN(name, fn)                                                                                        \
    {                                                                                                        \
        name, KIND_OWN, INFORMS, 0, 0, 0, fn                                                                 \
    }

static const struct field fields[] = {
    STRING(name, INFORMS),
    STRING(version, INFORMS),
    STRING(description, INFORMS),
    STRING(license, INFORMS),
    STRING(author, INFORMS),
    STRING(framework, INFORMS),
    STRING(language, INFORMS),
    STRING(architecture, INFORMS),
    STRING(model_type, INFORMS),
    INT64(context_length, CALLS, 1),
    INT64(batch_size, CALLS, 1),
    LUT(lut_embeddings),
    LUT(lut_ffn),
    LUT(lut_lmhead),
    INT(lut_embeddings_per_channel, INFORMS, 0, INT32_MAX),
    INT(lut_ffn_per_channel, INFORMS, 0, INT32_MAX),
    INT(lut_lmhead_per_channel, INFORMS, 0, INT32_MAX),
    /* the names of monolithic packages */
    {"lut_bits", KIND_LUT, CALLS, AT(lut_ffn), 1, 16, NULL},
    {"lut_per_channel", KIND_INT, INFORMS, AT(lut_ffn_per_channel), 0, INT32_MAX, NULL},
    {"functions", KIND_IGNORED, INFORMS, 0, 0, 0, NULL},
    STRING(quant_embeddings, INFORMS),
    STRING(quant_ffn, INFORMS),
    STRING(quant_lmhead, INFORMS),
    DOUBLE(lut_ffn_mixed, INFORMS),
    INT(num_chunks, CALLS, 1, 99),
    STRING(model_prefix, CALLS),
    STRING(embeddings, CALLS),
    STRING(lm_head, CALLS),
    STRING(ffn, CALLS),
    STRING(pf, CALLS),
    STRING(monolithic_model, CALLS),
    INT(split_lm_head, CALLS, 1, 4096),
    BOOL(argmax_in_model, CALLS),
    INT64(vocab_size, INFORMS, 1),
    OWN("lm_head_chunk_sizes", read_chunk_sizes),
    BOOL(prefill_dynamic_slice, CALLS),
    BOOL(prefill_last_token_output, CALLS),
    BOOL(update_mask_prefill, CALLS),
    INT64(hidden_size, INFORMS, 1),
    INT64(num_layers, INFORMS, 1),
    OWN("recommended_sampling", read_sampling),
    BOOL(recurrent_state, CALLS),
    BOOL(prefill_full_batches_only, CALLS),
    INT64(gdn_chunk_size, INFORMS, 0),
    OWN("moe", read_moe),
    OWN("layer_types", read_layer_types),
    OWN("states", read_states),
    INT64(local_attention_window, INFORMS, 0),
    INT64(local_cache_length, CALLS, 0),
    DOUBLE(final_logit_softcap, INFORMS),
    DOUBLE(residual_scale, INFORMS),
    INT64(per_layer_inputs, INFORMS, 0),
    OWN("kv_shared_layers", read_kv_shared),
    INT64(sliding_window, CALLS, 0),
    BOOL(split_rotate, CALLS),
    BOOL(single_cache, CALLS),
};
#define N_FIELDS (sizeof fields / sizeof *fields)
_Static_assert(N_FIELDS <= 8 * sizeof((struct meta *)0)->present, "a bit for each key");

static const struct field *find_field(const char *key)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
    return NULL;
}

static bool fail_value(const struct context *c, const struct yaml_node *n, const char *key, const char *want,
                       struct err *e)
{
    if (n->kind == YAML_SCALAR)
        return err_set(e, ERR_FORMAT, "%s: line %d: %s: expected %s, found %s\"%.64s\"", c->where, n->line,
                       key, want, n->is_plain ? "" : "the string ", n->text);
    return err_set(e, ERR_FORMAT, "%s: line %d: %s: expected %s, found a %s", c->where, n->line, key, want,
                   yaml_kind_name(n));
}

static bool get_int(const struct context *c, const struct yaml_node *n, const char *key, int64_t min,
                    int64_t max, int64_t *value, struct err *e)
{
    int64_t v;
    if (yaml_get_int(n, &v) && v >= min && v <= max) {
        *value = v;
        return true;
    }
    char want[96];
    if (max >= INT32_MAX)
        snprintf(want, sizeof want, "an integer of at least %lld", (long long)min);
    else
        snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)min, (long long)max);
    return fail_value(c, n, key, want, e);
}

static bool get_string(const struct context *c, const struct yaml_node *n, const char *key, char **value,
                       struct err *e)
{
    if (n->kind != YAML_SCALAR)
        return fail_value(c, n, key, "a string", e);
    free(*value);
    *value = xstrdup(n->text);
    return true;
}

/* "none" or bits, with or without quotes: other writers treat the value as text. */
static bool read_lut(const struct context *c, const struct yaml_node *n, const struct field *f, int *value,
                     struct err *e)
{
    int64_t bits;
    if (n->kind == YAML_SCALAR && strcasecmp(n->text, "none") == 0) {
        *value = META_NONE;
        return true;
    }
    if (n->kind == YAML_SCALAR && yaml_text_int(n->text, &bits) && bits >= f->min && bits <= f->max) {
        *value = (int)bits;
        return true;
    }
    return fail_value(c, n, f->key, "none or bits from 1 to 16", e);
}

static bool is_empty_list(const struct yaml_node *n)
{
    return n->kind == YAML_LIST && !n->child;
}

static int count_children(const struct yaml_node *n)
{
    int count = 0;
    for (const struct yaml_node *c = n->child; c; c = c->next)
        count++;
    return count;
}

/* A list of integers as a heap array, NULL when it is empty. */
static bool get_ints(const struct context *c, const struct yaml_node *n, const char *key, int64_t min,
                     int64_t max, int64_t **values, int *count, struct err *e)
{
    if (n->kind != YAML_LIST)
        return fail_value(c, n, key, "a list of integers", e);
    int n_values = 0;
    int64_t *list = is_empty_list(n) ? NULL : xcalloc((size_t)count_children(n), sizeof *list);
    bool ok = true;
    for (const struct yaml_node *item = n->child; item && ok; item = item->next)
        ok = get_int(c, item, key, min, max, &list[n_values++], e);
    if (!ok) {
        free(list);
        return false;
    }
    *values = list;
    *count = n_values;
    return true;
}

static bool read_chunk_sizes(struct context *c, const struct yaml_node *n, struct err *e)
{
    int64_t *sizes;
    int count;
    if (!get_ints(c, n, "lm_head_chunk_sizes", 1, SIZE_MAX_ANY, &sizes, &count, e))
        return false;
    free(c->m->lm_head_chunk_sizes);
    c->m->lm_head_chunk_sizes = sizes;
    c->m->n_lm_head_chunk_sizes = count;
    return true;
}

static void add_unknown(struct context *c, const char *prefix, const char *key)
{
    struct meta *m = c->m;
    m->unknown_keys = xrealloc(m->unknown_keys, sizeof *m->unknown_keys * (size_t)(m->n_unknown_keys + 1));
    m->unknown_keys[m->n_unknown_keys++] = xasprintf("%s%s", prefix, key);
}

static void add_warning(void *context, const char *sentence)
{
    struct meta *m = ((struct context *)context)->m;
    m->warnings = xrealloc(m->warnings, sizeof *m->warnings * (size_t)(m->n_warnings + 1));
    m->warnings[m->n_warnings++] = xstrdup(sentence);
}

/* The same value as JSON has it. */
static cJSON *json_of(const struct yaml_node *n)
{
    double number;
    bool flag;
    if (n->kind == YAML_SCALAR)
        return yaml_is_null(n)               ? cJSON_CreateNull()
               : yaml_get_double(n, &number) ? cJSON_CreateNumber(number)
               : yaml_get_bool(n, &flag)     ? cJSON_CreateBool(flag)
                                             : cJSON_CreateString(n->text);
    cJSON *o = n->kind == YAML_MAP ? cJSON_CreateObject() : cJSON_CreateArray();
    for (const struct yaml_node *v = n->child; v; v = v->next) {
        if (n->kind == YAML_MAP)
            cJSON_AddItemToObject(o, v->key, json_of(v));
        else
            cJSON_AddItemToArray(o, json_of(v));
    }
    return o;
}

static bool read_sampling(struct context *c, const struct yaml_node *n, struct err *e)
{
    struct recommended_sampling *s = &c->m->sampling;
    if (n->kind != YAML_MAP)
        return fail_value(c, n, "recommended_sampling", "a mapping", e);
    sampling_fini(s);
    s->do_sample = true; /* whoever recommends values and no more means sampling */
    for (const struct yaml_node *v = n->child; v; v = v->next)
        if (!sampling_knows(v->key))
            add_unknown(c, "recommended_sampling.", v->key);
    cJSON *object = json_of(n);
    char *where = xasprintf("%s: line %d: recommended_sampling", c->where, n->line);
    sampling_read(s, object, where, add_warning, c);
    s->is_present = true;
    free(where);
    cJSON_Delete(object);
    return true;
}

static bool read_moe(struct context *c, const struct yaml_node *n, struct err *e)
{
    struct meta *m = c->m;
    if (n->kind != YAML_MAP)
        return fail_value(c, n, "moe", "a mapping", e);
    for (const struct yaml_node *v = n->child; v; v = v->next) {
        int *number = strcmp(v->key, "experts") == 0             ? &m->moe_experts
                      : strcmp(v->key, "experts_per_token") == 0 ? &m->moe_experts_per_token
                                                                 : NULL;
        int64_t value;
        if (number) {
            if (!get_int(c, v, v->key, 1, INT32_MAX, &value, e))
                return false;
            *number = (int)value;
        } else if (strcmp(v->key, "evaluation") == 0) {
            if (!get_string(c, v, v->key, &m->moe_evaluation, e))
                return false;
        } else {
            add_unknown(c, "moe.", v->key);
        }
    }
    return true;
}

/* A list or mapping that replaces what there was of it: clear makes room for so many members, append reads one. */
static bool read_members(struct context *c, const struct yaml_node *n, void (*clear)(struct meta *, size_t),
                         bool (*append)(struct context *, const struct yaml_node *, struct err *),
                         struct err *e)
{
    bool ok = true;
    clear(c->m, is_empty_list(n) ? 0 : (size_t)count_children(n));
    for (const struct yaml_node *v = n->child; v && ok; v = v->next)
        ok = append(c, v, e);
    if (!ok)
        clear(c->m, 0);
    return ok;
}

static void clear_layer_types(struct meta *m, size_t room)
{
    for (int i = 0; i < m->n_layer_types; i++)
        free(m->layer_types[i]);
    free(m->layer_types);
    m->layer_types = room ? xcalloc(room, sizeof *m->layer_types) : NULL;
    m->n_layer_types = 0;
}

static bool append_layer_type(struct context *c, const struct yaml_node *v, struct err *e)
{
    return get_string(c, v, "layer_types", &c->m->layer_types[c->m->n_layer_types++], e);
}

static bool read_layer_types(struct context *c, const struct yaml_node *n, struct err *e)
{
    if (n->kind != YAML_LIST)
        return fail_value(c, n, "layer_types", "a list of names", e);
    return read_members(c, n, clear_layer_types, append_layer_type, e);
}

static void clear_states(struct meta *m, size_t room)
{
    for (int i = 0; i < m->n_states; i++) {
        free(m->states[i].name);
        free(m->states[i].dtype);
        free(m->states[i].layers);
    }
    free(m->states);
    m->states = room ? xcalloc(room, sizeof *m->states) : NULL;
    m->n_states = 0;
}

static bool read_state(struct context *c, const struct yaml_node *n, struct meta_state *s, struct err *e)
{
    if (n->kind != YAML_MAP)
        return fail_value(c, n, "states", "a list of mappings", e);
    for (const struct yaml_node *v = n->child; v; v = v->next) {
        int64_t *values = NULL;
        int count = 0;
        bool ok = true;
        if (strcmp(v->key, "name") == 0) {
            ok = get_string(c, v, "states: name", &s->name, e);
        } else if (strcmp(v->key, "dtype") == 0) {
            ok = get_string(c, v, "states: dtype", &s->dtype, e);
        } else if (strcmp(v->key, "shape") == 0) {
            ok = get_ints(c, v, "states: shape", 1, SIZE_MAX_ANY, &values, &count, e);
            if (ok && count > 8)
                ok = err_set(e, ERR_FORMAT,
                             "%s: line %d: states: shape: expected at most 8 dimensions, found %d", c->where,
                             v->line, count);
            for (int i = 0; i < count && ok; i++)
                s->shape[i] = values[i];
            s->rank = ok ? count : 0;
        } else if (strcmp(v->key, "layers") == 0) {
            ok = get_ints(c, v, "states: layers", 0, INT32_MAX, &values, &count, e);
            s->layers = ok && count > 0 ? xcalloc((size_t)count, sizeof *s->layers) : NULL;
            s->n_layers = ok ? count : 0;
            for (int i = 0; i < count && ok; i++)
                s->layers[i] = (int)values[i];
        } else {
            add_unknown(c, "states.", v->key);
        }
        free(values);
        if (!ok)
            return false;
    }
    if (!s->name || s->rank == 0)
        return err_set(e, ERR_FORMAT,
                       "%s: line %d: states: expected name and shape in each entry, found no %s", c->where,
                       n->line, s->name ? "shape" : "name");
    return true;
}

static bool append_state(struct context *c, const struct yaml_node *v, struct err *e)
{
    return read_state(c, v, &c->m->states[c->m->n_states++], e);
}

static bool read_states(struct context *c, const struct yaml_node *n, struct err *e)
{
    if (n->kind != YAML_LIST)
        return fail_value(c, n, "states", "a list", e);
    return read_members(c, n, clear_states, append_state, e);
}

static void clear_kv_shared(struct meta *m, size_t room)
{
    free(m->kv_shared_layers);
    m->kv_shared_layers = room ? xcalloc(room, sizeof *m->kv_shared_layers) : NULL;
    m->n_kv_shared_layers = 0;
}

static bool append_kv_pair(struct context *c, const struct yaml_node *v, struct err *e)
{
    int64_t key, value;
    if (!yaml_text_int(v->key, &key) || key < 0 || key > INT32_MAX)
        return err_set(e, ERR_FORMAT,
                       "%s: line %d: kv_shared_layers: expected layer numbers, found \"%.64s\"", c->where,
                       v->line, v->key);
    if (!get_int(c, v, "kv_shared_layers", 0, INT32_MAX, &value, e))
        return false;
    c->m->kv_shared_layers[c->m->n_kv_shared_layers++] = (struct meta_pair){(int)key, (int)value};
    return true;
}

static bool read_kv_shared(struct context *c, const struct yaml_node *n, struct err *e)
{
    if (n->kind != YAML_MAP)
        return fail_value(c, n, "kv_shared_layers", "a mapping of layers", e);
    return read_members(c, n, clear_kv_shared, append_kv_pair, e);
}

/* ---- the file ---- */

static bool read_field(struct context *c, const struct field *f, const struct yaml_node *n, struct err *e)
{
    void *target = (char *)c->m + f->offset;
    int64_t value;
    switch (f->kind) {
    case KIND_STRING:
        return get_string(c, n, f->key, target, e);
    case KIND_INT:
        if (!get_int(c, n, f->key, f->min, f->max, &value, e))
            return false;
        *(int *)target = (int)value;
        return true;
    case KIND_INT64:
        return get_int(c, n, f->key, f->min, f->max, target, e);
    case KIND_BOOL:
        return yaml_get_bool(n, target) || fail_value(c, n, f->key, "true or false", e);
    case KIND_DOUBLE:
        return yaml_get_double(n, target) || fail_value(c, n, f->key, "a number", e);
    case KIND_LUT:
        return read_lut(c, n, f, target, e);
    case KIND_OWN:
        return f->read(c, n, e);
    case KIND_IGNORED:
        break;
    }
    return true;
}

/* inner: the key whose value is the next deeper level, handed to the caller. */
static bool read_level(struct context *c, const struct yaml_node *map, const char *prefix, const char *inner,
                       const struct yaml_node **deeper, struct err *e)
{
    for (const struct yaml_node *v = map->child; v; v = v->next) {
        if (inner && strcmp(v->key, inner) == 0) {
            if (v->kind != YAML_MAP && !yaml_is_null(v))
                return fail_value(c, v, inner, "a mapping", e);
            *deeper = v->kind == YAML_MAP ? v : NULL;
            continue;
        }
        const struct field *f = find_field(v->key);
        if (!f) {
            add_unknown(c, prefix, v->key);
            continue;
        }
        c->n_known++;
        struct err problem = {0};
        if (yaml_is_null(v))
            continue;
        if (read_field(c, f, v, f->duty == INFORMS ? &problem : e)) {
            c->m->present[(f - fields) / 64] |= UINT64_C(1) << (f - fields) % 64;
            continue;
        }
        if (f->duty == CALLS)
            return false;
        char *sentence = xasprintf("%s: the value is left out", problem.msg);
        add_warning(c, sentence);
        free(sentence);
    }
    return true;
}

static bool read_levels(struct context *c, const struct yaml_node *root, struct err *e)
{
    const struct yaml_node *info = NULL, *parameters = NULL;
    if (!root || root->kind != YAML_MAP)
        return err_set(e, ERR_FORMAT, "%s: expected a mapping with model_info, found %s%s", c->where,
                       root ? "a " : "", root ? yaml_kind_name(root) : "no document");
    if (!read_level(c, root, "", "model_info", &info, e) ||
        (info && !read_level(c, info, "model_info.", "parameters", &parameters, e)) ||
        (parameters && !read_level(c, parameters, "model_info.parameters.", NULL, NULL, e)))
        return false;
    if (c->n_known == 0)
        return err_set(e, ERR_FORMAT, "%s: expected the keys of a package's meta.yaml, found none of them",
                       c->where);
    return true;
}

bool meta_has(const struct meta *m, const char *key)
{
    const struct field *f = find_field(key);
    return f && (m->present[(f - fields) / 64] >> (f - fields) % 64 & 1);
}

struct meta *meta_new(void)
{
    struct meta *m = xcalloc(1, sizeof *m);
    m->version = xstrdup("0.3.5");
    m->lut_embeddings = m->lut_ffn = m->lut_lmhead = META_NONE;
    sampling_init(&m->sampling);
    return m;
}

bool meta_parse(struct meta **out, const char *text, size_t bytes, const char *where, struct err *e)
{
    struct yaml_node *root = NULL;
    struct arena *arena = arena_new(0);
    struct meta *m = meta_new();
    struct context c = {.m = m, .where = where};
    *out = NULL;
    free(m->version);
    m->version = NULL;
    m->split_lm_head = 8;
    m->batch_size = 32;
    m->context_length = 2048;
    m->num_chunks = 1;
    bool ok = bytes <= META_BYTES_MAX || err_set(e, ERR_LIMIT, "%s: expected at most %zu bytes, found %zu",
                                                 where, META_BYTES_MAX, bytes);
    ok = ok && yaml_parse(&root, arena, text, bytes, where, e) && read_levels(&c, root, e);
    /* A block scalar ends with a newline that is no part of the text. */
    for (size_t n = m->description ? strlen(m->description) : 0; n > 0 && m->description[n - 1] == '\n';)
        m->description[--n] = '\0';
    arena_free(arena);
    if (ok)
        *out = m;
    else
        meta_free(m);
    return ok;
}

bool meta_read(struct meta **out, const char *path, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (!file_read(&text, &bytes, path, META_BYTES_MAX, e))
        return false;
    bool ok = meta_parse(out, text, bytes, path, e);
    if (ok)
        (*out)->path = xstrdup(path);
    free(text);
    return ok;
}

void meta_free(struct meta *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].kind == KIND_STRING)
            free(*(char **)((char *)m + fields[i].offset));
    clear_layer_types(m, 0);
    clear_states(m, 0);
    for (int i = 0; i < m->n_unknown_keys; i++)
        free(m->unknown_keys[i]);
    free(m->unknown_keys);
    for (int i = 0; i < m->n_warnings; i++)
        free(m->warnings[i]);
    free(m->warnings);
    sampling_fini(&m->sampling);
    free(m->lm_head_chunk_sizes);
    free(m->kv_shared_layers);
    free(m->moe_evaluation);
    free(m->lut_method);
    free(m->path);
    free(m);
}
