/* The library handle, versions, cancelling, and how messages and progress reach the caller. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "format/json.h"

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define VERSION STRING(MK_VERSION_MAJOR) "." STRING(MK_VERSION_MINOR) "." STRING(MK_VERSION_PATCH)

uint32_t mk_version(void)
{
    return MK_VERSION_MAJOR * 1000000u + MK_VERSION_MINOR * 1000u + MK_VERSION_PATCH;
}

const char *mk_version_string(void)
{
    return VERSION;
}

static char build_info[512];
static pthread_once_t build_info_made = PTHREAD_ONCE_INIT;

static void make_build_info(void)
{
    struct buf b;
    bool is_first = true;
    buf_init(&b, sizeof build_info - 1);
    buf_puts(&b, "{\"version\": \"" VERSION "\", \"compiler\": ");
#if defined(__VERSION__)
    json_put_string(&b, __VERSION__, strlen(__VERSION__));
#else
    buf_puts(&b, "null");
#endif
    buf_puts(&b, ", \"levels\": [");
    for (int i = 0; i < CPU_LEVELS; i++) {
        if (!cpu_has((enum cpu_level)i))
            continue;
        buf_printf(&b, "%s\"%s\"", is_first ? "" : ", ", cpu_level_name((enum cpu_level)i));
        is_first = false;
    }
    buf_printf(&b, "], \"level\": \"%s\"}", cpu_level_name(cpu_level_in_use()));
    if (b.p && !b.failed)
        memcpy(build_info, b.p, b.n + 1);
    buf_fini(&b);
}

const char *mk_build_info(void)
{
    pthread_once(&build_info_made, make_build_info);
    return build_info;
}

mk_status mk_library_open(mk_library **out, const mk_options *options, mk_error **error)
{
    mk_options o;
    struct err e = {0};
    mk_library *library = NULL;
    enum cpu_level level;
    const char *why;
    *out = NULL;
    if (!api_read_struct(&o, sizeof o, options))
        return api_usage(error, "options: size is not that of the structure");
    if (o.threads < 0 || o.log_level < 0 || o.log_level > MK_LOG_DEBUG)
        return api_usage(error, "options: threads %d or log_level %d is out of range", o.threads,
                         o.log_level);
    if (!cpu_select(&level, &why))
        return api_usage(error, "%s", why);
    library = xcalloc(1, sizeof *library);
    atomic_init(&library->n_references, 1);
    library->level = o.log_level ? (enum log_level)o.log_level : LOG_WARN;
    library->log = o.log;
    library->log_context = o.log_context;
    if (!pool_new(&library->pool, o.threads, &e)) {
        free(library);
        return api_fail(&e, error);
    }
    *out = library;
    return api_result(true, NULL, error);
}

mk_library *library_keep(mk_library *library)
{
    atomic_fetch_add(&library->n_references, 1);
    return library;
}

void mk_library_close(mk_library *library)
{
    if (!library || atomic_fetch_sub(&library->n_references, 1) != 1)
        return;
    pool_free(library->pool);
    free(library);
}

/* ---- cancelling ---- */

struct mk_cancel {
    atomic_int is_set;
};

mk_cancel *mk_cancel_new(void)
{
    mk_cancel *c = xcalloc(1, sizeof *c);
    atomic_init(&c->is_set, 0);
    return c;
}

void mk_cancel_set(mk_cancel *c)
{
    atomic_store(&c->is_set, 1);
}

void mk_cancel_clear(mk_cancel *c)
{
    atomic_store(&c->is_set, 0);
}

void mk_cancel_free(mk_cancel *c)
{
    free(c);
}

/* ---- messages and progress of one call ---- */

static void pass_message(void *context, enum log_level level, const char *text)
{
    const struct api_log *l = context;
    if (l->library->log)
        l->library->log(l->library->log_context, (int32_t)level, text);
}

static bool pass_progress(void *context, const struct progress *p, double done, const char *detail)
{
    const struct api_log *l = context;
    mk_progress out = {.size = sizeof out,
                       .stage = p->label,
                       .item = detail,
                       .done = done,
                       .total = p->total,
                       .unit = p->unit,
                       .seconds = clock_seconds() - p->start_s};
    return l->call.progress(l->call.context, &out);
}

bool api_log_init(struct api_log *l, mk_library *library, const mk_call *call, const atomic_int *also,
                  mk_error **e)
{
    memset(l, 0, sizeof *l);
    if (!api_read_struct(&l->call, sizeof l->call, call)) {
        api_usage(e, "call: size is not that of the structure");
        return false;
    }
    l->library = library;
    l->log.level = library->level;
    l->log.sink = pass_message;
    l->log.on_progress = l->call.progress ? pass_progress : NULL;
    l->log.context = l;
    l->log.cancel = l->call.cancel ? &l->call.cancel->is_set : NULL;
    l->log.cancel_also = also;
    return true;
}

/* ---- texts ---- */

mk_text *api_text_new(char *heap_text, size_t n)
{
    mk_text *t = xcalloc(1, sizeof *t);
    t->text = heap_text;
    t->n = n;
    return t;
}

const char *mk_text_data(const mk_text *t, size_t *n)
{
    if (n)
        *n = t->n;
    return t->text;
}

const int32_t *mk_text_ids(const mk_text *t, size_t *n)
{
    *n = t->n_ids;
    return t->ids;
}

void mk_text_free(mk_text *t)
{
    if (!t)
        return;
    free(t->text);
    free(t->ids);
    free(t);
}
