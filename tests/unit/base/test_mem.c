/* Checked sizes, tensor memory, arenas, the table, and the end of the program when memory is out. */
#include "support.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"

static void test_sizes(void **state)
{
    (void)state;
    size_t r = 0;
    assert_true(size_mul(6, 7, &r));
    assert_int_equal(r, 42);
    assert_true(size_mul(SIZE_MAX, 1, &r));
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &r));
    assert_true(size_mul(SIZE_MAX, 0, &r));
    assert_int_equal(r, 0);
    assert_true(size_add(SIZE_MAX - 1, 1, &r));
    assert_true(r == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &r));
}

static void test_tensor_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct err e = {0};
        unsigned char *p = mem_try_alloc(sizes[i], &e);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            if (p[k] != 0)
                fail_msg("byte %zu of %zu is not zero", k, sizes[i]);
        memset(p, 0xff, sizes[i]);
        mem_free(p);
    }
    mem_free(NULL);
    static const size_t too_large[] = {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX - 127, (size_t)1 << 60};
    for (size_t i = 0; i < sizeof too_large / sizeof too_large[0]; i++) {
        struct err e = {0};
        assert_null(mem_try_alloc(too_large[i], &e));
        assert_int_equal(e.code, ERR_NOMEM);
    }
}

/* Memory of any size is zero again, and large memory costs what is in use: pages that nobody touched stay away. */
static void test_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4097, ((size_t)1 << 20) + 5, (size_t)64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct err e = {0};
        size_t n = sizes[i], in_use = n < 100000 ? n : 100000, n_pages = n / 4096 > 2 ? n / 4096 - 2 : 0;
        unsigned char *p = mem_try_alloc(n, &e);
        assert_non_null(p);
        memset(p, 0xff, in_use);
        if (n > 0)
            p[n - 1] = p[n / 2] = 0xff;
        mem_zero(p, n);
        if (n >= (size_t)64 << 20 && sysconf(_SC_PAGESIZE) == 4096) {
            unsigned char *resident = malloc(n_pages);
            size_t n_resident = 0;
            assert_int_equal(mincore(p + (4096 - (uintptr_t)p % 4096) % 4096, n_pages * 4096, resident), 0);
            for (size_t k = 0; k < n_pages; k++)
                n_resident += resident[k] & 1;
            assert_true(n_resident < n_pages / 8);
            free(resident);
        }
        for (size_t k = 0; k < n; k++)
            if (p[k] != 0)
                fail_msg("byte %zu of %zu is not zero", k, n);
        mem_free(p);
    }
}

static void test_arena_objects(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    unsigned char *objects[3000];
    size_t total = 0;
    for (size_t i = 0; i < 3000; i++) {
        size_t n = i % 7 == 0 ? i * 13 : i % 50;
        objects[i] = arena_alloc(a, n);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        for (size_t k = 0; k < n; k++)
            if (objects[i][k] != 0)
                fail_msg("object %zu is not zeroed", i);
        memset(objects[i], (int)(i & 0xff), n);
        total += n;
    }
    /* Nobody wrote into anybody else. */
    for (size_t i = 0; i < 3000; i++) {
        size_t n = i % 7 == 0 ? i * 13 : i % 50;
        for (size_t k = 0; k < n; k++)
            if (objects[i][k] != (i & 0xff))
                fail_msg("object %zu was overwritten", i);
    }
    assert_true(arena_used_bytes(a) >= total);
    arena_free(a);
    arena_free(NULL);
}

static void test_arena_strings(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    assert_string_equal(arena_strdup(a, "hello"), "hello");
    assert_string_equal(arena_strdup(a, ""), "");
    assert_string_equal(arena_strndup(a, "hello", 2), "he");
    assert_string_equal(arena_printf(a, "%s-%d", "x", 5), "x-5");
    assert_memory_equal(arena_copy(a, "\1\0\2", 3), "\1\0\2", 3);
    int *numbers = ARENA_ARRAY(a, int, 10);
    assert_int_equal(numbers[9], 0);
    arena_free(a);
}

static void test_arena_limit(void **state)
{
    (void)state;
    struct arena *a = arena_new(1024);
    struct err e = {0};
    assert_non_null(arena_try_alloc(a, 10, 50, &e));
    assert_null(arena_try_alloc(a, 600, 1, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(arena_try_alloc(a, 512, 1, &e)); /* exactly full: 512 + 512 */
    assert_null(arena_try_alloc(a, 1, 1, &e));
    assert_int_equal(arena_used_bytes(a), 1024);
    memset(&e, 0, sizeof e);
    assert_null(arena_try_alloc(a, SIZE_MAX / 2, 3, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    arena_free(a);

    a = arena_new(0);
    memset(&e, 0, sizeof e);
    assert_null(arena_try_alloc(a, SIZE_MAX / 2, 3, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_null(arena_try_alloc(a, (size_t)1 << 60, 1, &e));
    assert_int_equal(e.code, ERR_NOMEM);
    assert_non_null(arena_try_alloc(a, 0, 8, &e));
    arena_free(a);
}

/* Runs fn in a child and returns its exit status. */
static int status_of(void (*fn)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(99);
        fn();
        _exit(0);
    }
    int status = 0;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void exceed_arena_limit(void)
{
    struct arena *a = arena_new(100);
    for (;;)
        arena_alloc(a, 40);
}

static void multiply_over(void)
{
    free(xcalloc(SIZE_MAX / 2, 3));
}

/* A program's own end takes the place of the library's. */
_Noreturn void mem_exhausted(size_t bytes)
{
    (void)bytes;
    exit(6);
}

static void test_out_of_memory_ends_the_program(void **state)
{
    (void)state;
    assert_int_equal(status_of(exceed_arena_limit), 6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_int_equal(status_of(multiply_over), 6);
#else
    (void)multiply_over;
#endif
}

static void test_heap_strings(void **state)
{
    (void)state;
    char *s = xasprintf("%0500d", 7);
    assert_int_equal(strlen(s), 500);
    assert_int_equal(s[499], '7');
    free(s);
    s = xstrdup("");
    assert_string_equal(s, "");
    s = xrealloc(s, 100);
    strcpy(s, "grown");
    assert_string_equal(s, "grown");
    free(s);
    free(xmalloc(0));
    free(xcalloc(0, 8));
}

static void test_table(void **state)
{
    (void)state;
    enum { N = 20000 };
    static int values[N];
    struct table *t = table_new();
    assert_null(table_get(t, "missing"));
    for (int i = 0; i < N; i++) {
        char key[40];
        snprintf(key, sizeof key, "%.*skey %d", i % 20, "aaaaaaaaaaaaaaaaaaaa", i);
        assert_true(table_put(t, key, &values[i]));
    }
    assert_int_equal(table_count(t), N);
    for (int i = 0; i < N; i++) {
        char key[40];
        snprintf(key, sizeof key, "%.*skey %d", i % 20, "aaaaaaaaaaaaaaaaaaaa", i);
        assert_ptr_equal(table_get(t, key), &values[i]);
        assert_false(table_put(t, key, NULL));
        assert_ptr_equal(table_get(t, key), &values[i]);
    }
    assert_int_equal(table_count(t), N);
    assert_null(table_get(t, "key"));
    assert_true(table_put(t, "", &values[0]));
    assert_ptr_equal(table_get(t, ""), &values[0]);
    table_free(t);
    table_free(NULL);
}

static void test_grow(void **state)
{
    (void)state;
    int *p = NULL;
    size_t capacity = 0, n_moves = 0;
    for (int i = 0; i < 1000; i++) {
        size_t before = capacity;
        p = mem_grow(p, (size_t)i, &capacity, sizeof *p);
        assert_true(capacity > (size_t)i);
        n_moves += capacity != before;
        p[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(p[i], i);
    assert_true(n_moves < 12); /* it doubles */
    free(p);
}

struct item {
    int key, place;
};

static int by_key(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->key - y->key;
}

/* Every length up to three hundred, keys that come often: sorted, and equals in the order that they had. */
static void test_sort_stable(void **state)
{
    (void)state;
    struct item items[300];
    unsigned random = 1;
    for (int n = 0; n <= 300; n++) {
        for (int i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            items[i] = (struct item){(int)(random >> 16) % 17, i};
        }
        mem_sort_stable(items, (size_t)n, sizeof *items, by_key);
        for (int i = 1; i < n; i++)
            assert_true(items[i - 1].key < items[i].key ||
                        (items[i - 1].key == items[i].key && items[i - 1].place < items[i].place));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_tensor_memory),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_arena_objects),
        cmocka_unit_test(test_arena_strings),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_out_of_memory_ends_the_program),
        cmocka_unit_test(test_heap_strings),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_sort_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
