/* Vocabulary and merges: two hash tables over flat memory, and the byte-level alphabet. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"

static uint32_t hash_bytes(const char *p, size_t n)
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

static struct vocab_slot *vocab_slot_of(const struct vocab *v, const char *token, size_t n)
{
    uint32_t mask = v->n_slots - 1;
    for (uint32_t i = hash_bytes(token, n) & mask;; i = (i + 1) & mask) {
        struct vocab_slot *slot = &v->slots[i];
        if (!slot->offset)
            return slot;
        if (slot->n == n && memcmp(v->text + slot->offset - 1, token, n) == 0)
            return slot;
    }
}

static void vocab_grow(struct vocab *v)
{
    struct vocab_slot *old = v->slots;
    uint32_t n_old = v->n_slots;
    v->n_slots = n_old ? n_old * 2 : 1024;
    v->slots = xcalloc(v->n_slots, sizeof *v->slots);
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].offset)
            *vocab_slot_of(v, v->text + old[i].offset - 1, old[i].n) = old[i];
    free(old);
}

bool vocab_add(struct vocab *v, const char *token, size_t n, int32_t id, bool *is_new, struct err *e)
{
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return err_set(e, ERR_LIMIT, "token \"%.100s\" has the id %d, at most %d is allowed", token, (int)id,
                       TOKENIZER_MAX_ID - 1);
    if (v->n_used * 2 >= v->n_slots)
        vocab_grow(v);
    struct vocab_slot *slot = vocab_slot_of(v, token, n);
    *is_new = !slot->offset;
    if (*is_new) {
        if (v->text_bytes + n + 1 > v->text_capacity) {
            v->text_capacity = (v->text_capacity + n + 1) * 2;
            if (v->text_capacity > UINT32_MAX)
                return err_set(e, ERR_LIMIT, "a vocabulary of more than 2 GB");
            v->text = xrealloc(v->text, v->text_capacity);
        }
        memcpy(v->text + v->text_bytes, token, n);
        v->text[v->text_bytes + n] = '\0';
        *slot = (struct vocab_slot){(uint32_t)v->text_bytes + 1, (uint32_t)n, id};
        v->text_bytes += n + 1;
        v->n_used++;
    }
    if ((size_t)id >= v->ids_capacity) {
        size_t capacity = v->ids_capacity ? v->ids_capacity * 2 : 1024;
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

int32_t vocab_find(const struct vocab *v, const char *token, size_t n)
{
    if (!v->n_slots)
        return -1;
    const struct vocab_slot *slot = vocab_slot_of(v, token, n);
    return slot->offset ? slot->id : -1;
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

void merges_init(struct merges *m, size_t n)
{
    m->n_slots = 16;
    while (m->n_slots < n * 2)
        m->n_slots *= 2;
    m->slots = xmalloc(m->n_slots * sizeof *m->slots);
    for (uint32_t i = 0; i < m->n_slots; i++)
        m->slots[i] = (struct merge_slot){-1, -1, 0, -1};
}

void merges_fini(struct merges *m)
{
    free(m->slots);
}

static struct merge_slot *merge_slot_of(const struct merges *m, int32_t left, int32_t right)
{
    uint32_t mask = m->n_slots - 1;
    for (uint32_t i = hash_pair(left, right) & mask;; i = (i + 1) & mask) {
        struct merge_slot *slot = &m->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right))
            return slot;
    }
}

void merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    *merge_slot_of(m, left, right) = (struct merge_slot){left, right, rank, id};
}

const struct merge_slot *merges_find(const struct merges *m, int32_t left, int32_t right)
{
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
