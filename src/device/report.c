/* Measured points out of the reports that users send. */
#include "device/report.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

#define BYTES_MAX ((size_t)16 << 20)
#define POINTS_MAX 256

static bool take_number(const cJSON *o, const char *key, double most, double *out, const char *where,
                        struct err *e)
{
    *out = 0;
    if (!json_get_double(o, key, out, where, e))
        return false;
    return (*out > 0 && *out <= most) ||
           err_set(e, ERR_FORMAT, "%s: %s: expected a number above 0 and up to %g, found %g", where, key,
                   most, *out);
}

static bool take_text(const cJSON *o, const char *key, const char **out, const char *where, struct arena *a,
                      struct err *e)
{
    const char *text = NULL;
    if (!json_get_string(o, key, &text, where, e))
        return false;
    *out = text ? arena_strdup(a, text) : NULL;
    return text || err_set(e, ERR_FORMAT, "%s: a point without \"%s\"", where, key);
}

static bool take_point(struct report *r, const cJSON *o, const char *where, struct arena *a, struct err *e)
{
    struct speed_point p = {.is_fitted = true, .cache = "as the package has it"};
    const struct chip *chip;
    int64_t version = 0;
    if (!json_get_int(o, "milkit_mac_report", &version, where, e))
        return false;
    if (version != 1)
        return err_set(e, ERR_FORMAT, "%s: expected a report of version 1, found %lld", where,
                       (long long)version);
    if (r->n == POINTS_MAX)
        return err_set(e, ERR_LIMIT, "%s: more than %d points", where, POINTS_MAX);
    if (!take_text(o, "model", &p.model, where, a, e) || !take_text(o, "weights", &p.weights, where, a, e) ||
        !take_text(o, "chip", &p.chip, where, a, e) || !take_text(o, "system", &p.remark, where, a, e) ||
        !take_number(o, "calls", 1e4, &p.calls, where, e) ||
        !take_number(o, "operations", 1e7, &p.ops, where, e) ||
        !take_number(o, "weight_mb", 1e7, &p.weight_mb, where, e) ||
        !take_number(o, "cache_mb", 1e7, &p.cache_mb, where, e) ||
        !take_number(o, "tokens_per_second", 1e6, &p.tokens_per_s, where, e))
        return false;
    if (!chip_find(&chip, p.chip, e))
        return err_wrap(e, "%s", where);
    p.chip = chip->name;
    p.source = arena_strdup(a, where);
    struct speed_point *points = ARENA_ARRAY(a, struct speed_point, r->n + 1);
    if (r->n > 0)
        memcpy(points, r->points, sizeof *points * (size_t)r->n);
    points[r->n++] = p;
    r->points = points;
    return true;
}

bool report_parse(struct report *r, const char *text, size_t bytes, const char *where, struct arena *a,
                  struct err *e)
{
    int before = r->n;
    bool ok = true;
    for (size_t at = 0; ok && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at : bytes - at;
        if (n > 0 && text[at] == '{') {
            cJSON *o = NULL;
            ok = json_parse(&o, text + at, n, where, e);
            if (ok && json_get(o, "milkit_mac_report"))
                ok = take_point(r, o, where, a, e);
            cJSON_Delete(o);
        }
        at += n + 1;
    }
    return ok && (r->n > before || err_set(e, ERR_FORMAT,
                                           "%s: no measured point in it: is it a report of "
                                           "tools/mac_report.sh?",
                                           where));
}

bool report_read(struct report *r, const char *path, struct arena *a, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    bool ok = file_read(&text, &bytes, path, BYTES_MAX, e) && report_parse(r, text, bytes, path, a, e);
    free(text);
    return ok;
}
