// In builds with AddressSanitizer every call of a kernel looks at its arrays as wholes, and one that is too short by a
// number ends the program; in others the tables hold the kernels themselves.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/ranges.h"
#include "kernel/kernel_internal.h"

#ifdef RANGES_OF_ADDRESSES
/* The sanitizer asks for this; names of functions in hundreds of reports would take most of the time. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "symbolize=0";
}
#endif

enum { N = 48, ROWS = 3, POSITIONS = 10 };

/* One call of each kernel with arrays of its own; array `is_short` (from 0 on) is one number short. Returns how many arrays it has. */
struct arrays {
    int n, is_short;
};

static void *take(struct arrays *a, size_t n, size_t bytes)
{
    void *p = calloc(n - (a->n == a->is_short), bytes);
    a->n++;
    return p;
}
#define FLOATS(n) take(a, (size_t)(n), sizeof(float))
#define HALVES(n) take(a, (size_t)(n), sizeof(f16))

static void call_linear_f16(const struct kernels *k, struct arrays *a)
{
    float *y = FLOATS(ROWS * 7), *x = FLOATS(ROWS * N), *bias = FLOATS(7),
          *scratch = FLOATS(KERNEL_LINEAR_SCRATCH(N, ROWS));
    k->linear_f16(y, 7, x, N, HALVES(7 * N), bias, ROWS, N, 0, 7, scratch);
}

static void call_linear_f32(const struct kernels *k, struct arrays *a)
{
    float *y = FLOATS(7), *x = FLOATS(N);
    k->linear_f32(y, 7, x, N, FLOATS(7 * N), NULL, 1, N, 0, 7, FLOATS(16));
}

static void call_attention(const struct kernels *k, struct arrays *a)
{
    static const int32_t begin[ROWS] = {0, 0, 1}, end[ROWS] = {POSITIONS - 2, POSITIONS - 1, POSITIONS};
    float *out = FLOATS(ROWS * 32), *q = FLOATS(ROWS * 16), *mask = FLOATS(ROWS * POSITIONS);
    f16 *keys = HALVES(POSITIONS * 16), *values = HALVES(POSITIONS * 32);
    k->attention_f16(out, 32, q, 16, ROWS, keys, 16, values, 32, 16, 32, begin, end, mask, POSITIONS, 1,
                     FLOATS(KERNEL_ATTENTION_SCRATCH(POSITIONS, ROWS, 16, 32)));
}

static void call_norms(const struct kernels *k, struct arrays *a)
{
    float *y = FLOATS(N), *x = FLOATS(N), *w = FLOATS(N), *z = FLOATS(N), *gamma = FLOATS(N),
          *beta = FLOATS(N);
    k->rms_norm(y, x, w, N, 1e-6f);
    k->layer_norm(z, y, gamma, beta, N, 1e-6f);
}

static void call_elementwise(const struct kernels *k, struct arrays *a)
{
    float *y = FLOATS(N), *x = FLOATS(N), *b = FLOATS(1), *cosines = FLOATS(N / 2), *sines = FLOATS(N / 2);
    f16 *h = HALVES(N);
    k->rope(y, x, cosines, sines, N / 2, N / 2, N);
    k->mul(y, x, b, N, 0);
    k->add(y, x, x, N, 1);
    k->silu_mul(y, x, NULL, N);
    k->softmax(y, y, N);
    k->f32_to_f16(h, y, N);
    k->f16_to_f32(x, h, N);
}

static void call_gated_delta(const struct kernels *k, struct arrays *a)
{
    float *y = FLOATS(ROWS * N), *state = FLOATS(16 * N), *q = FLOATS(ROWS * 16), *keys = FLOATS(ROWS * 16),
          *v = FLOATS(ROWS * N), *g = FLOATS(ROWS), *beta = FLOATS(ROWS);
    struct gated_delta p = {.y = y,
                            .state = state,
                            .q = q,
                            .k = keys,
                            .v = v,
                            .g = g,
                            .beta = beta,
                            .y_stride = N,
                            .state_stride = N,
                            .q_stride = 16,
                            .k_stride = 16,
                            .v_stride = N,
                            .g_stride = 1,
                            .beta_stride = 1,
                            .n_tokens = ROWS,
                            .d_k = 16,
                            .inverse_d_k = 1,
                            .scale = 1};
    k->gated_delta(&p, 0, N);
}

static void call_fixed(const struct kernels *k, struct arrays *a)
{
    size_t bytes = k->fixed_bytes(ROWS, N);
    void *prepared = aligned_alloc(64, (bytes + 63) / 64 * 64);
    float *x = FLOATS(ROWS * N), *y = FLOATS(ROWS * 8);
    uint8_t *indices = take(a, 8 * N / 2, 1), *tables = take(a, 2 * 32, 1);
    struct fixed_weight w = {.bits = 4,
                             .indices = indices,
                             .n_out = 8,
                             .n_in = N,
                             .tables = tables,
                             .table_stride = 32,
                             .rows_per_group = 4,
                             .scales = FLOATS(8),
                             .rows_per_scale = 1};
    k->fixed_prepare(prepared, x, N, ROWS, N, 0, ROWS, 4);
    k->linear_fixed(y, 8, prepared, &w, NULL, ROWS, 0, 8, take(a, KERNEL_FIXED_SCRATCH(N, ROWS), 1));
}

static void (*const calls[])(const struct kernels *, struct arrays *) = {
    call_linear_f16,  call_linear_f32,  call_attention, call_norms,
    call_elementwise, call_gated_delta, call_fixed};

/* Does a process end well that makes this call? */
static bool ends_well(const struct kernels *k, size_t call, int is_short, int *n_arrays)
{
    int status, pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct arrays a = {.is_short = is_short};
        close(STDERR_FILENO); /* what the sanitizer has to say */
        calls[call](k, &a);
        _exit(write(pipes[1], &a.n, sizeof a.n) != sizeof a.n);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ok && n_arrays)
        assert_int_equal(read(pipes[0], n_arrays, sizeof *n_arrays), sizeof *n_arrays);
    close(pipes[0]);
    close(pipes[1]);
    return ok;
}

static void test_arrays(void **state)
{
    (void)state;
    int n_checked = 0;
    struct kernels k;
    for (int i = 0; kernel_variant(i, &k); i++) {
        for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
            int n_arrays = 0;
            assert_true(ends_well(&k, call, -1, &n_arrays));
            assert_true(n_arrays >= 4);
#ifdef RANGES_OF_ADDRESSES
            for (int is_short = 0; is_short < n_arrays; is_short++) {
                if (ends_well(&k, call, is_short, NULL))
                    fail_msg("%s, call %zu: array %d is short and nobody says so", k.name, call, is_short);
                n_checked++;
            }
#endif
        }
    }
    printf("%d arrays that are too short were reported\n", n_checked);
}

static void test_own_functions(void **state)
{
    (void)state;
    const struct kernels *k = kernel_table(CPU_SCALAR);
#if defined(RANGES_OF_ADDRESSES) || defined(RANGES_OF_THREADS)
    assert_true(k->add != kernels_scalar.add && k->linear_fixed != kernels_scalar.linear_fixed);
#else
    assert_true(k->add == kernels_scalar.add && k->linear_fixed == kernels_scalar.linear_fixed);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrays), cmocka_unit_test(test_own_functions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
