/* The state of a session as a file.
 *
 * 8 bytes "MKSNAP3\n", u64 header bytes (all numbers little endian); header: 16 bytes identity of the programs, 16 of the
 * weights, u64 tokens, u64 position (at most tokens), u64 logits at the position (0 or the vocabulary), u64 snapshots,
 * u64 precision (precision_number), u64 states; per state, in the order of their names, u64 bytes of the name, name,
 * u64 type (2: fp16, 4: float32, 0: nothing is kept), u64 elements. Behind the header:
 *   tokens (int32), logits (float32);
 *   per state its data: of full-length caches the rows of the tokens, of each plane; of others everything;
 *   per snapshot, the one used last first: u64 position, u64 logits (0 or the vocabulary), logits, data of the states that
 *   are no full-length caches.
 * At the end 16 bytes XXH3-128 of everything before: it finds damage, not intent, so every number is checked as well. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "runtime/session_int.h"

#define HEADER_BYTES_MAX ((size_t)1 << 20)

static const char magic[8] = "MKSNAP3\n";

enum {
    IDENTITY_BYTES = 32,
    OWN_BYTES = IDENTITY_BYTES + 4 * 8, /* identity and the numbers that are this file's own */
    HEADER_BYTES_MIN = OWN_BYTES + 2 * 8,
    CHECKSUM_BYTES = 16
};

static int by_state_name(const void *a, const void *b)
{
    const struct backend_state *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

/* Heap array of all states: the two forms of a package list them in different orders. */
static const struct backend_state **states_in_order(const struct session *s)
{
    int n = s->states->n;
    const struct backend_state **list = xcalloc((size_t)n + 1, sizeof *list);
    for (int i = 0; i < n; i++)
        list[i] = &s->states->list[i];
    qsort(list, (size_t)n, sizeof *list, by_state_name);
    return list;
}

/* Tokens whose rows in full-length caches are known: snapshots may lie ahead of the position. */
static int64_t known_tokens(const struct session *s)
{
    int64_t n = s->n;
    for (const struct snapshot *p = s->snapshots; p; p = p->next)
        n = p->n > n ? p->n : n;
    return n;
}

static size_t logits_bytes(const struct session *s, bool has_logits)
{
    return has_logits ? sizeof(float) * (size_t)s->model->vocab_size : 0;
}

/* --- header --- */

static void put_u64(struct buf *b, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        buf_putc(b, (char)(v >> (8 * i)));
}

/* The switches of the emulation, where there are some, tell precisions apart, too. */
static uint64_t precision_number(const struct model *m)
{
    uint64_t n = (uint64_t)m->precision;
    for (const char *at = m->emulation; at && *at; at++)
        n = n * 1099511628211u + (unsigned char)*at;
    return n;
}

static bool put_header(struct session *s, struct buf *b, struct err *e)
{
    if (!s->has_identity && !model_identify(s->model, &s->identity, e))
        return false;
    s->has_identity = true;
    const struct backend_state **states = states_in_order(s);
    uint64_t n_snapshots = 0;
    for (const struct snapshot *p = s->snapshots; p; p = p->next)
        n_snapshots++;
    buf_append(b, s->identity.programs, sizeof s->identity.programs);
    buf_append(b, s->identity.weights, sizeof s->identity.weights);
    put_u64(b, (uint64_t)known_tokens(s));
    put_u64(b, (uint64_t)s->n);
    put_u64(b, s->has_logits ? (uint64_t)s->model->vocab_size : 0);
    put_u64(b, n_snapshots);
    put_u64(b, precision_number(s->model));
    put_u64(b, (uint64_t)s->states->n);
    for (int i = 0; i < s->states->n; i++) {
        const struct backend_state *state = states[i];
        put_u64(b, strlen(state->name));
        buf_puts(b, state->name);
        put_u64(b, (uint64_t)state->elem_bytes);
        put_u64(b, (uint64_t)state->n_elems);
    }
    free(states);
    return !b->failed || err_set(e, ERR_LIMIT, "a package with too many states for a file");
}

/* --- saving --- */

struct writer {
    struct out_file *file;
    XXH3_state_t *hash;
    bool ok;
    struct err *e;
};

static void put(struct writer *w, const void *data, size_t n)
{
    if (n == 0 || !w->ok)
        return;
    XXH3_128bits_update(w->hash, data, n);
    w->ok = out_file_write(w->file, data, n, w->e);
}

/* n bytes of a state from `first` on. */
static void put_bytes(struct writer *w, const struct session *s, const struct backend_state *state,
                      size_t first, size_t n)
{
    char part[16384];
    for (size_t at = 0, take; at < n && w->ok; at += take) {
        take = n - at < sizeof part ? n - at : sizeof part;
        s->model->backend->state_read(s->states, (int)(state - s->states->list), first + at, take, part);
        put(w, part, take);
    }
}

static void put_state(struct writer *w, const struct session *s, const struct backend_state *state,
                      size_t n_tokens)
{
    size_t kept = state_kept_bytes(s, state, n_tokens), n_planes = state_planes(s, state),
           plane = backend_state_bytes(state) / n_planes;
    for (size_t i = 0; i < n_planes; i++)
        put_bytes(w, s, state, i * plane, kept / n_planes);
}

static void put_snapshot(struct writer *w, const struct session *s, const struct snapshot *p)
{
    const struct backend_state **states = states_in_order(s);
    struct buf numbers;
    buf_init(&numbers, 64);
    put_u64(&numbers, (uint64_t)p->n);
    put_u64(&numbers, p->has_logits ? (uint64_t)s->model->vocab_size : 0);
    put(w, numbers.p, numbers.n);
    put(w, p->logits, logits_bytes(s, p->has_logits));
    for (int i = 0; i < p->n_states; i++)
        if (p->states[states[i] - s->states->list])
            put(w, p->states[states[i] - s->states->list], backend_state_bytes(states[i]));
    buf_fini(&numbers);
    free(states);
}

bool session_save(struct session *s, const char *path, struct err *e)
{
    struct writer w = {.e = e};
    struct buf header, begin;
    XXH128_canonical_t checksum;
    size_t n_tokens = (size_t)known_tokens(s);
    const struct backend_state **states = states_in_order(s);
    buf_init(&header, HEADER_BYTES_MAX);
    buf_init(&begin, 64);
    if (!put_header(s, &header, e) || !out_file_open(&w.file, path, true, e))
        goto done;
    w.hash = XXH3_createState();
    w.ok = w.hash || err_set(e, ERR_NOMEM, "%s: no memory to save the state", path);
    if (w.ok)
        XXH3_128bits_reset(w.hash);
    buf_append(&begin, magic, sizeof magic);
    put_u64(&begin, header.n);
    put(&w, begin.p, begin.n);
    put(&w, header.p, header.n);
    put(&w, s->tokens, sizeof *s->tokens * n_tokens);
    put(&w, s->logits, logits_bytes(s, s->has_logits));
    for (int i = 0; i < s->states->n; i++)
        put_state(&w, s, states[i], n_tokens);
    for (const struct snapshot *p = s->snapshots; p; p = p->next)
        put_snapshot(&w, s, p);
    if (w.ok) {
        XXH128_canonicalFromHash(&checksum, XXH3_128bits_digest(w.hash));
        put(&w, checksum.digest, sizeof checksum.digest);
    }
    if (w.ok)
        w.ok = out_file_commit(w.file, e);
    else
        out_file_abort(w.file);
done:
    free(states);
    XXH3_freeState(w.hash);
    buf_fini(&header);
    buf_fini(&begin);
    return w.ok;
}

/* --- loading --- */

/* What a file says, checked; pointers into its mapping. */
struct contents {
    const char *path;
    size_t n_tokens, n, n_logits, n_snapshots;
    const uint8_t *tokens, *logits, *states;
    const uint8_t **snapshots; /* heap array [n_snapshots] */
};

/* Bytes of the data of all states that are no full-length caches. */
static size_t snapshot_state_bytes(const struct session *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->states->n; i++) {
        const struct backend_state *state = &s->states->list[i];
        bytes += state_is_full_length(s, state) ? 0 : backend_state_bytes(state);
    }
    return bytes;
}

/* The header that this session would write must be the file's, but for the file's own numbers. */
static bool check_header(struct session *s, const struct map_file *map, struct contents *c, struct err *e)
{
    const uint8_t *at = map->data + sizeof magic, *numbers = at + 8 + IDENTITY_BYTES;
    uint64_t header_bytes = load_le(at, 8);
    struct buf header;
    buf_init(&header, HEADER_BYTES_MAX);
    if (!put_header(s, &header, e)) {
        buf_fini(&header);
        return false;
    }
    const uint8_t *own = (const uint8_t *)header.p;
    const char *other = NULL;
    if (memcmp(at + 8, own, IDENTITY_BYTES / 2) != 0)
        other = "to another package";
    else if (memcmp(at + 8 + IDENTITY_BYTES / 2, own + IDENTITY_BYTES / 2, IDENTITY_BYTES / 2) != 0)
        other = "to another package: its weights are not these";
    else if (load_le(numbers + 32, 8) != precision_number(s->model))
        other = "to another precision";
    else if (header_bytes != header.n || map->bytes < sizeof magic + 8 + header.n + CHECKSUM_BYTES ||
             memcmp(at + 8 + OWN_BYTES, own + OWN_BYTES, header.n - OWN_BYTES) != 0)
        other = "to another package: its states are not these";
    if (!other) {
        c->n_tokens = load_le(numbers, 8);
        c->n = load_le(numbers + 8, 8);
        c->n_logits = load_le(numbers + 16, 8);
        c->n_snapshots = load_le(numbers + 24, 8);
        c->tokens = at + 8 + header.n;
    }
    buf_fini(&header);
    return !other || err_set(e, ERR_FORMAT, "%s: the state belongs %s", c->path, other);
}

static bool check_numbers(const struct session *s, const struct map_file *map, const struct contents *c,
                          struct err *e)
{
    const struct model *m = s->model;
    size_t vocab = (size_t)m->vocab_size;
    if (c->n_tokens > (size_t)m->context_length || c->n > c->n_tokens ||
        (c->n_logits != 0 && (c->n_logits != vocab || c->n == 0)) ||
        (!m->is_sequential && (c->n_snapshots != 0 || c->n != c->n_tokens)))
        return err_set(
            e, ERR_FORMAT,
            "%s: %zu tokens, position %zu, %zu logits and %zu snapshots are not a state of this package",
            c->path, c->n_tokens, c->n, c->n_logits, c->n_snapshots);
    if (4 * c->n_tokens > (size_t)(map->data + map->bytes - CHECKSUM_BYTES - c->tokens))
        return err_set(e, ERR_FORMAT, "%s: expected %zu tokens, found %zu bytes", c->path, c->n_tokens,
                       map->bytes);
    for (size_t i = 0; i < c->n_tokens; i++)
        if (load_le(c->tokens + 4 * i, 4) >= vocab)
            return err_set(e, ERR_FORMAT, "%s: token %zu is not in a vocabulary of %zu", c->path, i, vocab);
    return true;
}

/* Where everything lies; together it must be the file. Snapshots with logits are longer than others. */
static bool find_contents(const struct session *s, const struct map_file *map, struct contents *c,
                          struct err *e)
{
    const uint8_t *end = map->data + map->bytes - CHECKSUM_BYTES;
    size_t vocab = (size_t)s->model->vocab_size, one = 16 + snapshot_state_bytes(s);
    size_t n = 4 * c->n_logits, i = 0;
    for (int k = 0; k < s->states->n; k++)
        n += state_kept_bytes(s, &s->states->list[k], c->n_tokens);
    c->logits = c->tokens + 4 * c->n_tokens;
    c->states = c->logits + 4 * c->n_logits;
    if (n > (size_t)(end - c->logits))
        return err_set(e, ERR_FORMAT, "%s: expected %zu bytes of states, found %zu", c->path, n,
                       (size_t)(end - c->logits));
    const uint8_t *at = c->logits + n;
    if (c->n_snapshots > (size_t)(end - at) / one)
        return err_set(e, ERR_FORMAT, "%s: expected %zu snapshots, found %zu bytes", c->path, c->n_snapshots,
                       (size_t)(end - at));
    c->snapshots = xcalloc(c->n_snapshots + 1, sizeof *c->snapshots);
    for (; i < c->n_snapshots && one <= (size_t)(end - at); i++) {
        uint64_t n_tokens = load_le(at, 8), n_logits = load_le(at + 8, 8);
        if (n_tokens > c->n_tokens || (n_logits != 0 && (n_logits != vocab || n_tokens == 0)) ||
            one + 4 * n_logits > (size_t)(end - at))
            break;
        c->snapshots[i] = at;
        at += one + 4 * n_logits;
    }
    if (i < c->n_snapshots)
        return err_set(e, ERR_FORMAT, "%s: snapshot %zu of %zu is not possible", c->path, i, c->n_snapshots);
    return at == end || err_set(e, ERR_FORMAT, "%s: %zu bytes too many", c->path, (size_t)(end - at));
}

static void put_back(struct session *s, const struct backend_state *state, size_t first, size_t n,
                     const uint8_t *data)
{
    s->model->backend->state_write(s->states, (int)(state - s->states->list), first, n, data);
}

static void take_snapshot(struct session *s, const uint8_t *at)
{
    const struct backend_state **states = states_in_order(s);
    size_t n_logits = (size_t)load_le(at + 8, 8);
    s->n = (int64_t)load_le(at, 8);
    s->has_logits = n_logits != 0;
    at += 16;
    memcpy(s->logits, at, sizeof *s->logits * n_logits);
    at += sizeof *s->logits * n_logits;
    for (int i = 0; i < s->states->n; i++) {
        size_t bytes = state_is_full_length(s, states[i]) ? 0 : backend_state_bytes(states[i]);
        put_back(s, states[i], 0, bytes, at);
        at += bytes;
    }
    free(states);
    snapshot_take(s);
}

static void take_states(struct session *s, const struct contents *c)
{
    const struct backend_state **states = states_in_order(s);
    const uint8_t *at = c->states;
    for (int i = 0; i < s->states->n; i++) {
        size_t kept = state_kept_bytes(s, states[i], c->n_tokens);
        size_t n_planes = state_planes(s, states[i]), plane = backend_state_bytes(states[i]) / n_planes;
        for (size_t k = 0; k < n_planes && kept > 0; k++)
            put_back(s, states[i], k * plane, kept / n_planes, at + k * (kept / n_planes));
        at += kept;
    }
    free(states);
}

bool session_load(struct session *s, const char *path, struct err *e)
{
    struct map_file *map = NULL;
    struct contents c = {.path = path};
    XXH128_canonical_t checksum;
    bool ok = false;
    if (!map_open(&map, path, e))
        goto done;
    if (map->bytes < sizeof magic + 8 + HEADER_BYTES_MIN + CHECKSUM_BYTES ||
        memcmp(map->data, magic, sizeof magic) != 0) {
        err_set(e, ERR_FORMAT, "%s: expected the state of a milkit session, found something else", path);
        goto done;
    }
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(map->data, map->bytes - CHECKSUM_BYTES));
    if (memcmp(checksum.digest, map->data + map->bytes - CHECKSUM_BYTES, CHECKSUM_BYTES) != 0) {
        err_set(e, ERR_FORMAT, "%s: the state is damaged (its checksum does not fit)", path);
        goto done;
    }
    if (!check_header(s, map, &c, e) || !check_numbers(s, map, &c, e) || !find_contents(s, map, &c, e))
        goto done;
    if (s->n > 0 || s->snapshots) /* a new one is left untouched: memory that nobody wrote costs nothing */
        session_reset(s);
    memcpy(s->tokens, c.tokens, 4 * c.n_tokens);
    for (size_t i = c.n_snapshots; i-- > 0;) /* the one used last comes last, and so stays longest */
        take_snapshot(s, c.snapshots[i]);
    take_states(s, &c);
    memcpy(s->logits, c.logits, 4 * c.n_logits);
    s->n = (int64_t)c.n;
    s->has_logits = c.n_logits != 0;
    if (s->model->is_sequential)
        snapshot_take(s);
    ok = true;
done:
    free(c.snapshots);
    map_close(map);
    return ok;
}
