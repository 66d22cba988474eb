/* Calls of the library: what stops them, and their errors as ours. */
#include "cli/client.h"
#include <stdlib.h>
#include <string.h>

static bool show_progress(void *context, const mk_progress *p)
{
    struct client_call *x = context;
    const char *label = x->label ? x->label : p->stage;
    double units = strcmp(p->unit, "MB") == 0 ? 1e-6 : 1;
    if (x->is_begun && strcmp(x->progress.label, label) != 0)
        client_call_end(x);
    if (!x->is_begun) {
        progress_begin(&x->progress, x->log, label, p->unit, units, p->total / units);
        x->progress.start_s -= p->seconds;
        x->progress.last_s = x->progress.start_s;
        x->is_begun = true;
    }
    progress_update(&x->progress, p->done / units, p->item);
    return true;
}

const mk_call *client_call_begin(struct client_call *x, struct cli *c, const char *label, bool shows_progress)
{
    *x = (struct client_call){.log = &c->log, .label = label};
    x->call = (mk_call){.size = sizeof x->call,
                        .cancel = c->cancel,
                        .progress = shows_progress ? show_progress : NULL,
                        .context = x};
    return &x->call;
}

void client_call_end(struct client_call *x)
{
    if (x->is_begun)
        progress_end(&x->progress);
    x->is_begun = false;
}

bool client_take(mk_status status, mk_error **from, struct err *e)
{
    static const enum err_code codes[] = {ERR_NONE,   ERR_FAILED,   ERR_USAGE, ERR_UNSUPPORTED,
                                          ERR_FORMAT, ERR_MISMATCH, ERR_LIMIT, ERR_CANCELLED};
    if (status == MK_OK)
        return true;
    err_set(e, codes[status], "%s", mk_error_message(*from));
    for (int i = HINT_NONE + 1; i < HINT_COUNT; i++)
        if (strcmp(mk_error_hint(*from), err_hint_word((enum err_hint)i)) == 0)
            e->hint = (enum err_hint)i;
    mk_error_free(*from);
    *from = NULL;
    return false;
}
