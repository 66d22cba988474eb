/* A GGUF file as a plain checkpoint: config.json, the tokenizer's files and one safetensors file with the numbers that the
 * file means. F16 and BF16 stay what they are; everything else becomes float32, which holds what blocks mean exactly.
 */
#include "convert/plain.h"
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "convert/files.h"
#include "format/gguf_model.h"
#include "format/safetensors.h"

#define FILE_NAME "model.safetensors"
#define HEADER_BYTES_MAX ((size_t)100 << 20)
#define SLICE 65536 /* numbers at a time */

static enum st_dtype dtype_of(const struct st_tensor *t)
{
    return strcmp(t->dtype_name, "F16") == 0 ? ST_F16 : strcmp(t->dtype_name, "BF16") == 0 ? ST_BF16 : ST_F32;
}

/* What no checkpoint has: frequencies, which are a setting there. */
static bool is_wanted(const struct st_tensor *t)
{
    return strncmp(t->name, "model.", 6) == 0 || strcmp(t->name, "lm_head.weight") == 0;
}

static void put_entry(struct buf *b, const struct st_tensor *t, uint64_t at, uint64_t bytes)
{
    char shape[128];
    st_shape_text(shape, t->shape, t->rank);
    buf_puts(b, b->n > 8 ? ",\n" : "");
    json_put_string(b, t->name, strlen(t->name));
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", st_dtype_name(dtype_of(t)),
               shape, (unsigned long long)at, (unsigned long long)(at + bytes));
}

/* Wider types first, so that every tensor is aligned to its element. */
static void put_header(struct buf *b, const struct safetensors *s)
{
    uint64_t at = 0, length;
    buf_append(b, "\0\0\0\0\0\0\0\0{", 9);
    buf_puts(b, "\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t bytes = 4; bytes >= 2; bytes -= 2) {
        for (int i = 0; i < s->n_tensors; i++) {
            const struct st_tensor *t = &s->tensors[i];
            if (!is_wanted(t) || st_dtype_bytes(dtype_of(t)) != bytes)
                continue;
            put_entry(b, t, at, (uint64_t)t->n_elems * bytes);
            at += (uint64_t)t->n_elems * bytes;
        }
    }
    buf_putc(b, '}');
    while (b->n % 8 != 0)
        buf_putc(b, ' ');
    length = b->n - 8;
    for (int i = 0; i < 8 && !b->failed; i++)
        b->p[i] = (char)(length >> 8 * i);
}

/* Numbers [begin, begin + n) in the type of the output; the file's own bits, where it has this type. */
static bool read_slice(const struct st_tensor *t, int64_t begin, int64_t n, double *wide, uint8_t *out,
                       struct err *e)
{
    if (!st_read_f64(t, begin, n, wide, e))
        return false;
    for (int64_t i = 0; i < n; i++) {
        float f = (float)wide[i];
        uint32_t bits;
        uint16_t half = f32_to_f16(f);
        memcpy(&bits, &f, 4);
        if (dtype_of(t) == ST_BF16)
            half = (uint16_t)(bits >> 16);
        if (dtype_of(t) == ST_F32)
            memcpy(out + 4 * i, &bits, 4);
        else
            memcpy(out + 2 * i, &half, 2);
    }
    return true;
}

static bool write_tensor(struct out_file *f, const struct st_tensor *t, double *wide, uint8_t *out,
                         struct log *log, struct err *e)
{
    for (int64_t at = 0; at < t->n_elems; at += SLICE) {
        int64_t n = t->n_elems - at < SLICE ? t->n_elems - at : SLICE;
        if (log_cancelled(log, e) || !read_slice(t, at, n, wide, out, e) ||
            !out_file_write(f, out, (size_t)n * st_dtype_bytes(dtype_of(t)), e))
            return false;
    }
    return true;
}

static bool write_weights(const struct safetensors *s, const char *folder, struct log *log,
                          struct convert_report *report, struct err *e)
{
    char *path = path_join(folder, FILE_NAME);
    double *wide = xmalloc(SLICE * sizeof *wide);
    uint8_t *out = xmalloc(SLICE * 4);
    struct out_file *f = NULL;
    struct progress progress;
    struct buf header;
    buf_init(&header, HEADER_BYTES_MAX);
    put_header(&header, s);
    progress_begin(&progress, log, "writing", "MB", 1e-6, (double)s->total_bytes);
    bool ok = !header.failed || err_set(e, ERR_LIMIT, "%s: too many tensors", path);
    ok = ok && out_file_open(&f, path, false, e) && out_file_write(f, header.p, header.n, e);
    for (size_t bytes = 4; bytes >= 2 && ok; bytes -= 2) {
        for (int i = 0; i < s->n_tensors && ok; i++) {
            const struct st_tensor *t = &s->tensors[i];
            if (!is_wanted(t) || st_dtype_bytes(dtype_of(t)) != bytes)
                continue;
            ok = write_tensor(f, t, wide, out, log, e);
            report->n_tensors_used++;
            report->bytes_read += t->bytes;
            progress_update(&progress, (double)report->bytes_read, t->name);
        }
    }
    progress_end(&progress);
    report->n_tensors_left_out = s->n_tensors - report->n_tensors_used;
    ok = ok && safetensors_check(s, e);
    report->bytes_written = ok ? out_file_position(f) : 0;
    if (ok) {
        struct out_file *complete = f;
        f = NULL;
        ok = out_file_commit(complete, e);
    }
    out_file_abort(f);
    buf_fini(&header);
    free(wide);
    free(out);
    free(path);
    return ok;
}

bool convert_plain(const struct convert_options *o, struct convert_report *report, struct err *e)
{
    double start = clock_seconds();
    struct checkpoint_source *source = NULL;
    struct safetensors *tensors = NULL;
    struct out_folder *folder = NULL;
    struct convert_options own = *o;
    *report = (struct convert_report){0};
    bool ok = path_check_new(o->output, e) &&
              checkpoint_source_open(&source, o->checkpoint, o->config_overrides, e);
    if (ok && !source->is_gguf)
        ok =
            err_set(e, ERR_USAGE, "a GGUF file is written as a checkpoint; %s is one already", o->checkpoint);
    if (ok) {
        own.checkpoint = source->folder;
        own.source = source;
        checkpoint_source_say(source, o->log);
        ok = safetensors_open(&tensors, source->folder, e) && out_folder_open(&folder, o->output, false, e) &&
             convert_copy_files(&own, out_folder_path(folder), &report->has_tokenizer, e) &&
             write_weights(tensors, out_folder_path(folder), o->log, report, e);
    }
    if (ok) {
        struct out_folder *complete = folder;
        folder = NULL;
        ok = out_folder_commit(complete, e);
    }
    if (!ok)
        (void)checkpoint_source_fail(source, e);
    out_folder_abort(folder);
    safetensors_close(tensors);
    checkpoint_source_close(source);
    report->seconds = clock_seconds() - start;
    return ok;
}
