/* Recurrent layers over a sequence: gru, lstm, rnn. x [steps, batch, inputs]; one thread takes a member of the batch through all
 * steps, so the number of threads plays no part. Products are summed in float in the order of the inputs. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

enum activation {
    ACT_TANH,
    ACT_SIGMOID,
    ACT_RELU,
    ACT_LINEAR,
    ACT_SIGMOID_HARD,
    ACT_HARD_SIGMOID,
    ACT_SCALED_TANH
};
static const char *const activation_names[] = {"tanh",         "sigmoid",      "relu",       "linear",
                                               "sigmoid_hard", "hard_sigmoid", "scaled_tanh"};

static float activate(enum activation a, float v)
{
    switch (a) {
    case ACT_SIGMOID:
        return (float)(1 / (1 + exp(-(double)v)));
    case ACT_RELU:
        return v > 0 ? v : 0;
    case ACT_LINEAR:
        return v;
    case ACT_SIGMOID_HARD:
    case ACT_HARD_SIGMOID: /* two names of one */
        return (float)fmin(fmax(0.2 * (double)v + 0.5, 0), 1);
    case ACT_SCALED_TANH: /* the layers have no factors, so they are 1 */
    default:
        return (float)tanh((double)v);
    }
}

/* Weights of one direction: gates of n_hidden rows under each other. */
struct cell {
    const float *ih, *hh, *bias, *input_bias,
        *peephole; /* [gates * n_hidden, n_in], [gates * n_hidden, n_hidden]; the rest may be NULL */
};

struct recurrent {
    int id, n_gates, n_directions;
    bool is_reverse, has_sequence, resets_after;
    int64_t n_steps, n_batch, n_in, n_hidden;
    enum activation gate, inner, output; /* recurrent_activation, cell_activation, activation */
    float clip;                          /* 0: none */
    struct cell cell[2];
};

static float product(const float *a, const float *b, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float cut(const struct recurrent *p, float v)
{
    return p->clip > 0 ? fminf(fmaxf(v, -p->clip), p->clip) : v;
}

/* sums [n_gates * n_hidden] = what x gives, and what h gives with it unless `apart` [n_gates * n_hidden] takes that. */
static void gate_sums(const struct recurrent *p, const struct cell *w, float *sums, float *apart,
                      const float *x, const float *h)
{
    for (int64_t row = 0; row < p->n_gates * p->n_hidden; row++) {
        float from_x = product(w->ih + row * p->n_in, x, p->n_in),
              from_h = product(w->hh + row * p->n_hidden, h, p->n_hidden);
        float bias = w->bias ? w->bias[row] : 0, input_bias = w->input_bias ? w->input_bias[row] : 0;
        if (apart) {
            sums[row] = from_x + input_bias;
            apart[row] = from_h + bias;
        } else {
            sums[row] = from_x + from_h + bias + input_bias;
        }
    }
}

static void rnn_step(const struct recurrent *p, const struct cell *w, float *h, float *scratch,
                     const float *x)
{
    gate_sums(p, w, scratch, NULL, x, h);
    for (int64_t i = 0; i < p->n_hidden; i++)
        h[i] = activate(p->output, scratch[i]);
}

/* Gates in the order reset, output, update. Before: the reset gate scales the state that the output gate sees; after: it scales what that
 * gate makes of the state, its bias included. */
static void gru_step(const struct recurrent *p, const struct cell *w, float *h, float *scratch,
                     const float *x)
{
    int64_t n = p->n_hidden;
    float *sums = scratch, *apart = scratch + 3 * n, *scaled = scratch + 6 * n;
    gate_sums(p, w, sums, apart, x, h);
    for (int64_t i = 0; i < n; i++) {
        sums[i] = activate(p->gate, sums[i] + apart[i]);
        scaled[i] = sums[i] * h[i];
    }
    for (int64_t i = 0; i < n; i++) {
        float bias = w->bias ? w->bias[n + i] : 0;
        float from_h =
            p->resets_after ? sums[i] * apart[n + i] : product(w->hh + (n + i) * n, scaled, n) + bias;
        sums[n + i] = activate(p->output, sums[n + i] + from_h);
        sums[2 * n + i] = activate(p->gate, sums[2 * n + i] + apart[2 * n + i]);
    }
    for (int64_t i = 0; i < n; i++) {
        float z = sums[2 * n + i];
        h[i] = (1 - z) * sums[n + i] + z * h[i];
    }
}

/* Gates in the order input, forget, output, cell; peepholes of the first three. */
static void lstm_step(const struct recurrent *p, const struct cell *w, float *h, float *c, float *scratch,
                      const float *x)
{
    int64_t n = p->n_hidden;
    const float *peep = w->peephole;
    gate_sums(p, w, scratch, NULL, x, h);
    for (int64_t k = 0; k < n; k++) {
        float i = activate(p->gate, scratch[k] + (peep ? peep[k] * c[k] : 0));
        float f = activate(p->gate, scratch[n + k] + (peep ? peep[n + k] * c[k] : 0));
        float g = activate(p->inner, scratch[3 * n + k]);
        c[k] = cut(p, f * c[k] + i * g);
        float o = activate(p->gate, scratch[2 * n + k] + (peep ? peep[2 * n + k] * c[k] : 0));
        h[k] = o * activate(p->output, c[k]);
    }
}

static void run_recurrent(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct recurrent *p = s->params;
    bool is_lstm = p->id == MIL_OP_LSTM;
    const float *x = value_pointer(r, &s->in[0]), *h0 = value_pointer(r, &s->in[1]);
    const float *c0 = is_lstm ? value_pointer(r, &s->in[2]) : NULL;
    float *y = value_pointer(r, &s->out[0]), *h_end = value_pointer(r, &s->out[1]);
    float *c_end = is_lstm ? value_pointer(r, &s->out[2]) : NULL;
    int64_t n = p->n_hidden, width = n * p->n_directions, begin, end;
    float *h = run_scratch(r, i_thread), *c = h + n, *scratch = c + n;
    pool_split(p->n_batch * p->n_directions, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t batch = item / p->n_directions, direction = item % p->n_directions;
        int64_t at = batch * width + direction * n;
        bool backward = p->is_reverse || direction == 1;
        memcpy(h, h0 + at, (size_t)n * 4);
        if (is_lstm)
            memcpy(c, c0 + at, (size_t)n * 4);
        for (int64_t i = 0; i < p->n_steps && !stop_requested(r->stop); i++) {
            int64_t t = backward ? p->n_steps - 1 - i : i;
            const float *input = x + (t * p->n_batch + batch) * p->n_in;
            if (is_lstm)
                lstm_step(p, &p->cell[direction], h, c, scratch, input);
            else if (p->id == MIL_OP_GRU)
                gru_step(p, &p->cell[direction], h, scratch, input);
            else
                rnn_step(p, &p->cell[direction], h, scratch, input);
            int64_t to = p->is_reverse ? i : t; /* a sequence that is read backwards comes as it goes */
            if (p->has_sequence)
                memcpy(y + to * p->n_batch * width + at, h, (size_t)n * 4);
        }
        if (!p->has_sequence)
            memcpy(y + at, h, (size_t)n * 4);
        memcpy(h_end + at, h, (size_t)n * 4);
        if (is_lstm)
            memcpy(c_end + at, c, (size_t)n * 4);
    }
}

/* A constant weight of n numbers; absent: NULL. */
static bool cell_weight(struct compiler *c, const struct mil_op *op, const char *name, int64_t n,
                        const float **out)
{
    struct value v;
    bool present;
    *out = NULL;
    if (!operand_optional(c, op, name, &v, &present))
        return false;
    if (!present)
        return true;
    if (c->plan->storages[v.storage].kind != STORAGE_CONST || value_elems(&v) != n || !is_dense(&v))
        return compile_fail(c, ERR_FORMAT, "%s must be a constant of %lld numbers", name, (long long)n);
    if (v.repr == REPR_F16) { /* a large one is kept as it is in the file: here it is read at every step */
        float *wide;
        if (!compile_take_memory(c, n, 4))
            return false;
        wide = ARENA_ARRAY(c->arena, float, n);
        f16_to_f32_n(wide, (const f16 *)c->plan->storages[v.storage].data + v.offset, (size_t)n);
        *out = wide;
    } else {
        *out = const_floats(c, &v);
    }
    return true;
}

static bool cell_weights(struct compiler *c, const struct mil_op *op, const struct recurrent *p,
                         int direction, struct cell *w)
{
    static const char *const names[2][5] = {
        {"weight_ih", "weight_hh", "bias", "input_bias", "peephole"},
        {"weight_ih_back", "weight_hh_back", "bias_back", "input_bias_back", "peephole_back"}};
    const char *const *name = names[direction];
    int64_t rows = p->n_gates * p->n_hidden;
    return cell_weight(c, op, name[0], rows * p->n_in, &w->ih) &&
           cell_weight(c, op, name[1], rows * p->n_hidden, &w->hh) &&
           cell_weight(c, op, name[2], rows, &w->bias) && cell_weight(c, op, name[3], rows, &w->input_bias) &&
           cell_weight(c, op, name[4], 3 * p->n_hidden, &w->peephole) &&
           ((w->ih && w->hh) || compile_fail(c, ERR_FORMAT, "%s or %s is missing", name[0], name[1]));
}

static bool arg_activation(struct compiler *c, const struct mil_op *op, const char *name,
                           enum activation otherwise, enum activation *out)
{
    int which = (int)otherwise;
    if (mil_arg_find(op, name) && !arg_word(c, op, name, activation_names, 7, &which))
        return false;
    *out = (enum activation)which;
    return true;
}

bool emit_recurrent(struct compiler *c, const struct mil_op *op)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    struct recurrent *p = ARENA_NEW(c->arena, struct recurrent);
    struct value x[3], y[3];
    int direction, n_in = 2;
    double clip;
    p->id = op->info->id;
    bool is_lstm = p->id == MIL_OP_LSTM;
    if (!operand_f32(c, op, "x", &x[0]) || !operand_f32(c, op, "initial_h", &x[1]) ||
        (is_lstm && !operand_f32(c, op, "initial_c", &x[2])) ||
        !arg_word(c, op, "direction", directions, is_lstm ? 3 : 2, &direction) ||
        !arg_bool(c, op, "output_sequence", false, &p->has_sequence) ||
        !arg_bool(c, op, "reset_after", false, &p->resets_after) || !arg_float(c, op, "clip", 0, &clip) ||
        !arg_activation(c, op, "recurrent_activation", ACT_SIGMOID, &p->gate) ||
        !arg_activation(c, op, "cell_activation", ACT_TANH, &p->inner) ||
        !arg_activation(c, op, "activation", ACT_TANH, &p->output))
        return false;
    n_in += is_lstm;
    for (int i = 0; i < n_in; i++) {
        if (x[i].repr != REPR_F32 || !to_dense(c, &x[i]))
            return compile_fail(c, ERR_FORMAT, "expected floats");
    }
    p->n_gates = is_lstm ? 4 : p->id == MIL_OP_GRU ? 3 : 1;
    p->n_directions = direction == 2 ? 2 : 1;
    p->is_reverse = direction == 1;
    p->clip = (float)clip;
    if (x[0].rank != 3 || x[1].rank != 2 || x[1].dims[0] != x[0].dims[1] ||
        x[1].dims[1] % p->n_directions != 0 ||
        (is_lstm && (x[2].rank != 2 || x[2].dims[0] != x[1].dims[0] || x[2].dims[1] != x[1].dims[1])))
        return compile_fail(c, ERR_FORMAT, "expected x [steps, batch, inputs] and a state [batch, hidden]");
    p->n_steps = x[0].dims[0];
    p->n_batch = x[0].dims[1];
    p->n_in = x[0].dims[2];
    p->n_hidden = x[1].dims[1] / p->n_directions;
    for (int i = 0; i < p->n_directions; i++)
        if (!cell_weights(c, op, p, i, &p->cell[i]))
            return false;
    if (p->n_steps < 1 || op->n_outputs < n_in)
        return compile_fail(c, ERR_FORMAT, "a sequence without steps, or outputs that are missing");
    int64_t sequence[3] = {p->has_sequence ? p->n_steps : 1, p->n_batch, x[1].dims[1]};
    y[0] = value_new(c, REPR_F32, 3, sequence);
    for (int i = 1; i < n_in; i++)
        y[i] = value_new(c, REPR_F32, 2, x[1].dims);
    struct step *s = step_make(c, op->info->name, run_recurrent, p, x, n_in, y[0]);
    for (int i = 1; i < n_in; i++)
        step_out(c, s, y[i]);
    s->scratch_bytes = (size_t)p->n_hidden * 4 * (2 + 7); /* state, cell, sums of gates */
    s->work = (double)p->n_steps * (double)p->n_batch * (double)(p->n_gates * p->n_hidden) *
              (double)(p->n_in + p->n_hidden);
    s->serial = s->work < PARALLEL_ELEMS;
    for (int i = 0; i < n_in; i++)
        set_output(c, op, i, y[i]);
    return true;
}
