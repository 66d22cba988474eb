// links: format
/* Damaged models through the door: files that end early or have bits turned, opened and predicted with. There is an error or a result; the
 * sanitizers see the rest. MILKIT_DAMAGE is the number of damaged files (100), MILKIT_DAMAGE_SEED begins another row of them. */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api.h"
#include "base/file.h"

#define CALL_SECONDS 2   /* then the call is asked to stop */
#define STOP_SECONDS 120 /* until it must have */

static mk_library *library;
static char folder[64];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "scratch-damage-XXXXXX");
    return mkdtemp(folder) ? mk_library_open(&library, NULL, NULL) != MK_OK : -1;
}

static int teardown(void **state)
{
    (void)state;
    mk_library_close(library);
    return path_remove_tree(folder, NULL) ? 0 : -1;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Stops a call that takes long, and the test when that does not end it. */
struct watch {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool is_ended;
    mk_cancel *cancel;
    const char *what;
};

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Counts processor time, for the machine may be busy; what waits for ever is stopped by the suite. */
static void *watch_call(void *arg)
{
    struct watch *w = arg;
    double begin = processor_seconds();
    bool is_stopped = false;
    pthread_mutex_lock(&w->mutex);
    while (!w->is_ended) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec++;
        (void)pthread_cond_timedwait(&w->ended, &w->mutex, &at);
        double seconds = processor_seconds() - begin;
        if (!w->is_ended && seconds > STOP_SECONDS)
            abort(); /* it hangs: what it was is on stderr */
        if (!w->is_ended && !is_stopped && seconds > CALL_SECONDS) {
            print_error("%s: stopped\n", w->what);
            mk_cancel_set(w->cancel);
            is_stopped = true;
        }
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Inputs of the default shapes, or of one element where there are none; nothing when they are too large. */
static mk_status call_function(mk_function *f, mk_state *s, mk_cancel *cancel, uint64_t *seed)
{
    size_t n = mk_function_ports(f, MK_INPUTS), filled = 0;
    mk_tensor *in = xcalloc(n + 1, sizeof *in);
    const char **names = xcalloc(n + 1, sizeof *names);
    mk_result *r = NULL;
    mk_call call = {.size = sizeof call, .cancel = cancel};
    mk_status status = MK_OK;
    for (; filled < n && !status; filled++) {
        mk_port port = {.size = sizeof port};
        size_t elems = 1;
        status = mk_function_port(f, MK_INPUTS, filled, &port, NULL);
        names[filled] = port.name;
        in[filled] = (mk_tensor){.size = sizeof *in, .type = MK_F32, .rank = port.rank};
        for (int i = 0; i < port.rank; i++) {
            in[filled].dims[i] = port.dims[i] < 0 ? 1 : port.dims[i];
            if (in[filled].dims[i] && elems > (1 << 22) / (size_t)in[filled].dims[i])
                status = MK_LIMIT;
            else
                elems *= (size_t)in[filled].dims[i];
        }
        if (status)
            break;
        float *data = xcalloc(elems + 1, sizeof *data);
        bool is_float = port.type == MK_F32 || port.type == MK_F16 || port.type == MK_F64;
        for (size_t i = 0; i < elems; i++)
            data[i] = is_float ? (float)(next_random(seed) >> 40) * 0x1p-24f : (float)(next_random(seed) & 1);
        in[filled].data = data;
    }
    if (!status)
        status = mk_predict(f, names, in, n, s, &call, &r, NULL);
    mk_result_free(r);
    for (size_t i = 0; i < n; i++)
        free(in[i].data);
    free(in);
    free(names);
    return status;
}

static mk_status open_and_call(const char *path, const char *what, uint64_t *seed)
{
    struct watch w = {.cancel = mk_cancel_new(), .what = what};
    pthread_t thread;
    mk_model *m = NULL;
    mk_status status;
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.ended, NULL);
    assert_int_equal(pthread_create(&thread, NULL, watch_call, &w), 0);
    status = mk_model_open(&m, library, path, NULL, NULL);
    for (size_t i = 0; !status && i < mk_model_functions(m) && i < 3; i++) {
        mk_function *f;
        mk_state *s = NULL;
        status = mk_function_open(&f, m, mk_model_function_name(m, i), NULL);
        if (!status && mk_function_ports(f, MK_STATES) > 0)
            status = mk_state_new(&s, f, NULL);
        if (!status)
            status = call_function(f, s, w.cancel, seed);
        mk_state_free(s);
        mk_function_close(f);
    }
    mk_model_close(m);
    pthread_mutex_lock(&w.mutex);
    w.is_ended = true;
    pthread_cond_signal(&w.ended);
    pthread_mutex_unlock(&w.mutex);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&w.ended);
    pthread_mutex_destroy(&w.mutex);
    mk_cancel_free(w.cancel);
    return status;
}

/* One file of a model, and the model as what is opened. */
struct target {
    char *file, *model, *copy;
};

struct targets {
    struct target *list;
    size_t n, cap;
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static void put(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* All files below path; model: what is opened, copy: where its copy is made, NULL above models. */
static void collect(struct targets *t, const char *path, const char *model, const char *copy)
{
    struct path_list l;
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    if (!S_ISDIR(info.st_mode)) {
        char *data = NULL;
        size_t n;
        if (!copy)
            return;
        ASSERT_OK(file_read(&data, &n, path, 1 << 28, e));
        put(copy, data, n);
        free(data);
        t->list = mem_grow(t->list, t->n, &t->cap, sizeof *t->list);
        t->list[t->n++] = (struct target){xstrdup(path), xstrdup(model), xstrdup(copy)};
        return;
    }
    char *own = NULL;
    if (!copy && (ends_with(path, ".mlpackage") || ends_with(path, ".mlmodelc"))) {
        own = xasprintf("%s/%zu%s", folder, t->n, strrchr(path, '.'));
        model = copy = own;
    }
    if (copy)
        assert_int_equal(mkdir(copy, 0777), 0);
    ASSERT_OK(path_list_read(&l, path, e));
    for (size_t i = 0; i < l.n; i++) {
        char *from = xasprintf("%s/%s", path, l.names[i]),
             *to = copy ? xasprintf("%s/%s", copy, l.names[i]) : NULL;
        collect(t, from, model, to);
        free(from);
        free(to);
    }
    path_list_free(&l);
    free(own);
}

static void damage(const struct target *t, uint64_t *seed)
{
    char *data = NULL, *what;
    size_t n;
    ASSERT_OK(file_read(&data, &n, t->file, 1 << 28, e));
    uint64_t kind = next_random(seed) % 3, at = n ? next_random(seed) % n : 0, first = *seed;
    if (kind == 0) {
        put(t->copy, data, (size_t)at);
    } else {
        int n_bits = kind == 1 ? 1 : 8;
        for (int i = 0; i < n_bits && n > 0; i++) {
            data[at] = (char)(data[at] ^ 1 << next_random(seed) % 8);
            at = next_random(seed) % n;
        }
        put(t->copy, data, n);
    }
    what = xasprintf("%s, %s, %llx", t->file,
                     kind == 0   ? "cut"
                     : kind == 1 ? "one bit"
                                 : "eight bits",
                     (unsigned long long)first);
    if (getenv("MILKIT_DAMAGE_VERBOSE"))
        print_error("%s\n", what);
    (void)open_and_call(t->model, what, seed);
    free(what);
    free(data);
    ASSERT_OK(file_read(&data, &n, t->file, 1 << 28, e));
    put(t->copy, data, n);
    free(data);
}

/* Every file its share, in turns: those of tests/data, and of the collection beside the tree when it is there. */
static void test_damaged(void **state)
{
    (void)state;
    const char *number = getenv("MILKIT_DAMAGE"), *begin = getenv("MILKIT_DAMAGE_SEED");
    uint64_t seed = begin ? strtoull(begin, NULL, 10) : 1;
    long n = number ? strtol(number, NULL, 10) : 100;
    struct targets t = {0};
    if (MILKIT_SHARED[0])
        collect(&t, MILKIT_SHARED "/corpus", NULL, NULL);
    size_t n_shared = t.n;
    if (!number || n_shared == 0)
        collect(&t, MILKIT_TEST_DATA "/ops", NULL, NULL);
    assert_true(t.n > 0);
    for (long i = 0; i < n; i++)
        damage(&t.list[number ? (size_t)i % t.n : next_random(&seed) % t.n], &seed);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    print_message("%ld damaged files of %zu (%zu beside the tree), at most %ld MB\n", n, t.n, n_shared,
                  used.ru_maxrss / 1024);
    for (size_t i = 0; i < t.n; i++) {
        mk_status whole = i > 0 && strcmp(t.list[i].model, t.list[i - 1].model) == 0
                              ? MK_OK
                              : open_and_call(t.list[i].model, t.list[i].file, &seed);
        if (whole != MK_OK && whole != MK_CANCELLED)
            fail_msg("%s, undamaged: %s", t.list[i].file, mk_status_name(whole));
    }
    for (size_t i = 0; i < t.n; i++) {
        free(t.list[i].file);
        free(t.list[i].model);
        free(t.list[i].copy);
    }
    free(t.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
