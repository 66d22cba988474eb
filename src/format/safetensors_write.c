/* Writing one safetensors file from tensors in memory. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include "format/json.h"

/* The reader's limit. */
#define HEADER_BYTES_MAX ((size_t)100 << 20)

struct entry {
    char *name;
    enum st_dtype dtype;
    int rank;
    int64_t shape[SAFETENSORS_RANK_MAX];
    size_t bytes;
    const void *data;
    bool is_valid; /* shape and size can be written */
};

struct pair {
    char *key, *value;
};

struct st_writer {
    struct entry *entries;
    size_t n_entries;
    struct pair *pairs;
    size_t n_pairs;
};

struct st_writer *st_writer_new(void)
{
    return xcalloc(1, sizeof(struct st_writer));
}

void st_writer_free(struct st_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_entries; i++)
        free(w->entries[i].name);
    for (size_t i = 0; i < w->n_pairs; i++) {
        free(w->pairs[i].key);
        free(w->pairs[i].value);
    }
    free(w->entries);
    free(w->pairs);
    free(w);
}

void st_writer_add(struct st_writer *w, const char *name, enum st_dtype dtype, const int64_t *shape, int rank,
                   const void *data)
{
    w->entries = xrealloc(w->entries, sizeof *w->entries * (w->n_entries + 1));
    struct entry *entry = &w->entries[w->n_entries++];
    memset(entry, 0, sizeof *entry);
    entry->name = xstrdup(name);
    entry->dtype = dtype;
    entry->bytes = st_dtype_bytes(dtype);
    entry->data = data;
    entry->is_valid = entry->bytes > 0 && rank >= 0 && rank <= SAFETENSORS_RANK_MAX;
    for (int i = 0; i < rank && entry->is_valid; i++) {
        entry->shape[i] = shape[i];
        entry->is_valid = shape[i] >= 0 && size_mul(entry->bytes, (size_t)shape[i], &entry->bytes);
    }
    entry->rank = entry->is_valid ? rank : 0;
}

void st_writer_metadata(struct st_writer *w, const char *key, const char *value)
{
    w->pairs = xrealloc(w->pairs, sizeof *w->pairs * (w->n_pairs + 1));
    w->pairs[w->n_pairs++] = (struct pair){xstrdup(key), xstrdup(value)};
}

static bool check_entries(const struct st_writer *w, const char *path, struct err *e)
{
    bool ok = true;
    struct table *names = table_new();
    for (size_t i = 0; i < w->n_entries && ok; i++) {
        struct entry *entry = &w->entries[i];
        if (!entry->is_valid)
            ok = err_set(e, ERR_BUG, "%s: tensor %s: a type or shape that can't be written", path,
                         entry->name);
        else if (!table_put(names, entry->name, entry) || strcmp(entry->name, "__metadata__") == 0)
            ok = err_set(e, ERR_BUG, "%s: tensor %s: the name is taken", path, entry->name);
    }
    table_free(names);
    return ok;
}

/* Elements of 8 bytes first, then 4, 2, 1: so each tensor is aligned to its element without holes, which
 * other readers refuse. Within a size the order is the caller's. */
static const struct entry **sort_entries(const struct st_writer *w)
{
    const struct entry **order = xmalloc(sizeof *order * (w->n_entries + 1));
    size_t n = 0;
    for (size_t bytes = 8; bytes > 0; bytes /= 2)
        for (size_t i = 0; i < w->n_entries; i++)
            if (st_dtype_bytes(w->entries[i].dtype) == bytes)
                order[n++] = &w->entries[i];
    return order;
}

static bool put_header(struct buf *b, const struct st_writer *w, const struct entry **order)
{
    size_t at = 0;
    bool fits = true;
    buf_putc(b, '{');
    if (w->n_pairs > 0) {
        buf_puts(b, "\"__metadata__\":{");
        for (size_t i = 0; i < w->n_pairs; i++) {
            if (i)
                buf_putc(b, ',');
            json_put_string(b, w->pairs[i].key, strlen(w->pairs[i].key));
            buf_putc(b, ':');
            json_put_string(b, w->pairs[i].value, strlen(w->pairs[i].value));
        }
        buf_putc(b, '}');
    }
    for (size_t i = 0; i < w->n_entries && fits; i++) {
        const struct entry *entry = order[i];
        size_t end;
        fits = size_add(at, entry->bytes, &end);
        if (i > 0 || w->n_pairs > 0)
            buf_putc(b, ',');
        json_put_string(b, entry->name, strlen(entry->name));
        buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(entry->dtype));
        for (int k = 0; k < entry->rank; k++)
            buf_printf(b, "%s%lld", k ? "," : "", (long long)entry->shape[k]);
        buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    buf_putc(b, '}');
    /* The data starts at a multiple of 64 of the file. */
    while ((8 + b->n) % 64 != 0 && !b->failed)
        buf_putc(b, ' ');
    return fits;
}

/* Where the bytes go: a file that appears at the end, or a stream. */
struct sink {
    struct out_file *file;
    FILE *stream;
};

static bool put(struct sink *s, const void *data, size_t n, struct err *e)
{
    if (s->file)
        return out_file_write(s->file, data, n, e);
    return fwrite(data, 1, n, s->stream) == n || err_set_errno(e, "can't write");
}

static bool write_all(const struct st_writer *w, struct sink *s, const char *where, struct err *e)
{
    struct buf header;
    const struct entry **order = sort_entries(w);
    buf_init(&header, HEADER_BYTES_MAX);
    bool ok = check_entries(w, where, e);
    if (ok && (!put_header(&header, w, order) || header.failed))
        ok = err_set(e, ERR_LIMIT, "%s: too many tensors or too much metadata for one safetensors file",
                     where);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.n >> (8 * i));
    ok = ok && put(s, length, sizeof length, e) && put(s, header.p, header.n, e);
    for (size_t i = 0; i < w->n_entries && ok; i++)
        if (order[i]->bytes > 0)
            ok = put(s, order[i]->data, order[i]->bytes, e);
    buf_fini(&header);
    free(order);
    return ok;
}

bool st_writer_write(struct st_writer *w, const char *path, bool replace, struct err *e)
{
    struct sink s = {0};
    if (!out_file_open(&s.file, path, replace, e))
        return false;
    if (write_all(w, &s, path, e))
        return out_file_commit(s.file, e);
    out_file_abort(s.file);
    return false;
}

bool st_writer_print(struct st_writer *w, FILE *out, struct err *e)
{
    struct sink s = {.stream = out};
    return write_all(w, &s, "stdout", e);
}
