/* Snapshots of sessions that can't be rewound, in memory and as files.
 *
 * File: 8 bytes "MKSNAP2\n", then little endian u64 header bytes; header: 32 bytes identity of the package, u64 tokens,
 * u64 logits (0 or the vocabulary), u64 precision (enum engine_precision), u64 states; per state, in the order of their
 * names, u64 bytes of the name, name, u64 type (2: fp16, 4: float32, 0: nothing is kept), u64 elements. Then tokens
 * (int32), logits (float32), state data, each as it lies in memory; at the end 32 bytes SHA-256 of everything before. */
#include <stdlib.h>
#include <string.h>
#include "format/mlmodelc.h"
#include "runtime/session_int.h"

static const char magic[8] = "MKSNAP2\n";

static size_t state_bytes(const struct engine_state_entry *s)
{
    return s->f16_data   ? (size_t)s->n_elems * sizeof(f16)
           : s->f32_data ? (size_t)s->n_elems * sizeof(float)
                         : 0;
}

static void *state_memory(const struct engine_state_entry *s)
{
    return s->f16_data ? (void *)s->f16_data : (void *)s->f32_data;
}

/* A cache whose rows before a position stay what they are when later positions are written. A recurrent state can look
 * like one by its shape, and ENGINE_FP16 does not know which are recurrent. */
static bool is_full_length(const struct session *s, const struct engine_state_entry *entry)
{
    const struct model *m = s->model;
    bool is_cache =
        !entry->is_recurrent && !(m->precision == ENGINE_FP16 && m->package->meta->recurrent_state);
    return is_cache && state_memory(entry) && entry->rank == 4 && entry->dims[2] == m->mask_length;
}

static void snapshot_free(struct session *s, struct snapshot *p)
{
    s->snapshot_bytes -= p->bytes;
    for (int i = 0; i < p->n_states; i++)
        mem_free(p->states[i]);
    free(p->states);
    free(p->logits);
    free(p);
}

void snapshot_drop_after(struct session *s, int64_t n)
{
    for (struct snapshot **at = &s->snapshots; *at;) {
        struct snapshot *p = *at;
        if (p->n > n) {
            *at = p->next;
            snapshot_free(s, p);
        } else {
            at = &p->next;
        }
    }
}

void snapshot_drop_all(struct session *s)
{
    snapshot_drop_after(s, -1);
}

/* Unlinks the last of the list. */
static void drop_last(struct session *s)
{
    struct snapshot **at = &s->snapshots;
    while ((*at)->next)
        at = &(*at)->next;
    struct snapshot *p = *at;
    *at = NULL;
    snapshot_free(s, p);
}

void snapshot_make_room(struct session *s, uint64_t bytes)
{
    while (s->snapshots &&
           (s->snapshot_bytes > s->snapshot_bytes_max || bytes > s->snapshot_bytes_max - s->snapshot_bytes))
        drop_last(s);
}

static void to_front(struct session *s, struct snapshot *p)
{
    struct snapshot **at = &s->snapshots;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->next = s->snapshots;
    s->snapshots = p;
}

/* Copies of the states that a snapshot must hold. */
static bool copy_states(const struct session *s, struct snapshot *p)
{
    for (int i = 0; i < p->n_states; i++) {
        const struct engine_state_entry *entry = engine_state_get(s->state, i);
        if (is_full_length(s, entry) || state_bytes(entry) == 0)
            continue;
        if (!(p->states[i] = mem_try_alloc(state_bytes(entry), NULL)))
            return false;
        memcpy(p->states[i], state_memory(entry), state_bytes(entry));
    }
    return true;
}

void snapshot_take(struct session *s)
{
    uint64_t bytes = s->has_logits ? sizeof(float) * (uint64_t)s->model->vocab_size : 0;
    int n_states = engine_state_count(s->state);
    for (struct snapshot *p = s->snapshots, *next; p; p = next) {
        next = p->next;
        if (p->n != s->n)
            continue;
        to_front(s, p);
        if (p->has_logits || !s->has_logits)
            return;
        s->snapshots = p->next; /* the new one can do more */
        snapshot_free(s, p);
    }
    for (int i = 0; i < n_states; i++)
        if (!is_full_length(s, engine_state_get(s->state, i)))
            bytes += state_bytes(engine_state_get(s->state, i));
    if (bytes > s->snapshot_bytes_max)
        return;
    snapshot_make_room(s, bytes);
    struct snapshot *p = xcalloc(1, sizeof *p);
    p->n = s->n;
    p->bytes = bytes;
    p->n_states = n_states;
    p->states = xcalloc((size_t)n_states + 1, sizeof *p->states);
    s->snapshot_bytes += bytes;
    if (!copy_states(s, p)) { /* no memory for it: the session works without */
        snapshot_free(s, p);
        return;
    }
    if (s->has_logits) {
        p->has_logits = true;
        p->logits = xmalloc(sizeof(float) * (size_t)s->model->vocab_size);
        memcpy(p->logits, s->logits, sizeof(float) * (size_t)s->model->vocab_size);
    }
    p->next = s->snapshots;
    s->snapshots = p;
}

bool snapshot_restore(struct session *s, int64_t above, int64_t n, bool with_logits)
{
    struct snapshot *best = NULL;
    for (struct snapshot *p = s->snapshots; p; p = p->next)
        if ((p->n > above || above == 0) && p->n <= n && (p->n < n || p->has_logits || !with_logits) &&
            (!best || p->n > best->n))
            best = p;
    if (!best)
        return false;
    to_front(s, best);
    for (int i = 0; i < best->n_states; i++) {
        struct engine_state_entry *entry = engine_state_get(s->state, i);
        if (best->states[i])
            memcpy(state_memory(entry), best->states[i], state_bytes(entry));
    }
    s->n = best->n;
    s->has_logits = best->has_logits;
    if (best->has_logits)
        memcpy(s->logits, best->logits, sizeof(float) * (size_t)s->model->vocab_size);
    return true;
}

/* ---- files ---- */

/* A sample of a weight: another checkpoint of the same shapes must not pass. */
static void put_sample(struct buf *b, const struct mil_value *v)
{
    if (v && v->kind == MIL_VALUE_BLOB && v->data && v->bytes >= 64)
        buf_append(b, (const uint8_t *)v->data + v->bytes / 2 / 64 * 64, v->bytes < 128 ? 1 : 64);
}

/* The two forms of a package list inputs and states in different orders, so files go by their names. */
static int by_input_name(const void *a, const void *b)
{
    const struct mil_var *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

static int by_state_name(const void *a, const void *b)
{
    const struct engine_state_entry *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

/* Heap array of all states. */
static const struct engine_state_entry **states_in_order(const struct session *s)
{
    int n = engine_state_count(s->state);
    const struct engine_state_entry **list = xcalloc((size_t)n + 1, sizeof *list);
    for (int i = 0; i < n; i++)
        list[i] = engine_state_get(s->state, i);
    qsort(list, (size_t)n, sizeof *list, by_state_name);
    return list;
}

static void put_function(struct buf *b, const struct mil_function *f)
{
    char type[256];
    const struct mil_var **inputs = xcalloc((size_t)f->n_inputs + 1, sizeof *inputs);
    for (int i = 0; i < f->n_inputs; i++)
        inputs[i] = f->inputs[i];
    qsort(inputs, (size_t)f->n_inputs, sizeof *inputs, by_input_name);
    buf_printf(b, "%s(", f->name);
    for (int i = 0; i < f->n_inputs; i++) {
        mil_type_text(type, sizeof type, inputs[i]->type);
        buf_printf(b, "%s %s,", type, inputs[i]->name);
    }
    free(inputs);
    buf_putc(b, ')');
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        buf_printf(b, "%s,", op->type);
        put_sample(b, mil_attribute(op, "val"));
        for (int k = 0; k < op->n_args; k++)
            for (int j = 0; j < op->args[k].n; j++)
                put_sample(b, op->args[k].bindings[j].value);
    }
}

/* What makes two packages the same for a snapshot: the ops and inputs of every part's functions and a sample of each
 * weight. */
static void identity(const struct session *s, uint8_t digest[32])
{
    const struct model *m = s->model;
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    for (int i = -1; i <= m->n_chunks; i++) {
        const struct model_part *part = i < 0 ? &m->embeddings : i == m->n_chunks ? &m->head : &m->chunks[i];
        for (int k = 0; k < part->mil->program->n_functions; k++)
            put_function(&b, part->mil->program->functions[k]);
        buf_putc(&b, '|');
    }
    buf_printf(&b, "%lld|%lld", (long long)m->context_length, (long long)m->vocab_size);
    sha256(digest, b.p, b.n);
    buf_fini(&b);
}

static void put_u64(struct buf *b, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        buf_putc(b, (char)(v >> (8 * i)));
}

static void put_header(const struct session *s, struct buf *b)
{
    uint8_t id[32];
    const struct engine_state_entry **states = states_in_order(s);
    identity(s, id);
    buf_append(b, id, sizeof id);
    put_u64(b, (uint64_t)s->n);
    put_u64(b, s->has_logits ? (uint64_t)s->model->vocab_size : 0);
    put_u64(b, (uint64_t)s->model->precision);
    put_u64(b, (uint64_t)engine_state_count(s->state));
    for (int i = 0; i < engine_state_count(s->state); i++) {
        const struct engine_state_entry *entry = states[i];
        put_u64(b, strlen(entry->name));
        buf_puts(b, entry->name);
        put_u64(b, entry->f16_data ? 2 : entry->f32_data ? 4 : 0);
        put_u64(b, (uint64_t)entry->n_elems);
    }
    free(states);
}

bool session_save(const struct session *s, const char *path, struct err *e)
{
    struct buf b;
    uint8_t digest[32];
    struct buf header;
    buf_init(&header, 1 << 20);
    buf_init(&b, (size_t)16 << 30);
    put_header(s, &header);
    buf_append(&b, magic, sizeof magic);
    put_u64(&b, header.n);
    buf_append(&b, header.p, header.n);
    buf_append(&b, s->tokens, sizeof *s->tokens * (size_t)s->n);
    if (s->has_logits)
        buf_append(&b, s->logits, sizeof *s->logits * (size_t)s->model->vocab_size);
    const struct engine_state_entry **states = states_in_order(s);
    for (int i = 0; i < engine_state_count(s->state); i++)
        buf_append(&b, state_memory(states[i]), state_bytes(states[i]));
    free(states);
    sha256(digest, b.p, b.n);
    buf_append(&b, digest, sizeof digest);
    bool ok = !b.failed && !header.failed;
    if (!ok)
        err_set(e, ERR_LIMIT, "%s: the state is too large to be saved", path);
    ok = ok && file_write(path, b.p, b.n, e);
    buf_fini(&header);
    buf_fini(&b);
    return ok;
}

enum { IDENTITY_BYTES = 32, HEADER_BYTES_MIN = IDENTITY_BYTES + 4 * 8 /* up to the number of states */ };

bool session_load(struct session *s, const char *path, struct err *e)
{
    struct map_file *map = NULL;
    struct buf header;
    uint8_t digest[32];
    bool ok = false;
    buf_init(&header, 1 << 20);
    if (!map_open(&map, path, e))
        goto done;
    const size_t fixed = sizeof magic + 8 + HEADER_BYTES_MIN + sizeof digest;
    if (map->bytes < fixed || memcmp(map->data, magic, sizeof magic) != 0) {
        err_set(e, ERR_FORMAT, "%s: expected a milkit snapshot, found something else", path);
        goto done;
    }
    sha256(digest, map->data, map->bytes - 32);
    if (memcmp(digest, map->data + map->bytes - 32, 32) != 0) {
        err_set(e, ERR_FORMAT, "%s: the snapshot is damaged (its checksum does not fit)", path);
        goto done;
    }
    /* The header that this session would write, with the file's numbers of tokens and logits, must be the file's. */
    const uint8_t *at = map->data + sizeof magic, *numbers = at + 8 + IDENTITY_BYTES;
    uint64_t header_bytes = load_le(at, 8), n_tokens = load_le(numbers, 8),
             n_logits = load_le(numbers + 8, 8), precision = load_le(numbers + 16, 8);
    put_header(s, &header);
    bool same = memcmp(at + 8, header.p, IDENTITY_BYTES) == 0;
    if (same && precision != (uint64_t)s->model->precision) {
        err_set(e, ERR_FORMAT, "%s: the snapshot was made in another precision", path);
        goto done;
    }
    const size_t own = IDENTITY_BYTES + 16; /* what follows tokens and logits */
    same = same && header_bytes == header.n && map->bytes - fixed + HEADER_BYTES_MIN >= header_bytes &&
           memcmp(at + 8 + own, header.p + own, header.n - own) == 0;
    if (!same || n_tokens > (uint64_t)s->model->context_length ||
        (n_logits != 0 && n_logits != (uint64_t)s->model->vocab_size)) {
        err_set(e, ERR_FORMAT, "%s: the snapshot belongs to another package", path);
        goto done;
    }
    size_t bytes = sizeof magic + 8 + header.n + 4 * (size_t)n_tokens + 4 * (size_t)n_logits + 32;
    for (int i = 0; i < engine_state_count(s->state); i++)
        bytes += state_bytes(engine_state_get(s->state, i));
    if (bytes != map->bytes) {
        err_set(e, ERR_FORMAT, "%s: expected %zu bytes, found %zu", path, bytes, map->bytes);
        goto done;
    }
    snapshot_drop_all(s);
    at += 8 + header.n;
    memcpy(s->tokens, at, 4 * (size_t)n_tokens);
    at += 4 * n_tokens;
    memcpy(s->logits, at, 4 * (size_t)n_logits);
    at += 4 * n_logits;
    const struct engine_state_entry **states = states_in_order(s);
    for (int i = 0; i < engine_state_count(s->state); i++) {
        if (state_bytes(states[i]) > 0)
            memcpy(state_memory(states[i]), at, state_bytes(states[i]));
        at += state_bytes(states[i]);
    }
    free(states);
    s->n = (int64_t)n_tokens;
    s->has_logits = n_logits != 0;
    if (s->model->is_sequential)
        snapshot_take(s);
    ok = true;
done:
    buf_fini(&header);
    map_close(map);
    return ok;
}
