/* Vocabulary and merges: two hash tables over flat memory, and the byte-level alphabet. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tokenizer/tokenizer_internal.h"

/* Memory of a hash table, for free. Large tables lie in large pages where there are some: lookups come from all over
 * the place, and each would wait for the page tables, too. */
static void *table_alloc(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;
    if (bytes < 2 * huge)
        return xmalloc(bytes);
    if (posix_memalign(&p, huge, bytes) != 0)
        return xmalloc(bytes);
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

uint32_t vocab_hash(const char *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += 8;
        n -= 8;
    }
    uint64_t rest = 0;
    memcpy(&rest, p, n);
    h = (h ^ rest) * 0xff51afd7ed558ccdu;
    h ^= h >> 29;
    h *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h >> 32);
}

void vocab_fini(struct vocab *v)
{
    free(v->text);
    free(v->offset_of_id);
    free(v->slots);
    memset(v, 0, sizeof *v);
}

static struct vocab_slot *vocab_slot_of(const struct vocab *v, const char *token, size_t n, uint32_t hash)
{
    uint32_t mask = v->n_slots - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        struct vocab_slot *slot = &v->slots[i];
        if (!slot->offset ||
            (slot->hash == hash && slot->n == n && memcmp(v->text + slot->offset - 1, token, n) == 0))
            return slot;
    }
}

void vocab_reserve(struct vocab *v, size_t n, size_t text_bytes)
{
    uint32_t n_slots = 1024;
    while (n_slots < n + n / 2 && n_slots < 1u << 30)
        n_slots *= 2;
    if (n_slots > v->n_slots) {
        struct vocab_slot *slots = table_alloc(n_slots * sizeof *slots);
        memset(slots, 0, n_slots * sizeof *slots);
        for (uint32_t i = 0; i < v->n_slots; i++) {
            if (!v->slots[i].offset)
                continue;
            uint32_t at = v->slots[i].hash & (n_slots - 1);
            while (slots[at].offset)
                at = (at + 1) & (n_slots - 1);
            slots[at] = v->slots[i];
        }
        free(v->slots);
        v->slots = slots;
        v->n_slots = n_slots;
    }
    if (text_bytes > v->text_capacity) {
        v->text_capacity = text_bytes;
        v->text = xrealloc(v->text, text_bytes);
    }
}

/* Puts a text with its 0 byte at the end of the others. */
static bool append_text(struct vocab *v, const char *text, size_t n, uint32_t *offset, struct err *e)
{
    if (v->text_bytes + n + 1 > v->text_capacity) {
        size_t capacity = (v->text_capacity + n + 1) * 2;
        if (capacity > UINT32_MAX)
            return err_set(e, ERR_LIMIT, "a vocabulary of more than 2 GB");
        v->text = xrealloc(v->text, capacity);
        v->text_capacity = capacity;
    }
    memcpy(v->text + v->text_bytes, text, n);
    v->text[v->text_bytes + n] = '\0';
    *offset = (uint32_t)v->text_bytes + 1;
    v->text_bytes += n + 1;
    return true;
}

bool vocab_add(struct vocab *v, const char *token, size_t n, int32_t id, bool *is_new, struct err *e)
{
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return err_set(e, ERR_LIMIT, "token \"%.*s\" has the id %d, at most %d is allowed",
                       (int)(n < 100 ? n : 100), token, (int)id, TOKENIZER_MAX_ID - 1);
    if (v->n_used + v->n_used / 2 >= v->n_slots)
        vocab_reserve(v, (size_t)v->n_used * 2, 0);
    uint32_t hash = vocab_hash(token, n), offset;
    struct vocab_slot *slot = vocab_slot_of(v, token, n, hash);
    *is_new = !slot->offset;
    if (*is_new) {
        if (!append_text(v, token, n, &offset, e))
            return false;
        *slot = (struct vocab_slot){offset, (uint32_t)n, hash, id};
        v->n_used++;
    }
    if ((size_t)id >= v->ids_capacity) {
        size_t capacity = MEM_GROWN(v->ids_capacity, 1024);
        capacity = capacity > (size_t)id ? capacity : (size_t)id + 1;
        v->offset_of_id = xrealloc(v->offset_of_id, capacity * sizeof *v->offset_of_id);
        memset(v->offset_of_id + v->ids_capacity, 0, (capacity - v->ids_capacity) * sizeof *v->offset_of_id);
        v->ids_capacity = capacity;
    }
    v->offset_of_id[id] = slot->offset;
    if (id >= v->n_ids)
        v->n_ids = id + 1;
    return true;
}

bool vocab_set_text(struct vocab *v, int32_t id, const char *text, size_t n, struct err *e)
{
    return append_text(v, text, n, &v->offset_of_id[id], e);
}

int32_t vocab_find_hashed(const struct vocab *v, const char *token, size_t n, uint32_t hash)
{
    if (!v->n_slots)
        return -1;
    const struct vocab_slot *slot = vocab_slot_of(v, token, n, hash);
    return slot->offset ? slot->id : -1;
}

int32_t vocab_find(const struct vocab *v, const char *token, size_t n)
{
    return vocab_find_hashed(v, token, n, vocab_hash(token, n));
}

void vocab_prefetch_slot(const struct vocab *v, uint32_t hash)
{
    if (v->n_slots)
        __builtin_prefetch(&v->slots[hash & (v->n_slots - 1)]);
}

void vocab_prefetch_text(const struct vocab *v, uint32_t hash)
{
    const struct vocab_slot *slot = v->n_slots ? &v->slots[hash & (v->n_slots - 1)] : NULL;
    if (slot && slot->offset)
        __builtin_prefetch(v->text + slot->offset - 1);
}

const char *vocab_text(const struct vocab *v, int32_t id)
{
    if (id < 0 || id >= v->n_ids || !v->offset_of_id[id])
        return NULL;
    return v->text + v->offset_of_id[id] - 1;
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((h ^ h >> 29) >> 16);
}

void merges_fini(struct merges *m)
{
    free(m->slots);
}

/* Slot of the pair, or the free one where it would go; n_slots is not 0. */
static struct merge_slot *merge_slot_of(const struct merges *m, int32_t left, int32_t right)
{
    uint32_t mask = m->n_slots - 1;
    for (uint32_t i = hash_pair(left, right) & mask;; i = (i + 1) & mask) {
        struct merge_slot *slot = &m->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right))
            return slot;
    }
}

static void merges_resize(struct merges *m, uint32_t n_slots)
{
    struct merges old = *m;
    m->slots = table_alloc(n_slots * sizeof *m->slots);
    m->n_slots = n_slots;
    for (uint32_t i = 0; i < n_slots; i++)
        m->slots[i].left = -1;
    for (uint32_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].left >= 0)
            *merge_slot_of(m, old.slots[i].left, old.slots[i].right) = old.slots[i];
    free(old.slots);
}

void merges_reserve(struct merges *m, size_t n)
{
    uint32_t n_slots = 1024;
    while (n_slots < n + n / 2 + 2 && n_slots < 1u << 28)
        n_slots *= 2;
    if (n_slots > m->n_slots)
        merges_resize(m, n_slots);
}

void merges_prefetch(const struct merges *m, int32_t left, int32_t right)
{
    if (m->n_slots)
        __builtin_prefetch(&m->slots[hash_pair(left, right) & (m->n_slots - 1)]);
}

void merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    if (m->n_used + m->n_used / 2 >= m->n_slots)
        merges_resize(m, m->n_slots ? m->n_slots * 2 : 1024);
    struct merge_slot *slot = merge_slot_of(m, left, right);
    if (slot->left < 0)
        m->n_used++;
    *slot = (struct merge_slot){left, right, rank, id};
}

const struct merge_slot *merges_find(const struct merges *m, int32_t left, int32_t right)
{
    if (!m->n_slots)
        return NULL;
    const struct merge_slot *slot = merge_slot_of(m, left, right);
    return slot->left < 0 ? NULL : slot;
}

uint32_t byte_level_char(uint8_t byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0)
        return 0x121u + byte - 0x7f;
    return byte == 0xad ? 0x143u : byte;
}

int byte_level_byte(uint32_t cp)
{
    if (cp >= 0x100)
        return cp <= 0x120 ? (int)cp - 0x100 : cp <= 0x142 ? (int)cp - 0x121 + 0x7f : cp == 0x143 ? 0xad : -1;
    return byte_level_char((uint8_t)cp) == cp ? (int)cp : -1;
}
