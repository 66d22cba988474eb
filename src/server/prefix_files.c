/* Files of the prefix cache. */
#include "server/prefix_files.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "format/mlmodelc.h"

#define TOKENS_MAX ((size_t)1 << 24)
static const char magic[16] = "milkit tokens 1\n";

struct head {
    char magic[16];
    uint64_t n;
    uint8_t digest[32];
};

void prefix_file_fini(struct prefix_file *f)
{
    free(f->state);
    free(f->names);
    free(f->tokens);
    *f = (struct prefix_file){0};
}

bool prefix_files_open(const char *folder, struct err *e)
{
    bool is_new = !path_exists(folder);
    if (!is_new && !path_is_folder(folder))
        return err_set(e, ERR_IO, "%s: expected a folder, found something else", folder);
    if (is_new && !folder_make(folder, e))
        return false;
    if (is_new && chmod(folder, 0700) != 0)
        return err_set_errno(e, "%s", folder);
    return access(folder, R_OK | W_OK | X_OK) == 0 || err_set_errno(e, "%s: can't write there", folder);
}

static char *path_with(const char *folder, const char *stem, size_t n, const char *suffix)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s%s", (int)n, stem, suffix);
    return path_join(folder, name);
}

/* Reads the tokens, whose file is f->names. */
static bool read_tokens(struct prefix_file *f, struct err *e)
{
    char *data = NULL;
    size_t bytes;
    struct head head;
    uint8_t digest[32];
    if (!file_read(&data, &bytes, f->names, sizeof head + TOKENS_MAX * sizeof *f->tokens, e))
        return false;
    bool ok = bytes >= sizeof head;
    if (ok) {
        memcpy(&head, data, sizeof head);
        ok = memcmp(head.magic, magic, sizeof magic) == 0 && head.n > 0 && head.n <= TOKENS_MAX &&
             bytes - sizeof head == head.n * sizeof *f->tokens;
    }
    if (ok) {
        sha256(digest, data + sizeof head, bytes - sizeof head);
        ok = memcmp(digest, head.digest, sizeof digest) == 0;
    }
    if (ok) {
        f->n_tokens = (size_t)head.n;
        f->tokens = xmalloc(f->n_tokens * sizeof *f->tokens);
        memcpy(f->tokens, data + sizeof head, f->n_tokens * sizeof *f->tokens);
    }
    free(data);
    return ok || err_set(e, ERR_FORMAT, "%s: damaged", f->names);
}

void prefix_files_list(const char *folder, const char *owner, struct log *log,
                       void (*found)(void *context, struct prefix_file *f), void *context)
{
    struct path_list list = {0};
    struct err e = {0};
    size_t n_owner = strlen(owner);
    if (!path_list_read(&list, folder, &e)) {
        log_warn(log, "%s", e.msg);
        return;
    }
    for (size_t i = 0; i < (size_t)list.n; i++) {
        const char *name = list.names[i];
        size_t n = strlen(name);
        struct stat st;
        if (!has_suffix(name, ".state") || n > 200 || strncmp(name, owner, n_owner) != 0 ||
            name[n_owner] != '-')
            continue;
        struct prefix_file f = {.state = path_join(folder, name),
                                .names = path_with(folder, name, n - strlen(".state"), ".tokens")};
        e = (struct err){0};
        if (stat(f.state, &st) == 0 && read_tokens(&f, &e)) {
            f.bytes = (uint64_t)st.st_size + sizeof(struct head) + f.n_tokens * sizeof *f.tokens;
            f.used = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9;
            found(context, &f);
        } else {
            log_warn(log, "%s; the cached state is dropped", e.msg);
            prefix_file_remove(&f);
            prefix_file_fini(&f);
        }
    }
    path_list_free(&list);
}

bool prefix_file_write(struct prefix_file *f, const char *folder, const char *owner, const mk_session *s,
                       struct err *e)
{
    struct head head;
    struct buf data;
    mk_error *error = NULL;
    char stem[128];
    const int32_t *tokens = mk_session_tokens(s, &f->n_tokens);
    memcpy(head.magic, magic, sizeof magic);
    head.n = f->n_tokens;
    sha256(head.digest, tokens, f->n_tokens * sizeof *tokens);
    int at = snprintf(stem, sizeof stem, "%s-", owner);
    for (int i = 0; i < 12; i++)
        at += snprintf(stem + at, sizeof stem - (size_t)at, "%02x", head.digest[i]);
    f->tokens = xmalloc((f->n_tokens + 1) * sizeof *f->tokens);
    memcpy(f->tokens, tokens, f->n_tokens * sizeof *tokens);
    f->state = path_with(folder, stem, (size_t)at, ".state");
    f->names = path_with(folder, stem, (size_t)at, ".tokens");
    buf_init(&data, sizeof head + f->n_tokens * sizeof *tokens);
    buf_append(&data, &head, sizeof head);
    buf_append(&data, tokens, f->n_tokens * sizeof *tokens);
    bool ok =
        mk_session_save(s, f->state, &error) == MK_OK || err_set(e, ERR_IO, "%s", mk_error_message(error));
    mk_error_free(error);
    ok = ok && file_write(f->names, data.p, data.n, e);
    /* what somebody said is in them */
    if (ok && (chmod(f->state, 0600) != 0 || chmod(f->names, 0600) != 0))
        ok = err_set_errno(e, "%s", f->state);
    f->bytes = data.n + (uint64_t)(file_bytes(f->state) > 0 ? file_bytes(f->state) : 0);
    f->used = (double)time(NULL);
    buf_fini(&data);
    if (!ok)
        prefix_file_remove(f);
    return ok;
}

void prefix_file_touch(struct prefix_file *f)
{
    (void)utimensat(AT_FDCWD, f->state, NULL, 0);
    f->used = (double)time(NULL);
}

void prefix_file_remove(const struct prefix_file *f)
{
    (void)unlink(f->state);
    (void)unlink(f->names);
}
