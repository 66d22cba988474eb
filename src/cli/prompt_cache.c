/* A session's state that outlives the program. */
#include "cli/prompt_cache.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/client.h"

/* Whether the file can be made at the end: missing folders are, so the nearest one that is there tells. */
static bool check_place(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    bool ok = path_check_new(path, e);
    while (ok && !path_exists(folder)) {
        char *above = path_folder(folder);
        free(folder);
        folder = above;
    }
    if (ok && access(folder, W_OK | X_OK) != 0)
        ok = err_set_errno(e, "%s: can't write into the folder %s", path, folder);
    free(folder);
    return ok || err_wrap(e, "--prompt-cache");
}

static size_t n_tokens(const mk_session *s)
{
    size_t n;
    (void)mk_session_tokens(s, &n);
    return n;
}

bool prompt_cache_load(struct prompt_cache *p, mk_session *s, struct log *log, struct err *e)
{
    mk_error *error = NULL;
    if (!p->path)
        return !p->read_only ||
               err_set(e, ERR_USAGE, "--prompt-cache-ro: expected --prompt-cache FILE beside it");
    bool exists = path_exists(p->path);
    if (exists && !client_take(mk_session_load(s, p->path, &error), &error, e))
        return err_wrap(e, "--prompt-cache");
    if (exists)
        log_debug(log, "%s: a state of %zu tokens", p->path, n_tokens(s));
    else if (p->read_only)
        log_warn(log, "%s: no such file, so nothing is known of the prompt", p->path);
    if (!p->read_only && !exists && !check_place(p->path, e))
        return false;
    p->is_open = !p->read_only;
    return true;
}

bool prompt_cache_finish(const struct prompt_cache *p, mk_session *s, struct log *log, bool ok, struct err *e)
{
    struct err problem = {0};
    mk_error *error = NULL;
    if (!p->is_open || !s || n_tokens(s) == 0)
        return ok;
    if (client_take(mk_session_save(s, p->path, &error), &error, &problem))
        return ok;
    (void)err_wrap(&problem, "--prompt-cache");
    if (ok)
        *e = problem;
    else
        log_warn(log, "%s", problem.msg);
    return false;
}
