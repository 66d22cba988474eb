#include "cli/predict_print.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "base/mem.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/tensor_file.h"

#define CLASSES_SHOWN 5

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put_text(const char *name)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    json_put_string(&b, name, strlen(name));
    cli_put_json(b.p ? b.p : "\"\"", b.p ? b.n : 2);
    buf_fini(&b);
}

/* Label i of a tensor of them; as the key of an object a number is a text, too. */
static void put_label(const mk_tensor *labels, int64_t i, bool is_key)
{
    if (labels->type == MK_TEXT)
        put_text(((const char *const *)labels->data)[i]);
    else
        printf(is_key ? "\"%lld\"" : "%lld", (long long)((const int64_t *)labels->data)[i]);
}

/* The class with the largest number below that of `last`, or with the same one behind it; -1: there is none. */
static int64_t next_class(const float *scores, int64_t n, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        bool is_left = last < 0 || scores[i] < scores[last] || (!(scores[i] > scores[last]) && i > last);
        if (is_left && (best < 0 || scores[i] > scores[best]))
            best = i;
    }
    return best;
}

static void put_scores(const mk_tensor *scores, const mk_tensor *labels, bool as_json)
{
    const float *numbers = scores->data;
    int64_t n = as_json || scores->dims[0] < CLASSES_SHOWN ? scores->dims[0] : CLASSES_SHOWN, last = -1;
    printf("{");
    for (int64_t i = 0; i < n; i++) {
        last = as_json ? i : next_class(numbers, scores->dims[0], last);
        if (last < 0)
            break;
        printf(i ? ", " : "");
        put_label(labels, last, true);
        printf(numbers[last] - numbers[last] == 0 ? ": %.9g" : ": null", (double)numbers[last]);
    }
    printf(n < scores->dims[0] ? ", ...}" : "}");
}

static void put_output(const mk_result *r, size_t i, bool as_json)
{
    const char *name;
    mk_tensor t = {.size = sizeof t}, labels = {.size = sizeof labels};
    if (mk_result_get(r, i, &name, &t, NULL) != MK_OK)
        return;
    bool is_label = t.type == MK_TEXT || t.type == MK_I64,
         has_labels = mk_result_labels(r, i, &labels, NULL) == MK_OK;
    if (as_json) {
        printf(i ? ", {\"name\": " : "{\"name\": ");
        put_text(name);
    } else {
        terminal_put(stdout, name);
        putchar(' ');
    }
    if (is_label) {
        printf(as_json ? ", \"label\": " : "");
        put_label(&t, 0, false);
        printf(as_json ? "}" : "\n");
        return;
    }
    printf(as_json ? ", \"dtype\": \"%s\", \"shape\": [" : "%s [", tensor_type_name(t.type));
    for (int k = 0; k < t.rank; k++)
        printf(k ? ", %lld" : "%lld", (long long)t.dims[k]);
    putchar(']');
    if (has_labels) {
        printf(as_json ? ", \"scores\": " : " ");
        put_scores(&t, &labels, as_json);
    }
    printf(as_json ? "}" : "\n");
}

void predict_print(const mk_result *r, double *seconds, size_t n, bool as_json)
{
    qsort(seconds, n, sizeof *seconds, by_size);
    double median = n % 2 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
    if (as_json)
        printf(
            "{\"schema\": 1, \"runs\": %zu, \"seconds\": {\"min\": %.6f, \"median\": %.6f, \"max\": %.6f}, "
            "\"outputs\": [",
            n, seconds[0], median, seconds[n - 1]);
    for (size_t i = 0; i < mk_result_count(r); i++)
        put_output(r, i, as_json);
    if (as_json)
        printf("]}\n");
    else if (n > 1)
        printf("%zu runs: %.3f ms, median %.3f ms, at most %.3f ms\n", n, seconds[0] * 1e3, median * 1e3,
               seconds[n - 1] * 1e3);
}
