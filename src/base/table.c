/* The hash table from string to pointer: open addressing over a keyed hash.
 *
 * Keys come out of untrusted files. The hash is SipHash-1-3 under a key drawn for each table, so that nobody
 * can prepare a file whose keys all collide. Nothing iterates over a table, so the key never shows in any
 * output.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct entry {
    const char *key; /* NULL: free */
    uint64_t hash;
    void *value;
};

struct table {
    struct entry *entries;
    size_t capacity; /* a power of two */
    size_t n;
    uint64_t seed[2];
    struct arena *keys;
};

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static uint64_t hash_key(const struct table *t, const char *key, size_t n)
{
    uint64_t v[4] = {t->seed[0] ^ 0x736f6d6570736575u, t->seed[1] ^ 0x646f72616e646f6du,
                     t->seed[0] ^ 0x6c7967656e657261u, t->seed[1] ^ 0x7465646279746573u};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, key + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)n << 56;
    memcpy(&last, key + i, n - i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int k = 0; k < 3; k++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct table *table_new(void)
{
    struct table *t = xcalloc(1, sizeof *t);
    t->capacity = 16;
    t->entries = xcalloc(t->capacity, sizeof *t->entries);
    t->keys = arena_new(0);
    if (getrandom(t->seed, sizeof t->seed, GRND_NONBLOCK) != (ssize_t)sizeof t->seed) {
        struct timespec now = {0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        t->seed[0] = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u;
        t->seed[1] = (uint64_t)(uintptr_t)t ^ (uint64_t)now.tv_sec;
    }
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    arena_free(t->keys);
    free(t->entries);
    free(t);
}

/* The entry that holds key, or the free one where it belongs. */
static struct entry *find(const struct table *t, const char *key, uint64_t hash)
{
    size_t at = (size_t)hash & (t->capacity - 1);
    for (;;) {
        struct entry *x = &t->entries[at];
        if (!x->key || (x->hash == hash && strcmp(x->key, key) == 0))
            return x;
        at = (at + 1) & (t->capacity - 1);
    }
}

static void grow(struct table *t)
{
    struct entry *old = t->entries;
    size_t n_old = t->capacity;
    t->capacity *= 2;
    t->entries = xcalloc(t->capacity, sizeof *t->entries);
    for (size_t i = 0; i < n_old; i++) {
        if (!old[i].key)
            continue;
        size_t at = (size_t)old[i].hash & (t->capacity - 1);
        while (t->entries[at].key)
            at = (at + 1) & (t->capacity - 1);
        t->entries[at] = old[i];
    }
    free(old);
}

bool table_put(struct table *t, const char *key, void *value)
{
    size_t n = strlen(key);
    uint64_t hash = hash_key(t, key, n);
    struct entry *x = find(t, key, hash);
    if (x->key)
        return false;
    *x = (struct entry){arena_strndup(t->keys, key, n), hash, value};
    if (++t->n > t->capacity / 3 * 2)
        grow(t);
    return true;
}

void *table_get(const struct table *t, const char *key)
{
    const struct entry *x = find(t, key, hash_key(t, key, strlen(key)));
    return x->key ? x->value : NULL;
}

size_t table_count(const struct table *t)
{
    return t->n;
}
