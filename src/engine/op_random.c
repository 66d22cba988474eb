/* random_uniform, random_normal, random_bernoulli, random_categorical. Number i of an op is a function of its seed and i alone: the same in every call,
 * on every machine, for any number of threads. An op without a seed has the seed 0. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

struct random {
    int id;
    uint64_t seed;
    double a, b;                  /* low and high; mean and deviation; probability */
    int64_t n_classes, n_samples; /* of categorical: x [rows, n_classes], result [rows, n_samples] */
    bool has_logits;
};

/* Bits number i of a seed: the finalizer of SplitMix64 (Steele, Lea, Flood 2014) over a Weyl sequence. */
static uint64_t random_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0xd1342543de82ef95u + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [0, 1). */
static double random_unit(uint64_t seed, uint64_t i)
{
    return (double)(random_bits(seed, i) >> 11) * 0x1p-53;
}

static double random_number(const struct random *p, int64_t i)
{
    uint64_t k = (uint64_t)i;
    switch (p->id) {
    case MIL_OP_RANDOM_NORMAL: /* Box and Muller */
        return p->a + p->b * sqrt(-2 * log(1 - random_unit(p->seed, 2 * k))) *
                          cos(6.283185307179586 * random_unit(p->seed, 2 * k + 1));
    case MIL_OP_RANDOM_BERNOULLI:
        return random_unit(p->seed, k) < p->a;
    default:
        return p->a + (p->b - p->a) * random_unit(p->seed, k);
    }
}

static void put(const struct step *s, void *y, int64_t i, double v)
{
    if (s->out[0].repr == REPR_F32)
        ((float *)y)[i] = (float)v;
    else
        ((int32_t *)y)[i] = (int32_t)v;
}

static void run_random(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct random *p = s->params;
    void *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(value_elems(&s->out[0]), 64, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        put(s, y, i, random_number(p, i));
}

static void run_categorical(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct random *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    void *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(value_elems(&s->out[0]), 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *row = x + i / p->n_samples * p->n_classes;
        double best = -INFINITY, all = 0, sum = 0;
        int64_t class = 0;
        for (int64_t k = 0; k < p->n_classes; k++)
            best = (double)row[k] > best ? (double)row[k] : best;
        for (int64_t k = 0; k < p->n_classes && !run_stops(r, k); k++)
            all += p->has_logits ? exp((double)row[k] - best) : (double)row[k];
        double at = random_unit(p->seed, (uint64_t)i) * all;
        for (; class < p->n_classes - 1; class ++) {
            sum += p->has_logits ? exp((double)row[class] - best) : (double)row[class];
            if (at < sum)
                break;
        }
        put(s, y, i, (double)class);
    }
}

bool emit_random(struct compiler *c, const struct mil_op *op)
{
    static const char *const modes[] = {"logits", "probs"};
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct random *p = ARENA_NEW(c->arena, struct random);
    struct value x;
    int64_t seed;
    int mode;
    p->id = op->info->id;
    if (!arg_int(c, op, "seed", 0, &seed))
        return false;
    p->seed = seed < 0 ? 0 : (uint64_t)seed;
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims);
    if (p->id == MIL_OP_RANDOM_CATEGORICAL) {
        if (!operand_f32(c, op, "x", &x) || !arg_word(c, op, "mode", modes, 2, &mode) ||
            !arg_int(c, op, "size", 1, &p->n_samples) || !to_dense(c, &x))
            return false;
        p->has_logits = mode == 0;
        p->n_classes = x.rank > 0 ? x.dims[x.rank - 1] : 0;
        if (x.repr != REPR_F32 || p->n_classes < 1 || p->n_samples < 1 || t->rank != x.rank ||
            dims_product(t->dims, t->rank - 1) != dims_product(x.dims, x.rank - 1) ||
            t->dims[t->rank - 1] != p->n_samples)
            return compile_fail(c, ERR_FORMAT, "x, size and the result do not fit each other");
        return emit_step(c, op, op->info->name, run_categorical, p, &x, 1, y);
    }
    const char *names[2] = {"low", "high"};
    double otherwise[2] = {0, 1};
    if (p->id == MIL_OP_RANDOM_NORMAL) {
        names[0] = "mean";
        names[1] = "stddev";
    } else if (p->id == MIL_OP_RANDOM_BERNOULLI) {
        names[0] = "prob";
        otherwise[0] = 0.5;
    }
    if (!arg_float(c, op, names[0], otherwise[0], &p->a) || !arg_float(c, op, names[1], otherwise[1], &p->b))
        return false;
    return emit_step(c, op, op->info->name, run_random, p, NULL, 0, y);
}
