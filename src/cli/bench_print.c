/* Rows of milkit bench in llama-bench's formats. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "cli/bench.h"
#include "format/json.h"
#include "measure/speed.h"

#define ROW_BYTES_MAX ((size_t)64 << 20)

enum field_kind { TEXT, INT, REAL, BOOL };
static const struct field {
    const char *name;
    enum field_kind kind;
} fields[BENCH_FIELDS] = {
#define BENCH_FIELD(name, kind) {#name, kind},
#define BENCH_LAST
#include "cli/bench_fields.def"
#undef BENCH_FIELD
#undef BENCH_LAST
};
/* How many fields are llama-bench's. */
enum {
#define BENCH_FIELD(name, kind) COUNT_##name,
#define BENCH_LAST N_PEER_FIELDS, BEHIND = N_PEER_FIELDS - 1,
#include "cli/bench_fields.def"
#undef BENCH_FIELD
#undef BENCH_LAST
};

bool bench_format_find(const char *name, const char *option, enum bench_format *out, struct err *e)
{
    static const char *const names[] = {"md", "csv", "json", "jsonl", "sql", "none"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bench_format)i;
            return true;
        }
    return err_set(e, ERR_USAGE, "%s: expected md, csv, json, jsonl, sql or none, found '%s'", option, name);
}

void bench_put_text(struct bench_row *r, enum bench_field f, const char *text)
{
    free(r->fields[f]);
    r->fields[f] = xstrdup(text);
}

void bench_put_int(struct bench_row *r, enum bench_field f, int64_t value)
{
    free(r->fields[f]);
    r->fields[f] = fields[f].kind == BOOL ? xstrdup(value ? "true" : "false") : xasprintf("%" PRId64, value);
}

void bench_put_real(struct bench_row *r, enum bench_field f, double value)
{
    if (!isfinite(value))
        return;
    free(r->fields[f]);
    r->fields[f] = xasprintf("%.6f", value);
}

void bench_row_free(struct bench_row *r)
{
    for (int i = 0; i < BENCH_FIELDS; i++)
        free(r->fields[i]);
    memset(r, 0, sizeof *r);
}

static int64_t int_of(const struct bench_row *r, enum bench_field f)
{
    return r->fields[f] ? strtoll(r->fields[f], NULL, 10) : 0;
}

static double real_of(const struct bench_row *r, enum bench_field f)
{
    return r->fields[f] ? strtod(r->fields[f], NULL) : NAN;
}

void bench_put_rates(struct bench_row *r)
{
    int64_t n = r->n_samples;
    double tokens = (double)(int_of(r, BENCH_n_prompt) + int_of(r, BENCH_n_gen));
    double *ns = xcalloc((size_t)n + 1, sizeof *ns), *ts = xcalloc((size_t)n + 1, sizeof *ts);
    for (int64_t i = 0; i < n; i++) {
        ns[i] = r->seconds[i] * 1e9;
        ts[i] = tokens / r->seconds[i];
    }
    double median = speed_quantile(ts, n, 0.5);
    if (n > 0) {
        bench_put_int(r, BENCH_avg_ns, llround(speed_mean(ns, n)));
        bench_put_int(r, BENCH_stddev_ns, llround(speed_deviation(ns, n)));
        bench_put_int(r, BENCH_p90_ns, llround(speed_quantile(ns, n, 0.9)));
        bench_put_real(r, BENCH_avg_ts, speed_mean(ts, n));
        bench_put_real(r, BENCH_stddev_ts, speed_deviation(ts, n));
        bench_put_real(r, BENCH_median_ts, median);
        bench_put_real(r, BENCH_min_ts, speed_quantile(ts, n, 0));
        bench_put_real(r, BENCH_max_ts, speed_quantile(ts, n, 1));
        bench_put_real(r, BENCH_noise, (speed_quantile(ts, n, 0.9) - speed_quantile(ts, n, 0.1)) / median);
    }
    free(ns);
    free(ts);
}

void bench_test_name(char dst[96], int64_t n_prompt, int64_t n_gen, int64_t n_depth)
{
    char depth[32] = "";
    if (n_depth > 0)
        snprintf(depth, sizeof depth, " @ d%" PRId64, n_depth);
    if (n_prompt > 0 && n_gen > 0)
        snprintf(dst, 96, "pp%" PRId64 "+tg%" PRId64 "%s", n_prompt, n_gen, depth);
    else
        snprintf(dst, 96, "%s%" PRId64 "%s", n_gen > 0 ? "tg" : "pp", n_gen > 0 ? n_gen : n_prompt, depth);
}

/* ---- md ---- */

/* A width below zero: left-aligned. */
struct column {
    const char *title;
    int width;
};
static const struct column columns[] = {{"model", -30}, {"size", 10},   {"params", 10}, {"backend", -12},
                                        {"threads", 7}, {"test", 16},   {"t/s", 20},    {"GB/s", 8},
                                        {"of read", 8}, {"of peak", 8}, {"RSS MiB", 8}};
enum { N_COLUMNS = sizeof columns / sizeof *columns, N_PEER_COLUMNS = 7, CELL_BYTES = 160 };

static int n_columns(const struct bench_output *o)
{
    return o->is_plain ? N_PEER_COLUMNS : N_COLUMNS;
}

static void md_begin(const struct bench_output *o, struct buf *b)
{
    for (int i = 0; i < n_columns(o); i++)
        buf_printf(b, "| %*s ", columns[i].width, columns[i].title);
    buf_puts(b, "|\n");
    for (int i = 0; i < n_columns(o); i++) {
        buf_puts(b, "| ");
        for (int k = 1; k < abs(columns[i].width); k++)
            buf_putc(b, '-');
        buf_puts(b, columns[i].width < 0 ? "- " : ": ");
    }
    buf_puts(b, "|\n");
}

static void share_cell(char cell[CELL_BYTES], const struct bench_row *r, enum bench_field f)
{
    if (r->fields[f])
        snprintf(cell, CELL_BYTES, "%.2f", real_of(r, f));
}

static void md_row(const struct bench_output *o, const struct bench_row *r, struct buf *b)
{
    char cells[N_COLUMNS][CELL_BYTES] = {{0}}, test[96];
    double size = real_of(r, BENCH_model_size), params = real_of(r, BENCH_model_n_params);
    const double mib = 1048576, gib = 1073741824;
    bench_test_name(test, int_of(r, BENCH_n_prompt), int_of(r, BENCH_n_gen), int_of(r, BENCH_n_depth));
    snprintf(cells[0], CELL_BYTES, "%s", r->fields[BENCH_model_type] ? r->fields[BENCH_model_type] : "");
    snprintf(cells[1], CELL_BYTES, "%.2f %s", size < gib ? size / mib : size / gib,
             size < gib ? "MiB" : "GiB");
    snprintf(cells[2], CELL_BYTES, "%.2f %s", params < 1e9 ? params / 1e6 : params / 1e9,
             params < 1e9 ? "M" : "B");
    snprintf(cells[3], CELL_BYTES, "%s %s", r->fields[BENCH_backends] ? r->fields[BENCH_backends] : "",
             r->fields[BENCH_isa] ? r->fields[BENCH_isa] : "");
    snprintf(cells[4], CELL_BYTES, "%" PRId64, int_of(r, BENCH_n_threads));
    snprintf(cells[5], CELL_BYTES, "%s", test);
    snprintf(cells[6], CELL_BYTES, "%.2f ± %.2f", real_of(r, BENCH_avg_ts), real_of(r, BENCH_stddev_ts));
    share_cell(cells[7], r, BENCH_gb_per_s);
    share_cell(cells[8], r, BENCH_share_of_read);
    share_cell(cells[9], r, BENCH_share_of_peak);
    snprintf(cells[10], CELL_BYTES, "%.0f", real_of(r, BENCH_peak_rss_bytes) / mib);
    for (int i = 0; i < n_columns(o); i++) {
        int width = columns[i].width + (i != 6 ? 0 : 1); /* the sign in the middle has two bytes */
        buf_printf(b, "| %*s ", width, cells[i]);
    }
    buf_puts(b, "|\n");
}

/* ---- csv, sql, json ---- */

static void put_doubled(struct buf *b, const char *text, char quote)
{
    buf_putc(b, quote);
    for (; text && *text; text++) {
        if (*text == quote)
            buf_putc(b, quote);
        buf_putc(b, *text);
    }
    buf_putc(b, quote);
}

static void csv_row(const struct bench_row *r, struct buf *b)
{
    for (int i = 0; i < BENCH_FIELDS; i++) {
        buf_puts(b, i ? "," : "");
        put_doubled(b, r->fields[i], '"');
    }
    buf_putc(b, '\n');
}

static void csv_begin(struct buf *b)
{
    for (int i = 0; i < BENCH_FIELDS; i++)
        buf_printf(b, "%s%s", i ? "," : "", fields[i].name);
    buf_putc(b, '\n');
}

/* Two tables, because llama-bench makes its own of exactly its fields: ours say which of its rows they belong to. */
static void sql_begin(struct buf *b)
{
    static const char *const types[] = {
        [TEXT] = "TEXT", [INT] = "INTEGER", [REAL] = "REAL", [BOOL] = "INTEGER"};
    for (int table = 0; table < 2; table++) {
        buf_puts(b, table ? "CREATE TABLE IF NOT EXISTS milkit_bench (\n  llama_bench_row INTEGER"
                          : "CREATE TABLE IF NOT EXISTS llama_bench (");
        for (int i = table ? N_PEER_FIELDS : 0; i < (table ? BENCH_FIELDS : N_PEER_FIELDS); i++)
            buf_printf(b, "%s\n  %s %s", i ? "," : "", fields[i].name, types[fields[i].kind]);
        buf_puts(b, "\n);\n\n");
    }
}

static void sql_value(const struct bench_row *r, int i, struct buf *b)
{
    const char *text = r->fields[i];
    if (fields[i].kind == BOOL)
        text = text && strcmp(text, "true") == 0 ? "1" : "0";
    put_doubled(b, text, '\'');
}

static void sql_row(const struct bench_row *r, struct buf *b)
{
    buf_puts(b, "INSERT INTO llama_bench (");
    for (int i = 0; i < N_PEER_FIELDS; i++)
        buf_printf(b, "%s%s", i ? ", " : "", fields[i].name);
    buf_puts(b, ") VALUES (");
    for (int i = 0; i < N_PEER_FIELDS; i++) {
        buf_puts(b, i ? ", " : "");
        sql_value(r, i, b);
    }
    buf_puts(b, ");\nINSERT INTO milkit_bench VALUES (last_insert_rowid()");
    for (int i = N_PEER_FIELDS; i < BENCH_FIELDS; i++) {
        buf_puts(b, ", ");
        sql_value(r, i, b);
    }
    buf_puts(b, ");\n");
}

static void json_value(const struct bench_row *r, int i, struct buf *b)
{
    const char *text = r->fields[i];
    if (fields[i].kind == TEXT)
        json_put_string(b, text ? text : "", text ? strlen(text) : 0);
    else
        buf_puts(b, text ? text : "null");
}

static void json_samples(const struct bench_row *r, const char *name, bool as_rates, const char *between,
                         struct buf *b)
{
    double tokens = (double)(int_of(r, BENCH_n_prompt) + int_of(r, BENCH_n_gen));
    buf_printf(b, ",%s\"%s\": [", between, name);
    for (int64_t i = 0; i < r->n_samples; i++) {
        buf_puts(b, i ? ", " : "");
        if (as_rates)
            json_put_double(b, tokens / r->seconds[i]);
        else
            buf_printf(b, "%lld", llround(r->seconds[i] * 1e9));
    }
    buf_putc(b, ']');
}

static void json_row(const struct bench_row *r, const char *between, struct buf *b)
{
    for (int i = 0; i < BENCH_FIELDS; i++) {
        if (i == N_PEER_FIELDS) { /* they are llama-bench's last keys */
            json_samples(r, "samples_ns", false, between, b);
            json_samples(r, "samples_ts", true, between, b);
        }
        buf_printf(b, "%s%s\"%s\": ", i ? "," : "", i ? between : "", fields[i].name);
        json_value(r, i, b);
    }
}

/* ---- the stream ---- */

static void put_out(struct bench_output *o, struct buf *b)
{
    struct buf shown;
    buf_init(&shown, ROW_BYTES_MAX);
    if (o->format == BENCH_JSON || o->format == BENCH_JSONL)
        json_append_printable(&shown, b->p ? b->p : "", b->n);
    else
        terminal_append(&shown, b->p ? b->p : "", b->n);
    (void)fwrite(shown.p ? shown.p : "", 1, shown.n, o->stream);
    fflush(o->stream);
    buf_fini(&shown);
    buf_fini(b);
}

static void begin(struct bench_output *o)
{
    struct buf b;
    o->is_begun = true;
    buf_init(&b, ROW_BYTES_MAX);
    switch (o->format) {
    case BENCH_MD:
        md_begin(o, &b);
        break;
    case BENCH_CSV:
        csv_begin(&b);
        break;
    case BENCH_SQL:
        sql_begin(&b);
        break;
    case BENCH_JSON:
        buf_puts(&b, "[\n");
        break;
    case BENCH_JSONL:
    case BENCH_NONE:
        break;
    }
    put_out(o, &b);
}

void bench_put_row(struct bench_output *o, const struct bench_row *r)
{
    struct buf b;
    if (!o->is_begun)
        begin(o);
    buf_init(&b, ROW_BYTES_MAX);
    switch (o->format) {
    case BENCH_MD:
        md_row(o, r, &b);
        break;
    case BENCH_CSV:
        csv_row(r, &b);
        break;
    case BENCH_SQL:
        sql_row(r, &b);
        break;
    case BENCH_JSON:
        buf_puts(&b, o->n_rows ? ",\n  {\n    " : "  {\n    ");
        json_row(r, "\n    ", &b);
        buf_puts(&b, "\n  }");
        break;
    case BENCH_JSONL:
        buf_putc(&b, '{');
        json_row(r, " ", &b);
        buf_puts(&b, "}\n");
        break;
    case BENCH_NONE:
        break;
    }
    o->n_rows++;
    put_out(o, &b);
}

void bench_end(struct bench_output *o, const char *build)
{
    struct buf b;
    if (!o->is_begun)
        return;
    buf_init(&b, ROW_BYTES_MAX);
    if (o->format == BENCH_JSON)
        buf_puts(&b, "\n]\n");
    if (o->format == BENCH_MD)
        buf_printf(&b, "\nbuild: %s\n", build);
    put_out(o, &b);
}
