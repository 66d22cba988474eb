/* BPE of one word: the pair with the lowest rank is merged, the leftmost of equals, until no pair is left.
 *
 * Short words rescan an array of ranks. Long ones keep a heap of (rank, position) over a linked list of
 * symbols; an entry whose pair has changed meanwhile is recognised by its rank, since a rank belongs to one
 * pair. So a word of n symbols takes n log n.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

#define SHORT_WORD 48
#define CACHE_WORD_BYTES 64
#define CACHE_IDS 15
#define QUICK_IDS 6 /* copied without looking how many there are */
#define MIN_CACHE_ENTRIES 64u
#define MAX_CACHE_ENTRIES 32768u
#define BYTES_PER_CACHE_ENTRY 64 /* of text: short ones shall not pay for clearing a large cache */

/* Two lines of the processor's cache; most words are told by the first. */
struct bpe_cache_entry {
    uint64_t key[8];  /* the word, see make_key */
    uint8_t n, n_ids; /* n 0: free */
    int32_t ids[CACHE_IDS];
};

void bpe_scratch_init(struct bpe_scratch *s, size_t text_bytes)
{
    *s = (struct bpe_scratch){0};
    buf_init(&s->word, SIZE_MAX / 2);
    uint32_t n = MIN_CACHE_ENTRIES;
    while (n < MAX_CACHE_ENTRIES && n < text_bytes / BYTES_PER_CACHE_ENTRY)
        n *= 2;
    if (text_bytes / BYTES_PER_CACHE_ENTRY >= MIN_CACHE_ENTRIES) {
        s->cache = xcalloc(n, sizeof *s->cache);
        s->cache_mask = n - 1;
    }
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
    s->heap = mem_grow(s->heap, s->n_heap, &s->heap_capacity, sizeof *s->heap);
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
    for (size_t i = 0; i + 1 < n; i++)
        merges_prefetch(&m->merges, ids[i], ids[i + 1]);
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
        if (best + 1 < n)
            merges_prefetch(&m->merges, ids[best], ids[best + 1]);
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct merge_slot *merge = merges_find(&m->merges, ids[i], ids[i + 1]);
            ranks[i] = merge ? merge->rank : UINT32_MAX;
            merged[i] = merge ? merge->id : -1;
        }
    }
    for (size_t i = 0; i < n; i++)
        ids_push(out, ids[i]);
}

/* A token of the model itself, or -1. */
static int32_t model_token(const struct bpe_model *m, const char *text, size_t n)
{
    int32_t id = vocab_find(&m->vocab, text, n);
    return id < m->n_ids ? id : -1;
}

static void add_symbol(struct bpe_scratch *s, size_t *n, int32_t id)
{
    s->symbols = mem_grow(s->symbols, *n, &s->symbols_capacity, sizeof *s->symbols);
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
            id = cp < 0x10000 ? m->bmp_symbols[cp] : model_token(m, word + i, length);
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
        return model_token(m, word, n);
    buf_clear(&s->word);
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        buf_append(&s->word, bytes, utf8_put(bytes, byte_level_char((uint8_t)word[i])));
    }
    return model_token(m, s->word.p, s->word.n);
}

static inline uint64_t load_8(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint64_t load_4(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* With n, the key tells words of at most 64 bytes apart: its parts overlap so that they cover all bytes. Words of
 * at most 32 bytes have only the first four. */
static inline void make_key(uint64_t key[8], const char *word, size_t n)
{
    key[0] = key[1] = key[2] = key[3] = 0;
    if (n >= 8) {
        key[0] = load_8(word);
        key[1] = load_8(word + n - 8);
        if (n > 16) {
            key[2] = load_8(word + 8);
            key[3] = load_8(word + n - 16);
        }
        if (n > 32) {
            key[4] = load_8(word + 16);
            key[5] = load_8(word + 24);
            key[6] = load_8(word + n - 32);
            key[7] = load_8(word + n - 24);
        }
    } else if (n >= 4) {
        key[0] = load_4(word) | load_4(word + n - 4) << 32;
    } else {
        key[0] = (uint64_t)(uint8_t)word[0] | (uint64_t)(uint8_t)word[n / 2] << 8 |
                 (uint64_t)(uint8_t)word[n - 1] << 16;
    }
}

static inline uint32_t hash_key(const uint64_t key[8], size_t n)
{
    uint64_t h = (key[0] ^ n) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32 ^ key[1]) * 0xff51afd7ed558ccdu;
    if (n > 16)
        h = (h ^ h >> 32 ^ key[2] ^ key[3] << 1) * 0xc4ceb9fe1a85ec53u;
    if (n > 32)
        h = (h ^ h >> 32 ^ key[4] ^ key[5] << 1 ^ key[6] << 2 ^ key[7] << 3) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

static void encode_word(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n,
                        struct ids *out)
{
    int32_t whole = m->ignore_merges ? whole_word_token(m, s, word, n) : -1;
    if (whole >= 0) {
        ids_push(out, whole);
        return;
    }
    size_t n_symbols = word_symbols(m, s, word, n);
    if (n_symbols > SHORT_WORD)
        merge_long(m, s, n_symbols, out);
    else if (n_symbols > 0)
        merge_short(m, s->symbols, n_symbols, out);
}

static inline void encode_cached(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n,
                                 struct ids *out)
{
    if (!s->cache || n > CACHE_WORD_BYTES) {
        encode_word(m, s, word, n, out);
        return;
    }
    uint64_t key[8];
    make_key(key, word, n);
    struct bpe_cache_entry *entry = &s->cache[hash_key(key, n) & s->cache_mask];
    if (entry->n == n && entry->key[0] == key[0] && entry->key[1] == key[1] && entry->key[2] == key[2] &&
        entry->key[3] == key[3] && (n <= 32 || memcmp(entry->key + 4, key + 4, 4 * sizeof *key) == 0)) {
        if (out->capacity - out->n < CACHE_IDS) {
            out->capacity = out->capacity * 2 + 32;
            out->p = xrealloc(out->p, out->capacity * sizeof *out->p);
        }
        memcpy(out->p + out->n, entry->ids, QUICK_IDS * sizeof entry->ids[0]);
        if (entry->n_ids > QUICK_IDS)
            memcpy(out->p + out->n, entry->ids, sizeof entry->ids);
        out->n += entry->n_ids;
        return;
    }
    size_t before = out->n;
    encode_word(m, s, word, n, out);
    size_t n_ids = out->n - before;
    if (n_ids <= CACHE_IDS) {
        entry->n = (uint8_t)n;
        entry->n_ids = (uint8_t)n_ids;
        memcpy(entry->key, key, n <= 32 ? 4 * sizeof *key : sizeof key);
        if (n_ids > 0)
            memcpy(entry->ids, out->p + before, n_ids * sizeof entry->ids[0]);
    }
}

static inline uint32_t hash_joint(uint32_t last, uint32_t first)
{
    uint64_t h = ((uint64_t)last << 21 ^ first) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> (64 - BPE_JOINT_BITS));
}

/* <0xNN>, which stands for a byte of another character than its text says. */
static bool is_byte_token(const struct bpe_model *m, const char *text, int32_t id)
{
    if (strncmp(text, "<0x", 3) != 0)
        return false;
    for (int b = 0; b < 256; b++)
        if (m->fallback_token[b] == id)
            return true;
    return false;
}

void bpe_index_joints(struct bpe_model *m)
{
    /* a cut is invisible only where each character becomes tokens by itself and these only merge as their
     * texts say */
    if (m->is_byte_level || m->ignore_merges || !m->byte_fallback)
        return;
    for (int b = 0; b < 256; b++)
        if (m->fallback_token[b] < 0)
            return;
    uint64_t *joints = xcalloc(1u << (BPE_JOINT_BITS - 6), sizeof *joints);
    for (uint32_t i = 0; i < m->merges.n_slots; i++) {
        const struct merge_slot *slot = &m->merges.slots[i];
        if (slot->left < 0)
            continue;
        const char *left = vocab_text(&m->vocab, slot->left), *right = vocab_text(&m->vocab, slot->right);
        if (!left || !right || !*left || !*right || is_byte_token(m, left, slot->left) ||
            is_byte_token(m, right, slot->right)) {
            free(joints);
            return;
        }
        uint32_t last, first;
        (void)utf8_next(left + utf8_back(left, strlen(left)), &last);
        (void)utf8_next(right, &first);
        uint32_t bit = hash_joint(last, first);
        joints[bit >> 6] |= (uint64_t)1 << (bit & 63);
    }
    m->joints = joints;
}

void bpe_encode_word(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n,
                     struct ids *out)
{
    if (!m->joints) {
        encode_cached(m, s, word, n, out);
        return;
    }
    uint32_t last, next;
    size_t begin = 0, at = utf8_next(word, &last);
    while (at < n) {
        size_t length = utf8_next(word + at, &next);
        uint32_t bit = hash_joint(last, next);
        if (!(m->joints[bit >> 6] >> (bit & 63) & 1)) {
            encode_cached(m, s, word + begin, at - begin, out);
            begin = at;
        }
        last = next;
        at += length;
    }
    encode_cached(m, s, word + begin, n - begin, out);
}
