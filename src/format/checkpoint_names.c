/* What stands in front of the names of a text model's tensors. */
#include <stdlib.h>
#include <string.h>
#include "format/checkpoint.h"

#define PLAIN_PREFIX "model."
#define EMBEDDINGS "embed_tokens.weight"
#define FIRST_LAYER "layers.0."
#define HEAD "lm_head.weight"
#define FILES_SHOWN 8
#define NAMES_SHOWN 3

/* A name of the files, without the parts that wrappers put inside. */
struct entry {
    const char *stripped, *raw;
    const struct st_tensor *tensor; /* NULL: it can't be read */
    const char *why;                /* it can't be */
    const char *lost_file;          /* where it would be, when that file can't be read; else NULL */
};

struct checkpoint_names {
    const struct safetensors *tensors;
    struct arena *arena;
    struct table *by_name; /* struct entry by stripped name */
    struct entry **list;   /* [n] */
    int n;
    const char *prefix; /* of the text model */
    const char *head;   /* stripped name */
    bool has_no_text;
    const char *text_problem; /* NULL: there is at most one text model */
    const char *head_problem; /* NULL: there is at most one head */
};

/* ---- names ---- */

/* Modules that wrap another one without a name of its own: of torch.compile, FSDP and activation checkpointing. */
static bool is_transparent(const char *part, size_t n)
{
    static const char *const wrappers[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        if (strlen(wrappers[i]) == n && memcmp(wrappers[i], part, n) == 0)
            return true;
    }
    return false;
}

static const char *strip(struct arena *arena, const char *raw)
{
    char *name = arena_strdup(arena, raw), *to = name;
    for (const char *p = raw; *p;) {
        size_t n = strcspn(p, "."), step = n + (p[n] == '.');
        if (p[n] != '.' || !is_transparent(p, n)) {
            memmove(to, p, step);
            to += step;
        }
        p += step;
    }
    *to = '\0';
    return name;
}

/* Is every part of a prefix ("a.b.") one that wrappers of a text model have? */
static bool is_known_prefix(const char *prefix, size_t n)
{
    static const char *const known[] = {"model", "language_model", "base_model", "module", "text_model"};
    for (size_t at = 0; at < n;) {
        size_t part = strcspn(prefix + at, "."), i = 0;
        while (i < sizeof known / sizeof known[0] &&
               (strlen(known[i]) != part || memcmp(known[i], prefix + at, part) != 0))
            i++;
        if (i == sizeof known / sizeof known[0])
            return false;
        at += part + 1;
    }
    return true;
}

/* Length of what stands before `rest`, when the name ends with it as whole parts; else -1. */
static int before(const char *name, const char *rest)
{
    size_t n = strlen(name), n_rest = strlen(rest);
    if (n < n_rest || strcmp(name + n - n_rest, rest) != 0 || (n > n_rest && name[n - n_rest - 1] != '.'))
        return -1;
    return (int)(n - n_rest);
}

/* Length of what stands before the first layer's mark, or -1. */
static int before_layer(const char *name)
{
    for (const char *at = name; (at = strstr(at, FIRST_LAYER)); at++) {
        if (at == name || at[-1] == '.')
            return (int)(at - name);
    }
    return -1;
}

static void add_name(struct checkpoint_names *n, const char *raw, const struct st_tensor *t, const char *why,
                     const char *lost_file)
{
    struct entry *x = ARENA_NEW(n->arena, struct entry);
    *x = (struct entry){
        .stripped = strip(n->arena, raw), .raw = raw, .tensor = t, .why = why, .lost_file = lost_file};
    if (table_put(n->by_name, x->stripped, x)) {
        n->list[n->n++] = x;
        return;
    }
    struct entry *other = table_get(n->by_name, x->stripped);
    if (strcmp(other->raw, raw) == 0)
        return;
    other->why = arena_printf(n->arena, "found as %s and as %s", other->raw, raw);
    other->tensor = NULL;
}

/* ---- the text model ---- */

/* Prefixes that were found, without repetition. */
struct candidates {
    struct arena *arena;
    struct table *seen;
    const char **list;
    int n, n_known;
    const char *known, *other_known; /* the first two that wrappers have */
};

static void add_candidate(struct candidates *c, const char *name, int n)
{
    const char *prefix = arena_strndup(c->arena, name, (size_t)n);
    if (!table_put(c->seen, prefix, c))
        return;
    c->list[c->n++] = prefix;
    if (!is_known_prefix(prefix, (size_t)n))
        return;
    if (c->n_known == 0)
        c->known = prefix;
    else if (c->n_known == 1)
        c->other_known = prefix;
    c->n_known++;
}

/* A text model has a table of embeddings and layers under one prefix; with the table lost, layers alone. */
static void find_candidates(const struct checkpoint_names *n, struct candidates *c)
{
    struct table *layered = table_new();
    for (int i = 0; i < n->n; i++) {
        int k = before_layer(n->list[i]->stripped);
        if (k >= 0)
            table_put(layered, arena_strndup(n->arena, n->list[i]->stripped, (size_t)k), layered);
    }
    for (int i = 0; i < n->n; i++) {
        int k = before(n->list[i]->stripped, EMBEDDINGS);
        if (k >= 0 && table_get(layered, arena_strndup(n->arena, n->list[i]->stripped, (size_t)k)))
            add_candidate(c, n->list[i]->stripped, k);
    }
    for (int i = 0; i < n->n && c->n == 0; i++) {
        int k = before(n->list[i]->stripped, EMBEDDINGS);
        if (k < 0)
            k = before_layer(n->list[i]->stripped);
        if (k >= 0 && is_known_prefix(n->list[i]->stripped, (size_t)k))
            add_candidate(c, n->list[i]->stripped, k);
    }
    table_free(layered);
}

static void find_prefix(struct checkpoint_names *n)
{
    struct candidates c = {.arena = n->arena, .seen = table_new()};
    c.list = ARENA_ARRAY(n->arena, const char *, n->n + 1);
    find_candidates(n, &c);
    n->prefix = PLAIN_PREFIX;
    if (c.n_known == 1)
        n->prefix = c.known;
    else if (c.n == 1)
        n->prefix = c.list[0];
    else if (c.n > 1)
        n->text_problem =
            arena_printf(n->arena, "there are two text models, %s" EMBEDDINGS " and %s" EMBEDDINGS,
                         c.n_known ? c.known : c.list[0], c.n_known ? c.other_known : c.list[1]);
    else
        n->has_no_text = true;
    table_free(c.seen);
}

/* The head stands beside the text model, or beside one of its wrappers. */
static void find_head(struct checkpoint_names *n)
{
    const char *other = NULL;
    n->head = NULL;
    for (int i = 0; i < n->n; i++) {
        const char *name = n->list[i]->stripped;
        int k = before(name, HEAD);
        if (k < 0 || !(is_known_prefix(name, (size_t)k) || strncmp(name, n->prefix, (size_t)k) == 0))
            continue;
        if (n->head)
            other = name;
        else
            n->head = name;
    }
    if (other)
        n->head_problem = arena_printf(n->arena, "there are two, %s and %s", n->head, other);
    if (!n->head)
        n->head = HEAD;
}

struct checkpoint_names *checkpoint_names_new(const struct safetensors *s)
{
    struct checkpoint_names *n = xcalloc(1, sizeof *n);
    n->tensors = s;
    n->arena = arena_new(0);
    n->by_name = table_new();
    n->list = xcalloc((size_t)s->n_tensors + (size_t)s->n_absent + 1, sizeof(struct entry *));
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        add_name(n, t->name, safetensors_find(s, t->name), safetensors_why_absent(s, t->name), NULL);
    }
    for (int i = 0; i < s->n_absent; i++) {
        const struct st_absent *a = &s->absent[i];
        add_name(n, a->name, NULL, safetensors_why_absent(s, a->name), a->has_file ? NULL : a->file);
    }
    find_prefix(n);
    find_head(n);
    return n;
}

void checkpoint_names_free(struct checkpoint_names *n)
{
    if (!n)
        return;
    table_free(n->by_name);
    arena_free(n->arena);
    free(n->list);
    free(n);
}

/* ---- lookups ---- */

/* The stripped name of the files, in the buffer where it is made. */
static const char *name_in_files(const struct checkpoint_names *n, const char *name, struct buf *b)
{
    if (strcmp(name, HEAD) == 0)
        return n->head;
    if (strncmp(name, PLAIN_PREFIX, strlen(PLAIN_PREFIX)) != 0)
        return name;
    buf_printf(b, "%s%s", n->prefix, name + strlen(PLAIN_PREFIX));
    return b->failed ? name : b->p;
}

static const struct entry *find_entry(const struct checkpoint_names *n, const char *name)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    const struct entry *x = table_get(n->by_name, name_in_files(n, name, &b));
    buf_fini(&b);
    return x;
}

static const char *problem_of(const struct checkpoint_names *n, const char *name)
{
    return strcmp(name, HEAD) == 0 ? n->head_problem : n->text_problem;
}

const struct st_tensor *checkpoint_find(const struct checkpoint_names *n, const char *name)
{
    const struct entry *x = problem_of(n, name) ? NULL : find_entry(n, name);
    return x ? x->tensor : NULL;
}

bool checkpoint_has(const struct checkpoint_names *n, const char *name)
{
    const struct entry *x = find_entry(n, name);
    return problem_of(n, name) || (x && (x->tensor || x->lost_file || !x->why));
}

/* Does a stripped name belong to the text model or its head? With no text model known, every name may. */
static bool is_of_text(const struct checkpoint_names *n, const char *stripped)
{
    static const char *const starts[] = {"layers.", "embed_tokens", "norm.", "per_layer_"};
    size_t n_prefix = strlen(n->prefix);
    if (n->has_no_text || n->text_problem || strcmp(stripped, n->head) == 0)
        return true;
    if (strncmp(stripped, n->prefix, n_prefix) != 0)
        return false;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(stripped + n_prefix, starts[i], strlen(starts[i])) == 0)
            return true;
    }
    return false;
}

const char *checkpoint_find_part(const struct checkpoint_names *n, const char *part, const char **file)
{
    for (int i = 0; i < n->n; i++) {
        const struct entry *x = n->list[i];
        if (!is_of_text(n, x->stripped) || !strstr(x->stripped, part))
            continue;
        *file = x->tensor ? x->tensor->file : n->tensors->path;
        return x->raw;
    }
    return NULL;
}

/* Of a partial download: all files that are lost and hold something of the text model. */
static void put_lost_files(const struct checkpoint_names *n, struct buf *b)
{
    struct table *seen = table_new();
    int n_files = 0;
    for (int i = 0; i < n->n; i++) {
        const struct entry *x = n->list[i];
        if (!x->lost_file || !is_of_text(n, x->stripped) || !table_put(seen, x->lost_file, seen))
            continue;
        if (n_files++ < FILES_SHOWN)
            buf_printf(b, "%s%s", n_files > 1 ? ", " : "", x->lost_file);
    }
    if (n_files > FILES_SHOWN)
        buf_printf(b, " and %d more", n_files - FILES_SHOWN);
    table_free(seen);
}

/* Starts of the names that are there, for a checkpoint of another kind. */
static void put_names(const struct checkpoint_names *n, struct buf *b)
{
    for (int i = 0; i < n->n && i < NAMES_SHOWN; i++)
        buf_printf(b, "%s%.80s", i ? ", " : "", n->list[i]->raw);
    if (n->n > NAMES_SHOWN)
        buf_puts(b, ", ...");
}

/* "model-00001-of-00004.safetensors" opened for itself. */
static bool is_one_of_several(const char *path)
{
    return has_suffix(path, ".safetensors") && strstr(path, "-of-");
}

/* Why the tensor is missing, as far as it can be told. */
static void put_reason(const struct checkpoint_names *n, const char *name, struct buf *b)
{
    const struct entry *x = find_entry(n, name);
    const char *problem = problem_of(n, name);
    if (problem) {
        buf_printf(b, ": %s", problem);
    } else if (x && x->lost_file) {
        buf_puts(b, ": the checkpoint is incomplete; the text model needs what can't be read: ");
        put_lost_files(n, b);
        buf_printf(b, " (%s)", x->why);
    } else if (x && x->why) {
        buf_printf(b, ": %s", x->why);
    } else if (n->tensors->has_unread_index) {
        buf_puts(b, "; there is an index beside the file, which is not read");
    } else if (is_one_of_several(n->tensors->path)) {
        buf_puts(b, "; the file is one of several, and there is no index beside it");
    }
}

bool checkpoint_missing(const struct checkpoint_names *n, const char *name, int rank, const int64_t *shape,
                        struct err *e)
{
    char expected[128] = "";
    struct buf full, reason;
    buf_init(&full, 1 << 16);
    buf_init(&reason, 1 << 16);
    if (n->has_no_text) {
        put_names(n, &reason);
        err_set(e, ERR_UNSUPPORTED,
                "%s: there is no text model: expected a tensor " EMBEDDINGS " under some name, found %.700s",
                n->tensors->path, reason.n ? reason.p : "none at all");
    } else {
        if (rank >= 0)
            st_shape_text(expected, shape, rank);
        put_reason(n, name, &reason);
        err_set(e, ERR_FORMAT, "%s: tensor %.200s is missing%s%s%s%.700s", n->tensors->path,
                name_in_files(n, name, &full), rank >= 0 ? " (expected shape " : "", expected,
                rank >= 0 ? ")" : "", reason.n ? reason.p : "");
    }
    buf_fini(&full);
    buf_fini(&reason);
    return false;
}

const struct st_tensor *checkpoint_require(const struct checkpoint_names *n, const char *name, int rank,
                                           const int64_t *shape, struct err *e)
{
    const struct st_tensor *t = checkpoint_find(n, name);
    char expected[128], found[128];
    if (!t) {
        (void)checkpoint_missing(n, name, rank, shape, e);
        return NULL;
    }
    if (t->rank != rank || memcmp(t->shape, shape, sizeof shape[0] * (size_t)rank) != 0) {
        st_shape_text(expected, shape, rank);
        st_shape_text(found, t->shape, t->rank);
        err_set(e, ERR_FORMAT, "%s: tensor %s: expected shape %s, found %s", t->file, t->name, expected,
                found);
        return NULL;
    }
    if (t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F32 && t->dtype != ST_F64 && !t->scale &&
        !t->packed) {
        err_set(e, ERR_UNSUPPORTED,
                "%s: tensor %s: expected BF16, F16, F32, F64 or F8_E4M3 with scales, found %s", t->file,
                t->name, t->dtype_name);
        return NULL;
    }
    return t;
}
