// links: mil
// wraps: open close pwrite fsync mkdir rename renameat2 link unlink unlinkat
// labels: host
/* Every system call by which a conversion changes the disk fails once, and the process is killed at moments spread over
 * them: a clear error, nothing that looks finished, and what is left resumes to the same bytes. */
#include "support.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "convert/convert.h"
#include "format/safetensors.h"

/* ---- calls that fail ---- */

enum { FD_MAX = 1024 };

static struct {
    bool is_armed;
    bool is_short; /* pwrite takes less than it is given */
    atomic_int n;  /* calls so far */
    int fail_at;   /* this one fails, from 1 */
    int error;
    int kill_at;
    const char *failed; /* its name */
    atomic_bool is_output[FD_MAX];
} calls;

/* Tells whether this call is to fail. */
static bool must_fail(const char *name)
{
    if (!calls.is_armed)
        return false;
    int n = atomic_fetch_add(&calls.n, 1) + 1;
    if (n == calls.kill_at)
        raise(SIGKILL);
    if (n != calls.fail_at)
        return false;
    calls.failed = name;
    errno = calls.error;
    return true;
}

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t offset);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_link(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_unlinkat(int folder, const char *path, int flags);
int __wrap_open(const char *path, int flags, ...);
int __wrap_close(int fd);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset);
int __wrap_fsync(int fd);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_link(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_unlinkat(int folder, const char *path, int flags);

/* Files that are made; what is opened to be read is nobody's output. */
int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = (mode_t)va_arg(more, unsigned);
        va_end(more);
        if (must_fail("open"))
            return -1;
    }
    int fd = __real_open(path, flags, mode);
    if (fd >= 0 && fd < FD_MAX)
        atomic_store(&calls.is_output[fd], (flags & O_EXCL) != 0);
    return fd;
}

/* A close that fails closes all the same. */
int __wrap_close(int fd)
{
    bool is_output = fd >= 0 && fd < FD_MAX && atomic_exchange(&calls.is_output[fd], false);
    bool fails = is_output && must_fail("close");
    int result = __real_close(fd);
    if (fails)
        errno = calls.error;
    return fails ? -1 : result;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset)
{
    if (must_fail("pwrite"))
        return -1;
    return __real_pwrite(fd, data, calls.is_short && n > 1 ? (n + 1) / 2 : n, offset);
}

/* Nothing of this outlives a crash of the machine, so there is nothing to wait for. */
int __wrap_fsync(int fd)
{
    (void)fd;
    return must_fail("fsync") ? -1 : 0;
}

/* What is there already is not made. */
int __wrap_mkdir(const char *path, mode_t mode)
{
    return !path_exists(path) && must_fail("mkdir") ? -1 : __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    return must_fail("rename") ? -1 : __real_rename(from, to);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return must_fail("rename") ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_link(const char *from, const char *to)
{
    return must_fail("link") ? -1 : __real_link(from, to);
}

int __wrap_unlink(const char *path)
{
    return must_fail("unlink") ? -1 : __real_unlink(path);
}

int __wrap_unlinkat(int folder, const char *path, int flags)
{
    return must_fail("unlink") ? -1 : __real_unlinkat(folder, path, flags);
}

/* ---- a small conversion ---- */

static char scratch_folder[64], *checkpoint, *parent, *output, *undisturbed;
static int n_calls; /* of an undisturbed run on one thread */

/* Large enough for a plain weight that is written in slices beside others. */
static void write_checkpoint(void)
{
    static const char config[] =
        "{\"model_type\": \"qwen3\", \"hidden_size\": 32, \"vocab_size\": 1100, \"intermediate_size\": 48, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "
        "\"tie_word_embeddings\": true}";
    static const struct {
        const char *name;
        int64_t rows, columns;
    } tensors[] = {
        {"model.embed_tokens.weight", 1100, 32},
        {"model.norm.weight", 32, 0},
        {"model.layers.0.input_layernorm.weight", 32, 0},
        {"model.layers.0.post_attention_layernorm.weight", 32, 0},
        {"model.layers.0.self_attn.q_proj.weight", 16, 32},
        {"model.layers.0.self_attn.k_proj.weight", 8, 32},
        {"model.layers.0.self_attn.v_proj.weight", 8, 32},
        {"model.layers.0.self_attn.o_proj.weight", 32, 16},
        {"model.layers.0.self_attn.q_norm.weight", 8, 0},
        {"model.layers.0.self_attn.k_norm.weight", 8, 0},
        {"model.layers.0.mlp.gate_proj.weight", 48, 32},
        {"model.layers.0.mlp.up_proj.weight", 48, 32},
        {"model.layers.0.mlp.down_proj.weight", 32, 48},
    };
    struct st_writer *w = st_writer_new();
    struct arena *a = arena_new(0);
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        int64_t columns = tensors[i].columns, n = tensors[i].rows * (columns ? columns : 1);
        float *data = ARENA_ARRAY(a, float, n);
        for (int64_t k = 0; k < n; k++) {
            state = state * 1664525u + 1013904223u;
            data[k] = (float)(int32_t)state * 0x1p-33f;
        }
        st_writer_add(w, tensors[i].name, ST_F32, (const int64_t[]){tensors[i].rows, columns},
                      columns ? 2 : 1, data);
    }
    char *path = path_join(checkpoint, "config.json"), *weights = path_join(checkpoint, "model.safetensors");
    ASSERT_OK(folder_make(checkpoint, e));
    ASSERT_OK(file_write(path, config, strlen(config), e));
    ASSERT_OK(st_writer_write(w, weights, true, e));
    st_writer_free(w);
    arena_free(a);
    free(path);
    free(weights);
}

static bool convert(const char *to, int n_threads, bool resume, bool replace, struct err *e)
{
    const struct quant_spec lut = {.kind = QUANT_LUT, .bits = 2, .group = 8};
    const struct convert_options o = {
        .checkpoint = checkpoint,
        .output = to,
        .settings = {.context_length = 32, .batch_size = 8, .split_lm_head = 2},
        .ffn = lut,
        /* a part of plain weights and one of palettes: the head is another one */
        .only = "embeddings,ffn,meta",
        .n_threads = n_threads,
        .resume = resume,
        .replace = replace};
    struct convert_report report;
    bool ok = convert_run(&o, &report, e);
    convert_report_fini(&report);
    return ok;
}

static bool same_file(const char *a, const char *b)
{
    struct map_file *x = NULL, *y = NULL;
    ASSERT_OK(map_open(&x, a, e));
    ASSERT_OK(map_open(&y, b, e));
    bool same = x->bytes == y->bytes && (x->bytes == 0 || memcmp(x->data, y->data, x->bytes) == 0);
    map_close(x);
    map_close(y);
    return same;
}

static bool same_tree(const char *a, const char *b)
{
    struct path_list x, y;
    ASSERT_OK(path_list_read(&x, a, e));
    ASSERT_OK(path_list_read(&y, b, e));
    bool same = x.n == y.n;
    for (size_t i = 0; i < x.n && same; i++) {
        char *p = path_join(a, x.names[i]), *q = path_join(b, y.names[i]);
        same = strcmp(x.names[i], y.names[i]) == 0 && path_is_folder(p) == path_is_folder(q) &&
               (path_is_folder(p) ? same_tree(p, q) : same_file(p, q));
        free(p);
        free(q);
    }
    path_list_free(&x);
    path_list_free(&y);
    return same;
}

static size_t count_entries(const char *folder)
{
    struct path_list l;
    ASSERT_OK(path_list_read(&l, folder, e));
    size_t n = l.n;
    path_list_free(&l);
    return n;
}

static int setup(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "failing_writes.XXXXXX");
    if (!mkdtemp(scratch_folder))
        return -1;
    checkpoint = path_join(scratch_folder, "checkpoint");
    parent = path_join(scratch_folder, "out");
    output = path_join(parent, "package");
    undisturbed = path_join(scratch_folder, "undisturbed");
    write_checkpoint();
    ASSERT_OK(folder_make(parent, e));
    calls.is_armed = true;
    ASSERT_OK(convert(undisturbed, 1, false, false, e));
    n_calls = atomic_load(&calls.n);
    calls.is_armed = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bool ok = path_remove_tree(scratch_folder, NULL);
    free(checkpoint);
    free(parent);
    free(output);
    free(undisturbed);
    return ok ? 0 : -1;
}

static void arm(int fail_at, int kill_at)
{
    calls.is_armed = true;
    atomic_store(&calls.n, 0);
    calls.fail_at = fail_at;
    calls.kill_at = kill_at;
    calls.error = fail_at % 2 ? ENOSPC : EIO;
    calls.failed = NULL;
}

/* One run whose n-th call fails. A link that can't be made is replaced by a copy: the run may then succeed. */
static bool run_failing(int n, bool resume, bool replace)
{
    struct err e = {0};
    arm(n, 0);
    bool ok = convert(output, 1, resume, replace, &e);
    calls.is_armed = false;
    if (!calls.failed)
        fail_msg("the run ended before call %d", n);
    if (ok && strcmp(calls.failed, "link") != 0)
        fail_msg("call %d (%s) failed, and the conversion did not say so", n, calls.failed);
    if (!ok && (!strstr(e.msg, strerror(calls.error)) || !strstr(e.msg, parent)))
        fail_msg("call %d (%s): the message names no file or no reason: %s", n, calls.failed, e.msg);
    if (!ok && (e.code != ERR_IO || strlen(e.msg) > 600))
        fail_msg("call %d (%s): status %d: %s", n, calls.failed, (int)e.code, e.msg);
    return ok;
}

static void finish(int n, int n_threads)
{
    struct err e = {0};
    if (!convert(output, n_threads, true, false, &e))
        fail_msg("resuming after call %d: %s", n, e.msg);
    if (!same_tree(output, undisturbed))
        fail_msg("resuming after call %d: the package differs from an undisturbed one", n);
    if (count_entries(parent) != 1)
        fail_msg("resuming after call %d: something is left beside the package", n);
    ASSERT_OK(path_remove_tree(output, e));
}

static void test_every_call(void **state)
{
    (void)state;
    int n_linked = 0, n_resumed = 0;
    printf("%d calls\n", n_calls);
    assert_true(n_calls > 100);
    for (int n = 1; n <= n_calls; n++) {
        if (run_failing(n, true, false)) {
            n_linked++;
            assert_true(same_tree(output, undisturbed));
            ASSERT_OK(path_remove_tree(output, e));
            continue;
        }
        if (path_exists(output))
            fail_msg("call %d (%s) failed, and a package is there", n, calls.failed);
        /* Without a finished part everything is gone, and the next run is the first one again. */
        if (count_entries(parent) == 0)
            continue;
        finish(n, 1);
        n_resumed++;
        /* A run that was no resuming one leaves its finished parts as well. */
        if (n % 3 == 0 && !run_failing(n, false, false) && count_entries(parent) != 0)
            finish(n, 1);
    }
    assert_int_equal(n_linked, 2); /* one for each part, which has two forms */
    assert_true(n_resumed > n_calls / 4);
}

/* The package that is to be replaced is there as it was, or the new one as it should be. */
static void test_replaced(void **state)
{
    (void)state;
    char *old = path_join(output, "meta.yaml"), *kept = path_join(output, "kept");
    for (int n = n_calls - 40; n <= n_calls + 10; n++) {
        ASSERT_OK(folder_make(output, e));
        ASSERT_OK(file_write(old, "old", 3, e));
        ASSERT_OK(file_write(kept, "old", 3, e));
        struct err e = {0};
        arm(n, 0);
        bool ok = convert(output, 1, false, true, &e);
        calls.is_armed = false;
        bool is_old = path_exists(kept) && file_bytes(old) == 3;
        if (ok != !calls.failed && strcmp(calls.failed, "link") != 0)
            fail_msg("call %d (%s) failed, and the conversion did not say so", n, calls.failed);
        if (ok ? is_old : !is_old && !strstr(e.msg, "is complete"))
            fail_msg("call %d (%s): the %s package is there: %s", n, calls.failed ? calls.failed : "none",
                     is_old ? "old" : "new", e.msg);
        if (!is_old && !same_tree(output, undisturbed))
            fail_msg("call %d: neither the old package nor the new one", n);
        ASSERT_OK(path_remove_tree(parent, e));
        ASSERT_OK(folder_make(parent, e));
    }
    free(old);
    free(kept);
}

/* Writes that take a part of what they are given. */
static void test_short(void **state)
{
    (void)state;
    calls.is_short = true;
    ASSERT_OK(convert(output, 2, false, false, e));
    calls.is_short = false;
    assert_true(same_tree(output, undisturbed));
    ASSERT_OK(path_remove_tree(output, e));
}

static void run_killed(int n, int n_threads)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        arm(0, n);
        _exit(convert(output, n_threads, true, false, NULL) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the run on %d threads was not killed at call %d: status %x", n_threads, n,
                 (unsigned)status);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Killed as by kill -9, at ten moments and one call after another; resumed by other numbers of threads. */
static void test_killed(void **state)
{
    (void)state;
    uint32_t random = 3;
    for (int i = 0; i < 10; i++) {
        int n = 1 + (int)(next_random(&random) % (uint32_t)n_calls);
        run_killed(n, 1 + i % 3);
        if (n < n_calls - 2)
            assert_false(path_exists(output));
        if (path_exists(output)) {
            assert_true(same_tree(output, undisturbed));
            ASSERT_OK(path_remove_tree(output, e));
        } else {
            finish(n, 1 + (i + 1) % 3);
        }
    }
    /* One run after another gets a little further. */
    static const int moments[] = {40, 50, 45, 30, 20, 10, 3, 2, 1, 25};
    for (int i = 0; i < 10; i++)
        run_killed(moments[i], 1 + i % 3);
    finish(0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
