/* One step of several sessions. */
#include <stdlib.h>
#include "api/api_int.h"
#include "runtime/batch.h"

#define SESSIONS_MAX 1024

static bool check_members(mk_session *const *sessions, const int32_t *ids, size_t n, struct err *e)
{
    const struct model *m = sessions[0]->package->model;
    for (size_t i = 0; i < n; i++) {
        if (sessions[i]->package->model != m)
            return err_set(e, ERR_USAGE, "session %zu belongs to another package than session 0", i);
        if (ids[i] < 0 || ids[i] >= m->vocab_size)
            return err_set(e, ERR_USAGE,
                           "token of session %zu: expected an id below %lld (the vocabulary), found %d", i,
                           (long long)m->vocab_size, ids[i]);
        for (size_t k = 0; k < i; k++)
            if (sessions[k] == sessions[i])
                return err_set(e, ERR_USAGE, "sessions %zu and %zu are the same", k, i);
    }
    return true;
}

mk_status mk_session_batch(mk_session *const *sessions, const int32_t *ids, size_t n, const mk_call *call,
                           mk_status *statuses, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct batch *batch = NULL;
    if (n == 0)
        return api_result(true, NULL, error);
    if (n > SESSIONS_MAX) {
        err_set(&e, ERR_LIMIT, "%zu sessions at once: at most %d sessions", n, SESSIONS_MAX);
        return api_fail(&e, error);
    }
    mk_package *p = sessions[0]->package;
    if (!api_log_init(&log, p->library, call, NULL, error))
        return MK_USAGE;
    if (!check_members(sessions, ids, n, &e) || !batch_take(&batch, p->model, (int)n, &e))
        return api_fail(&e, error);
    struct batch_member *members = xcalloc(n, sizeof *members);
    for (size_t i = 0; i < n; i++) {
        session_begin_call(sessions[i], log.log.cancel);
        members[i] = (struct batch_member){.session = sessions[i]->session, .id = ids[i]};
    }
    bool ok = batch_step(batch, members, (int)n);
    for (size_t i = n; i-- > 0;) {
        session_end_call(sessions[i]);
        if (statuses)
            statuses[i] = members[i].has_failed ? api_status(members[i].error.code) : MK_OK;
        if (members[i].has_failed) {
            e = members[i].error;
            err_wrap(&e, "session %zu", i);
        }
    }
    batch_give_back(batch);
    free(members);
    return api_result(ok, &e, error);
}
