/* Results of two programs side by side. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "cli/bench.h"
#include "format/json.h"
#include "measure/speed.h"

#define FILE_BYTES_MAX ((size_t)64 << 20)
#define SAMPLES_MAX 1000000

struct result {
    char *model;
    int64_t n_threads, n_prompt, n_gen, n_depth;
    int64_t n;
    double *rates; /* [n], tokens a second */
};

struct bench_results {
    int64_t n;
    struct result *list;
};

struct bench_results *bench_results_new(void)
{
    return xcalloc(1, sizeof(struct bench_results));
}

void bench_results_free(struct bench_results *r)
{
    for (int64_t i = 0; r && i < r->n; i++) {
        free(r->list[i].model);
        free(r->list[i].rates);
    }
    if (r)
        free(r->list);
    free(r);
}

static bool is_same_test(const struct result *a, const struct result *b)
{
    return a->n_prompt == b->n_prompt && a->n_gen == b->n_gen && a->n_depth == b->n_depth;
}

/* The result with this model, number of threads and test; a new one when there is none. */
static struct result *result_of(struct bench_results *r, const struct result *like)
{
    for (int64_t i = 0; i < r->n; i++)
        if (is_same_test(&r->list[i], like) && r->list[i].n_threads == like->n_threads &&
            strcmp(r->list[i].model, like->model) == 0)
            return &r->list[i];
    r->list = xrealloc(r->list, ((size_t)r->n + 1) * sizeof *r->list);
    r->list[r->n] = *like;
    r->list[r->n].model = xstrdup(like->model);
    return &r->list[r->n++];
}

static void add_rate(struct result *r, double rate)
{
    r->rates = xrealloc(r->rates, ((size_t)r->n + 1) * sizeof *r->rates);
    r->rates[r->n++] = rate;
}

static bool add_json_row(struct bench_results *all, const cJSON *row, const char *where, struct err *e)
{
    struct result like = {.n_threads = -1, .n_prompt = -1, .n_gen = -1};
    const char *model = NULL;
    const cJSON *samples = json_get(row, "samples_ts");
    if (!cJSON_IsObject(row))
        return err_set(e, ERR_FORMAT, "%s: expected rows that are objects, found %s", where,
                       json_type_name(row));
    if (!json_get_string(row, "model_type", &model, where, e) ||
        !json_get_int(row, "n_threads", &like.n_threads, where, e) ||
        !json_get_int(row, "n_prompt", &like.n_prompt, where, e) ||
        !json_get_int(row, "n_gen", &like.n_gen, where, e) ||
        !json_get_int(row, "n_depth", &like.n_depth, where, e))
        return false;
    if (!model || like.n_prompt < 0 || like.n_gen < 0 || like.n_depth < 0 || !cJSON_IsArray(samples))
        return err_set(
            e, ERR_FORMAT,
            "%s: expected a row of llama-bench (model_type, n_prompt, n_gen, samples_ts), found one without",
            where);
    like.model = (char *)model; /* copied */
    struct result *result = result_of(all, &like);
    for (const cJSON *s = samples->child; s; s = s->next) {
        if (!cJSON_IsNumber(s) || !isfinite(s->valuedouble) || s->valuedouble <= 0)
            return err_set(e, ERR_FORMAT, "%s: samples_ts: expected numbers above 0", where);
        if (result->n >= SAMPLES_MAX)
            return err_set(e, ERR_LIMIT, "%s: more than %d samples of one test", where, SAMPLES_MAX);
        add_rate(result, s->valuedouble);
    }
    return true;
}

/* Several texts one behind the other: arrays of rows, or rows, each beginning in a line of its own. */
static bool add_text(struct bench_results *all, const char *text, size_t bytes, const char *where,
                     struct err *e)
{
    const char *end = text + bytes;
    if (strlen(text) != bytes)
        return err_set(e, ERR_FORMAT, "%s: expected JSON of llama-bench, found a NUL byte", where);
    while (text < end) {
        text += strspn(text, " \t\r\n");
        if (text == end)
            return true;
        /* an array closes with a bracket in a line of its own; rows of jsonl are lines */
        const char *stop = *text == '[' ? strstr(text, "\n]") : strchr(text, '\n');
        size_t n = stop ? (size_t)(stop - text) + (*text == '[' ? 2 : 1) : (size_t)(end - text);
        cJSON *root = NULL;
        bool ok = json_parse(&root, text, n, where, e);
        if (ok && cJSON_IsArray(root))
            for (const cJSON *row = root->child; ok && row; row = row->next)
                ok = add_json_row(all, row, where, e);
        else if (ok)
            ok = add_json_row(all, root, where, e);
        cJSON_Delete(root);
        if (!ok)
            return false;
        text += n;
    }
    return true;
}

bool bench_results_read(struct bench_results *r, const char *path, struct err *e)
{
    char *text = NULL;
    size_t bytes;
    bool ok = cli_read_text(path, &text, &bytes, FILE_BYTES_MAX, e);
    int64_t before = r->n;
    ok = ok && add_text(r, text, bytes, path, e) &&
         (r->n > before || bytes == 0 ||
          err_set(e, ERR_FORMAT, "%s: expected rows of llama-bench, found none", path));
    if (ok && r->n == 0)
        ok = err_set(e, ERR_FORMAT, "%s: expected rows of llama-bench, found an empty file", path);
    free(text);
    return ok;
}

static int64_t number(const struct bench_row *row, enum bench_field f)
{
    return row->fields[f] ? strtoll(row->fields[f], NULL, 10) : 0;
}

void bench_results_add(struct bench_results *r, const struct bench_row *row)
{
    struct result like = {.model = row->fields[BENCH_model_type],
                          .n_threads = number(row, BENCH_n_threads),
                          .n_prompt = number(row, BENCH_n_prompt),
                          .n_gen = number(row, BENCH_n_gen),
                          .n_depth = number(row, BENCH_n_depth)};
    struct result *result = result_of(r, &like);
    for (int64_t i = 0; i < row->n_samples; i++)
        add_rate(result, (double)(like.n_prompt + like.n_gen) / row->seconds[i]);
}

static void put_pair(const struct result *a, const struct result *b, bool as_json, bool is_first,
                     struct buf *out)
{
    char test[96], range[64] = "";
    double ours = speed_quantile(a->rates, a->n, 0.5), others = speed_quantile(b->rates, b->n, 0.5), low,
           high;
    speed_ratio_range(a->rates, a->n, b->rates, b->n, &low, &high);
    bench_test_name(test, a->n_prompt, a->n_gen, a->n_depth);
    if (!as_json) {
        if (isfinite(low))
            snprintf(range, sizeof range, "%.2f - %.2f", low, high);
        buf_printf(out, "| %s | %s | %" PRId64 " | %s | %.2f | %.2f | %.2f | %s |\n", a->model, b->model,
                   a->n_threads, test, ours, others, ours / others, range);
        return;
    }
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"median_ts", ours},
                   {"against_median_ts", others},
                   {"ratio", ours / others},
                   {"ratio_low", low},
                   {"ratio_high", high}};
    buf_puts(out, is_first ? "\n  {\"model_type\": " : ",\n  {\"model_type\": ");
    json_put_string(out, a->model, strlen(a->model));
    json_put_key(out, "against_model_type");
    json_put_string(out, b->model, strlen(b->model));
    buf_printf(out, ", \"n_threads\": %" PRId64 ", \"test\": \"%s\"", a->n_threads, test);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_put_key(out, numbers[i].key);
        json_put_double(out, numbers[i].value);
    }
    buf_putc(out, '}');
}

void bench_compare(const struct bench_results *ours, const struct bench_results *others, bool as_json,
                   FILE *out, int64_t *n_pairs)
{
    struct buf b, shown;
    buf_init(&b, SIZE_MAX / 2);
    buf_init(&shown, SIZE_MAX / 2);
    *n_pairs = 0;
    buf_puts(&b, as_json ? "["
                         : "| model | against | threads | test | t/s | against, t/s | ratio | 95 % |\n"
                           "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int64_t i = 0; i < ours->n; i++)
        for (int64_t k = 0; k < others->n; k++) {
            const struct result *a = &ours->list[i], *c = &others->list[k];
            if (is_same_test(a, c) && a->n_threads == c->n_threads && a->n > 0 && c->n > 0) {
                put_pair(a, c, as_json, *n_pairs == 0, &b);
                ++*n_pairs;
            }
        }
    if (as_json) {
        buf_puts(&b, "\n]\n");
        json_append_printable(&shown, b.p, b.n);
    } else {
        terminal_append(&shown, b.p, b.n);
    }
    (void)fwrite(shown.p, 1, shown.n, out);
    buf_fini(&b);
    buf_fini(&shown);
}
