/* The layout of the cache: models--org--name/{refs/<revision>, snapshots/<commit>/, blobs/<digest>}; a ref holds a commit, the
 * files of a snapshot are links to blobs. */
#include "hub/hub_internal.h"
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "format/contract.h"
#include "format/json.h"

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

const char *hub_variable(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

bool hub_is_offline(void)
{
    const char *offline = hub_variable("HF_HUB_OFFLINE");
    return offline && strcmp(offline, "0") != 0;
}

bool hub_is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

bool hub_is_file_name(const char *name)
{
    size_t n = strlen(name), length;
    if (n == 0 || n > 1024 || strchr(name, '\\'))
        return false;
    for (size_t i = 0; i < n; i += length)
        if (terminal_unsafe(name + i, n - i, &length) || name[i] == '\n' || name[i] == '\t')
            return false;
    for (const char *part = name;; part++) {
        size_t part_bytes = strcspn(part, "/");
        bool leads_elsewhere = part_bytes == 0 || part_bytes > 255 || strncmp(part, ".", part_bytes) == 0 ||
                               strncmp(part, "..", part_bytes) == 0;
        if (leads_elsewhere)
            return false;
        part += part_bytes;
        if (!*part)
            return true;
    }
}

static char *cache_folder(void)
{
    const char *v;
    if ((v = hub_variable("HF_HUB_CACHE")))
        return xstrdup(v);
    if ((v = hub_variable("HF_HOME")))
        return path_join(v, "hub");
    if ((v = hub_variable("XDG_CACHE_HOME")))
        return path_join(v, "huggingface/hub");
    if ((v = hub_variable("HOME")))
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

bool hub_name_parse(struct hub_name *out, const char *text)
{
    const char *slash = strchr(text, '/'), *at = strchr(text, '@'), *end = text + strlen(text);
    const char *colon = strrchr(at ? at : text, ':');
    const char *revision_end = colon ? colon : end, *model_end = at ? at : revision_end;
    *out = (struct hub_name){0};
    if (!slash || slash > model_end || !is_part(text, (size_t)(slash - text)) ||
        !is_part(slash + 1, (size_t)(model_end - slash) - 1))
        return false;
    if (colon && (strlen(colon + 1) > 96 || !is_part(colon + 1, strlen(colon + 1))))
        return false;
    char *revision = at ? xasprintf("%.*s", (int)(revision_end - at - 1), at + 1) : xstrdup("main");
    if (!is_revision(revision)) {
        free(revision);
        return false;
    }
    out->revision = revision;
    out->organization = xasprintf("%.*s", (int)(slash - text), text);
    out->model = xasprintf("%.*s", (int)(model_end - slash - 1), slash + 1);
    out->tag = colon ? xstrdup(colon + 1) : NULL;
    char *cache = cache_folder();
    out->folder = xasprintf("%s/models--%s--%s", cache, out->organization, out->model);
    free(cache);
    return true;
}

void hub_name_free(struct hub_name *n)
{
    free(n->organization);
    free(n->model);
    free(n->revision);
    free(n->tag);
    free(n->folder);
    *n = (struct hub_name){0};
}

char *hub_snapshot(const struct hub_name *n)
{
    char *found = snapshot_of_ref(n->folder, n->revision);
    return found ? found : snapshot(n->folder, n->revision);
}

bool hub_is_name(const char *name)
{
    struct hub_name n;
    bool is_name = !path_exists(name) && hub_name_parse(&n, name);
    if (is_name)
        hub_name_free(&n);
    return is_name;
}

/* ---- what is in a snapshot ---- */

bool hub_is_tagged(const char *file, const char *tag)
{
    return has_suffix(file, ".gguf") && strcasestr(file, tag) != NULL;
}

static bool has_file(const char *folder, const char *name)
{
    return hub_is_file_name(name) && folder_has(folder, name);
}

/* The first GGUF file of the tag ("": any), heap, or NULL. */
static char *find_tagged(const char *folder, const char *tag)
{
    struct path_list list;
    char *found = NULL;
    if (!path_list_read(&list, folder, NULL))
        return NULL;
    for (size_t i = 0; i < list.n && !found; i++)
        if (hub_is_tagged(list.names[i], tag))
            found = path_join(folder, list.names[i]);
    path_list_free(&list);
    return found;
}

char *hub_entry(const char *snapshot, const char *tag)
{
    if (tag)
        return find_tagged(snapshot, tag);
    char *file =
        has_file(snapshot, HUB_CONFIG) || has_file(snapshot, FILE_META) ? NULL : find_tagged(snapshot, "");
    return file ? file : xstrdup(snapshot);
}

/* Are all shards there that the index names? */
static bool has_shards(const char *folder, const char *index_name)
{
    char *path = path_join(folder, index_name);
    cJSON *index = NULL;
    bool has_all = json_read_file(&index, path, HUB_INDEX_BYTES_MAX, NULL);
    const cJSON *shards = json_get(index, "weight_map");
    has_all = has_all && cJSON_IsObject(shards);
    for (const cJSON *s = has_all ? shards->child : NULL; s && has_all; s = s->next)
        has_all = cJSON_IsString(s) && has_file(folder, s->valuestring);
    cJSON_Delete(index);
    free(path);
    return has_all;
}

bool hub_is_complete(const char *snapshot, const char *tag)
{
    if (tag) {
        char *file = find_tagged(snapshot, tag);
        free(file);
        return file != NULL;
    }
    if (has_file(snapshot, HUB_INDEX))
        return has_file(snapshot, HUB_CONFIG) && has_shards(snapshot, HUB_INDEX);
    struct path_list list;
    bool has_weights = false, has_package = has_file(snapshot, FILE_META);
    if (!path_list_read(&list, snapshot, NULL))
        return false;
    for (size_t i = 0; i < list.n && !has_weights; i++)
        has_weights = has_suffix(list.names[i], ".safetensors") || has_suffix(list.names[i], ".gguf");
    path_list_free(&list);
    return has_weights || has_package;
}

bool hub_resolve(char **out, const char *name, struct err *e)
{
    struct hub_name n;
    if (path_exists(name) || !hub_name_parse(&n, name)) {
        *out = xstrdup(name);
        return true;
    }
    char *found = hub_snapshot(&n);
    if (found) {
        char *file = hub_entry(found, n.tag);
        if (!file)
            err_set(e, ERR_IO, "%s: no file or folder of this name, and no GGUF file of the tag %s in %s",
                    name, n.tag, found);
        free(found);
        found = file;
    } else if (!found && path_is_folder(n.folder)) {
        err_set(e, ERR_IO, "%s: no file or folder of this name, and the cache has no revision %s of it (%s)",
                name, n.revision, n.folder);
    } else if (!found) {
        char *cache = cache_folder();
        err_set(e, ERR_IO, "%s: no file or folder of this name, and no such model in the cache %s", name,
                cache);
        free(cache);
    }
    hub_name_free(&n);
    *out = found;
    return found != NULL;
}
