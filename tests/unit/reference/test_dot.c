/* The reference's dot product gives the bits of its definition at every level of instructions. */
#include "support.h"
#include "reference/reference_internal.h"

#define N_MAX 1100

/* Sixteen running sums, then halves added to halves. volatile keeps the compiler from any other order. */
static float plain_dot(const float *a, const float *b, int n)
{
    volatile float lanes[16] = {0};
    for (int i = 0; i < n; i++) {
        volatile float product = a[i] * b[i];
        lanes[i % 16] = lanes[i % 16] + product;
    }
    for (int width = 8; width > 0; width /= 2)
        for (int k = 0; k < width; k++)
            lanes[k] = lanes[k] + lanes[k + width];
    return lanes[0];
}

static void test_bits(void **unused)
{
    (void)unused;
    static float a[N_MAX], b[N_MAX];
    uint32_t state = 7;
    for (int i = 0; i < N_MAX; i++) {
        state = state * 1664525u + 1013904223u;
        a[i] = (float)(int32_t)state * 1e-9f;
        state = state * 1664525u + 1013904223u;
        b[i] = (float)(int32_t)state * (i % 5 == 0 ? 1e-5f : 1e-9f);
    }
    for (int n = 0; n <= N_MAX; n += n < 70 ? 1 : 37) {
        /* At any alignment. */
        int at = n % 5 < N_MAX - n ? n % 5 : 0;
        float expected = plain_dot(a + at, b + at, n);
        for (int level = 0; level < CPU_LEVELS; level++) {
            if (!cpu_has((enum cpu_level)level))
                continue;
            float found = reference_dot_for((enum cpu_level)level)(a + at, b + at, n);
            assert_memory_equal(&expected, &found, sizeof found);
        }
    }
}

/* Rows together give what each gives alone. */
static void test_rows(void **unused)
{
    enum { N = 77 };
    float rows[REFERENCE_DOTS * N], x[N];
    (void)unused;
    for (int i = 0; i < REFERENCE_DOTS * N; i++)
        rows[i] = (float)(i * 31 % 97) - 48.3f;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i * 17 % 53) * 0.37f;
    for (int n = 0; n <= N; n++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            float found[REFERENCE_DOTS];
            if (!cpu_has((enum cpu_level)level))
                continue;
            reference_dots_for((enum cpu_level)level)(rows, x, n, found);
            for (int r = 0; r < REFERENCE_DOTS; r++) {
                float expected = plain_dot(rows + r * n, x, n);
                assert_memory_equal(&expected, &found[r], sizeof expected);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
