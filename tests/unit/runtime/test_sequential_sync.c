// links: convert
/* Sessions of packages that can't be rewound: every position once and in order, what is computed again when prompts
 * part, snapshots in memory and as files, and errors that leave a session whole. */
#include "edited_checkpoint.h"
#include "format/mlmodelc.h"
#include "runtime/session_int.h"
#include <xxhash.h>
#include "sequential.h"

enum { BATCH = 8, CONTEXT = 128 };

static const struct package_shape equal = {"qwen3_5-equal", CONTEXT, BATCH, 1, CONVERT_MLMODELC},
                                  experts = {"qwen3_5_moe-random", CONTEXT, BATCH, 2, CONVERT_MLMODELC},
                                  window = {"gemma4-window", CONTEXT, BATCH, 1, CONVERT_MLPACKAGE};
static const struct package_shape *const shapes[] = {&equal, &experts, &window};

struct open {
    struct model *model;
    struct session *session;
    int32_t ids[CONTEXT];
};

static void open_session(struct open *o, const struct package_shape *shape, uint32_t seed)
{
    o->model = package_load(shape, 1);
    ASSERT_OK(session_new(&o->session, o->model, e));
    make_ids(o->ids, CONTEXT, o->model->vocab_size, seed);
}

static void close_session(struct open *o)
{
    session_free(o->session);
    model_close(o->model);
}

static char *scratch_file(const char *name)
{
    return path_join(packages_scratch, name);
}

/* Logits and states, but for rows of full-length caches that later positions left behind. */
static void assert_like_fresh(struct open *o, const int32_t *ids, size_t n, const char *what)
{
    struct moment want = moment_fresh(o->model, ids, n, SESSION_INFER_ONLY),
                  now = moment_take(o->session, o->model);
    assert_int_equal(now.position, n);
    assert_memory_equal(now.logits, want.logits, want.logits_bytes);
    for (int i = 0; i < now.n_states; i++) {
        const struct backend_state *entry = &session_states(o->session)->list[i];
        bool full = entry->rank == 4 && entry->dims[2] == CONTEXT;
        size_t row = full ? (size_t)entry->dims[3] * sizeof(f16) : now.bytes[i],
               stride = full ? (size_t)CONTEXT * row : row, size = full ? n * row : row;
        for (size_t at = 0; at < now.bytes[i]; at += stride)
            if (memcmp((char *)now.states[i] + at, (char *)want.states[i] + at, size) != 0)
                fail_msg("%s: state %s differs", what, now.names[i]);
    }
    moment_free(&want);
    moment_free(&now);
}

/* How many tokens went through the model is what the positions that were watched say. */
struct counter {
    int64_t n;
};

static void count_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    (void)position;
    (void)rows;
    if (layer == -1)
        ((struct counter *)context)->n += n;
}

static void sync_like_fresh(struct open *o, const int32_t *ids, size_t n, size_t reused_expected,
                            int64_t fed_expected)
{
    struct counter fed = {0};
    size_t reused = 12345;
    session_watch(o->session, count_rows, &fed);
    ASSERT_OK(session_sync(o->session, ids, n, NULL, &reused, e));
    session_watch(o->session, NULL, NULL);
    assert_int_equal(reused, reused_expected);
    assert_int_equal(fed.n, fed_expected);
    assert_like_fresh(o, ids, n, "after a sync");
}

static void test_sync_reuses(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct open o;
        int32_t other[CONTEXT];
        open_session(&o, shapes[i], 1);
        sync_like_fresh(&o, o.ids, 20, 0, 20);
        sync_like_fresh(&o, o.ids, 45, 20, 25); /* longer: only the new tokens */
        sync_like_fresh(&o, o.ids, 45, 45, 0);  /* the same: nothing */
        sync_like_fresh(&o, o.ids, 20, 20, 0);  /* where a prompt ended: its snapshot */
        sync_like_fresh(&o, o.ids, 60, 45, 15); /* and on from a later one */
        memcpy(other, o.ids, sizeof other);
        other[30] = (other[30] + 1) % 290; /* from position 30 on another text: back to 20 and on */
        sync_like_fresh(&o, other, 50, 20, 30);
        other[40] = (other[40] + 1) % 290; /* parts later */
        sync_like_fresh(&o, other, 50, 30, 20);
        sync_like_fresh(&o, o.ids, 31, 30, 1); /* where the two parted */
        other[0] = (other[0] + 1) % 290;       /* the first message edited: everything again */
        sync_like_fresh(&o, other, 33, 0, 33);
        sync_like_fresh(&o, other, CONTEXT, 33, CONTEXT - 33);
        struct err e = {0};
        assert_false(session_sync(o.session, other, 0, NULL, NULL, &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_int_equal(session_position(o.session), CONTEXT);
        close_session(&o);
    }
}

/* A prompt before the end of which nothing was kept: its last token can't run again, so it starts anew. */
static void test_no_rewind(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct open o;
        open_session(&o, shapes[i], 2);
        session_limit_snapshots(o.session, 0, 0);
        sync_like_fresh(&o, o.ids, 30, 0, 30);
        sync_like_fresh(&o, o.ids, 30, 30, 0);
        /* n - 1 a multiple of the batch, n one, and in between */
        sync_like_fresh(&o, o.ids, 2 * BATCH + 1, 0, 2 * BATCH + 1);
        sync_like_fresh(&o, o.ids, 2 * BATCH, 0, 2 * BATCH);
        sync_like_fresh(&o, o.ids, 11, 0, 11);
        assert_null(o.session->snapshots);
        close_session(&o);
    }
}

static void test_short_prompts(void **state)
{
    (void)state;
    enum { COMMON = 43, OWN = 6 };
    for (int i = 0; i < 3; i++) {
        struct open o;
        open_session(&o, shapes[i], 3);
        for (int k = 0; k < 10; k++) {
            int32_t prompt[COMMON + OWN];
            memcpy(prompt, o.ids, sizeof prompt);
            for (int j = 0; j < OWN; j++)
                prompt[COMMON + j] = (int32_t)(20 * k + j);
            /* The second prompt shows where they part. */
            sync_like_fresh(&o, prompt, COMMON + OWN, k < 2 ? 0 : COMMON, k < 2 ? COMMON + OWN : OWN);
        }
        close_session(&o);
    }
}

/* A conversation: the answer is generated token by token, the next turn goes on behind it. */
static void test_turns(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct open o;
        open_session(&o, shapes[i], 4);
        sync_like_fresh(&o, o.ids, 30, 0, 30);
        for (size_t k = 30; k < 50; k++)
            feed(o.session, o.ids + k, 1, SESSION_CONTRACT);
        sync_like_fresh(&o, o.ids, 70, 50, 20);
        /* The answer comes back changed (a template drops its thinking): on from the end of the first prompt. */
        int32_t other[CONTEXT];
        memcpy(other, o.ids, sizeof other);
        for (int k = 30; k < 40; k++)
            other[k] = (other[k] + 7) % 290;
        sync_like_fresh(&o, other, 75, 30, 45);
        close_session(&o);
    }
}

static int32_t next_token(const struct open *o)
{
    return row_best(session_logits(o->session), o->model->vocab_size);
}

/* Ten points in a run of a prompt and a generated text: go elsewhere, come back, generate the same. */
static void test_restore_and_generate(void **state)
{
    (void)state;
    enum { PROMPT = 37, END = 100 };
    for (int i = 0; i < 3; i++) {
        struct open o;
        struct moment straight;
        open_session(&o, shapes[i], 5);
        session_limit_snapshots(o.session, (uint64_t)64 << 20, 10);
        ASSERT_OK(session_sync(o.session, o.ids, PROMPT, NULL, NULL, e));
        for (size_t k = PROMPT; k < END; k++) {
            o.ids[k] = next_token(&o);
            feed(o.session, o.ids + k, 1, SESSION_CONTRACT);
        }
        straight = moment_take(o.session, o.model);
        for (uint32_t k = 0; k < 10; k++) {
            size_t point = PROMPT + (k * 7919 + (uint32_t)i * 31) % (END - PROMPT), reused;
            ASSERT_OK(session_sync(o.session, o.ids, point, NULL, &reused, e));
            assert_int_equal(session_position(o.session), point);
            assert_true(reused >= 30 && reused <= point); /* a snapshot was near */
            for (size_t at = point; at < END; at++) {
                int32_t id = next_token(&o);
                assert_int_equal(id, o.ids[at]);
                feed(o.session, &id, 1, SESSION_CONTRACT);
            }
            assert_same_moment(o.session, o.model, &straight, shapes[i]->model);
        }
        moment_free(&straight);
        close_session(&o);
    }
}

static void test_memory_limit(void **state)
{
    (void)state;
    struct open o;
    open_session(&o, &equal, 6);
    session_limit_snapshots(o.session, (uint64_t)64 << 20, 10);
    feed(o.session, o.ids, 100, SESSION_INFER_ONLY);
    int n = 0;
    for (const struct snapshot *p = o.session->snapshots; p; p = p->next)
        n++;
    assert_int_equal(n, 10);
    uint64_t all = o.session->snapshot_bytes, one = all / 10;
    assert_true(one > 0);
    session_limit_snapshots(o.session, 3 * one + one / 2, 10); /* the newest stay */
    n = 0;
    for (const struct snapshot *p = o.session->snapshots; p; p = p->next)
        assert_int_equal(p->n, 100 - 10 * n++);
    assert_int_equal(n, 3);
    assert_true(o.session->snapshot_bytes <= 3 * one + one / 2);
    sync_like_fresh(&o, o.ids, 95, 90, 5); /* 80, used longest ago, makes room for 95 */
    sync_like_fresh(&o, o.ids, 92, 90, 2);
    sync_like_fresh(&o, o.ids, 85, 0, 85);
    session_limit_snapshots(o.session, one / 2, 10); /* too little for one */
    assert_null(o.session->snapshots);
    assert_int_equal(o.session->snapshot_bytes, 0);
    feed(o.session, o.ids + 85, 10, SESSION_INFER_ONLY);
    assert_null(o.session->snapshots);
    close_session(&o);
}

/* Op by op recurrent states and caches are held alike, as fp16 or as float32; what a snapshot keeps must not depend on
 * that. */
static void test_op_by_op(void **state)
{
    (void)state;
    const struct package_shape *const two[] = {&equal, &window};
    for (int i = 0; i < 4; i++) {
        struct model_options options = {.n_threads = 1, .precision = i < 2 ? PRECISION_FP16 : PRECISION_FP32};
        struct model *m = package_load_with(two[i % 2], &(struct package_extra){0}, &options);
        struct session *s = NULL;
        int32_t ids[40], other[40];
        size_t reused;
        make_ids(ids, 40, m->vocab_size, 7);
        memcpy(other, ids, sizeof ids);
        other[20] = (other[20] + 1) % 290;
        ASSERT_OK(session_new(&s, m, e));
        session_limit_snapshots(s, (uint64_t)64 << 20, 1); /* one at every token: all calls are infer's */
        feed(s, ids, 30, SESSION_INFER_ONLY);
        struct moment want = moment_take(s, m);
        feed(s, other + 30, 10, SESSION_INFER_ONLY);
        ASSERT_OK(session_sync(s, ids, 30, NULL, &reused, e));
        assert_int_equal(reused, 30);
        assert_memory_equal(session_logits(s), want.logits, want.logits_bytes);
        ASSERT_OK(session_sync(s, ids, 31, NULL, &reused, e));
        struct moment on = moment_take(s, m);
        session_reset(s);
        feed(s, ids, 31, SESSION_INFER_ONLY);
        assert_memory_equal(session_logits(s), on.logits, on.logits_bytes);
        /* Rows of full-length caches stay where they are, whatever type holds them, unless recurrent states
         * can't be told from them. */
        uint64_t kept = on.logits_bytes;
        for (int k = 0; k < on.n_states; k++) {
            const struct backend_state *entry = &session_states(s)->list[k];
            bool is_full = entry->rank == 4 && entry->dims[2] == CONTEXT,
                 is_told = options.precision == PRECISION_FP32 || !m->package->meta->recurrent_state;
            kept += is_full && is_told ? 0 : on.bytes[k];
        }
        assert_int_equal(s->snapshots->bytes, kept);
        /* From a file of the same precision it goes on. */
        char *path = scratch_file("op-by-op");
        struct moment saved = moment_take(s, m);
        ASSERT_OK(session_save(s, path, e));
        feed(s, other + 30, 8, SESSION_INFER_ONLY);
        ASSERT_OK(session_load(s, path, e));
        assert_same_moment(s, m, &saved, "loaded");
        moment_free(&saved);
        free(path);
        moment_free(&want);
        moment_free(&on);
        session_free(s);
        model_close(m);
    }
}

/* Older states count as empty at position 0: no new ones are needed for windowed caches. */
static void test_restart(void **state)
{
    (void)state;
    struct open o;
    open_session(&o, &window, 8);
    for (size_t n = 1; n <= 5 * BATCH; n += 3) {
        for (int k = 0; k < 2; k++) {
            int32_t used[90];
            make_ids(used, 90, o.model->vocab_size, 9);
            session_reset(o.session);
            feed(o.session, used, 50 + n, SESSION_CONTRACT);
            snapshot_drop_all(o.session);
            o.session->n = 0; /* without clearing the states */
            feed(o.session, o.ids, n, k ? SESSION_INFER_ONLY : SESSION_CONTRACT);
            struct moment want = moment_fresh(o.model, o.ids, n, SESSION_INFER_ONLY);
            assert_memory_equal(session_logits(o.session), want.logits, want.logits_bytes);
            moment_free(&want);
        }
    }
    close_session(&o);
}

/* ---- packages of before the extension ---- */

/* meta.yaml without lines that hold the words. */
static void drop_lines(const char *folder, const char *words)
{
    char *path = path_join(folder, "meta.yaml"), *text = NULL;
    size_t n = 0;
    struct buf b;
    ASSERT_OK(file_read(&text, &n, path, 1 << 20, e));
    buf_init(&b, 1 << 20);
    bool found = false;
    for (char *line = text; *line;) {
        size_t bytes = strcspn(line, "\n") + 1;
        char saved = line[bytes - 1];
        line[bytes - 1] = '\0';
        if (strstr(line, words))
            found = true;
        else
            buf_printf(&b, "%s\n", line);
        line[bytes - 1] = saved;
        line += saved ? bytes : bytes - 1;
    }
    assert_true(found);
    ASSERT_OK(file_write(path, b.p, b.n, e));
    buf_fini(&b);
    free(text);
    free(path);
}

/* Without a key that says so the states do; and where prefill does not return the last token's row, the last token is
 * never run twice: the last batch goes through infer. */
static void test_without_keys(void **state)
{
    (void)state;
    const struct package_shape plain[] = {{"qwen3_5-equal", 96, BATCH, 1, CONVERT_MLMODELC},
                                          {"gemma4-window", 96, BATCH, 1, CONVERT_MLMODELC}};
    for (int i = 0; i < 2; i++) {
        char *path = package_make(&plain[i]);
        drop_lines(path, i ? "local_cache_length" : "recurrent_state");
        drop_lines(path, "prefill_last_token_output");
        free(path);
        struct open o;
        open_session(&o, &plain[i], 10);
        assert_true(o.model->is_sequential);
        assert_false(o.model->package->meta->prefill_last_token_output);
        sync_like_fresh(&o, o.ids, 3 * BATCH, 0, 3 * BATCH);
        sync_like_fresh(&o, o.ids, 3 * BATCH + 1, 3 * BATCH, 1);
        sync_like_fresh(&o, o.ids, 7 * BATCH + 2, 3 * BATCH + 1, 4 * BATCH + 1);
        session_reset(o.session);
        struct rows rows = rows_feed(o.session, o.model, o.ids, 2 * BATCH + 3, SESSION_CONTRACT);
        assert_int_equal(rows.n, 3);
        rows_free(&rows);
        session_reset(o.session);
        rows = rows_feed(o.session, o.model, o.ids, 2 * BATCH, SESSION_CONTRACT);
        assert_int_equal(rows.n, BATCH);
        rows_free(&rows);
        close_session(&o);
    }
}

/* ---- errors ---- */

static void test_bad_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct open o;
        struct err e = {0};
        open_session(&o, shapes[i], 11);
        int32_t bad[3] = {5, 100000, 7};
        feed(o.session, o.ids, 21, SESSION_CONTRACT);
        assert_false(session_feed(o.session, bad, 3, SESSION_CONTRACT, NULL, NULL, NULL, &e));
        assert_int_equal(session_position(o.session), 22);
        memcpy(o.ids + 21, bad, sizeof *bad);
        sync_like_fresh(&o, o.ids, 40, 22, 18);
        struct err over = {0};
        assert_false(session_feed(o.session, o.ids, CONTEXT - 39, SESSION_CONTRACT, NULL, NULL, NULL, &over));
        assert_int_equal(over.code, ERR_LIMIT);
        assert_like_fresh(&o, o.ids, 40, "after too many tokens");
        close_session(&o);
    }
}

static bool stop_later(void *context, int64_t position, const float *logits, struct err *e)
{
    (void)logits;
    return position < *(int64_t *)context || err_set(e, ERR_CANCELLED, "enough");
}

static void test_stopped(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct open o;
        struct err e = {0};
        int64_t last = 18;
        open_session(&o, shapes[i], 12);
        assert_false(session_feed(o.session, o.ids, 30, SESSION_CONTRACT, stop_later, &last, NULL, &e));
        assert_int_equal(e.code, ERR_CANCELLED);
        assert_int_equal(session_position(o.session), 24); /* the batch that holds it was done */
        sync_like_fresh(&o, o.ids, 30, 24, 6);
        close_session(&o);
    }
}

/* ---- snapshot files ---- */

static void test_file(void **state)
{
    (void)state;
    static const size_t points[] = {0, 1, 7, 8, 40, CONTEXT};
    for (int i = 0; i < 3; i++) {
        struct open o, other;
        char *path = scratch_file("snapshot");
        open_session(&o, shapes[i], 13);
        open_session(&other, shapes[i], 14);
        for (size_t k = 0; k < sizeof points / sizeof *points; k++) {
            size_t n = points[k], reused;
            session_reset(o.session);
            feed(o.session, o.ids, n, SESSION_CONTRACT);
            ASSERT_OK(session_save(o.session, path, e));
            feed(other.session, other.ids, CONTEXT - (size_t)session_position(other.session),
                 SESSION_CONTRACT);
            ASSERT_OK(session_load(other.session, path, e));
            assert_int_equal(session_position(other.session), n);
            struct moment a = moment_take(o.session, o.model);
            if (n > 0)
                assert_same_moment(other.session, other.model, &a, "a loaded session");
            moment_free(&a);
            ASSERT_OK(session_sync(other.session, o.ids, n > 0 ? n : 3, NULL, &reused, e));
            assert_int_equal(reused, n);
            if (n > 0 && n < CONTEXT) {
                feed(o.session, o.ids + n, CONTEXT - n, SESSION_CONTRACT);
                feed(other.session, o.ids + n, CONTEXT - n, SESSION_CONTRACT);
                a = moment_take(o.session, o.model);
                assert_same_moment(other.session, other.model, &a, "a loaded session that goes on");
                moment_free(&a);
                ASSERT_OK(
                    session_sync(other.session, o.ids, n, NULL, &reused, e)); /* what was loaded is kept */
                assert_int_equal(reused, n);
            }
        }
        free(path);
        close_session(&o);
        close_session(&other);
    }
}

/* Loads and must fail, saying `part`; the session is what it was. */
static void refuse(struct open *o, const struct moment *before, const char *path, const char *part)
{
    struct err e = {0};
    if (session_load(o->session, path, &e))
        fail_msg("accepted, expected: %s", part);
    if (!strstr(e.msg, part))
        fail_msg("expected '%s', found: %s", part, e.msg);
    assert_same_moment(o->session, o->model, before, "after a refused file");
}

static void test_bad_files(void **state)
{
    (void)state;
    struct open o;
    char *good = scratch_file("good"), *bad = scratch_file("bad"), *bytes = NULL;
    size_t n = 0;
    open_session(&o, &equal, 15);
    ASSERT_OK(session_sync(o.session, o.ids, 25, NULL, NULL, e));
    ASSERT_OK(session_save(o.session, good, e));
    ASSERT_OK(file_read(&bytes, &n, good, 1 << 26, e));
    ASSERT_OK(session_sync(o.session, o.ids, 50, NULL, NULL, e));
    struct moment before = moment_take(o.session, o.model);
    refuse(&o, &before, "missing", "missing");
    /* a changed byte anywhere */
    for (size_t at = 0; at < n; at += 1 + n / 60) {
        bytes[at] ^= 0x10;
        ASSERT_OK(file_write(bad, bytes, n, e));
        refuse(&o, &before, bad, at < 8 ? "expected the state" : "checksum");
        bytes[at] ^= 0x10;
    }
    /* cut off anywhere, and longer than it should be */
    static const size_t cuts[] = {0, 1, 7, 8, 15, 16, 40, 111, 112, 113, 135, 300};
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        ASSERT_OK(file_write(bad, bytes, cuts[k], e));
        refuse(&o, &before, bad, cuts[k] < 112 ? "expected the state" : "checksum");
    }
    for (size_t k = 1; k < 8; k++) {
        ASSERT_OK(file_write(bad, bytes, n * k / 8, e));
        refuse(&o, &before, bad, "checksum");
    }
    char *longer = xmalloc(n + 64);
    memcpy(longer, bytes, n);
    memset(longer + n, 0, 64);
    ASSERT_OK(file_write(bad, longer, n + 64, e));
    refuse(&o, &before, bad, "checksum");
    free(longer);
    ASSERT_OK(session_load(o.session, good, e));
    assert_like_fresh(&o, o.ids, 25, "the file itself");
    moment_free(&before);
    free(bytes);
    free(good);
    free(bad);
    close_session(&o);
}

/* The first n bytes, the last 16 of them replaced by the checksum of those before. */
static void write_with_checksum(const char *path, const char *bytes, size_t n)
{
    char *copy = xmalloc(n);
    XXH128_canonical_t checksum;
    memcpy(copy, bytes, n);
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(copy, n - 16));
    memcpy(copy + n - 16, checksum.digest, 16);
    ASSERT_OK(file_write(path, copy, n, e));
    free(copy);
}

/* Headers that say other numbers, with a checksum that fits. */
static void test_wrong_numbers(void **state)
{
    (void)state;
    struct open o;
    char *path = scratch_file("numbers"), *bytes = NULL;
    size_t n = 0;
    open_session(&o, &window, 16);
    ASSERT_OK(session_sync(o.session, o.ids, 25, NULL, NULL, e));
    ASSERT_OK(session_save(o.session, path, e));
    ASSERT_OK(file_read(&bytes, &n, path, 1 << 26, e));
    struct moment before = moment_take(o.session, o.model);
    static const struct {
        size_t at;
        const char *part;
    } changes[] = {
        {8, "its states are not these"}, /* header bytes */
        {15, "its states are not these"},
        {16, "another package"}, /* programs */
        {31, "another package"},
        {32, "its weights are not these"},
        {47, "its weights are not these"},
        {48, "not in a vocabulary"}, /* tokens, position, logits, snapshots */
        {49, "not a state of this package"},
        {55, "not a state of this package"},
        {56, "not a state of this package"},
        {63, "not a state of this package"},
        {64, "not a state of this package"},
        {71, "not a state of this package"},
        {72, "snapshots, found"},
        {79, "snapshots, found"},
        {80, "another precision"},
        {87, "another precision"},
        {88, "its states are not these"}, /* number of states, bytes of a name, name */
        {96, "its states are not these"},
        {104, "its states are not these"},
    };
    for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
        size_t at = changes[k].at;
        bytes[at] ^= 0x41;
        write_with_checksum(path, bytes, n);
        refuse(&o, &before, path, changes[k].part);
        bytes[at] ^= 0x41;
    }
    /* a token outside of the vocabulary, a snapshot of a later position or with other logits */
    size_t header = 16 + (size_t)load_le((const uint8_t *)bytes + 8, 8), one = 16;
    bytes[header + 2] ^= 0x41;
    write_with_checksum(path, bytes, n);
    refuse(&o, &before, path, "not in a vocabulary");
    bytes[header + 2] ^= 0x41;
    assert_non_null(o.session->snapshots);
    for (const struct snapshot *p = o.session->snapshots; p && !p->next; p = p->next)
        one += p->bytes;
    for (size_t k = 0; k < 2; k++) {
        size_t at = n - 16 - one + 8 * k;
        bytes[at] ^= 0x41;
        write_with_checksum(path, bytes, n);
        refuse(&o, &before, path, "is not possible");
        bytes[at] ^= 0x41;
    }
    /* cut short and longer, with the right checksum */
    for (size_t k = 0; k < 10; k++) {
        size_t cut = 112 + (n - 112) * k / 10;
        write_with_checksum(path, bytes, cut);
        refuse(&o, &before, path, cut < header + 16 ? "its states are not these" : "expected");
    }
    char *longer = xcalloc(n + 64, 1);
    memcpy(longer, bytes, n);
    write_with_checksum(path, longer, n + 64);
    refuse(&o, &before, path, "too many");
    free(longer);
    write_with_checksum(path, bytes, n);
    ASSERT_OK(session_load(o.session, path, e));
    moment_free(&before);
    free(bytes);
    free(path);
    close_session(&o);
}

/* Other checkpoints, contexts and precisions; the same shapes with one other number in each weight. */
static void test_foreign_files(void **state)
{
    (void)state;
    static const struct package_shape longer = {"qwen3_5-equal", CONTEXT + 8, BATCH, 1, CONVERT_MLMODELC};
    const struct package_shape *const foreign[] = {&experts, &window, &longer};
    char *path = scratch_file("foreign");
    struct open o;
    open_session(&o, &equal, 17);
    ASSERT_OK(session_sync(o.session, o.ids, 25, NULL, NULL, e));
    struct moment before = moment_take(o.session, o.model);
    for (int i = 0; i < 3; i++) {
        struct open other;
        open_session(&other, foreign[i], 17);
        feed(other.session, other.ids, 10, SESSION_CONTRACT);
        ASSERT_OK(session_save(other.session, path, e));
        refuse(&o, &before, path, "another package");
        close_session(&other);
    }
    const struct edit changed = {"model.layers.1.mlp.down_proj.weight", -1, 1, 0.5};
    char *checkpoint = edited_checkpoint("qwen3_5-equal", "other-weights", &changed, 1);
    struct model *m =
        package_load_with(&equal, &(struct package_extra){.checkpoint = checkpoint, .gdn_chunk = 8},
                          &(struct model_options){.n_threads = 1});
    struct session *s = NULL;
    ASSERT_OK(session_new(&s, m, e));
    feed(s, o.ids, 10, SESSION_CONTRACT);
    ASSERT_OK(session_save(s, path, e));
    refuse(&o, &before, path, "another package");
    session_free(s);
    model_close(m);
    free(checkpoint);
    static const enum model_precision precisions[] = {PRECISION_DEFAULT, PRECISION_FP32, PRECISION_FP16};
    for (int i = 0; i < 3; i++) { /* other weights, other precisions */
        struct model_options options = {.n_threads = 1, .precision = precisions[i]};
        m = package_load_with(&equal, &(struct package_extra){.lut = i == 0 ? 4 : 0}, &options);
        ASSERT_OK(session_new(&s, m, e));
        feed(s, o.ids, 10, SESSION_CONTRACT);
        ASSERT_OK(session_save(s, path, e));
        refuse(&o, &before, path, i == 0 ? "another package" : "another precision");
        session_free(s);
        model_close(m);
    }
    moment_free(&before);
    free(path);
    close_session(&o);
}

/* A file of one form of a package continues in the other one. */
static void test_other_form(void **state)
{
    (void)state;
    char *path = scratch_file("other-form");
    for (int i = 0; i < 3; i++) {
        struct package_shape shape = *shapes[i];
        struct open from, to;
        shape.format = shape.format == CONVERT_MLMODELC ? CONVERT_MLPACKAGE : CONVERT_MLMODELC;
        open_session(&from, shapes[i], 18);
        open_session(&to, &shape, 18);
        for (int back = 0; back < 2; back++) {
            struct open *a = back ? &to : &from, *b = back ? &from : &to;
            session_reset(a->session);
            session_reset(b->session);
            feed(a->session, a->ids, 29, SESSION_CONTRACT);
            ASSERT_OK(session_save(a->session, path, e));
            ASSERT_OK(session_load(b->session, path, e));
            feed(a->session, a->ids + 29, 20, SESSION_CONTRACT);
            feed(b->session, a->ids + 29, 20, SESSION_CONTRACT);
            struct moment want = moment_take(a->session, a->model);
            assert_same_moment(b->session, b->model, &want, "continued in the other form");
            moment_free(&want);
        }
        close_session(&from);
        close_session(&to);
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_reuses),
        cmocka_unit_test(test_no_rewind),
        cmocka_unit_test(test_short_prompts),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_restore_and_generate),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_op_by_op),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_without_keys),
        cmocka_unit_test(test_bad_tokens),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_wrong_numbers),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_other_form),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
