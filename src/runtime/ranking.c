/* Digits of an order-preserving number made of a logit: the first one leaves out most of what k best can't hold, then all of them sort
 * what is left, from the last to the first (least significant digit first, each pass stable). */
#include "runtime/ranking.h"
#include <string.h>

enum { DIGIT_BITS = 11, N_DIGITS = 3, N_VALUES = 1 << DIGIT_BITS };

/* Grows as the logit falls. */
static uint32_t rank_of(float logit)
{
    uint32_t bits;
    float v = logit + 0.0f; /* -0 becomes +0 */
    memcpy(&bits, &v, sizeof bits);
    return bits & 0x80000000u ? bits : bits ^ 0x7FFFFFFFu;
}

/* Digit 0 is the least significant; the last one is a bit shorter. */
static uint32_t digit_of(float logit, int digit)
{
    return rank_of(logit) >> (digit * DIGIT_BITS) & (N_VALUES - 1);
}

static void count_digits(uint32_t *counts, const struct candidate *list, int64_t n, int digit)
{
    memset(counts, 0, N_VALUES * sizeof *counts);
    for (int64_t i = 0; i < n; i++)
        counts[digit_of(list[i].logit, digit)]++;
}

/* Those whose first digit the k best can have, in their order. Returns how many, k or more. */
static int64_t keep_head(struct candidate *list, int64_t n, int64_t k)
{
    uint32_t counts[N_VALUES], last = 0;
    int64_t n_up_to = 0, n_kept = 0;
    count_digits(counts, list, n, N_DIGITS - 1);
    while ((n_up_to += counts[last]) < k)
        last++;
    for (int64_t i = 0; i < n; i++)
        if (digit_of(list[i].logit, N_DIGITS - 1) <= last)
            list[n_kept++] = list[i];
    return n_kept;
}

/* From one list to the other, in the order of a digit. */
static void sort_by_digit(struct candidate *to, const struct candidate *from, int64_t n, int digit)
{
    uint32_t counts[N_VALUES], at = 0;
    count_digits(counts, from, n, digit);
    for (int v = 0; v < N_VALUES; v++) {
        uint32_t count = counts[v];
        counts[v] = at;
        at += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[counts[digit_of(from[i].logit, digit)]++] = from[i];
}

int64_t ranking_sort_best(struct candidate *list, struct candidate *scratch, int64_t n, int64_t k)
{
    if (n <= 0 || k <= 0)
        return 0;
    if (k < n)
        n = keep_head(list, n, k);
    struct candidate *from = list, *to = scratch;
    for (int digit = 0; digit < N_DIGITS; digit++) {
        sort_by_digit(to, from, n, digit);
        struct candidate *sorted = to;
        to = from;
        from = sorted;
    }
    memcpy(list, from, (size_t)n * sizeof *list); /* an odd number of passes ends in scratch */
    return k < n ? k : n;
}
