/* BPE of one word: the pair with the lowest rank is merged, the leftmost of equals, until no pair is left.
 *
 * Short words rescan an array of ranks. Long ones keep a heap of (rank, position) over a linked list of
 * symbols; an entry whose pair has changed meanwhile is recognised by its rank, since a rank belongs to one
 * pair. So a word of n symbols takes n log n.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#define SHORT_WORD 48
#define CACHE_WORD_BYTES 22
#define CACHE_IDS 6
#define CACHE_ENTRIES 8192

struct bpe_cache_entry {
    uint8_t n, n_ids; /* n 0: free */
    char word[CACHE_WORD_BYTES];
    int32_t ids[CACHE_IDS];
};

void bpe_scratch_init(struct bpe_scratch *s, bool with_cache)
{
    *s = (struct bpe_scratch){0};
    buf_init(&s->word, SIZE_MAX / 2);
    if (with_cache)
        s->cache = xcalloc(CACHE_ENTRIES, sizeof *s->cache);
}

void bpe_scratch_fini(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    free(s->cache);
    buf_fini(&s->word);
}

static void heap_push(struct bpe_scratch *s, uint64_t key)
{
    if (s->n_heap == s->heap_capacity) {
        s->heap_capacity = s->heap_capacity ? s->heap_capacity * 2 : 256;
        s->heap = xrealloc(s->heap, s->heap_capacity * sizeof *s->heap);
    }
    size_t i = s->n_heap++;
    while (i > 0 && s->heap[(i - 1) / 2] > key) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = key;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child])
            child++;
        if (s->heap[child] >= last)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static void push_pair(const struct bpe_model *m, struct bpe_scratch *s, int32_t at)
{
    int32_t next = at >= 0 ? s->symbols[at].next : -1;
    if (next < 0)
        return;
    const struct merge_slot *merge = merges_find(&m->merges, s->symbols[at].id, s->symbols[next].id);
    if (merge)
        heap_push(s, (uint64_t)merge->rank << 32 | (uint32_t)at);
}

static void merge_long(const struct bpe_model *m, struct bpe_scratch *s, size_t n, struct ids *out)
{
    struct bpe_symbol *symbols = s->symbols;
    for (size_t i = 0; i < n; i++) {
        symbols[i].previous = (int32_t)i - 1;
        symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    s->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        push_pair(m, s, (int32_t)i);
    while (s->n_heap > 0) {
        uint64_t key = heap_pop(s);
        int32_t at = (int32_t)(uint32_t)key, next = symbols[at].next;
        if (symbols[at].id < 0 || next < 0)
            continue;
        const struct merge_slot *merge = merges_find(&m->merges, symbols[at].id, symbols[next].id);
        if (!merge || merge->rank != (uint32_t)(key >> 32))
            continue;
        symbols[at].id = merge->id;
        symbols[at].next = symbols[next].next;
        symbols[next].id = -1; /* gone */
        if (symbols[at].next >= 0)
            symbols[symbols[at].next].previous = at;
        push_pair(m, s, symbols[at].previous);
        push_pair(m, s, at);
    }
    for (int32_t i = 0; i >= 0; i = symbols[i].next)
        ids_push(out, symbols[i].id);
}

static void merge_short(const struct bpe_model *m, const struct bpe_symbol *symbols, size_t n,
                        struct ids *out)
{
    int32_t ids[SHORT_WORD];
    uint32_t ranks[SHORT_WORD]; /* of the pair (i, i + 1); UINT32_MAX: none */
    int32_t merged[SHORT_WORD];
    for (size_t i = 0; i < n; i++)
        ids[i] = symbols[i].id;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct merge_slot *merge = merges_find(&m->merges, ids[i], ids[i + 1]);
        ranks[i] = merge ? merge->rank : UINT32_MAX;
        merged[i] = merge ? merge->id : -1;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == UINT32_MAX)
            break;
        ids[best] = merged[best];
        n--;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 1) * sizeof ids[0]);
        memmove(&ranks[best], &ranks[best + 1], (n - best - 1) * sizeof ranks[0]);
        memmove(&merged[best], &merged[best + 1], (n - best - 1) * sizeof merged[0]);
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct merge_slot *merge = merges_find(&m->merges, ids[i], ids[i + 1]);
            ranks[i] = merge ? merge->rank : UINT32_MAX;
            merged[i] = merge ? merge->id : -1;
        }
    }
    for (size_t i = 0; i < n; i++)
        ids_push(out, ids[i]);
}

static void add_symbol(struct bpe_scratch *s, size_t *n, int32_t id)
{
    if (*n == s->symbols_capacity) {
        s->symbols_capacity = s->symbols_capacity ? s->symbols_capacity * 2 : 64;
        s->symbols = xrealloc(s->symbols, s->symbols_capacity * sizeof *s->symbols);
    }
    s->symbols[(*n)++].id = id;
}

/* The symbols that a word starts as. */
static size_t word_symbols(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n)
{
    size_t n_symbols = 0;
    bool unk_waits = false; /* one that later unknown characters may join */
    for (size_t i = 0; i < n;) {
        size_t length = 1;
        int32_t id;
        uint32_t cp;
        if (m->is_byte_level) {
            id = m->byte_symbol[(uint8_t)word[i]];
        } else if ((uint8_t)word[i] < 0x80) {
            id = m->ascii_symbol[(uint8_t)word[i]];
        } else {
            length = utf8_next(word + i, &cp);
            id = vocab_find(&m->vocab, word + i, length);
        }
        const char *bytes = word + i;
        i += length;
        if (id >= 0) {
            if (unk_waits)
                add_symbol(s, &n_symbols, m->unk);
            unk_waits = false;
            add_symbol(s, &n_symbols, id);
            continue;
        }
        bool falls_back = m->byte_fallback && !m->is_byte_level;
        for (size_t k = 0; k < length && falls_back; k++)
            falls_back = m->fallback_token[(uint8_t)bytes[k]] >= 0;
        if (falls_back) {
            /* as in the library, an unknown character that waits goes behind these */
            for (size_t k = 0; k < length; k++)
                add_symbol(s, &n_symbols, m->fallback_token[(uint8_t)bytes[k]]);
            continue;
        }
        if (m->unk < 0)
            continue;
        if (unk_waits && !m->fuse_unk)
            add_symbol(s, &n_symbols, m->unk);
        unk_waits = true;
    }
    if (unk_waits)
        add_symbol(s, &n_symbols, m->unk);
    return n_symbols;
}

/* The token that the whole word is, or -1. */
static int32_t whole_word_token(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n)
{
    if (!m->is_byte_level)
        return vocab_find(&m->vocab, word, n);
    buf_clear(&s->word);
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        buf_append(&s->word, bytes, utf8_put(bytes, byte_level_char((uint8_t)word[i])));
    }
    return vocab_find(&m->vocab, s->word.p, s->word.n);
}

static struct bpe_cache_entry *cache_entry_of(const struct bpe_scratch *s, const char *word, size_t n)
{
    if (!s->cache || n > CACHE_WORD_BYTES)
        return NULL;
    uint32_t h = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)word[i]) * 0x01000193u;
    return &s->cache[(h ^ h >> 15) % CACHE_ENTRIES];
}

void bpe_encode_word(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n,
                     struct ids *out)
{
    struct bpe_cache_entry *entry = cache_entry_of(s, word, n);
    if (entry && entry->n == n && memcmp(entry->word, word, n) == 0) {
        for (int i = 0; i < entry->n_ids; i++)
            ids_push(out, entry->ids[i]);
        return;
    }
    size_t before = out->n;
    int32_t whole = m->ignore_merges ? whole_word_token(m, s, word, n) : -1;
    if (whole >= 0) {
        ids_push(out, whole);
    } else {
        size_t n_symbols = word_symbols(m, s, word, n);
        if (n_symbols > SHORT_WORD)
            merge_long(m, s, n_symbols, out);
        else if (n_symbols > 0)
            merge_short(m, s->symbols, n_symbols, out);
    }
    size_t n_ids = out->n - before;
    if (entry && n_ids <= CACHE_IDS) {
        entry->n = (uint8_t)n;
        entry->n_ids = (uint8_t)n_ids;
        memcpy(entry->word, word, n);
        memcpy(entry->ids, out->p + before, n_ids * sizeof entry->ids[0]);
    }
}
