/* Tools: compiling a model's source form, looking into files. */
#include <string.h>
#include "api/api_int.h"
#include "format/json.h"
#include "inspect/inspect.h"
#include "lint/lint.h"
#include "mil/compiled.h"

mk_status mk_compile(mk_library *library, const char *package, const char *output, const char *options_json,
                     mk_error **error)
{
    struct err e = {0};
    cJSON *json = NULL;
    bool force = false;
    (void)library;
    bool ok = !options_json || json_parse(&json, options_json, strlen(options_json), "options", &e);
    if (ok && json && !cJSON_IsObject(json))
        ok = err_set(&e, ERR_USAGE, "options: expected an object, found %s", json_type_name(json));
    for (const cJSON *item = json ? json->child : NULL; ok && item; item = item->next)
        if (strcmp(item->string, "force") != 0)
            ok = err_set(&e, ERR_USAGE, "options: unknown key '%s'", item->string);
    ok = ok && json_get_bool(json, "force", &force, "options", &e);
    if (!ok)
        e.code = ERR_USAGE;
    cJSON_Delete(json);
    ok = ok && mil_compile(package, output, force, &e);
    return api_result(ok, &e, error);
}

mk_status mk_inspect(mk_library *library, const char *path, mk_text **out, mk_error **error)
{
    struct err e = {0};
    char *text = NULL;
    (void)library;
    *out = NULL;
    if (inspect_text(&text, path, &e))
        *out = api_text_new(text, strlen(text));
    return api_result(*out != NULL, &e, error);
}

mk_status mk_lint(mk_library *library, const char *path, const char *options_json, mk_text **out,
                  mk_error **error)
{
    struct err e = {0};
    struct lint_options options;
    cJSON *o = cJSON_CreateObject();
    (void)library;
    *out = NULL;
    bool ok = lint_options_read(&options, options_json, &e) && lint_path(o, path, &options, &e);
    char *text = ok ? cJSON_Print(o) : NULL;
    if (text)
        *out = api_text_new(text, strlen(text));
    else if (ok)
        err_set(&e, ERR_NOMEM, "the report does not fit into memory");
    cJSON_Delete(o);
    return api_result(*out != NULL, &e, error);
}
