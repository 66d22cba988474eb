/* Integers of more than 64 bits, as ids in tools and arguments have them: their digits are kept, printed, compared and
 * divided by small ones. Other arithmetic with them is an error, as it is where a result of small ones grows so large. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

/* As int() of Python. */
#define MAX_DIGITS 4300

struct value integer_from_digits(struct jinja *j, bool is_negative, const char *digits, size_t n)
{
    int64_t value = 0;
    bool fits = true;
    for (; n > 1 && *digits == '0'; n--)
        digits++;
    if (n > MAX_DIGITS)
        jinja_fail(j, ERR_LIMIT, "an integer of more than %d digits", MAX_DIGITS);
    for (size_t i = 0; i < n && fits; i++)
        fits = !__builtin_mul_overflow(value, 10, &value) &&
               !(is_negative ? __builtin_sub_overflow(value, digits[i] - '0', &value)
                             : __builtin_add_overflow(value, digits[i] - '0', &value));
    if (fits)
        return value_int(value);
    struct big *b = JINJA_NEW(j, struct big);
    char *copy = jinja_alloc(j, n + 1, 1);
    memcpy(copy, digits, n);
    *b = (struct big){copy, n, is_negative};
    return (struct value){.type = VALUE_BIG, .big = b};
}

struct value integer_from_double(struct jinja *j, double d)
{
    char digits[400];
    int n = snprintf(digits, sizeof digits, "%.0f", fabs(trunc(d)));
    return integer_from_digits(j, d < 0, digits, (size_t)n);
}

struct value integer_negate(struct jinja *j, int64_t i)
{
    return i == INT64_MIN ? integer_from_digits(j, false, "9223372036854775808", 19) : value_int(-i);
}

struct value big_negate(struct jinja *j, const struct big *b)
{
    return integer_from_digits(j, !b->is_negative, b->digits, b->n);
}

double big_to_double(const struct big *b)
{
    double d = strtod(b->digits, NULL);
    return b->is_negative ? -d : d;
}

static int compare_digits(const char *a, size_t n_a, const char *b, size_t n_b)
{
    if (n_a != n_b)
        return n_a < n_b ? -1 : 1;
    int order = memcmp(a, b, n_a);
    return (order > 0) - (order < 0);
}

int big_compare(const struct big *a, const struct big *b)
{
    if (a->is_negative != b->is_negative)
        return a->is_negative ? -1 : 1;
    int order = compare_digits(a->digits, a->n, b->digits, b->n);
    return a->is_negative ? -order : order;
}

/* A double of such a size is an integer, and its decimal digits are exact. */
int big_compare_double(const struct big *a, double d)
{
    char digits[400];
    if (isnan(d))
        return 2;
    if (isinf(d) || fabs(d) < 0x1p63)
        return isinf(d) ? (d > 0 ? -1 : 1) : (a->is_negative ? -1 : 1);
    int n = snprintf(digits, sizeof digits, "%.0f", fabs(d));
    const struct big other = {digits, (size_t)n, d < 0};
    return big_compare(a, &other);
}

/* As Python has it: the rest has the sign of what is divided by. */
int64_t big_modulo(const struct big *a, int64_t by)
{
    uint64_t size = by < 0 ? 0 - (uint64_t)by : (uint64_t)by, rest = 0;
    for (size_t i = 0; i < a->n; i++)
        rest = (uint64_t)(((unsigned __int128)rest * 10 + (unsigned)(a->digits[i] - '0')) % size);
    if (rest == 0)
        return 0;
    if (a->is_negative != (by < 0))
        rest = size - rest;
    return by < 0 ? (int64_t)(0 - rest) : (int64_t)rest;
}
