/* The automaton: configurations (sets of places with what is open around them, and a begun character), and the bytes between them. */
#include "server/grammar.h"
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/grammar_internal.h"

/* Beyond these a state is given up: nothing is accepted any more. */
#define THREADS_MAX 100000
#define FRAMES_MAX 1000000
/* Configurations that are kept; beyond, all but the present one are forgotten. */
#define CONFIGS_MAX 4096
#define UNKNOWN (-1)
#define DEAD (-2)

/* What is open around a place: where it goes on, and for a repetition how often it has been through. Frames that are equal are the same. */
struct frame {
    int parent;    /* -1: nothing */
    int node;      /* goes on behind this one */
    int64_t count; /* of a NODE_REPEAT */
};

/* A place: a node of characters, -1: the end of the text. */
struct place {
    int node, frame;
};

struct config {
    int first, n; /* places in s->places */
    int n_pending;
    unsigned char pending[4];
    int *next; /* [256] or NULL */
};

struct index {
    int *slots; /* [size], -1: free */
    size_t size, n;
};

struct grammar_state {
    struct grammar *g;
    struct frame *frames;
    int n_frames;
    size_t frames_capacity;
    struct index frame_index;
    struct place *places;
    size_t n_places, places_capacity;
    struct config *configs;
    int n_configs;
    size_t configs_capacity;
    struct index config_index;
    int now; /* a configuration, DEAD: given up */
    /* while a set is made */
    struct place *set;
    size_t n_set, set_capacity;
    struct place *seen;
    size_t n_seen, seen_capacity;
    struct index seen_index;
    struct place *work;
    size_t n_work, work_capacity;
};

/* ---- indexes ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static void index_clear(struct index *x, size_t size)
{
    if (x->size != size) {
        x->slots = xrealloc(x->slots, size * sizeof *x->slots);
        x->size = size;
    }
    for (size_t i = 0; i < size; i++)
        x->slots[i] = -1;
    x->n = 0;
}

static uint64_t hash_frame(const struct frame *f)
{
    return mix(mix(mix(1, (uint64_t)f->parent), (uint64_t)f->node), (uint64_t)f->count);
}

static int find_frame(struct grammar_state *s, int parent, int node, int64_t count)
{
    struct frame f = {parent, node, count};
    if (s->n_frames >= FRAMES_MAX)
        return -2;
    if (2 * (s->frame_index.n + 1) > s->frame_index.size) {
        size_t size = s->frame_index.size ? 2 * s->frame_index.size : 256;
        index_clear(&s->frame_index, size);
        for (int i = 0; i < s->n_frames; i++) {
            size_t at = (size_t)hash_frame(&s->frames[i]) & (size - 1);
            while (s->frame_index.slots[at] >= 0)
                at = (at + 1) & (size - 1);
            s->frame_index.slots[at] = i;
            s->frame_index.n++;
        }
    }
    size_t at = (size_t)hash_frame(&f) & (s->frame_index.size - 1);
    for (int i; (i = s->frame_index.slots[at]) >= 0; at = (at + 1) & (s->frame_index.size - 1))
        if (s->frames[i].parent == parent && s->frames[i].node == node && s->frames[i].count == count)
            return i;
    s->frames = mem_grow(s->frames, (size_t)s->n_frames, &s->frames_capacity, sizeof *s->frames);
    s->frames[s->n_frames] = f;
    s->frame_index.slots[at] = s->n_frames;
    s->frame_index.n++;
    return s->n_frames++;
}

/* ---- sets of places ---- */

static void push_work(struct grammar_state *s, int node, int frame)
{
    s->work = mem_grow(s->work, s->n_work, &s->work_capacity, sizeof *s->work);
    s->work[s->n_work++] = (struct place){node, frame};
}

static size_t hash_place(struct place p)
{
    return (size_t)mix(mix(2, (uint64_t)p.node), (uint64_t)p.frame);
}

/* False: it was seen before. */
static bool note_seen(struct grammar_state *s, int node, int frame)
{
    struct index *x = &s->seen_index;
    if (2 * (x->n + 1) > x->size) {
        index_clear(x, x->size ? 2 * x->size : 256);
        for (size_t i = 0; i < s->n_seen; i++) {
            size_t at = hash_place(s->seen[i]) & (x->size - 1);
            while (x->slots[at] >= 0)
                at = (at + 1) & (x->size - 1);
            x->slots[at] = (int)i;
            x->n++;
        }
    }
    size_t at = hash_place((struct place){node, frame}) & (x->size - 1);
    for (int i; (i = x->slots[at]) >= 0; at = (at + 1) & (x->size - 1))
        if (s->seen[i].node == node && s->seen[i].frame == frame)
            return false;
    s->seen = mem_grow(s->seen, s->n_seen, &s->seen_capacity, sizeof *s->seen);
    x->slots[at] = (int)s->n_seen;
    x->n++;
    s->seen[s->n_seen++] = (struct place){node, frame};
    return true;
}

/* Enters a repetition that has been through `count` times: once more, or on behind it. */
static bool repeat(struct grammar_state *s, int node, int frame, int64_t count)
{
    const struct grammar_node *r = &s->g->nodes[node];
    if (r->most < 0 && count > r->least)
        count = r->least; /* without a limit it does not matter how often beyond the least */
    if (r->most < 0 || count < r->most) {
        int inner = find_frame(s, frame, node, count);
        if (inner == -2)
            return false;
        push_work(s, r->first, inner);
    }
    if (count >= r->least)
        push_work(s, r->next, frame);
    return true;
}

/* Where a rule, or what is repeated, has ended. */
static bool leave(struct grammar_state *s, int frame)
{
    const struct frame f = s->frames[frame];
    if (s->g->nodes[f.node].kind == NODE_REPEAT)
        return repeat(s, f.node, f.parent, f.count + 1);
    push_work(s, s->g->nodes[f.node].next, f.parent);
    return true;
}

/* Follows what takes no character from the places in s->work, into s->set. False: beyond the limits. */
static bool close_set(struct grammar_state *s)
{
    const struct grammar *g = s->g;
    s->n_seen = 0;
    index_clear(&s->seen_index, 256);
    while (s->n_work > 0) {
        struct place p = s->work[--s->n_work];
        if (s->n_seen >= THREADS_MAX)
            return false;
        if (!note_seen(s, p.node, p.frame))
            continue;
        const struct grammar_node *node = p.node >= 0 ? &g->nodes[p.node] : NULL;
        bool ok = true;
        if (!node && p.frame >= 0) {
            ok = leave(s, p.frame);
        } else if (!node || node->kind == NODE_CHARACTERS) {
            s->set = mem_grow(s->set, s->n_set, &s->set_capacity, sizeof *s->set);
            s->set[s->n_set++] = p;
        } else if (node->kind == NODE_CALL) {
            /* a call that is the last thing of its rule leaves nothing open: right recursion stays flat */
            int frame = node->next >= 0 ? find_frame(s, p.frame, p.node, 0) : p.frame;
            ok = frame != -2;
            if (ok)
                push_work(s, g->rules[node->first].first, frame);
        } else if (node->kind == NODE_CHOICE) {
            int frame = node->next >= 0 ? find_frame(s, p.frame, p.node, 0) : p.frame;
            ok = frame != -2;
            for (int i = 0; i < node->n && ok; i++)
                push_work(s, g->choices[node->first + i], frame);
        } else {
            ok = repeat(s, p.node, p.frame, 0);
        }
        if (!ok)
            return false;
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct place *p = a, *q = b;
    if (p->node != q->node)
        return p->node < q->node ? -1 : 1;
    return p->frame < q->frame ? -1 : p->frame > q->frame;
}

/* ---- configurations ---- */

static uint64_t hash_config(const struct place *places, size_t n, const unsigned char *pending, int n_pending)
{
    uint64_t h = (uint64_t)n_pending;
    for (size_t i = 0; i < n; i++)
        h = mix(mix(h, (uint64_t)places[i].node), (uint64_t)places[i].frame);
    for (int i = 0; i < n_pending; i++)
        h = mix(h, pending[i]);
    return h;
}

static void insert_config(struct grammar_state *s, int i)
{
    const struct config *c = &s->configs[i];
    size_t at = (size_t)hash_config(s->places + c->first, (size_t)c->n, c->pending, c->n_pending) &
                (s->config_index.size - 1);
    while (s->config_index.slots[at] >= 0)
        at = (at + 1) & (s->config_index.size - 1);
    s->config_index.slots[at] = i;
    s->config_index.n++;
}

/* The configuration of sorted places (which may lie in s->places). */
static int find_config(struct grammar_state *s, const struct place *places, size_t n,
                       const unsigned char *pending, int n_pending)
{
    if (2 * (s->config_index.n + 1) > s->config_index.size) {
        index_clear(&s->config_index, s->config_index.size ? 2 * s->config_index.size : 256);
        for (int i = 0; i < s->n_configs; i++)
            insert_config(s, i);
    }
    size_t at = (size_t)hash_config(places, n, pending, n_pending) & (s->config_index.size - 1);
    for (int i; (i = s->config_index.slots[at]) >= 0; at = (at + 1) & (s->config_index.size - 1)) {
        const struct config *c = &s->configs[i];
        if ((size_t)c->n == n && c->n_pending == n_pending &&
            memcmp(c->pending, pending, (size_t)n_pending) == 0 &&
            memcmp(s->places + c->first, places, n * sizeof *places) == 0)
            return i;
    }
    struct config c = {.first = (int)s->n_places, .n = (int)n, .n_pending = n_pending};
    memcpy(c.pending, pending, (size_t)n_pending);
    for (size_t i = 0; i < n; i++) {
        struct place p = places[i]; /* before the list moves */
        ptrdiff_t inside = places >= s->places && places < s->places + s->n_places ? places - s->places : -1;
        s->places = mem_grow(s->places, s->n_places, &s->places_capacity, sizeof *s->places);
        if (inside >= 0)
            places = s->places + inside;
        s->places[s->n_places++] = p;
    }
    s->configs = mem_grow(s->configs, (size_t)s->n_configs, &s->configs_capacity, sizeof *s->configs);
    s->configs[s->n_configs] = c;
    s->config_index.slots[at] = s->n_configs;
    s->config_index.n++;
    return s->n_configs++;
}

/* Closes and sorts what is in s->work into a configuration. DEAD when there is none. */
static int make_config(struct grammar_state *s)
{
    static const unsigned char nothing[1];
    s->n_set = 0;
    if (!close_set(s)) {
        s->n_work = 0;
        return DEAD;
    }
    if (s->n_set == 0)
        return DEAD;
    qsort(s->set, s->n_set, sizeof *s->set, by_place);
    return find_config(s, s->set, s->n_set, nothing, 0);
}

static bool has_character(const struct grammar *g, const struct grammar_node *node, uint32_t cp)
{
    bool found = false;
    for (int i = 0; i < node->n && !found; i++)
        found = cp >= g->ranges[node->first + i].low && cp <= g->ranges[node->first + i].high;
    return found != node->is_negated;
}

/* Does the node take any character from low to high? */
static bool has_some(const struct grammar *g, const struct grammar_node *node, uint32_t low, uint32_t high)
{
    if (node->is_negated) { /* all of low..high would have to be in the ranges: only one range that covers it is looked for */
        for (int i = 0; i < node->n; i++)
            if (g->ranges[node->first + i].low <= low && g->ranges[node->first + i].high >= high)
                return false;
        return true;
    }
    for (int i = 0; i < node->n; i++)
        if (g->ranges[node->first + i].low <= high && g->ranges[node->first + i].high >= low)
            return true;
    return false;
}

/* What characters can begin with these bytes. */
static void pending_range(const unsigned char *p, int n, uint32_t *low, uint32_t *high)
{
    int length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t v = p[0] & (length == 4 ? 7u : length == 3 ? 15u : 31u);
    for (int i = 1; i < n; i++)
        v = v << 6 | (p[i] & 63u);
    int left = 6 * (length - n);
    *low = v << left;
    *high = *low | ((1u << left) - 1);
    /* of these only the shortest forms, and no surrogates, are characters */
    const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    *low = *low < least ? least : *low;
    *high = *high > 0x10ffff ? 0x10ffff : *high >= 0xd800 && *high <= 0xdfff ? 0xd7ff : *high;
}

static int step_character(struct grammar_state *s, int from, uint32_t cp)
{
    s->n_work = 0;
    for (int i = 0; i < s->configs[from].n; i++) {
        struct place p = s->places[s->configs[from].first + i];
        if (p.node >= 0 && has_character(s->g, &s->g->nodes[p.node], cp))
            push_work(s, s->g->nodes[p.node].next, p.frame);
    }
    return s->n_work ? make_config(s) : DEAD;
}

/* A byte that leaves a character begun. */
static int step_pending(struct grammar_state *s, int from, const unsigned char *pending, int n)
{
    uint32_t low, high;
    pending_range(pending, n, &low, &high);
    for (int i = 0; i < s->configs[from].n; i++) {
        struct place p = s->places[s->configs[from].first + i];
        if (p.node >= 0 && has_some(s->g, &s->g->nodes[p.node], low, high))
            return find_config(s, s->places + s->configs[from].first, (size_t)s->configs[from].n, pending, n);
    }
    return DEAD;
}

static int compute_step(struct grammar_state *s, int from, unsigned char byte)
{
    unsigned char bytes[5];
    uint32_t cp;
    int n = s->configs[from].n_pending;
    memcpy(bytes, s->configs[from].pending, (size_t)n);
    bytes[n++] = byte;
    int step = utf8_step((const char *)bytes, (size_t)n, &cp);
    if (step < 0 || (step > 0 && step < n))
        return DEAD;
    return step == 0 ? step_pending(s, from, bytes, n) : step_character(s, from, cp);
}

static int step(struct grammar_state *s, int from, unsigned char byte)
{
    if (from < 0)
        return DEAD;
    if (!s->configs[from].next) {
        int *next = xmalloc(256 * sizeof *next);
        for (int i = 0; i < 256; i++)
            next[i] = UNKNOWN;
        s->configs[from].next = next;
    }
    int to = s->configs[from].next[byte];
    if (to == UNKNOWN) {
        to = compute_step(s, from, byte);
        s->configs[from].next[byte] = to;
    }
    return to;
}

static int walk(struct grammar_state *s, int from, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && from >= 0; i++)
        from = step(s, from, (unsigned char)bytes[i]);
    return from;
}

/* Forgets all but the present configuration when there are many. Only between calls: numbers change. */
static void tidy(struct grammar_state *s)
{
    if (s->n_configs < CONFIGS_MAX || s->now < 0)
        return;
    struct config c = s->configs[s->now];
    for (int i = 0; i < s->n_configs; i++)
        free(s->configs[i].next);
    memmove(s->places, s->places + c.first, (size_t)c.n * sizeof *s->places);
    s->n_places = (size_t)c.n;
    c.first = 0;
    c.next = NULL;
    s->configs[0] = c;
    s->n_configs = 1;
    s->now = 0;
    index_clear(&s->config_index, 256);
    insert_config(s, 0);
}

/* ---- from outside ---- */

struct grammar_state *grammar_state_new(struct grammar *g)
{
    struct grammar_state *s = xcalloc(1, sizeof *s);
    s->g = grammar_keep(g);
    push_work(s, g->rules[g->root].first, -1);
    s->now = make_config(s);
    return s;
}

void grammar_state_free(struct grammar_state *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_configs; i++)
        free(s->configs[i].next);
    free(s->frames);
    free(s->frame_index.slots);
    free(s->places);
    free(s->configs);
    free(s->config_index.slots);
    free(s->set);
    free(s->seen);
    free(s->seen_index.slots);
    free(s->work);
    grammar_free(s->g);
    free(s);
}

bool grammar_accepts(struct grammar_state *s, const char *bytes, size_t n)
{
    tidy(s);
    return walk(s, s->now, bytes, n) >= 0;
}

bool grammar_advance(struct grammar_state *s, const char *bytes, size_t n)
{
    tidy(s);
    int to = walk(s, s->now, bytes, n);
    if (to >= 0)
        s->now = to;
    return to >= 0;
}

bool grammar_can_end(struct grammar_state *s)
{
    if (s->now < 0 || s->configs[s->now].n_pending > 0)
        return false;
    for (int i = 0; i < s->configs[s->now].n; i++)
        if (s->places[s->configs[s->now].first + i].node < 0)
            return true;
    return false;
}

/* ---- masks ---- */

struct grammar_vocabulary {
    const struct vocabulary_bytes *bytes;
    int32_t *order; /* [n], those with bytes, sorted */
    int32_t n, n_all;
    uint16_t *shared; /* [n] bytes in common with the one before */
};

static int by_bytes(const void *a, const void *b, void *context)
{
    const struct vocabulary_bytes *v = context;
    struct str p = vocabulary_bytes_of(v, *(const int32_t *)a),
               q = vocabulary_bytes_of(v, *(const int32_t *)b);
    int order = memcmp(p.p, q.p, p.n < q.n ? p.n : q.n);
    return order ? order : p.n < q.n ? -1 : p.n > q.n;
}

struct grammar_vocabulary *grammar_vocabulary_new(const struct vocabulary_bytes *v)
{
    struct grammar_vocabulary *g = xcalloc(1, sizeof *g);
    g->bytes = v;
    g->n_all = vocabulary_bytes_count(v);
    g->order = xcalloc((size_t)g->n_all + 1, sizeof *g->order);
    g->shared = xcalloc((size_t)g->n_all + 1, sizeof *g->shared);
    for (int32_t id = 0; id < g->n_all; id++)
        if (vocabulary_bytes_of(v, id).n > 0)
            g->order[g->n++] = id;
    qsort_r(g->order, (size_t)g->n, sizeof *g->order, by_bytes, (void *)(uintptr_t)v);
    for (int32_t i = 1; i < g->n; i++) {
        struct str p = vocabulary_bytes_of(v, g->order[i - 1]), q = vocabulary_bytes_of(v, g->order[i]);
        size_t k = 0;
        while (k < p.n && k < q.n && p.p[k] == q.p[k] && k < UINT16_MAX)
            k++;
        g->shared[i] = (uint16_t)k;
    }
    return g;
}

void grammar_vocabulary_free(struct grammar_vocabulary *v)
{
    if (!v)
        return;
    free(v->order);
    free(v->shared);
    free(v);
}

size_t grammar_mask(struct grammar_state *s, const struct grammar_vocabulary *v, bool *allowed)
{
    int *path = NULL; /* configurations along the token before */
    size_t capacity = 0, n_known = 0, n_allowed = 0;
    memset(allowed, 0, (size_t)v->n_all * sizeof *allowed);
    tidy(s);
    path = mem_grow(path, 0, &capacity, sizeof *path);
    path[0] = s->now;
    for (int32_t i = 0; i < v->n; i++) {
        struct str t = vocabulary_bytes_of(v->bytes, v->order[i]);
        size_t at = v->shared[i] < n_known ? v->shared[i] : n_known;
        while (at < t.n && path[at] >= 0) {
            path = mem_grow(path, at + 1, &capacity, sizeof *path);
            path[at + 1] = step(s, path[at], (unsigned char)t.p[at]);
            at++;
        }
        n_known = at;
        if (at == t.n && path[at] >= 0) {
            allowed[v->order[i]] = true;
            n_allowed++;
        }
    }
    free(path);
    return n_allowed;
}
