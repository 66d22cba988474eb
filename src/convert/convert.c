/* The pipeline: check everything that can be checked, build all programs, then write part after part. */
#include "convert/convert.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "convert/files.h"
#include "convert/parts.h"
#include "convert/report.h"
#include "convert/resume.h"
#include "format/contract.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define DEFAULT_CONTEXT 512
#define DEFAULT_BATCH 64
/* What an op of a program takes in each of its forms, about, and its share of settings and metadata. */
#define OP_BYTES 2048
/* Of a weight file: what devices load, and what leaves room below it. */
#define IOS_BYTES_MAX ((uint64_t)1 << 30)
#define MACOS_BYTES_MAX ((uint64_t)2 << 30)
#define AUTO_BYTES_MAX ((uint64_t)950 * 1000 * 1000)
#define AXIS_MAX 16384 /* channels of a convolution that the Neural Engine takes */

/* What a run makes. chunk: 0 for all of them, else its number, -1 for none. */
struct convert_selection {
    bool embeddings, head, meta, all_chunks;
    bool chunks[100]; /* by number, from 1 */
};

struct conversion {
    const struct convert_options *options; /* own, once the checkpoint is a folder */
    struct convert_options own;
    struct checkpoint_source *source;
    const char *prefix;
    cJSON *config;
    struct safetensors *tensors;
    struct arch_model *model;
    struct pool *pool;
    struct convert_part *parts;
    int n_parts, n_open;
    struct convert_selection only;
    const struct quant_choices *choices; /* NULL: one width a part */
    struct arch_residual residual;
    struct out_folder *folder;
    struct convert_journal *journal;
    struct convert_peak peak;
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

/* An empty folder is taken. Anything else is replaced only on demand, and only when it is a package: a mistyped folder must
 * not cost anyone's files. */
static bool check_output(const struct convert_options *o, struct err *e)
{
    struct path_list entries = {0};
    if (!path_exists(o->output))
        return path_check_new(o->output, e);
    if (path_is_empty_folder(o->output))
        return true;
    if (!path_is_folder(o->output))
        return err_set(e, ERR_IO, "%s: exists and is not a folder", o->output);
    if (o->replace && is_inside(o->checkpoint, o->output))
        return err_set(e, ERR_USAGE, "%s: holds the checkpoint %s and can't be replaced", o->output,
                       o->checkpoint);
    if (!path_list_read(&entries, o->output, e))
        return false;
    bool has_meta = false;
    for (size_t i = 0; i < entries.n; i++)
        has_meta = has_meta || strcmp(entries.names[i], FILE_META) == 0;
    path_list_free(&entries);
    if (!has_meta)
        return err_set(e, ERR_IO, "%s: exists and is not a package (no meta.yaml), so it is not replaced",
                       o->output);
    if (!o->replace)
        return err_set(e, ERR_IO, "%s: exists", o->output), err_set_hint(e, HINT_REPLACE);
    return true;
}

static uint64_t program_bytes(const struct conversion *c, const struct convert_part *p)
{
    uint64_t n_ops = 0;
    for (int i = 0; i < p->model->program->n_functions; i++)
        n_ops += (uint64_t)p->model->program->functions[i]->block->n_ops;
    return n_ops * OP_BYTES * (c->options->format == CONVERT_BOTH ? 2 : 1);
}

/* needed: of weights and programs */
static bool check_space(const struct conversion *c, uint64_t needed, struct err *e)
{
    char *parent = path_folder(c->options->output);
    int64_t free_bytes = disk_free_bytes(parent);
    free(parent);
    needed += c->only.meta ? convert_copied_bytes(c->options->checkpoint) : 0;
    if (free_bytes < 0 || (uint64_t)free_bytes >= needed)
        return true;
    return err_set(e, ERR_IO, "%s: the package needs about %.1f MB, the disk has %.1f MB left",
                   c->options->output, (double)needed * 1e-6, (double)free_bytes * 1e-6);
}

/* ---- steps ---- */

static bool open_checkpoint(struct conversion *c, struct err *e)
{
    if (!checkpoint_source_open(&c->source, c->options->checkpoint, c->options->config_overrides, e))
        return false;
    c->own = *c->options;
    c->own.checkpoint = c->source->folder;
    c->own.source = c->source;
    c->options = &c->own;
    const struct convert_options *o = c->options;
    struct arch_settings s = o->settings;
    s.context_length = s.context_length ? s.context_length : DEFAULT_CONTEXT;
    if (!s.batch_size)
        s.batch_size = s.context_length < DEFAULT_BATCH ? s.context_length : DEFAULT_BATCH;
    s.n_chunks = s.n_chunks ? s.n_chunks : 1;
    char *path = path_join(o->checkpoint, "config.json");
    bool ok =
        checkpoint_check_folder(o->checkpoint, e) && json_read_file(&c->config, path, CONFIG_BYTES_MAX, e);
    free(path);
    return ok && safetensors_open(&c->tensors, o->checkpoint, e) &&
           arch_open(&c->model, o->checkpoint, c->config, c->tensors, &s, e);
}

static void warn_about_context(const struct conversion *c)
{
    const cJSON *positions = json_get(c->model->config.text, "max_position_embeddings");
    double length = (double)c->model->settings.context_length;
    if (cJSON_IsNumber(positions) && positions->valuedouble < length)
        log_warn(c->options->log, "context length %.0f is beyond what the model was made for (%.0f)", length,
                 positions->valuedouble);
}

/* Parts are read by devices as they are: what this engine leaves out, they compute. */
static void warn_about_experts(const struct conversion *c)
{
    const struct arch_model *m = c->model;
    if (m->n_experts > m->n_chosen)
        log_warn(c->options->log,
                 "the graph computes all %lld experts of a layer for every token, of which %lld count: on a "
                 "device "
                 "time and memory grow with their number; this engine computes the chosen ones",
                 (long long)m->n_experts, (long long)m->n_chosen);
}

static void warn_about_options(const struct conversion *c)
{
    const struct arch_model *m = c->model;
    if (m->settings.exact_norms && !m->knows_exact_norms)
        log_warn(c->options->log, "exact norms change nothing: norms of %s have one constant",
                 m->family->name);
    if (m->settings.anemll_rotate && !m->knows_rotate)
        log_warn(c->options->log, "the rotating caches change nothing: %s has none", m->family->name);
    if (m->settings.exact_topk && !m->knows_exact_topk)
        log_warn(c->options->log, "the exact choice of experts changes nothing: the model has no experts");
}

/* ---- parts ---- */

static bool select_item(struct convert_selection *s, const char *item, size_t n, struct err *e)
{
    char *end;
    if (n == 10 && memcmp(item, "embeddings", n) == 0)
        return s->embeddings = true;
    if (n == 3 && memcmp(item, "ffn", n) == 0)
        return s->all_chunks = true;
    if (n == 4 && memcmp(item, "head", n) == 0)
        return s->head = true;
    if (n == 4 && memcmp(item, "meta", n) == 0)
        return s->meta = true;
    if (n > 6 && memcmp(item, "chunk:", 6) == 0 && item[6] >= '1' && item[6] <= '9') {
        long i = strtol(item + 6, &end, 10);
        if (end == item + n && i < 100)
            return s->chunks[i] = true;
    }
    err_set(e, ERR_USAGE, "parts: expected embeddings, ffn, chunk:N, head or meta, found '%.*s'",
            (int)(n < 32 ? n : 32), item);
    return err_set_hint(e, HINT_PARTS);
}

static bool read_selection(struct convert_selection *s, const char *only, struct err *e)
{
    if (!only) {
        s->embeddings = s->head = s->meta = s->all_chunks = true;
        return true;
    }
    for (;;) {
        size_t n = strcspn(only, ",");
        if (!select_item(s, only, n, e))
            return false;
        if (!only[n])
            return true;
        only += n + 1;
    }
}

static bool check_selection(const struct conversion *c, struct err *e)
{
    int n_chunks = c->model->settings.n_chunks;
    for (int i = n_chunks + 1; i < 100; i++) {
        if (!c->only.chunks[i])
            continue;
        err_set(e, ERR_USAGE, "chunk:%d: there %s %d chunk%s", i, n_chunks == 1 ? "is" : "are", n_chunks,
                n_chunks == 1 ? "" : "s");
        return err_set_hint(e, HINT_PARTS);
    }
    return true;
}

/* Part 0: embeddings, 1 .. n_chunks: chunks, last: head. */
static bool build_part(struct conversion *c, int i, struct err *e)
{
    int n_chunks = c->model->settings.n_chunks;
    const struct arch_family *family = c->model->family;
    const struct convert_options *o = c->options;
    const struct quant_spec *spec = &o->ffn;
    const struct quant_choices *choices = NULL;
    struct mil_model *model = mil_model_new(9);
    unsigned which = QUANT_LINEAR;
    bool ok, is_wanted = c->only.all_chunks || c->only.chunks[i < 100 ? i : 0];
    char *name;
    if (i == 0) {
        spec = &o->embeddings;
        which |= QUANT_TABLES;
        is_wanted = c->only.embeddings;
        name = convert_embeddings_name(c->prefix, spec);
        ok = family->build_embeddings(c->model, model, e);
    } else if (i <= n_chunks) {
        choices = c->choices;
        name = convert_chunk_name(c->prefix, spec, i - 1, n_chunks);
        ok = family->build_chunk(c->model, i - 1, model, e);
    } else {
        spec = &o->head;
        is_wanted = c->only.head;
        name = convert_head_name(c->prefix, spec);
        ok = family->build_head(c->model, model, e);
    }
    if (!ok) {
        mil_model_close(model);
        free(name);
        return false;
    }
    c->n_open = i + 1;
    ok = convert_part_init(&c->parts[i], model, name, spec, choices, which, e) || err_wrap(e, "%s", name);
    c->parts[i].is_wanted = is_wanted;
    return ok;
}

static void close_parts(struct conversion *c)
{
    for (int i = 0; i < c->n_open; i++)
        convert_part_fini(&c->parts[i]);
    free(c->parts);
    c->parts = NULL;
    c->n_open = 0;
}

static bool build_parts(struct conversion *c, struct err *e)
{
    c->n_parts = c->model->settings.n_chunks + 2;
    c->parts = xcalloc((size_t)c->n_parts, sizeof *c->parts);
    for (int i = 0; i < c->n_parts; i++) {
        if (log_cancelled(c->options->log, e) || !build_part(c, i, e))
            return false;
    }
    return true;
}

static uint64_t largest_chunk(const struct conversion *c)
{
    uint64_t largest = 0;
    for (int i = 1; i < c->n_parts - 1; i++)
        largest = c->parts[i].weight_bytes > largest ? c->parts[i].weight_bytes : largest;
    return largest;
}

/* The parts, in as few chunks as keep their files below the limit. */
static bool build_auto(struct conversion *c, struct err *e)
{
    int n_max = c->model->n_layers < 99 ? (int)c->model->n_layers : 99;
    int *n_chunks = &c->model->settings.n_chunks;
    for (*n_chunks = 1;; (*n_chunks)++) {
        if (!build_parts(c, e))
            return false;
        uint64_t largest = largest_chunk(c);
        if (largest <= AUTO_BYTES_MAX || *n_chunks >= n_max)
            break;
        /* No number below this can do. */
        int least = (int)(largest / AUTO_BYTES_MAX) * *n_chunks;
        if (least > *n_chunks + 1 && *n_chunks == 1)
            *n_chunks = (least < n_max ? least : n_max) - 1;
        close_parts(c);
    }
    log_info(c->options->log, "%d chunk%s of up to %.0f MB", *n_chunks, *n_chunks == 1 ? "" : "s",
             (double)largest_chunk(c) * 1e-6);
    return true;
}

static void warn_about_axes(const struct conversion *c, const struct convert_part *p)
{
    int n = 0;
    int64_t largest = 0;
    for (int i = 0; i < p->n_weights; i++) {
        const struct mil_type *t = p->weights[i]->type;
        if (t->rank != 4)
            continue;
        for (int axis = 0; axis < 2; axis++) {
            n += t->dims[axis] > AXIS_MAX;
            largest = t->dims[axis] > largest ? t->dims[axis] : largest;
        }
    }
    if (n > 0)
        log_warn_hint(c->options->log, p == &c->parts[c->n_parts - 1] ? HINT_SPLIT_HEAD : HINT_NONE,
                      "%s: a convolution has %lld channels; the Neural Engine takes up to %d", p->name,
                      (long long)largest, AXIS_MAX);
}

static void warn_about_parts(const struct conversion *c)
{
    for (int i = 0; i < c->n_parts; i++) {
        const struct convert_part *p = &c->parts[i];
        bool is_chunk = i > 0 && i < c->n_parts - 1;
        if (!p->is_wanted)
            continue;
        if (p->weight_bytes > IOS_BYTES_MAX)
            log_warn_hint(c->options->log, is_chunk ? HINT_CHUNKS : HINT_NONE,
                          "%s: %.0f MB in one weight file; iOS loads up to about 1 GB%s", p->name,
                          (double)p->weight_bytes * 1e-6,
                          p->weight_bytes > MACOS_BYTES_MAX ? ", macOS up to about 2 GB" : "");
        warn_about_axes(c, p);
    }
}

static void warn_about_quantization(const struct convert_options *o)
{
    static const char *const names[] = {"embeddings", "ffn", "head"};
    const struct quant_spec *specs[] = {&o->embeddings, &o->ffn, &o->head};
    for (int i = 0; i < 3; i++) {
        if (specs[i]->kind == QUANT_INT8)
            log_warn_hint(
                o->log, HINT_PALETTES,
                "%s: the Neural Engine computes linear int8 weights wrongly; only palettes are right "
                "there",
                names[i]);
        if (specs[i]->kind == QUANT_INT4)
            log_warn_hint(
                o->log, HINT_PALETTES,
                "%s: weights of int4 blocks do not compile for the Neural Engine; only palettes run "
                "there",
                names[i]);
    }
    if (o->embeddings.kind != QUANT_NONE)
        log_warn(o->log,
                 "the embedding table is quantized: Core ML expands it in memory when it loads, which "
                 "takes long; an fp16 table stays in its file");
}

/* ---- writing ---- */

static bool check_specs(const struct convert_options *o, struct err *e)
{
    const struct quant_spec *specs[] = {&o->embeddings, &o->ffn, &o->head};
    for (int i = 0; i < 3; i++) {
        const struct quant_spec *s = specs[i];
        bool is_lut = s->kind == QUANT_LUT && s->bits >= 1 && s->bits <= 8 && s->bits != 5 && s->bits != 7;
        if (s->kind != QUANT_NONE && !is_lut && !(s->kind == QUANT_INT8 && s->bits == 8) &&
            !(s->kind == QUANT_INT4 && s->bits == 4 && s->block > 0 && s->block <= 4096))
            return err_set(e, ERR_USAGE, "quantization of %d bits is not possible", s->bits);
        if (s->group < 0 || s->group > INT32_MAX)
            return err_set(e, ERR_USAGE, "channels a table: expected 0 to %d, found %lld", INT32_MAX,
                           (long long)s->group);
    }
    return true;
}

/* Takes finished parts over; what is left to do, in bytes to write and of work. */
static void take_finished(struct conversion *c, struct convert_report *report, uint64_t *write_bytes,
                          uint64_t *work_bytes)
{
    *write_bytes = *work_bytes = 0;
    for (int i = 0; i < c->n_parts; i++) {
        struct convert_part *p = &c->parts[i];
        if (!p->is_wanted)
            continue;
        report->n_parts++;
        if (convert_journal_take(c->journal, p, c->options->format)) {
            report->n_resumed++;
            log_info(c->options->log, "%s: finished before, kept", p->name);
            if (!c->options->guide_all)
                convert_part_close_model(p);
        } else {
            *write_bytes += p->weight_bytes + program_bytes(c, p);
            *work_bytes += p->work_bytes;
        }
    }
}

/* A run that was killed left more than finished parts: half of a part, temporary names of its files. */
static bool clear_unfinished(struct conversion *c, struct err *e)
{
    int n = 0;
    char **names = xcalloc(2 * (size_t)c->n_parts + 1, sizeof *names);
    for (int i = 0; i < c->n_parts; i++) {
        if (c->parts[i].is_done)
            n += convert_part_folders(&c->parts[i], c->options->format, names + n);
    }
    names[n] = xstrdup(CONVERT_JOURNAL_NAME);
    bool ok = out_folder_clear(c->folder, (const char *const *)names, n + 1, e);
    for (int i = 0; i <= n; i++)
        free(names[i]);
    free(names);
    return ok;
}

/* Parts of layers that are not written, in front of one that is. */
static bool has_to_guide(const struct conversion *c, int i)
{
    if (!c->options->guide_all || i == 0)
        return false;
    for (int k = i + 1; k < c->n_parts; k++)
        if (c->parts[k].is_wanted && !c->parts[k].is_done &&
            (k < c->n_parts - 1 || quant_method_needs(c->options->head.method) != QUANT_NEEDS_NOTHING))
            return true;
    return false;
}

static bool write_parts(struct conversion *c, uint64_t work_bytes, struct convert_report *report,
                        struct err *e)
{
    struct progress progress;
    struct convert_job job = {.options = c->options,
                              .folder = out_folder_path(c->folder),
                              .format = c->options->format,
                              .pool = c->pool,
                              .log = c->options->log,
                              .n_layers = c->model->n_layers,
                              .peak = &c->peak,
                              .progress = &progress};
    bool ok = true;
    progress_begin(&progress, c->options->log, "converting", "MB", 1e-6, (double)work_bytes);
    for (int i = 0; i < c->n_parts && ok; i++) {
        struct convert_part *p = &c->parts[i];
        job.is_head = i == c->n_parts - 1;
        if (!p->is_wanted || p->is_done) {
            ok = !has_to_guide(c, i) || convert_guide_part(p, &job, e);
            continue;
        }
        ok = convert_part_write(p, &job, e);
        /* Numbers of a file that was cut short meanwhile must not count as finished, whatever else went wrong. */
        ok = safetensors_check(c->tensors, e) && ok;
        if (ok) {
            p->report = convert_report_part(p);
            ok = convert_journal_add(c->journal, p, c->options->format, e);
        }
        if (ok) {
            p->is_done = true;
            out_folder_set_resumable(c->folder, true);
            convert_report_say(c->options->log, p);
            convert_part_close_model(p);
        }
    }
    progress_end(&progress);
    report->bytes_written = job.written_bytes;
    report->dedup_bytes = job.dedup_bytes;
    return ok;
}

static void fill_report(const struct conversion *c, struct convert_report *r)
{
    for (int i = 0; i < c->tensors->n_tensors; i++) {
        if (!c->model->tensor_used[i]) {
            r->n_tensors_left_out++;
            continue;
        }
        r->n_tensors_used++;
        r->bytes_read += c->tensors->tensors[i].bytes;
        r->n_numbers += c->tensors->tensors[i].n_elems;
    }
    r->left_out = convert_left_out(c->model);
    r->packed_types = c->source->packed_types ? xstrdup(c->source->packed_types) : NULL;
    r->packed_bits = c->source->packed_bits;
}

/* For -v: what was given, and what was chosen where nothing was. */
static void say_choices(const struct conversion *c)
{
    static const char *const formats[] = {[CONVERT_BOTH] = "mlpackage and mlmodelc",
                                          [CONVERT_MLMODELC] = "mlmodelc",
                                          [CONVERT_MLPACKAGE] = "mlpackage"};
    const struct convert_options *o = c->options;
    const struct arch_settings *s = &c->model->settings;
    char embeddings[64], ffn[64], head[64];
    quant_describe(embeddings, &o->embeddings);
    quant_describe(ffn, &o->ffn);
    quant_describe(head, &o->head);
    log_debug(o->log,
              "%s: context %lld, batch %lld, chunks %d, head in %d parts, names %s_*, as %s; embeddings %s, "
              "layers %s, head %s; %d threads",
              c->model->family->name, (long long)s->context_length, (long long)s->batch_size, s->n_chunks,
              s->split_lm_head, c->prefix, formats[o->format], embeddings, ffn, head, pool_threads(c->pool));
}

static bool open_work(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    char key[17];
    bool found = false;
    if (!convert_work_key(key, o, c->choices, c->model, c->prefix, e) ||
        !out_folder_open_keyed(&c->folder, o->output, key, o->resume, o->replace, &found, e))
        return false;
    if (o->resume && !found)
        log_info(o->log, "%s: nothing to resume: no interrupted run with these settings", o->output);
    c->journal = convert_journal_open(out_folder_path(c->folder));
    return true;
}

static bool write_package(struct conversion *c, struct convert_report *report, struct err *e)
{
    const struct convert_options *o = c->options;
    const char *folder = out_folder_path(c->folder);
    uint64_t write_bytes, work_bytes;
    take_finished(c, report, &write_bytes, &work_bytes);
    out_folder_set_resumable(c->folder, convert_journal_parts(c->journal) > 0);
    if (!clear_unfinished(c, e) || !check_space(c, write_bytes, e))
        return false;
    if (c->only.meta && (!convert_copy_files(o, folder, &report->has_tokenizer, e) ||
                         !convert_write_meta(o, c->model, c->prefix, folder, e)))
        return false;
    return write_parts(c, work_bytes, report, e) && !log_cancelled(o->log, e) &&
           (!o->verify || o->only || o->verify(o->verify_context, folder, e)) &&
           convert_journal_remove(c->journal, e);
}

/* Finished parts stay for a run that resumes, when the user or the system (a full disk, a file that was cut short) stopped this one, or when it
 * resumes already. */
static void leave_work(struct conversion *c, struct err *e)
{
    int n_finished = convert_journal_parts(c->journal);
    bool is_stopped = e->code == ERR_CANCELLED || e->code == ERR_IO || c->options->resume;
    if (c->folder && n_finished > 0 && is_stopped) {
        struct err why = *e;
        /* What is not finished would only fill the disk. A failure changes nothing: the next run clears, too. */
        if (why.code == ERR_IO)
            (void)clear_unfinished(c, e);
        err_set(e, why.code, "%s; finished parts are kept (%d of %d)", why.msg, n_finished, c->n_parts);
        err_set_hint(e, HINT_RESUME);
        out_folder_keep(c->folder);
    } else {
        out_folder_abort(c->folder);
    }
}

static bool makes_chunks(const struct convert_selection *s)
{
    bool any = s->all_chunks;
    for (int i = 1; i < 100; i++)
        any = any || s->chunks[i];
    return any;
}

/* The head alone does not know of the stream's scale. */
static bool scale_residual(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    c->residual.scale = c->model->settings.residual_scale;
    if (o->settings.residual_scale > 0 || !o->measure_residual ||
        !(c->only.embeddings || c->only.meta || makes_chunks(&c->only)))
        return true;
    if (!o->measure_residual(o->residual_context, c->model, &c->residual, e))
        return false;
    c->model->settings.residual_scale = c->residual.scale;
    return true;
}

/* Is something written that a guide is asked about? */
static bool is_guided(const struct conversion *c)
{
    return (makes_chunks(&c->only) && quant_method_needs(c->options->ffn.method) != QUANT_NEEDS_NOTHING) ||
           (c->only.head && quant_method_needs(c->options->head.method) != QUANT_NEEDS_NOTHING);
}

static bool run(struct conversion *c, struct convert_report *report, struct err *e)
{
    const struct convert_options *o = c->options;
    if (o->prefix && !check_prefix(o->prefix, e))
        return false;
    if (!check_specs(o, e) || !read_selection(&c->only, o->only, e) || !check_output(o, e) ||
        (o->report_path && strcmp(o->report_path, "-") != 0 &&
         !path_check_output(o->report_path, o->replace, e)) ||
        !open_checkpoint(c, e))
        return false;
    o = c->options;
    c->prefix = o->prefix ? o->prefix : c->model->family->default_prefix;
    checkpoint_say(c->tensors, c->config, o->checkpoint, o->log);
    warn_about_context(c);
    warn_about_options(c);
    warn_about_experts(c);
    checkpoint_source_say(c->source, o->log);
    if (c->model->note)
        log_warn(o->log, "%s", c->model->note);
    warn_about_quantization(o);
    /* Measuring may take hours: what can be refused is refused before. */
    if (!o->chunks_auto && !check_selection(c, e))
        return false;
    if (!scale_residual(c, e))
        return false;
    if (o->choose && makes_chunks(&c->only) && !o->choose(o->choose_context, c->model, &c->choices, e))
        return false;
    if (o->guide && is_guided(c) && !o->guide_begin(o->guide_context, c->model, e))
        return false;
    if (!(o->chunks_auto ? build_auto(c, e) && check_selection(c, e) : build_parts(c, e)))
        return false;
    warn_about_parts(c);
    if (!pool_new(&c->pool, o->n_threads, e))
        return false;
    say_choices(c);
    if (!open_work(c, e) || !write_package(c, report, e))
        return false;
    struct out_folder *complete = c->folder;
    c->folder = NULL;
    if (!out_folder_commit(complete, e))
        return false;
    fill_report(c, report);
    if (c->only.meta && !report->has_tokenizer)
        log_warn(o->log, "%s: no tokenizer.json, so the package has no tokenizer", c->source->path);
    return true;
}

bool convert_run(const struct convert_options *o, struct convert_report *report, struct err *e)
{
    double start = clock_seconds();
    struct conversion c = {.options = o};
    struct err own = {0};
    *report = (struct convert_report){0};
    if (!e)
        e = &own;
    bool ok = run(&c, report, e) || checkpoint_source_fail(c.source, e);
    convert_peak_look(&c.peak, true);
    report->peak_anonymous = c.peak.anonymous;
    report->seconds = clock_seconds() - start;
    if (ok && o->report_path)
        ok = convert_report_write(o, c.choices, &c.residual, report, c.parts, c.n_parts, pool_threads(c.pool),
                                  e) ||
             err_wrap(e, "%s is complete, but not its report", o->output);
    if (!ok)
        leave_work(&c, e);
    convert_journal_close(c.journal);
    close_parts(&c);
    pool_free(c.pool);
    arch_close(c.model);
    safetensors_close(c.tensors);
    checkpoint_source_close(c.source);
    cJSON_Delete(c.config);
    return ok;
}

void convert_report_fini(struct convert_report *r)
{
    free(r->left_out);
    free(r->packed_types);
    r->left_out = r->packed_types = NULL;
}
