/* Sampling options as the library takes them. */
#include "cli/sampling.h"
#include <math.h>
#include "base/json_text.h"

/* Larger ones mean the same, and JSON's numbers hold no more. */
#define COUNT_MAX ((int64_t)1 << 53)

static void put_count(struct buf *out, const char *key, int64_t v)
{
    json_put_key(out, key);
    buf_printf(out, "%lld", (long long)(v > COUNT_MAX ? COUNT_MAX : v < -COUNT_MAX ? -COUNT_MAX : v));
}

bool sampling_put(const struct sampling *s, struct buf *out, struct err *e)
{
    const struct {
        const char *key, *name;
        double value;
    } numbers[] = {
        {"temperature", "temperature", s->temperature},
        {"top_p", "top-p", s->top_p},
        {"min_p", "min-p", s->min_p},
        {"repetition_penalty", "repetition penalty", s->repeat_penalty},
        {"presence_penalty", "presence penalty", s->presence_penalty},
        {"frequency_penalty", "frequency penalty", s->frequency_penalty},
    };
    buf_puts(out, "{");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value == SAMPLING_NOT_GIVEN)
            continue;
        if (!isfinite(numbers[i].value))
            return err_set(e, ERR_USAGE, "%s: expected a number, found %g", numbers[i].name,
                           numbers[i].value);
        json_put_key(out, numbers[i].key);
        json_put_double(out, numbers[i].value);
    }
    if (s->greedy) {
        json_put_key(out, "greedy");
        buf_puts(out, "true");
    }
    if (s->top_k != SAMPLING_NOT_GIVEN_INT)
        put_count(out, "top_k", s->top_k);
    put_count(out, "repetition_window", s->repeat_last_n);
    if (s->seed >= 0) { /* a string: all its digits count */
        json_put_key(out, "seed");
        buf_printf(out, "\"%lld\"", (long long)s->seed);
    }
    buf_puts(out, "}");
    return true;
}
