/* The layout of the cache: models--org--name/{refs/<revision>, snapshots/<commit>/}; a ref holds a commit. */
#include "format/hub.h"
#include <stdlib.h>
#include <string.h>

#define REF_BYTES_MAX 256

static bool is_part(const char *s, size_t n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return n > 0 && n <= 96 && s[0] != '.' && s[0] != '-' && strspn(s, letters) >= n;
}

/* A revision becomes a path below refs or snapshots: no way up. */
static bool is_revision(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";
    size_t n = strlen(s);
    return n > 0 && n <= 200 && s[0] != '/' && s[0] != '.' && !strstr(s, "..") && strspn(s, letters) == n;
}

/* A variable that is set and not empty, else NULL. */
static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

static char *cache_folder(void)
{
    const char *v;
    if ((v = variable("HF_HUB_CACHE")))
        return xstrdup(v);
    if ((v = variable("HF_HOME")))
        return path_join(v, "hub");
    if ((v = variable("XDG_CACHE_HOME")))
        return path_join(v, "huggingface/hub");
    if ((v = variable("HOME")))
        return path_join(v, ".cache/huggingface/hub");
    return xstrdup(".cache/huggingface/hub");
}

/* snapshots/<text> below the model's folder when that exists, else NULL. */
static char *snapshot(const char *model, const char *commit)
{
    char *path = xasprintf("%s/snapshots/%s", model, commit);
    if (path_is_folder(path))
        return path;
    free(path);
    return NULL;
}

static char *snapshot_of_ref(const char *model, const char *revision)
{
    char *path = xasprintf("%s/refs/%s", model, revision), *text = NULL, *found = NULL;
    size_t bytes = 0;
    if (path_exists(path) && file_read(&text, &bytes, path, REF_BYTES_MAX, NULL)) {
        text[strcspn(text, " \t\r\n")] = '\0';
        if (is_revision(text))
            found = snapshot(model, text);
    }
    free(text);
    free(path);
    return found;
}

bool hub_resolve(char **out, const char *name, struct err *e)
{
    const char *slash = strchr(name, '/'), *at = strchr(name, '@');
    size_t n_model = at ? (size_t)(at - name) : strlen(name);
    const char *revision = at ? at + 1 : "main";
    bool is_name = slash && slash < name + n_model && is_part(name, (size_t)(slash - name)) &&
                   is_part(slash + 1, n_model - (size_t)(slash - name) - 1) && is_revision(revision);
    if (!is_name || path_exists(name)) {
        *out = xstrdup(name);
        return true;
    }
    char *cache = cache_folder();
    char *model = xasprintf("%s/models--%.*s--%.*s", cache, (int)(slash - name), name,
                            (int)(n_model - (size_t)(slash - name) - 1), slash + 1);
    char *found = snapshot_of_ref(model, revision);
    if (!found)
        found = snapshot(model, revision);
    if (!found) {
        if (path_is_folder(model))
            err_set(e, ERR_IO,
                    "%s: no file or folder of this name, and the cache has no revision %s of it (%s)", name,
                    revision, model);
        else
            err_set(e, ERR_IO, "%s: no file or folder of this name, and no such model in the cache %s", name,
                    cache);
    }
    free(model);
    free(cache);
    *out = found;
    return found != NULL;
}
