/* weight.bin, writing: records front to back; data that is in the file already is referred to, not written
 * again.
 *
 * The file is read back to compare bytes, which out_file of base does not offer; so this file keeps its own
 * descriptor and gives the same promise: PATH.tmp-*, synced and renamed on commit, nothing left behind
 * otherwise. */
#include "format/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_ALIGN 64u
#define HEADER_BYTES 64u
#define METADATA_BYTES 64u
#define SENTINEL 0xDEADBEEFu
#define VERSION 2u
#define COMPARE_BYTES ((size_t)256 << 10)

/* A written record; those whose hashes are equal are chained. */
struct written {
    uint64_t offset, bytes;
    struct written *next;
};

struct blob_writer {
    char *path, *temporary;
    int fd;                  /* -1 when closed */
    uint64_t end;            /* bytes written so far */
    bool is_complete;        /* no write failed */
    uint64_t reserved;       /* bytes of records that are filled in pieces */
    _Atomic uint64_t filled; /* of them, written */
    struct arena *arena;
    struct table *by_hash;
    uint32_t count;
    uint64_t dedup_bytes;
};

static void store_le(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t rotate(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

static uint64_t scramble(uint64_t v)
{
    v = (v ^ v >> 31) * 0x9E3779B97F4A7C15u;
    v = (v ^ v >> 29) * 0xD6E8FEB86659FD93u;
    return v ^ v >> 32;
}

/* Four lanes of multiply and rotate, folded twice in different ways. Equal hashes are only a hint, so the
 * hash need not withstand an adversary. */
static void hash_bytes(const uint8_t *p, uint64_t n, uint64_t hash[2])
{
    uint64_t lane[4] = {0x243F6A8885A308D3u, 0x13198A2E03707344u, 0xA4093822299F31D0u, 0x082EFA98EC4E6C89u};
    uint64_t at = 0;
    for (; n - at >= 32; at += 32)
        for (int i = 0; i < 4; i++) {
            uint64_t word;
            memcpy(&word, p + at + 8 * i, 8);
            lane[i] = rotate(lane[i] ^ word, 29) * 0x9FB21C651E98DF25u;
        }
    uint8_t rest[32] = {0};
    if (n > at)
        memcpy(rest, p + at, (size_t)(n - at));
    for (int i = 0; i < 4; i++) {
        uint64_t word;
        memcpy(&word, rest + 8 * i, 8);
        lane[i] = scramble(lane[i] ^ word);
    }
    hash[0] = scramble(lane[0] + rotate(lane[1], 17) + rotate(lane[2], 31) + rotate(lane[3], 47) + n);
    hash[1] = scramble((lane[0] ^ rotate(lane[1], 23)) * 3 + (lane[2] ^ rotate(lane[3], 41)) * 5 + ~n);
}

/* Touches nothing of w, so that several threads may write at a time. */
static bool write_bytes(const struct blob_writer *w, uint64_t offset, const void *data, uint64_t bytes,
                        struct err *e)
{
    const char *p = data;
    if (bytes > INT64_MAX || offset > INT64_MAX - bytes)
        return err_set(e, ERR_LIMIT, "%s: larger than a file can be", w->path);
    while (bytes > 0) {
        ssize_t n = pwrite(w->fd, p, bytes < (1u << 30) ? (size_t)bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return err_set_errno(e, "%s: can't write", w->path);
        }
        p += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return true;
}

static bool write_at(struct blob_writer *w, uint64_t offset, const void *data, uint64_t bytes, struct err *e)
{
    if (write_bytes(w, offset, data, bytes, e))
        return true;
    w->is_complete = false;
    return false;
}

static bool append(struct blob_writer *w, const void *data, uint64_t bytes, struct err *e)
{
    if (!write_at(w, w->end, data, bytes, e))
        return false;
    w->end += bytes;
    return true;
}

/* Whether the file holds these very bytes at offset. */
static bool compare_written(struct blob_writer *w, uint64_t offset, const uint8_t *data, uint64_t bytes,
                            bool *equal, struct err *e)
{
    uint8_t *back = xmalloc(COMPARE_BYTES);
    bool ok = true;
    *equal = true;
    for (uint64_t at = 0; at < bytes && ok && *equal;) {
        size_t want = bytes - at < COMPARE_BYTES ? (size_t)(bytes - at) : COMPARE_BYTES;
        ssize_t n = pread(w->fd, back, want, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            ok = err_set_errno(e, "%s: can't read back", w->path);
        else if (n == 0)
            ok = err_set(e, ERR_IO, "%s: can't read back: expected %llu bytes at %llu, found the end",
                         w->path, (unsigned long long)want, (unsigned long long)(offset + at));
        else
            *equal = memcmp(back, data + at, (size_t)n) == 0;
        at += n > 0 ? (uint64_t)n : 0;
    }
    free(back);
    return ok;
}

bool blob_writer_open(struct blob_writer **out, const char *path, struct err *e)
{
    static const uint8_t header[HEADER_BYTES];
    *out = NULL;
    struct blob_writer *w = xcalloc(1, sizeof *w);
    w->path = xstrdup(path);
    w->arena = arena_new(0);
    w->by_hash = table_new();
    w->is_complete = true;
    w->fd = -1;
    /* A number that is in use belongs to an interrupted run or another thread: the next one is tried. */
    for (int i = 0; i < 1000 && w->fd < 0; i++) {
        char *temporary =
            xasprintf("%s.tmp-%06lx", path, ((unsigned long)getpid() + 4099ul * (unsigned)i) & 0xffffff);
        w->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int error = errno;
        if (w->fd >= 0)
            w->temporary = temporary;
        else
            free(temporary);
        errno = error;
        if (w->fd < 0 && error != EEXIST)
            break;
    }
    if (w->fd < 0)
        err_set_errno(e, "%s: can't write", path);
    if (w->fd < 0 || !append(w, header, sizeof header, e)) {
        blob_writer_abort(w);
        return false;
    }
    *out = w;
    return true;
}

/* Zeros up to the record's start and its metadata, in one write. */
static bool write_metadata(struct blob_writer *w, enum blob_type type, uint64_t bytes, uint64_t padding_bits,
                           uint64_t *offset, struct err *e)
{
    uint8_t lead[RECORD_ALIGN + METADATA_BYTES] = {0};
    size_t gap = (RECORD_ALIGN - w->end % RECORD_ALIGN) % RECORD_ALIGN;
    uint8_t *metadata = lead + gap;
    *offset = w->end + gap;
    store_le(metadata, SENTINEL, 4);
    store_le(metadata + 4, type, 4);
    store_le(metadata + 8, bytes, 8);
    store_le(metadata + 16, *offset + METADATA_BYTES, 8);
    store_le(metadata + 24, padding_bits, 8);
    return append(w, lead, gap + METADATA_BYTES, e);
}

/* Bits of the last byte that no element uses; false when the elements do not fill the bytes. */
static bool count_padding(const struct blob_writer *w, enum blob_type type, uint64_t bytes, uint64_t n_elems,
                          uint64_t *padding_bits, struct err *e)
{
    size_t n_bits;
    int bits = blob_type_bits(type);
    if (bits == 0 || !size_mul((size_t)n_elems, (size_t)bits, &n_bits) ||
        n_bits / 8 + (n_bits % 8 != 0) != bytes)
        return err_set(e, ERR_BUG, "%s: %llu elements of type %d do not fill %llu bytes", w->path,
                       (unsigned long long)n_elems, (int)type, (unsigned long long)bytes);
    *padding_bits = (8 - n_bits % 8) % 8;
    return true;
}

bool blob_writer_reserve(struct blob_writer *w, enum blob_type type, uint64_t bytes, uint64_t n_elems,
                         uint64_t *offset, struct err *e)
{
    uint64_t padding_bits = 0;
    if (!count_padding(w, type, bytes, n_elems, &padding_bits, e))
        return false;
    if (w->count == UINT32_MAX || bytes > INT64_MAX - w->end - RECORD_ALIGN - METADATA_BYTES)
        return err_set(e, ERR_LIMIT, "%s: more than a weight file can hold", w->path);
    if (!write_metadata(w, type, bytes, padding_bits, offset, e))
        return false;
    w->end += bytes;
    w->reserved += bytes;
    w->count++;
    return true;
}

bool blob_writer_fill(struct blob_writer *w, uint64_t offset, uint64_t at, const void *data, uint64_t n,
                      struct err *e)
{
    uint64_t start = offset + METADATA_BYTES;
    if (start > w->end || at > w->end - start || n > w->end - start - at)
        return err_set(e, ERR_BUG, "%s: a piece of record %llu lies outside it", w->path,
                       (unsigned long long)offset);
    if (!write_bytes(w, start + at, data, n, e))
        return false;
    atomic_fetch_add_explicit(&w->filled, n, memory_order_relaxed);
    return true;
}

bool blob_writer_add(struct blob_writer *w, enum blob_type type, const void *data, uint64_t bytes,
                     uint64_t n_elems, uint64_t *offset, struct err *e)
{
    uint64_t padding_bits = 0, hash[2];
    if (!count_padding(w, type, bytes, n_elems, &padding_bits, e))
        return false;
    char key[64];
    hash_bytes(data, bytes, hash);
    snprintf(key, sizeof key, "%016llx%016llx %d %d", (unsigned long long)hash[0],
             (unsigned long long)hash[1], (int)type, (int)padding_bits);

    struct written *first = table_get(w->by_hash, key), *last = NULL;
    for (struct written *r = first; r; last = r, r = r->next) {
        bool equal = r->bytes == bytes;
        if (equal && !compare_written(w, r->offset + METADATA_BYTES, data, bytes, &equal, e))
            return false;
        if (equal) {
            *offset = r->offset;
            w->dedup_bytes += bytes;
            return true;
        }
    }

    if (w->count == UINT32_MAX)
        return err_set(e, ERR_LIMIT, "%s: more records than a weight file can count", w->path);
    if (!write_metadata(w, type, bytes, padding_bits, offset, e) || !append(w, data, bytes, e))
        return false;
    w->count++;
    struct written *r = ARENA_NEW(w->arena, struct written);
    r->offset = *offset;
    r->bytes = bytes;
    if (last)
        last->next = r;
    else if (!table_put(w->by_hash, key, r))
        return err_set(e, ERR_BUG, "%s: the table of written records is damaged", w->path);
    return true;
}

uint64_t blob_writer_bytes(const struct blob_writer *w)
{
    return w->end;
}

uint32_t blob_writer_count(const struct blob_writer *w)
{
    return w->count;
}

uint64_t blob_writer_dedup_bytes(const struct blob_writer *w)
{
    return w->dedup_bytes;
}

/* Makes the new name durable; some file systems can't sync a folder, the data is safe there all the same. */
static bool sync_folder(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd < 0 || fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
    if (!ok)
        err_set_errno(e, "%s: can't sync the folder", folder);
    if (fd >= 0)
        close(fd);
    free(folder);
    return ok;
}

static bool commit(struct blob_writer *w, struct err *e)
{
    uint8_t header[8];
    store_le(header, w->count, 4);
    store_le(header + 4, VERSION, 4);
    if (!w->is_complete || atomic_load(&w->filled) != w->reserved)
        return err_set(e, ERR_IO, "%s: not finished, because writing it failed", w->path);
    if (!write_at(w, 0, header, sizeof header, e))
        return false;
    if (fsync(w->fd) != 0 && errno != EINVAL)
        return err_set_errno(e, "%s: can't sync", w->path);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0)
        return err_set_errno(e, "%s: can't close", w->path);
    if (rename(w->temporary, w->path) != 0)
        return err_set_errno(e, "%s: can't rename to this name", w->path);
    free(w->temporary);
    w->temporary = NULL;
    return sync_folder(w->path, e);
}

bool blob_writer_commit(struct blob_writer *w, struct err *e)
{
    bool ok = commit(w, e);
    blob_writer_abort(w);
    return ok;
}

void blob_writer_abort(struct blob_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary)
        unlink(w->temporary);
    table_free(w->by_hash);
    arena_free(w->arena);
    free(w->temporary);
    free(w->path);
    free(w);
}
