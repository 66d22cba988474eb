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

void sampling_clear(struct sampling *s)
{
    *s = (struct sampling){.top_k = SAMPLING_NOT_GIVEN_INT, .seed = -1};
    for (int i = 0; i < SAMPLING_NUMBERS; i++)
        s->numbers[i] = SAMPLING_NOT_GIVEN;
}

bool sampling_put(const struct sampling *s, struct buf *out, struct err *e)
{
    static const struct {
        const char *key, *name;
    } names[SAMPLING_NUMBERS] = {
        [SAMPLING_TEMPERATURE] = {"temperature", "temperature"},
        [SAMPLING_TOP_P] = {"top_p", "top-p"},
        [SAMPLING_MIN_P] = {"min_p", "min-p"},
        [SAMPLING_REPEAT_PENALTY] = {"repetition_penalty", "repetition penalty"},
        [SAMPLING_PRESENCE_PENALTY] = {"presence_penalty", "presence penalty"},
        [SAMPLING_FREQUENCY_PENALTY] = {"frequency_penalty", "frequency penalty"},
    };
    buf_puts(out, "{");
    for (int i = 0; i < SAMPLING_NUMBERS; i++) {
        if (s->numbers[i] == SAMPLING_NOT_GIVEN)
            continue;
        if (!isfinite(s->numbers[i]))
            return err_set(e, ERR_USAGE, "%s: expected a number, found %g", names[i].name, s->numbers[i]);
        json_put_key(out, names[i].key);
        json_put_double(out, s->numbers[i]);
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
