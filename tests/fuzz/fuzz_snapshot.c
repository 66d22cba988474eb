// links: runtime convert
/* A session's file with any edits and the right checksum, so that what stands behind it is reached: loading gives a session
 * that works, or one clear error and the session as it was.
 *
 * An input is a list of edits of a file that a session of a small package saved (recurrent states, caches, snapshots), so
 * seeds stay good whatever the format is: a byte of kind (overwrite, insert, remove, cut, copy of another part), a 32-bit
 * place, from the end when its top bit is set, a byte of length, and the bytes of overwrite and insert. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include "convert/convert.h"
#include "runtime/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 48, BATCH = 8, CHECKSUM_BYTES = 16, EDITS_MAX = 32 };

static char folder[] = "/tmp/fuzz-snapshot-XXXXXX";

static void require(bool ok, const char *what, const struct err *e)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, e ? e->msg : "");
    abort();
}

static void remove_folder(void)
{
    path_remove_tree(folder, NULL);
}

struct fixture {
    struct model *model;
    struct session *session;
    uint8_t *file; /* what a session saved */
    size_t bytes;
    float *logits; /* of the session before a load */
};

static void feed(struct session *s, int first, int n)
{
    struct err e = {0};
    int32_t tokens[CONTEXT];
    for (int i = 0; i < n; i++)
        tokens[i] = (first + i) * 7 % 50;
    require(session_sync(s, tokens, (size_t)n, NULL, NULL, &e), "feeding", &e);
}

/* The checksum of everything before it, at the end. */
static void seal(uint8_t *file, size_t bytes)
{
    XXH128_canonical_t checksum;
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(file, bytes - CHECKSUM_BYTES));
    memcpy(file + bytes - CHECKSUM_BYTES, checksum.digest, CHECKSUM_BYTES);
}

static struct fixture make_fixture(void)
{
    struct fixture f = {0};
    struct err e = {0};
    struct convert_report report;
    require(mkdtemp(folder) != NULL, "a temporary folder", NULL);
    atexit(remove_folder);
    char *package = path_join(folder, "package"), *path = path_join(folder, "state");
    struct convert_options o = {.checkpoint = MILKIT_TEST_DATA "/models/qwen3_5-equal",
                                .output = package,
                                .settings = {.context_length = CONTEXT, .batch_size = BATCH, .n_chunks = 1},
                                .format = CONVERT_MLMODELC,
                                .n_threads = 1};
    require(convert_run(&o, &report, &e), "converting", &e);
    convert_report_fini(&report);
    struct model_options options = {.n_threads = 1};
    require(model_open(&f.model, package, &options, &e) && session_new(&f.session, f.model, &e), "opening",
            &e);
    session_limit_snapshots(f.session, 1 << 20, 8);
    feed(f.session, 3, 21);
    require(session_save(f.session, path, &e), "saving", &e);
    char *text;
    require(file_read(&text, &f.bytes, path, (size_t)1 << 30, &e), "reading", &e);
    f.file = xcalloc(1, f.bytes);
    memcpy(f.file, text, f.bytes);
    /* If this is not the file's checksum, nothing behind it is tested. */
    seal(f.file, f.bytes);
    require(memcmp(f.file, text, f.bytes) == 0 && session_load(f.session, path, &e), "the checksum", &e);
    free(text);
    f.logits = xcalloc((size_t)f.model->vocab_size, sizeof *f.logits);
    free(package);
    free(path);
    return f;
}

/* The n bytes at `at` of b give way to others. */
static void replace(struct buf *b, size_t at, size_t n, const uint8_t *with, size_t n_with)
{
    struct buf result;
    buf_init(&result, (size_t)1 << 30);
    buf_append(&result, b->p, at);
    buf_append(&result, with, n_with);
    buf_append(&result, b->p + at + n, b->n - at - n);
    struct buf old = *b;
    *b = result;
    buf_fini(&old);
}

static void edit(struct buf *b, const uint8_t *data, size_t size)
{
    for (int i = 0; i < EDITS_MAX && size >= 6; i++) {
        uint32_t place = (uint32_t)load_le(data + 1, 4);
        size_t kind = data[0] % 5, n = data[5], content = b->n - CHECKSUM_BYTES;
        size_t at = place >> 31 ? content - (place & 0x7fffffff) % (content + 1) : place % (content + 1);
        data += 6;
        size -= 6;
        size_t given = n < size ? n : size, there = n < content - at ? n : content - at;
        if (kind == 0) {
            replace(b, at, given < there ? given : there, data, given < there ? given : there);
        } else if (kind == 1) {
            replace(b, at, 0, data, given);
        } else if (kind == 2) {
            replace(b, at, there, data, 0);
        } else if (kind == 3) {
            replace(b, at, content - at, data, 0);
        } else {
            uint8_t part[256];
            size_t from = at * 7 % (content + 1), k = there < content - from ? there : content - from;
            memcpy(part, b->p + from, k);
            replace(b, at, k, part, k);
        }
        if (kind < 2) {
            data += given;
            size -= given;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fixture f;
    char path[64];
    struct err e = {0};
    struct buf b;
    if (!f.session)
        f = make_fixture();
    size_t logits_bytes = sizeof(float) * (size_t)f.model->vocab_size;
    buf_init(&b, (size_t)1 << 30);
    buf_append(&b, f.file, f.bytes);
    edit(&b, data, size);
    seal((uint8_t *)b.p, b.n);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, b.p, b.n) == (ssize_t)b.n, "writing", NULL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    session_reset(f.session);
    feed(f.session, 5, 11);
    memcpy(f.logits, session_logits(f.session), logits_bytes);
    if (session_load(f.session, path, &e)) {
        int64_t n = session_position(f.session);
        require(n >= 0 && n <= CONTEXT, "the position", NULL);
        int32_t token = 9;
        require(n == CONTEXT || session_feed(f.session, &token, 1, SESSION_CONTRACT, NULL, NULL, NULL, &e),
                "a token behind what was loaded", &e);
        feed(f.session, 3, 21); /* back to what the file may hold snapshots of */
        feed(f.session, 3, 30);
    } else {
        require(e.msg[0] && (e.code == ERR_FORMAT || e.code == ERR_LIMIT), "no clear error", &e);
        require(session_position(f.session) == 11 &&
                    memcmp(f.logits, session_logits(f.session), logits_bytes) == 0,
                "an error changed the session", &e);
    }
    close(fd);
    buf_fini(&b);
    return 0;
}
