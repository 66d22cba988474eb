/* A session's state that outlives the program. */
#include "cli/prompt_cache.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"

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

bool prompt_cache_load(struct prompt_cache *p, struct session *s, struct log *log, struct err *e)
{
    if (!p->path)
        return !p->read_only ||
               err_set(e, ERR_USAGE, "--prompt-cache-ro: expected --prompt-cache FILE beside it");
    bool exists = path_exists(p->path);
    if (exists && !session_load(s, p->path, e))
        return err_wrap(e, "--prompt-cache");
    if (exists)
        log_debug(log, "%s: a state of %lld tokens", p->path, (long long)session_position(s));
    else if (p->read_only)
        log_warn(log, "%s: no such file, so nothing is known of the prompt", p->path);
    if (!p->read_only && !exists && !check_place(p->path, e))
        return false;
    p->is_open = !p->read_only;
    return true;
}

bool prompt_cache_finish(const struct prompt_cache *p, struct session *s, struct log *log, bool ok,
                         struct err *e)
{
    struct err problem = {0};
    if (!p->is_open || !s || session_position(s) == 0 || session_save(s, p->path, &problem))
        return ok;
    (void)err_wrap(&problem, "--prompt-cache");
    if (ok)
        *e = problem;
    else
        log_warn(log, "%s", problem.msg);
    return false;
}
