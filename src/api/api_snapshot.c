/* Snapshots: what a session holds, as an object of its own. */
#include <stdlib.h>
#include "api/api_int.h"

struct mk_snapshot {
    mk_package *package;
    struct session_copy *copy;
};

mk_status mk_session_snapshot(const mk_session *s, mk_snapshot **out, mk_error **error)
{
    struct err e = {0};
    struct session_copy *copy;
    *out = NULL;
    if (!session_copy_new(&copy, s->session, &e))
        return api_fail(&e, error);
    mk_snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    snapshot->package = package_keep(s->package);
    snapshot->copy = copy;
    *out = snapshot;
    return api_result(true, NULL, error);
}

mk_status mk_session_restore(mk_session *s, const mk_snapshot *snapshot, mk_error **error)
{
    if (s->package->model != snapshot->package->model)
        return api_usage(error, "the snapshot belongs to another package");
    session_copy_restore(snapshot->copy, s->session);
    return api_result(true, NULL, error);
}

uint64_t mk_snapshot_bytes(const mk_snapshot *snapshot)
{
    return session_copy_bytes(snapshot->copy);
}

const int32_t *mk_snapshot_tokens(const mk_snapshot *snapshot, size_t *n)
{
    int64_t n_tokens;
    const int32_t *tokens = session_copy_tokens(snapshot->copy, &n_tokens);
    *n = (size_t)n_tokens;
    return tokens;
}

void mk_snapshot_free(mk_snapshot *snapshot)
{
    if (!snapshot)
        return;
    session_copy_free(snapshot->copy);
    mk_package_close(snapshot->package);
    free(snapshot);
}
