/* One quantized weight, unit by unit: values from the producer, codes and table to the sink.
 *
 * Values are held a window at a time (4 MB), however large a group is: a group that does not fit is read
 * twice, once to count and once to look codes up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/quant.h"

#define WINDOW_VALUES ((int64_t)2 << 20)
#define CODES_MAX 65536 /* a multiple of 8, so that what is put has whole bytes */
/* Work of a unit, in values: some milliseconds. */
#define UNIT_VALUES ((int64_t)256 << 10)

struct run {
    const struct quant_weight *w;
    struct quant_scratch *scratch;
    struct quant_sink *sink;
    struct quant_stats *stats;
    struct err *e;
    f16 *window; /* values [window_begin, window_begin + window_n) */
    int64_t window_begin, window_n;
    uint8_t *codes, *packed; /* codes that were not put yet */
    int64_t n_codes;
    uint64_t codes_at;
    int bits;
    f16 *table;
    int64_t n_table;
};

/* ---- values and codes ---- */

/* The values [begin, *end): *end is made smaller when they do not fit into the window. */
static const f16 *load_values(struct run *r, int64_t begin, int64_t *end, int64_t unit_end)
{
    const struct mil_weight *source = r->w->source->weight;
    if (*end - begin > WINDOW_VALUES)
        *end = begin + WINDOW_VALUES;
    if (begin < r->window_begin || *end > r->window_begin + r->window_n) {
        /* The rest of the unit comes along when there is room. */
        int64_t n = unit_end - begin < WINDOW_VALUES ? unit_end - begin : *end - begin;
        r->window_begin = begin;
        r->window_n = n;
        if (!source->produce(source, begin, n, r->window, r->e))
            return NULL;
    }
    return r->window + (begin - r->window_begin);
}

static bool put_codes(struct run *r)
{
    size_t bytes = (size_t)((r->n_codes * r->bits + 7) / 8);
    if (bytes == 0)
        return true;
    quant_pack(r->codes, r->n_codes, r->bits, r->packed);
    if (!r->sink->put(r->sink, QUANT_CODES, r->codes_at, r->packed, bytes, r->e))
        return false;
    r->codes_at += bytes;
    r->n_codes = 0;
    return true;
}

/* Room for codes of up to n values; *n is made smaller. */
static uint8_t *codes_room(struct run *r, int64_t *n)
{
    if (r->n_codes == CODES_MAX && !put_codes(r))
        return NULL;
    if (*n > CODES_MAX - r->n_codes)
        *n = CODES_MAX - r->n_codes;
    uint8_t *room = r->codes + r->n_codes;
    r->n_codes += *n;
    return room;
}

/* ---- groups ---- */

/* Calls step for all values [begin, end) in pieces that are in the window. */
static bool for_values(struct run *r, int64_t begin, int64_t end, int64_t unit_end,
                       bool (*step)(struct run *r, const f16 *values, int64_t at, int64_t n, void *ctx),
                       void *ctx)
{
    while (begin < end) {
        int64_t stop = end;
        const f16 *values = load_values(r, begin, &stop, unit_end);
        if (!values || !step(r, values, begin, stop - begin, ctx))
            return false;
        begin = stop;
    }
    return true;
}

static bool collect_step(struct run *r, const f16 *values, int64_t at, int64_t n, void *ctx)
{
    (void)ctx;
    if (r->w->each)
        quant_collect_each(r->scratch, values, n, r->w->each + at);
    else
        quant_collect(r->scratch, values, n, r->w->importance, at % r->w->columns, r->w->columns);
    return true;
}

static bool assign_step(struct run *r, const f16 *values, int64_t at, int64_t n, void *ctx)
{
    (void)at;
    (void)ctx;
    for (int64_t i = 0, piece; i < n; i += piece) {
        piece = n - i;
        uint8_t *room = codes_room(r, &piece);
        if (!room)
            return false;
        quant_assign(r->scratch, values + i, piece, room);
    }
    return true;
}

static bool lut_group(struct run *r, int64_t begin, int64_t end, int64_t unit_end)
{
    f16 *table = r->table + r->n_table;
    quant_collect_begin(r->scratch);
    if (!for_values(r, begin, end, unit_end, collect_step, NULL) ||
        !quant_cluster(r->scratch, r->bits, r->w->spec.method, table, r->stats, r->e) ||
        !for_values(r, begin, end, unit_end, assign_step, NULL))
        return false;
    r->n_table += (int64_t)1 << r->bits;
    return true;
}

/* Rows [first, last) of what was made before. */
static bool made_rows(struct run *r, int64_t first, int64_t last)
{
    const struct quant_weight *w = r->w;
    const f16 *tables = w->made->tables + (first / w->spec.group << r->bits);
    int64_t begin = first * w->columns, end = last * w->columns;
    r->n_table = (last - first) / w->spec.group << r->bits;
    memcpy(r->table, tables, (size_t)r->n_table * sizeof *tables);
    for (int64_t piece; begin < end; begin += piece) {
        int64_t stop = end;
        const f16 *values = load_values(r, begin, &stop, end);
        piece = stop - begin;
        uint8_t *room = values ? codes_room(r, &piece) : NULL;
        if (!room)
            return false;
        memcpy(room, w->made->codes + begin, (size_t)piece);
        for (int64_t i = 0; i < piece; i++) {
            const f16 *table = w->made->tables + ((begin + i) / w->columns / w->spec.group << r->bits);
            double value = (double)f16_to_f32(values[i]);
            double error = fabs((double)f16_to_f32(table[room[i]]) - value);
            r->stats->error += error * error;
            r->stats->energy += value * value;
            r->stats->largest = error > r->stats->largest ? error : r->stats->largest;
        }
        r->stats->n += piece;
    }
    return true;
}

struct largest {
    f16 bits;
};

static bool largest_step(struct run *r, const f16 *values, int64_t at, int64_t n, void *ctx)
{
    (void)r;
    (void)at;
    struct largest *l = ctx;
    for (int64_t i = 0; i < n; i++) {
        f16 bits = values[i] & 0x7fff;
        l->bits = bits > l->bits ? bits : l->bits;
    }
    return true;
}

static bool int8_step(struct run *r, const f16 *values, int64_t at, int64_t n, void *ctx)
{
    (void)at;
    const f16 *scale = ctx;
    for (int64_t i = 0, piece; i < n; i += piece) {
        piece = n - i;
        uint8_t *room = codes_room(r, &piece);
        if (!room)
            return false;
        quant_int8(values + i, piece, *scale, room, r->stats);
    }
    return true;
}

static bool check_finite(struct run *r, f16 largest)
{
    return largest < 0x7c00 || err_set(r->e, ERR_FORMAT, "expected finite values, found infinity or NaN");
}

static bool int8_group(struct run *r, int64_t begin, int64_t end, int64_t unit_end)
{
    struct largest l = {0};
    if (!for_values(r, begin, end, unit_end, largest_step, &l) || !check_finite(r, l.bits))
        return false;
    f16 scale = quant_int8_scale(&l.bits, 1);
    r->table[r->n_table++] = scale;
    return for_values(r, begin, end, unit_end, int8_step, &scale);
}

/* One row: block after block. Blocks are small, so each is in the window and in the codes as a whole. */
static bool int4_group(struct run *r, int64_t begin, int64_t end, int64_t unit_end)
{
    int64_t block = r->w->spec.block;
    for (; begin < end; begin += block) {
        int64_t stop = begin + block, n = block;
        struct largest l = {0};
        const f16 *values = load_values(r, begin, &stop, unit_end);
        if (!values || !largest_step(r, values, begin, block, &l) || !check_finite(r, l.bits))
            return false;
        if (r->n_codes / 8 * 8 + block > CODES_MAX - 8) {
            /* Whole bytes go out, what is left of a byte stays. */
            uint8_t rest[8];
            int64_t n_rest = r->n_codes % 8;
            r->n_codes -= n_rest;
            memcpy(rest, r->codes + r->n_codes, (size_t)n_rest);
            if (!put_codes(r))
                return false;
            memcpy(r->codes, rest, (size_t)n_rest);
            r->n_codes = n_rest;
        }
        uint8_t *room = codes_room(r, &n);
        if (!room)
            return false;
        r->table[r->n_table++] = quant_int4(values, n, room, r->stats);
    }
    return true;
}

/* ---- units ---- */

static int64_t table_per_group(const struct quant_weight *w)
{
    switch (w->spec.kind) {
    case QUANT_LUT:
        return (int64_t)1 << w->spec.bits;
    case QUANT_INT4:
        return w->columns / w->spec.block;
    default:
        return 1;
    }
}

static bool run_groups(struct run *r, int64_t unit)
{
    const struct quant_weight *w = r->w;
    int64_t first = unit * w->rows_per_unit, last = first + w->rows_per_unit;
    last = last < w->rows ? last : w->rows;
    int64_t group = w->spec.kind == QUANT_INT4 ? 1 : w->spec.group;
    if (w->made && !made_rows(r, first, last))
        return false;
    for (int64_t row = first; row < last && !w->made; row += group) {
        int64_t begin = row * w->columns, end = (row + group) * w->columns, unit_end = last * w->columns;
        bool ok = w->spec.kind == QUANT_LUT    ? lut_group(r, begin, end, unit_end)
                  : w->spec.kind == QUANT_INT8 ? int8_group(r, begin, end, unit_end)
                                               : int4_group(r, begin, end, unit_end);
        if (!ok)
            return false;
    }
    uint64_t table_at = (uint64_t)(first / group * table_per_group(w)) * sizeof(f16);
    return put_codes(r) &&
           r->sink->put(r->sink, QUANT_TABLE, table_at, r->table, (size_t)r->n_table * sizeof(f16), r->e);
}

bool quant_weight_run(const struct quant_weight *w, int64_t unit, struct quant_scratch *s,
                      struct quant_sink *sink, struct quant_stats *stats, struct err *e)
{
    int64_t group = w->spec.kind == QUANT_INT4 ? 1 : w->spec.group;
    int64_t first = unit * w->rows_per_unit, rows = w->rows - first;
    rows = rows < w->rows_per_unit ? rows : w->rows_per_unit;
    int64_t window = rows * w->columns < WINDOW_VALUES ? rows * w->columns : WINDOW_VALUES;
    struct run r = {.w = w, .scratch = s, .sink = sink, .stats = stats, .e = e};
    r.bits = w->spec.kind == QUANT_LUT ? w->spec.bits : w->spec.kind == QUANT_INT8 ? 8 : 4;
    r.codes_at = (uint64_t)(first * w->columns) * (unsigned)r.bits / 8;
    r.window = xmalloc((size_t)window * sizeof r.window[0]);
    r.codes = xmalloc(CODES_MAX);
    r.packed = xmalloc(CODES_MAX);
    r.table = xmalloc((size_t)(rows / group * table_per_group(w)) * sizeof r.table[0]);
    bool ok = run_groups(&r, unit);
    free(r.window);
    free(r.codes);
    free(r.packed);
    free(r.table);
    return ok;
}
