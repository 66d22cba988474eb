/* The report: what each part and each tensor costs, in bytes and in error. */
#include "convert/report.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define REPORT_BYTES_MAX ((size_t)256 << 20)
#define LOOK_SECONDS 0.1

/* ---- memory ---- */

/* Anonymous memory of this process: what it allocated, not the files that it mapped. 0 where unknown. */
static uint64_t anonymous_bytes(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *line = strstr(text, "\nRssAnon:");
    return line ? (uint64_t)strtoull(line + 9, NULL, 10) * 1024 : 0;
}

void convert_peak_look(struct convert_peak *peak, bool now)
{
    double t = clock_seconds();
    if (!peak || (!now && t - peak->last_s < LOOK_SECONDS))
        return;
    uint64_t bytes = anonymous_bytes();
    peak->last_s = t;
    peak->anonymous = bytes > peak->anonymous ? bytes : peak->anonymous;
}

static uint64_t peak_resident(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* ---- parts ---- */

static void put_key(struct buf *b, const char *key)
{
    buf_printf(b, "%s\"%s\":", b->n > 0 && b->p[b->n - 1] != '{' ? "," : "", key);
}

static void put_text(struct buf *b, const char *key, const char *text)
{
    put_key(b, key);
    json_put_string(b, text, strlen(text));
}

static void put_number(struct buf *b, const char *key, double v)
{
    put_key(b, key);
    json_put_double(b, v);
}

static void put_int(struct buf *b, const char *key, int64_t v)
{
    put_key(b, key);
    buf_printf(b, "%lld", (long long)v);
}

/* The part's quantization for people. */
static void describe(char dst[96], const struct convert_part *p)
{
    char text[64];
    quant_describe(text, &p->spec);
    if (p->choices)
        snprintf(dst, 96, "%s, %d bits where it pays", text, p->choices->wide);
    else
        snprintf(dst, 96, "%s", text);
}

static void put_tensor(struct buf *b, const struct convert_quant *q, const struct quant_choices *choices)
{
    const struct quant_weight *w = q->weight;
    uint64_t bytes = w->codes->bytes + w->table->bytes;
    buf_putc(b, '{');
    put_text(b, "name", w->name);
    put_int(b, "rows", w->rows);
    put_int(b, "columns", w->columns);
    if (w->spec.kind == QUANT_INT4)
        put_int(b, "block", w->spec.block);
    else
        put_int(b, "group", w->spec.group);
    put_number(b, "bits_per_weight", 8.0 * (double)bytes / (double)(w->rows * w->columns));
    put_number(b, "relative_error", quant_stats_relative(&q->stats));
    put_number(b, "mean_squared_error", q->stats.n ? q->stats.error / (double)q->stats.n : 0.0);
    put_number(b, "largest_error", q->stats.largest);
    const struct quant_choice *choice = choices ? quant_find_choice(choices, w->name, w->ordinal) : NULL;
    if (choice) {
        put_int(b, "bits", choice->bits);
        put_key(b, "output_error");
        buf_putc(b, '{');
        put_number(b, "narrow", choice->narrow_error);
        put_number(b, "wide", choice->wide_error);
        put_number(b, "gain_per_million_bits",
                   (choice->narrow_error - choice->wide_error) * 1e6 /
                       ((double)choice->n_elems * (choices->wide - choices->narrow)));
        buf_putc(b, '}');
    }
    buf_putc(b, '}');
}

char *convert_report_part(const struct convert_part *p)
{
    struct buf b;
    struct quant_stats total = {0};
    char quantization[96];
    buf_init(&b, REPORT_BYTES_MAX);
    describe(quantization, p);
    for (int i = 0; i < p->n_quants; i++)
        quant_stats_add(&total, &p->quants[i].stats);
    buf_putc(&b, '{');
    put_text(&b, "name", p->name);
    put_text(&b, "quantization", quantization);
    put_int(&b, "weights", p->n_elems);
    put_int(&b, "bytes", (int64_t)p->weight_bytes);
    put_number(&b, "bits_per_weight",
               p->n_elems > 0 ? 8.0 * (double)p->weight_bytes / (double)p->n_elems : 0.0);
    put_number(&b, "relative_error", quant_stats_relative(&total));
    put_number(&b, "seconds", p->seconds);
    put_key(&b, "tensors");
    buf_putc(&b, '[');
    for (int i = 0; i < p->n_quants; i++) {
        if (i > 0)
            buf_putc(&b, ',');
        put_tensor(&b, &p->quants[i], p->choices);
    }
    buf_puts(&b, "]}");
    char *text = b.failed ? xstrdup("{}") : buf_take(&b, NULL);
    buf_fini(&b);
    return text;
}

void convert_report_say(struct log *log, const struct convert_part *p)
{
    struct quant_stats total = {0};
    char quantization[96];
    describe(quantization, p);
    for (int i = 0; i < p->n_quants; i++)
        quant_stats_add(&total, &p->quants[i].stats);
    double bits = p->n_elems > 0 ? 8.0 * (double)p->weight_bytes / (double)p->n_elems : 0.0;
    if (p->n_quants > 0)
        log_info(log, "%s: %.1f MB, %.2f bits a weight (%s), relative squared error %.3g, %.1f s", p->name,
                 (double)p->weight_bytes * 1e-6, bits, quantization, quant_stats_relative(&total),
                 p->seconds);
    else
        log_debug(log, "%s: %.1f MB, %.2f bits a weight, %.1f s", p->name, (double)p->weight_bytes * 1e-6,
                  bits, p->seconds);
    if (p->n_regrouped > 0)
        log_info(log,
                 "%s: in %d weights the size is not a multiple of the group; there each group is the largest "
                 "divisor below it",
                 p->name, p->n_regrouped);
}

/* ---- the whole ---- */

static void put_choices(struct buf *b, const struct quant_choices *c)
{
    int n_wide = 0;
    for (int i = 0; i < c->n; i++)
        n_wide += c->list[i].bits == c->wide;
    put_key(b, "mixed");
    buf_putc(b, '{');
    put_int(b, "narrow", c->narrow);
    put_int(b, "wide", c->wide);
    put_number(b, "mean_bits_allowed", c->limit);
    put_number(b, "mean_bits", c->mean);
    put_int(b, "weights", c->n);
    put_int(b, "wide_weights", n_wide);
    put_int(b, "calibration_tokens", c->n_tokens);
    buf_putc(b, '}');
}

static bool write_text(const char *path, bool replace, const struct buf *text, struct err *e)
{
    struct out_file *f = NULL;
    if (!out_file_open(&f, path, replace, e))
        return false;
    if (out_file_write(f, text->p, text->n, e))
        return out_file_commit(f, e);
    out_file_abort(f);
    return false;
}

static void put_residual(struct buf *b, const struct arch_residual *r)
{
    put_key(b, "residual");
    buf_putc(b, '{');
    put_number(b, "scale", r->scale);
    if (r->n_tokens > 0) {
        put_number(b, "largest", r->largest);
        put_int(b, "layer", r->layer);
        put_int(b, "tokens", r->n_tokens);
    }
    buf_putc(b, '}');
}

bool convert_report_write(const struct convert_options *o, const struct quant_choices *choices,
                          const struct arch_residual *residual, const struct convert_report *r,
                          const struct convert_part *parts, int n_parts, int n_threads, struct err *e)
{
    struct buf b;
    buf_init(&b, REPORT_BYTES_MAX);
    buf_putc(&b, '{');
    put_int(&b, "schema", 1);
    put_text(&b, "milkit", o->version ? o->version : "");
    put_text(&b, "checkpoint", o->checkpoint);
    put_text(&b, "output", o->output);
    put_number(&b, "seconds", r->seconds);
    put_int(&b, "threads", n_threads);
    put_int(&b, "peak_anonymous_bytes", (int64_t)r->peak_anonymous);
    put_int(&b, "peak_resident_bytes", (int64_t)peak_resident());
    put_int(&b, "bytes_read", (int64_t)r->bytes_read);
    put_int(&b, "bytes_written", (int64_t)r->bytes_written);
    put_int(&b, "tensors_used", r->n_tensors_used);
    put_int(&b, "tensors_left_out", r->n_tensors_left_out);
    put_int(&b, "parts_resumed", r->n_resumed);
    put_residual(&b, residual);
    if (choices)
        put_choices(&b, choices);
    put_key(&b, "parts");
    buf_putc(&b, '[');
    for (int i = 0, n = 0; i < n_parts; i++) {
        if (!parts[i].report)
            continue;
        buf_printf(&b, "%s\n%s", n++ ? "," : "", parts[i].report);
    }
    buf_puts(&b, "]}\n");
    bool ok = !b.failed || err_set(e, ERR_LIMIT, "%s: too large", o->report_path);
    if (ok && strcmp(o->report_path, "-") == 0)
        ok = fwrite(b.p, 1, b.n, stdout) == b.n || err_set_errno(e, "stdout: can't write");
    else if (ok)
        ok = write_text(o->report_path, o->replace, &b, e);
    buf_fini(&b);
    return ok;
}
