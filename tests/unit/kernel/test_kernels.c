/* Every kernel of every level that this processor has, bit for bit against its plain C twin: generated from
 * kernel.def. Shapes are random with tails, numbers include subnormals, infinities and NaN, and all arrays
 * end at an unreadable page. A level that is missing here is said to be skipped. */
// links: base
#include "kernel_test.h"

enum { ROUNDS = 60 };

static const struct kernels *scalar;

static void check_unary(const char *what, void (*twin)(float *, const float *, int64_t),
                        void (*f)(float *, const float *, int64_t))
{
    struct random_state r = {0x9e3779b97f4a7c15u};
    for (int64_t n = 0; n < ROUNDS; n++) {
        for (int kind = 0; kind < NUMBERS_KINDS; kind++) {
            struct guard_pool pool = {.n = 0};
            float *x = guarded_floats(&pool, &r, n, (enum numbers)kind);
            for (int64_t i = 0; n % 3 == 0 && i < n; i++)
                x[i] *= 20.0f;
            float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
                  *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
            twin(expected, x, n);
            f(y, x, n);
            assert_same_floats(what, y, expected, n);
            f(x, x, n);
            assert_same_floats(what, x, expected, n);
            guard_free_all(&pool);
        }
    }
}

/* Many float bit patterns in one call: all exponents, both signs. */
static void check_unary_sweep(const char *what, void (*twin)(float *, const float *, int64_t),
                              void (*f)(float *, const float *, int64_t))
{
    enum { N = 1 << 18 };
    float *x = malloc(3 * N * sizeof *x);
    float *y = x + N, *expected = x + 2 * N;
    for (uint32_t i = 0; i < N; i++)
        x[i] = bits_float(i * (UINT32_MAX / N) + i % 4096);
    twin(expected, x, N);
    f(y, x, N);
    assert_same_floats(what, y, expected, N);
    free(x);
}

static void check_binary(const char *what, void (*twin)(float *, const float *, const float *, int64_t, int),
                         void (*f)(float *, const float *, const float *, int64_t, int))
{
    struct random_state r = {0x1234567887654321u};
    for (int64_t n = 0; n < ROUNDS; n++) {
        for (int kind = 0; kind < NUMBERS_KINDS * 2; kind++) {
            struct guard_pool pool = {.n = 0};
            int b_step = kind % 2;
            float *a = guarded_floats(&pool, &r, n, (enum numbers)(kind / 2));
            float *b = guarded_floats(&pool, &r, b_step ? n : 1, (enum numbers)(kind / 2));
            float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
                  *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
            twin(expected, a, b, n, b_step);
            f(y, a, b, n, b_step);
            assert_same_floats(what, y, expected, n);
            f(a, a, b, n, b_step);
            assert_same_floats(what, a, expected, n);
            guard_free_all(&pool);
        }
    }
}

static void check_ternary(const char *what, void (*twin)(float *, const float *, const float *, int64_t),
                          void (*f)(float *, const float *, const float *, int64_t))
{
    struct random_state r = {0x1234567887654321u};
    for (int64_t n = 0; n < ROUNDS; n++) {
        for (int kind = 0; kind < NUMBERS_KINDS * 2; kind++) {
            struct guard_pool pool = {.n = 0};
            float *x = guarded_floats(&pool, &r, n, (enum numbers)(kind / 2));
            float *u = kind % 2 ? guarded_floats(&pool, &r, n, (enum numbers)(kind / 2)) : NULL;
            float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
                  *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
            twin(expected, x, u, n);
            f(y, x, u, n);
            assert_same_floats(what, y, expected, n);
            f(x, x, u, n);
            assert_same_floats(what, x, expected, n);
            guard_free_all(&pool);
        }
    }
}

static void check_widen(const char *what, void (*f)(float *, const f16 *, int64_t))
{
    static f16 x[65536];
    static float y[65536];
    for (int i = 0; i < 65536; i++)
        x[i] = (f16)i;
    f(y, x, 65536);
    for (int i = 0; i < 65536; i++) {
        float expected = f16_to_f32((f16)i);
        assert_same_floats(what, &y[i], &expected, 1);
    }
    struct random_state r = {77};
    for (int64_t n = 0; n < 40; n++) {
        struct guard_pool pool = {.n = 0};
        f16 *in = guarded_f16(&pool, &r, n, NUMBERS_SPECIAL);
        float *out = guard_alloc(&pool, (size_t)n * sizeof *out);
        f(out, in, n);
        for (int64_t i = 0; i < n; i++) {
            float expected = f16_to_f32(in[i]);
            assert_same_floats(what, &out[i], &expected, 1);
        }
        guard_free_all(&pool);
    }
}

/* Every fp16 number, every midpoint between two neighbours and the floats next to them: all cases of
 * rounding. */
static void check_narrow(const char *what, void (*f)(f16 *, const float *, int64_t))
{
    enum { N = 4 * 65536 };
    float *x = malloc(N * sizeof *x);
    f16 *y = malloc(N * sizeof *y);
    for (uint32_t h = 0; h < 65536; h++) {
        float here = f16_to_f32((f16)h), next = f16_to_f32((f16)((h & 0x8000) | ((h + 1) & 0x7fff)));
        float middle = isinf(next) ? copysignf(65520.0f, here) : 0.5f * here + 0.5f * next;
        x[4 * h] = here;
        x[4 * h + 1] = middle;
        x[4 * h + 2] = nextafterf(middle, INFINITY);
        x[4 * h + 3] = nextafterf(middle, -INFINITY);
    }
    f(y, x, N);
    for (int i = 0; i < N; i++) {
        float a = f16_to_f32(y[i]), b = f16_to_f32(f32_to_f16(x[i]));
        assert_same_floats(what, &a, &b, 1);
    }
    free(x);
    free(y);
    struct random_state r = {78};
    for (int64_t n = 0; n < 40; n++) {
        struct guard_pool pool = {.n = 0};
        float *in = guarded_floats(&pool, &r, n, NUMBERS_SPECIAL);
        f16 *out = guard_alloc(&pool, (size_t)n * sizeof *out);
        f(out, in, n);
        for (int64_t i = 0; i < n; i++) {
            float a = f16_to_f32(out[i]), b = f16_to_f32(f32_to_f16(in[i]));
            assert_same_floats(what, &a, &b, 1);
        }
        guard_free_all(&pool);
    }
}

static void check_rms_norm(const char *what, const struct kernels *k)
{
    struct random_state r = {0xabcdef0123456789u};
    for (int64_t n = 0; n < ROUNDS * 2; n++) {
        for (int kind = 0; kind < NUMBERS_KINDS * 2; kind++) {
            struct guard_pool pool = {.n = 0};
            float *x = guarded_floats(&pool, &r, n, (enum numbers)(kind / 2));
            float *w = kind % 2 ? guarded_floats(&pool, &r, n, NUMBERS_PLAIN) : NULL;
            float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
                  *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
            scalar->rms_norm(expected, x, w, n, 1e-6f);
            k->rms_norm(y, x, w, n, 1e-6f);
            assert_same_floats(what, y, expected, n);
            k->rms_norm(x, x, w, n, 1e-6f);
            assert_same_floats(what, x, expected, n);
            guard_free_all(&pool);
        }
    }
}

static void check_layer_norm(const char *what, const struct kernels *k)
{
    struct random_state r = {0xabcdef0123456789u};
    for (int64_t n = 0; n < ROUNDS * 2; n++) {
        for (int kind = 0; kind < NUMBERS_KINDS * 4; kind++) {
            struct guard_pool pool = {.n = 0};
            float *x = guarded_floats(&pool, &r, n, (enum numbers)(kind / 4));
            float *gamma = kind % 2 ? guarded_floats(&pool, &r, n, NUMBERS_PLAIN) : NULL;
            float *beta = kind / 2 % 2 ? guarded_floats(&pool, &r, n, NUMBERS_PLAIN) : NULL;
            float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
                  *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
            scalar->layer_norm(expected, x, gamma, beta, n, 1e-5f);
            k->layer_norm(y, x, gamma, beta, n, 1e-5f);
            assert_same_floats(what, y, expected, n);
            k->layer_norm(x, x, gamma, beta, n, 1e-5f);
            assert_same_floats(what, x, expected, n);
            guard_free_all(&pool);
        }
    }
}

static void check_rope(const char *what, const struct kernels *k)
{
    struct random_state r = {0x5555aaaa12345678u};
    for (int round = 0; round < ROUNDS * 3; round++) {
        struct guard_pool pool = {.n = 0};
        int64_t pairs = random_between(&r, 0, 70), half = pairs + (round % 2 ? random_between(&r, 0, 9) : 0);
        int64_t n = half + pairs + (round % 4 > 1 ? random_between(&r, 0, 40) : 0);
        enum numbers kind = (enum numbers)(round % NUMBERS_KINDS);
        float *x = guarded_floats(&pool, &r, n, kind), *cosines = guarded_floats(&pool, &r, pairs, kind);
        float *sines = guarded_floats(&pool, &r, pairs, kind);
        float *y = guard_alloc(&pool, (size_t)n * sizeof *y),
              *expected = guard_alloc(&pool, (size_t)n * sizeof *y);
        scalar->rope(expected, x, cosines, sines, pairs, half, n);
        k->rope(y, x, cosines, sines, pairs, half, n);
        assert_same_floats(what, y, expected, n);
        k->rope(x, x, cosines, sines, pairs, half, n);
        assert_same_floats(what, x, expected, n);
        guard_free_all(&pool);
    }
}

struct linear_case {
    float *x, *bias;
    void *w;
    bool is_f16;
    int64_t x_stride, y_stride, n_rows, n_in, n_out, begin, end;
};

static void linear_run(const struct kernels *k, const struct linear_case *c, float *y, int64_t row,
                       int64_t n_rows, int64_t begin, int64_t end, float *scratch)
{
    const float *x = c->x + row * c->x_stride;
    if (c->is_f16)
        k->linear_f16(y + row * c->y_stride, c->y_stride, x, c->x_stride, c->w, c->bias, n_rows, c->n_in,
                      begin, end, scratch);
    else
        k->linear_f32(y + row * c->y_stride, c->y_stride, x, c->x_stride, c->w, c->bias, n_rows, c->n_in,
                      begin, end, scratch);
}

/* Against the twin; then row by row and in two parts of the outputs: again the same bits. */
static void check_linear(const char *what, const struct kernels *k, bool is_f16)
{
    static const int64_t widths[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 40, 64, 100, 128, 257, 512, 1040};
    struct random_state r = {0x243f6a8885a308d3u};
    for (int round = 0; round < ROUNDS * 6; round++) {
        struct guard_pool pool = {.n = 0};
        enum numbers kind = (enum numbers)(round % NUMBERS_KINDS);
        struct linear_case c = {.is_f16 = is_f16, .n_in = widths[random_bits(&r) % 17], .n_rows = 1};
        if (round % 2)
            c.n_rows = random_between(&r, 0, 19);
        c.n_out = random_between(&r, 0, 23);
        c.begin = random_between(&r, 0, c.n_out);
        c.end = random_between(&r, c.begin, c.n_out);
        if (round % 4 > 1) {
            c.begin = 0;
            c.end = c.n_out;
        }
        c.x_stride = c.n_in + (round % 5 == 0 ? random_between(&r, 1, 20) : 0);
        c.y_stride = c.n_out + (round % 7 == 0 ? random_between(&r, 1, 20) : 0);
        /* the last row ends at the guard page */
        int64_t n_x = c.n_rows > 0 ? (c.n_rows - 1) * c.x_stride + c.n_in : 0;
        int64_t n_y = c.n_rows > 0 ? (c.n_rows - 1) * c.y_stride + c.n_out : 0;
        c.x = guarded_floats(&pool, &r, n_x, kind);
        c.w = is_f16 ? (void *)guarded_f16(&pool, &r, c.n_out * c.n_in, kind)
                     : (void *)guarded_floats(&pool, &r, c.n_out * c.n_in, kind);
        c.bias = round % 3 ? guarded_floats(&pool, &r, c.n_out, NUMBERS_PLAIN) : NULL;
        float *scratch = guard_alloc(&pool, KERNEL_LINEAR_SCRATCH(c.n_in, c.n_rows) * sizeof *scratch);
        float *y = guarded_floats(&pool, &r, n_y, NUMBERS_PLAIN),
              *expected = guarded_floats(&pool, &r, n_y, 0);
        float *rows = guarded_floats(&pool, &r, n_y, 0), *parts = guarded_floats(&pool, &r, n_y, 0);
        /* the same start everywhere: outside the range nothing may change */
        if (n_y > 0) {
            memcpy(expected, y, (size_t)n_y * sizeof *y);
            memcpy(rows, y, (size_t)n_y * sizeof *y);
            memcpy(parts, y, (size_t)n_y * sizeof *y);
        }
        linear_run(scalar, &c, expected, 0, c.n_rows, c.begin, c.end, scratch);
        linear_run(k, &c, y, 0, c.n_rows, c.begin, c.end, scratch);
        assert_same_floats(what, y, expected, n_y);
        for (int64_t row = 0; row < c.n_rows; row++)
            linear_run(k, &c, rows, row, 1, c.begin, c.end, NULL);
        assert_same_floats("row by row", rows, expected, n_y);
        int64_t middle = random_between(&r, c.begin, c.end);
        linear_run(k, &c, parts, 0, c.n_rows, c.begin, middle, scratch);
        linear_run(k, &c, parts, 0, c.n_rows, middle, c.end, scratch);
        assert_same_floats("outputs in two parts", parts, expected, n_y);
        guard_free_all(&pool);
    }
}

/* Against the twin; then the rows split at random: again the same bits. */
static void check_attention(const char *what, const struct kernels *k)
{
    static const int64_t widths[] = {1, 8, 16, 20, 32, 40, 64, 80, 128, 264, 3000};
    struct random_state r = {0x13198a2e03707344u};
    for (int round = 0; round < ROUNDS * 4; round++) {
        struct guard_pool pool = {.n = 0};
        enum numbers kind = (enum numbers)(round % NUMBERS_KINDS);
        int64_t d_k = widths[random_bits(&r) % (round % 20 == 19 ? 11 : 10)],
                d_v = widths[random_bits(&r) % 10];
        int64_t n_positions = random_between(&r, 1, round % 8 == 0 ? 300 : 90);
        int64_t n_rows = round % 3 == 0    ? 1
                         : round % 16 == 5 ? random_between(&r, 60, 140)
                                           : random_between(&r, 0, 37);
        int64_t k_stride = d_k + (round % 2 ? random_between(&r, 0, 30) : 0);
        int64_t v_stride = d_v + (round % 2 ? random_between(&r, 0, 30) : 0);
        int64_t q_stride = d_k + random_between(&r, 0, 3), out_stride = d_v + random_between(&r, 0, 3);
        int64_t mask_stride = n_positions + random_between(&r, 0, 3);
        int64_t n_out = n_rows > 0 ? (n_rows - 1) * out_stride + d_v : 0;
        float *q = guarded_floats(&pool, &r, n_rows > 0 ? (n_rows - 1) * q_stride + d_k : 0, kind);
        f16 *keys = guarded_f16(&pool, &r, (n_positions - 1) * k_stride + d_k, kind);
        f16 *values = guarded_f16(&pool, &r, (n_positions - 1) * v_stride + d_v, kind);
        float *mask = guarded_floats(&pool, &r, n_rows > 0 ? (n_rows - 1) * mask_stride + n_positions : 0, 0);
        int32_t *begin = guard_alloc(&pool, (size_t)n_rows * sizeof *begin);
        int32_t *end = guard_alloc(&pool, (size_t)n_rows * sizeof *end);
        for (int64_t i = 0; i < n_rows; i++) {
            bool is_causal = round % 4 < 2;
            begin[i] = is_causal ? 0 : (int32_t)random_between(&r, 0, n_positions);
            end[i] =
                (int32_t)random_between(&r, is_causal && i < n_positions ? n_positions - i : 0, n_positions);
            for (int64_t p = 0; p < n_positions; p++) {
                if (random_bits(&r) % 4 == 0 || i % 11 == 10)
                    mask[i * mask_stride + p] = -INFINITY;
            }
        }
        const float *used_mask = round % 5 > 2 ? NULL : mask;
        float *y = guarded_floats(&pool, &r, n_out, 0), *expected = guarded_floats(&pool, &r, n_out, 0);
        float *parts = guarded_floats(&pool, &r, n_out, 0);
        if (n_out > 0) {
            memcpy(expected, y, (size_t)n_out * sizeof *y);
            memcpy(parts, y, (size_t)n_out * sizeof *y);
        }
        float *scratch =
            guard_alloc(&pool, KERNEL_ATTENTION_SCRATCH(n_positions, n_rows, d_k, d_v) * sizeof *scratch);
        float scale = 1.0f / sqrtf((float)d_k);
        scalar->attention_f16(expected, out_stride, q, q_stride, n_rows, keys, k_stride, values, v_stride,
                              d_k, d_v, begin, end, used_mask, mask_stride, scale, scratch);
        k->attention_f16(y, out_stride, q, q_stride, n_rows, keys, k_stride, values, v_stride, d_k, d_v,
                         begin, end, used_mask, mask_stride, scale, scratch);
        assert_same_floats(what, y, expected, n_out);
        for (int64_t row = 0, n; row < n_rows; row += n) {
            n = random_between(&r, 1, n_rows - row < 6 ? n_rows - row : (round % 2 ? 1 : 6));
            k->attention_f16(parts + row * out_stride, out_stride, q + row * q_stride, q_stride, n, keys,
                             k_stride, values, v_stride, d_k, d_v, begin + row, end + row,
                             used_mask ? used_mask + row * mask_stride : NULL, mask_stride, scale, scratch);
        }
        assert_same_floats("rows in parts", parts, expected, n_out);
        guard_free_all(&pool);
    }
}

/* All columns in one call against the twin, then the same tokens one call each and the columns in two parts. */
static void check_gated_delta(const char *what, const struct kernels *k)
{
    struct random_state r = {0x5151515151515151u};
    for (int round = 0; round < ROUNDS; round++) {
        struct guard_pool pool = {.n = 0};
        enum numbers kind = round % 5 == 4 ? NUMBERS_SPECIAL : NUMBERS_PLAIN;
        int64_t d_k = random_between(&r, 1, 70), d_v = random_between(&r, 1, 70),
                n = random_between(&r, 1, 5);
        float *state[3], *y[3], *first = guarded_floats(&pool, &r, d_k * d_v, kind);
        for (int i = 0; i < 3; i++) {
            state[i] = guard_alloc(&pool, (size_t)(d_k * d_v) * sizeof(float));
            y[i] = guard_alloc(&pool, (size_t)(n * d_v) * sizeof(float));
            memcpy(state[i], first, (size_t)(d_k * d_v) * sizeof(float));
        }
        struct gated_delta p = {.y = y[0],
                                .state = state[0],
                                .y_stride = d_v,
                                .state_stride = d_v,
                                .q_stride = d_k,
                                .k_stride = d_k,
                                .v_stride = d_v,
                                .g_stride = 1,
                                .beta_stride = 1,
                                .n_tokens = n,
                                .d_k = d_k,
                                .inverse_d_k = 1.0f / (float)d_k,
                                .scale = 0.25f};
        p.q = guarded_floats(&pool, &r, n * d_k, kind);
        p.k = guarded_floats(&pool, &r, n * d_k, kind);
        p.v = guarded_floats(&pool, &r, n * d_v, kind);
        p.g = guarded_floats(&pool, &r, n, kind);
        p.beta = guarded_floats(&pool, &r, n, kind);
        scalar->gated_delta(&p, 0, d_v);
        p.y = y[1];
        p.state = state[1];
        k->gated_delta(&p, 0, d_v);
        assert_same_floats(what, y[1], y[0], n * d_v);
        assert_same_floats(what, state[1], state[0], d_k * d_v);
        int64_t cut = random_between(&r, 0, d_v);
        p.state = state[2];
        p.n_tokens = 1;
        for (int64_t t = 0; t < n; t++) {
            struct gated_delta one = p;
            one.y = y[2] + t * d_v;
            one.q += t * d_k;
            one.k += t * d_k;
            one.v += t * d_v;
            one.g += t;
            one.beta += t;
            k->gated_delta(&one, cut, d_v);
            k->gated_delta(&one, 0, cut);
        }
        assert_same_floats(what, y[2], y[0], n * d_v);
        assert_same_floats(what, state[2], state[0], d_k * d_v);
        guard_free_all(&pool);
    }
}

/* the three go together: test_kernel_fixed.c */
#define CHECK_FIXED(member, k) assert_non_null((k)->member)
/* More outputs, activation rows and columns than are worked on at once, and so many columns that fewer rows are. */
static void check_linear_large(const char *what, const struct kernels *k, bool is_f16)
{
    static const int64_t shapes[][3] = {{264, 135, 71}, {2100, 70, 37}, {4100, 67, 33}, {9000, 20, 33},
                                        {17000, 35, 3}, {40000, 19, 2}, {70000, 9, 2}};
    struct random_state r = {0x13198a2e03707344u};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct guard_pool pool = {.n = 0};
        struct linear_case c = {
            .is_f16 = is_f16, .n_in = shapes[i][0], .n_rows = shapes[i][1], .n_out = shapes[i][2]};
        int64_t n_y = c.n_rows * c.n_out;
        c.x_stride = c.n_in;
        c.y_stride = c.n_out;
        c.x = guarded_floats(&pool, &r, c.n_rows * c.n_in, NUMBERS_PLAIN);
        c.w = is_f16 ? (void *)guarded_f16(&pool, &r, c.n_out * c.n_in, NUMBERS_PLAIN)
                     : (void *)guarded_floats(&pool, &r, c.n_out * c.n_in, NUMBERS_PLAIN);
        c.bias = guarded_floats(&pool, &r, c.n_out, NUMBERS_PLAIN);
        float *scratch = guard_alloc(&pool, KERNEL_LINEAR_SCRATCH(c.n_in, c.n_rows) * sizeof *scratch);
        float *y = guarded_floats(&pool, &r, n_y, NUMBERS_PLAIN),
              *expected = guarded_floats(&pool, &r, n_y, NUMBERS_PLAIN);
        linear_run(scalar, &c, expected, 0, c.n_rows, 0, c.n_out, scratch);
        linear_run(k, &c, y, 0, c.n_rows, 0, c.n_out, scratch);
        assert_same_floats(what, y, expected, n_y);
        guard_free_all(&pool);
    }
}

/* A row with zero stretches: the same bits whether they are walked (several rows) or left out (one row). */
static void check_linear_zeros(const char *what, const struct kernels *k)
{
    struct random_state r = {0x77};
    for (int round = 0; round < 24; round++) {
        struct guard_pool pool = {.n = 0};
        int64_t n_in = random_between(&r, 1, 2100), n_out = random_between(&r, 1, 9);
        f16 *w = guarded_f16(&pool, &r, n_in * n_out, NUMBERS_PLAIN);
        float *x = guarded_floats(&pool, &r, n_in, NUMBERS_PLAIN), *y[2];
        float *scratch = guard_alloc(&pool, KERNEL_LINEAR_SCRATCH(n_in, 2) * sizeof(float));
        for (int64_t i = 0; i < n_in; i += 256) {
            bool zero = random_between(&r, 0, 2) > 0;
            for (int64_t j = i; zero && j < n_in && j < i + 256; j++)
                x[j] = 0;
        }
        for (int i = 0; i < 2; i++)
            y[i] = guard_alloc(&pool, (size_t)n_out * sizeof(float));
        scalar->linear_f16(y[0], n_out, x, n_in, w, NULL, 1, n_in, 0, n_out, scratch);
        k->linear_f16(y[1], n_out, x, n_in, w, NULL, 1, n_in, 0, n_out, scratch);
        assert_same_floats(what, y[1], y[0], n_out);
        guard_free_all(&pool);
    }
}

#define CHECK_UNARY(member, k)                                                                               \
    do {                                                                                                     \
        check_unary(#member, scalar->member, (k)->member);                                                   \
        check_unary_sweep(#member, scalar->member, (k)->member);                                             \
    } while (0)
#define CHECK_BINARY(member, k) check_binary(#member, scalar->member, (k)->member)
#define CHECK_TERNARY(member, k) check_ternary(#member, scalar->member, (k)->member)
#define CHECK_WIDEN(member, k) check_widen(#member, (k)->member)
#define CHECK_NARROW(member, k) check_narrow(#member, (k)->member)
#define CHECK_RMS_NORM(member, k) check_rms_norm(#member, k)
#define CHECK_LAYER_NORM(member, k) check_layer_norm(#member, k)
#define CHECK_ROPE(member, k) check_rope(#member, k)
#define CHECK_LINEAR_F16(member, k)                                                                          \
    do {                                                                                                     \
        check_linear(#member, k, true);                                                                      \
        check_linear_large(#member, k, true);                                                                \
        check_linear_zeros(#member, k);                                                                      \
    } while (0)
#define CHECK_LINEAR_F32(member, k)                                                                          \
    do {                                                                                                     \
        check_linear(#member, k, false);                                                                     \
        check_linear_large(#member, k, false);                                                               \
    } while (0)
#define CHECK_GATED_DELTA(member, k) check_gated_delta(#member, k)
#define CHECK_ATTENTION(member, k) check_attention(#member, k)

/* One test a kernel; the plain C level goes through it, too: it must keep to its arrays and not depend on
 * blocking. */
#define KERNEL(member, kind)                                                                                 \
    static void test_##member(void **state)                                                                  \
    {                                                                                                        \
        (void)state;                                                                                         \
        struct kernels k;                                                                                    \
        for (int i = 0; kernel_variant(i, &k); i++) {                                                        \
            assert_non_null(k.member);                                                                       \
            CHECK_##kind(member, &k);                                                                        \
        }                                                                                                    \
    }
#include "kernel/kernel.def"
#undef KERNEL

static void test_levels(void **state)
{
    (void)state;
    const struct kernels *best = NULL;
    const char *why = NULL;
    for (int level = 0; level < CPU_LEVELS; level++) {
        const struct kernels *k = kernel_table((enum cpu_level)level);
        setenv("MILKIT_CPU", cpu_level_name((enum cpu_level)level), 1);
        why = NULL;
        assert_ptr_equal(kernel_select(&why), k);
        if (!k) {
            assert_non_null(why);
            printf("skipped: level %s is not in this processor or build\n",
                   cpu_level_name((enum cpu_level)level));
            continue;
        }
        assert_string_equal(k->name, cpu_level_name((enum cpu_level)level));
        assert_int_equal(k->features & ~cpu_features(), 0);
        assert_int_equal(k->level, level);
        best = k;
    }
    setenv("MILKIT_CPU", "8086", 1);
    why = NULL;
    assert_null(kernel_select(&why));
    assert_non_null(why);
    setenv("MILKIT_CPU", "", 1);
    assert_ptr_equal(kernel_select(&why), best);
    unsetenv("MILKIT_CPU");
    assert_ptr_equal(kernel_select(&why), best);
    assert_null(kernel_table(CPU_LEVELS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
#define KERNEL(member, kind) cmocka_unit_test(test_##member),
#include "kernel/kernel.def"
#undef KERNEL
    };
    scalar = kernel_table(CPU_SCALAR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
