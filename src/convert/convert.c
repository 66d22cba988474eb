/* The pipeline: check everything that can be checked, build all programs, then write part after part. */
#include "convert/convert.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "convert/files.h"
#include "convert/parts.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define DEFAULT_CONTEXT 512
#define DEFAULT_BATCH 64
#define DEFAULT_SPLIT 16
/* Programs, tokenizer and the like, beside the weights. */
#define OTHER_BYTES ((uint64_t)64 << 20)

struct conversion {
    const struct convert_options *options;
    const char *prefix;
    cJSON *config;
    struct safetensors *tensors;
    struct arch_model *model;
    struct pool *pool;
    struct convert_part *parts;
    int n_parts, n_open;
    struct out_folder *folder;
};

/* ---- checks ---- */

static bool check_prefix(const char *prefix, struct err *e)
{
    size_t n = strlen(prefix);
    if (n == 0 || n > 64)
        return err_set(e, ERR_USAGE, "prefix: expected 1 to 64 characters, found %zu", n);
    for (const char *p = prefix; *p; p++) {
        /* A dot would be taken for the extension by loaders that strip it. */
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", *p))
            return err_set(e, ERR_USAGE, "prefix \"%s\": expected letters, digits, _ and -, found '%c'",
                           prefix, *p);
    }
    return true;
}

/* Is `inner` the folder `outer` or somewhere below it? */
static bool is_inside(const char *inner, const char *outer)
{
    char *a = realpath(inner, NULL), *b = realpath(outer, NULL);
    size_t n = b ? strlen(b) : 0;
    bool inside = a && b && strncmp(a, b, n) == 0 && (a[n] == '\0' || a[n] == '/' || strcmp(b, "/") == 0);
    free(a);
    free(b);
    return inside;
}

/* An existing output is replaced only on demand, and only when it is a package (or empty): a mistyped folder
 * must not cost anyone's files. */
static bool check_output(const struct convert_options *o, struct err *e)
{
    if (!path_exists(o->output))
        return true;
    if (!o->replace)
        return err_set(e, ERR_IO, "%s: exists; give another folder, or --force to replace it", o->output);
    if (!path_is_folder(o->output))
        return err_set(e, ERR_IO, "%s: exists and is no folder", o->output);
    if (is_inside(o->checkpoint, o->output))
        return err_set(e, ERR_USAGE, "%s: holds the checkpoint %s and can't be replaced", o->output,
                       o->checkpoint);
    struct path_list entries;
    if (!path_list_read(&entries, o->output, e))
        return false;
    bool has_meta = entries.n == 0;
    for (size_t i = 0; i < entries.n; i++)
        has_meta = has_meta || strcmp(entries.names[i], "meta.yaml") == 0;
    path_list_free(&entries);
    if (!has_meta)
        return err_set(e, ERR_IO, "%s: exists and is no package (no meta.yaml); --force does not replace it",
                       o->output);
    return true;
}

static bool check_space(const struct conversion *c, uint64_t weight_bytes, struct err *e)
{
    char *parent = path_folder(c->options->output);
    int64_t free_bytes = disk_free_bytes(parent);
    free(parent);
    uint64_t needed = weight_bytes + OTHER_BYTES;
    if (free_bytes < 0 || (uint64_t)free_bytes >= needed)
        return true;
    return err_set(e, ERR_IO, "%s: the package needs about %.1f MB, the disk has %.1f MB left",
                   c->options->output, (double)needed * 1e-6, (double)free_bytes * 1e-6);
}

/* ---- steps ---- */

static bool open_checkpoint(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct arch_settings s = o->settings;
    s.context_length = s.context_length ? s.context_length : DEFAULT_CONTEXT;
    if (!s.batch_size)
        s.batch_size = s.context_length < DEFAULT_BATCH ? s.context_length : DEFAULT_BATCH;
    s.n_chunks = s.n_chunks ? s.n_chunks : 1;
    s.split_lm_head = s.split_lm_head ? s.split_lm_head : DEFAULT_SPLIT;
    if (!path_is_folder(o->checkpoint))
        return err_set(e, ERR_IO, "%s: expected a checkpoint folder%s", o->checkpoint,
                       path_exists(o->checkpoint) ? "" : ", found nothing");
    char *path = path_join(o->checkpoint, "config.json");
    bool ok = json_read_file(&c->config, path, CONFIG_BYTES_MAX, e);
    free(path);
    return ok && safetensors_open(&c->tensors, o->checkpoint, e) &&
           arch_open(&c->model, o->checkpoint, c->config, c->tensors, &s, e);
}

static void warn_about_context(const struct conversion *c)
{
    const cJSON *positions = json_get(c->model->text_config, "max_position_embeddings");
    double length = (double)c->model->settings.context_length;
    if (cJSON_IsNumber(positions) && positions->valuedouble < length)
        log_warn(c->options->log, "context length %.0f is beyond what the model was made for (%.0f)", length,
                 positions->valuedouble);
}

/* Part 0: embeddings, 1 .. n_chunks: chunks, last: head. */
static bool build_part(struct conversion *c, int i, struct err *e)
{
    int n_chunks = c->model->settings.n_chunks;
    const struct arch_family *family = c->model->family;
    struct mil_model *model = mil_model_new(9);
    bool ok;
    char *name;
    if (i == 0) {
        name = convert_embeddings_name(c->prefix);
        ok = family->build_embeddings(c->model, model, e);
    } else if (i <= n_chunks) {
        name = convert_chunk_name(c->prefix, i - 1, n_chunks);
        ok = family->build_chunk(c->model, i - 1, model, e);
    } else {
        name = convert_head_name(c->prefix);
        ok = family->build_head(c->model, model, e);
    }
    if (!ok) {
        mil_model_close(model);
        free(name);
        return false;
    }
    c->n_open = i + 1;
    return convert_part_init(&c->parts[i], model, name, e);
}

static bool build_parts(struct conversion *c, uint64_t *weight_bytes, struct err *e)
{
    c->n_parts = c->model->settings.n_chunks + 2;
    c->parts = xcalloc((size_t)c->n_parts, sizeof *c->parts);
    *weight_bytes = 0;
    for (int i = 0; i < c->n_parts; i++) {
        if (log_cancelled(c->options->log, e) || !build_part(c, i, e))
            return false;
        *weight_bytes += c->parts[i].weight_bytes;
    }
    return true;
}

static bool write_parts(struct conversion *c, uint64_t weight_bytes, struct convert_report *report,
                        struct err *e)
{
    struct progress progress;
    struct convert_job job = {.folder = out_folder_path(c->folder),
                              .format = c->options->format,
                              .pool = c->pool,
                              .log = c->options->log,
                              .progress = &progress};
    bool ok = true;
    progress_begin(&progress, c->options->log, "converting", "MB", 1e-6, (double)weight_bytes);
    for (int i = 0; i < c->n_parts && ok; i++) {
        ok = convert_part_write(&c->parts[i], &job, e);
        /* The graph of a finished part is not needed any more. */
        if (ok)
            convert_part_fini(&c->parts[i]);
    }
    progress_end(&progress);
    report->bytes_written = job.written_bytes;
    report->dedup_bytes = job.dedup_bytes;
    return ok;
}

static void fill_report(const struct conversion *c, struct convert_report *r)
{
    struct buf names;
    buf_init(&names, 4096);
    for (int i = 0; i < c->tensors->n_tensors; i++) {
        const struct st_tensor *t = &c->tensors->tensors[i];
        if (c->model->tensor_used[i]) {
            r->n_tensors_used++;
            r->bytes_read += t->bytes;
            continue;
        }
        if (r->n_tensors_left_out++ < 3)
            buf_printf(&names, "%s%s", r->n_tensors_left_out > 1 ? ", " : "", t->name);
    }
    if (r->n_tensors_left_out > 3)
        buf_printf(&names, " and %d more", r->n_tensors_left_out - 3);
    if (r->n_tensors_left_out > 0)
        r->left_out = buf_take(&names, NULL);
    buf_fini(&names);
}

static bool run(struct conversion *c, struct convert_report *report, struct err *e)
{
    const struct convert_options *o = c->options;
    uint64_t weight_bytes = 0;
    if (o->prefix && !check_prefix(o->prefix, e))
        return false;
    if (!check_output(o, e) || !open_checkpoint(c, e))
        return false;
    c->prefix = o->prefix ? o->prefix : c->model->family->default_prefix;
    warn_about_context(c);
    if (!build_parts(c, &weight_bytes, e) || !check_space(c, weight_bytes, e) ||
        !pool_new(&c->pool, o->n_threads, e) || !out_folder_open(&c->folder, o->output, o->replace, e))
        return false;
    const char *folder = out_folder_path(c->folder);
    if (!convert_copy_files(o, folder, &report->has_tokenizer, e) ||
        !convert_write_meta(o, c->model, c->prefix, folder, e) || !write_parts(c, weight_bytes, report, e) ||
        log_cancelled(o->log, e))
        return false;
    struct out_folder *complete = c->folder;
    c->folder = NULL;
    if (!out_folder_commit(complete, e))
        return false;
    fill_report(c, report);
    if (!report->has_tokenizer)
        log_warn(o->log, "%s: no tokenizer.json, so the package has no tokenizer", o->checkpoint);
    return true;
}

bool convert_run(const struct convert_options *o, struct convert_report *report, struct err *e)
{
    double start = clock_seconds();
    struct conversion c = {.options = o};
    *report = (struct convert_report){0};
    bool ok = run(&c, report, e);
    out_folder_abort(c.folder);
    for (int i = 0; i < c.n_open; i++)
        convert_part_fini(&c.parts[i]);
    free(c.parts);
    pool_free(c.pool);
    arch_close(c.model);
    safetensors_close(c.tensors);
    cJSON_Delete(c.config);
    report->seconds = clock_seconds() - start;
    return ok;
}

void convert_report_fini(struct convert_report *r)
{
    free(r->left_out);
    r->left_out = NULL;
}
