/* What a repository holds, from the hub's answer, and which of it a checkpoint needs. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "format/checkpoint.h"
#include "hub/hub_internal.h"

#define FILES_MAX 100000

/* ---- reading ---- */

/* Names that must not become paths, and files without size or checksum, are left out: what needs them says that they are
 * missing. */
static bool read_file(struct hub_file *f, const cJSON *item, struct arena *a)
{
    const cJSON *name = json_get(item, "rfilename"), *large = json_get(item, "lfs");
    const cJSON *size = json_get(cJSON_IsObject(large) ? large : item, "size");
    const cJSON *digest = cJSON_IsObject(large) ? json_get(large, "sha256") : json_get(item, "blobId");
    bool is_large = cJSON_IsObject(large);
    if (!cJSON_IsString(name) || !hub_is_file_name(name->valuestring) || !cJSON_IsNumber(size) ||
        !(size->valuedouble >= 0 && size->valuedouble < 1e15) || !cJSON_IsString(digest) ||
        !hub_is_hex(digest->valuestring, is_large ? 64 : 40))
        return false;
    f->path = arena_strdup(a, name->valuestring);
    f->digest = arena_strdup(a, digest->valuestring);
    f->bytes = (int64_t)size->valuedouble;
    f->is_large = is_large;
    return true;
}

bool hub_listing_read(struct hub_listing *out, const char *text, size_t bytes, const char *where,
                      struct err *e)
{
    cJSON *root = NULL;
    bool ok = false;
    *out = (struct hub_listing){.arena = arena_new(0)};
    if (!json_parse(&root, text, bytes, where, e))
        goto out;
    const cJSON *commit = json_get(root, "sha"), *files = json_get(root, "siblings");
    if (!cJSON_IsString(commit) || !hub_is_hex(commit->valuestring, 40) || !cJSON_IsArray(files)) {
        err_set(e, ERR_FORMAT,
                "%s: expected the hub's description of a model (a commit \"sha\" and its files "
                "\"siblings\"), found something else",
                where);
        goto out;
    }
    int n = cJSON_GetArraySize(files);
    if (n > FILES_MAX) {
        err_set(e, ERR_LIMIT, "%s: %d files, more than the limit of %d", where, n, FILES_MAX);
        goto out;
    }
    out->commit = arena_strdup(out->arena, commit->valuestring);
    out->files = ARENA_ARRAY(out->arena, struct hub_file, n + 1);
    for (const cJSON *f = files->child; f; f = f->next)
        out->n_files += read_file(&out->files[out->n_files], f, out->arena);
    ok = true;
out:
    cJSON_Delete(root);
    if (!ok)
        hub_listing_free(out);
    return ok;
}

void hub_listing_free(struct hub_listing *l)
{
    if (l->arena)
        arena_free(l->arena);
    *l = (struct hub_listing){0};
}

struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path)
{
    for (int i = 0; i < l->n_files; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return &l->files[i];
    return NULL;
}

/* ---- choosing ---- */

static bool is_template(const char *path)
{
    size_t n = strlen(CHECKPOINT_TEMPLATES);
    return strncmp(path, CHECKPOINT_TEMPLATES "/", n + 1) == 0 && !strchr(path + n + 1, '/') &&
           has_suffix(path, CHECKPOINT_TEMPLATE_SUFFIX);
}

void hub_want_settings(struct hub_listing *l, struct hub_file **index)
{
    for (int i = 0; i < l->n_files; i++) {
        struct hub_file *f = &l->files[i];
        f->is_wanted =
            strcmp(f->path, HUB_CONFIG) == 0 || strcmp(f->path, HUB_INDEX) == 0 || is_template(f->path);
        for (const struct checkpoint_file *c = checkpoint_files; c->name && !f->is_wanted; c++)
            f->is_wanted = strcmp(f->path, c->name) == 0;
    }
    *index = hub_listing_find(l, HUB_INDEX);
}

static bool want_shards(struct hub_listing *l, const char *text, size_t bytes, const char *name,
                        struct err *e)
{
    cJSON *root = NULL;
    const cJSON *shards;
    bool ok = false;
    if (!json_parse(&root, text, bytes, HUB_INDEX, e))
        goto out;
    shards = json_get(root, "weight_map");
    if (!cJSON_IsObject(shards)) {
        err_set(e, ERR_FORMAT, "%s: %s: expected an object \"weight_map\", found none", name, HUB_INDEX);
        goto out;
    }
    const char *last = "";
    for (const cJSON *s = shards->child; s; s = s->next) {
        if (!cJSON_IsString(s)) {
            err_set(e, ERR_FORMAT, "%s: %s: expected the names of files, found something else", name,
                    HUB_INDEX);
            goto out;
        }
        if (strcmp(s->valuestring, last) == 0)
            continue;
        last = s->valuestring;
        struct hub_file *f = hub_listing_find(l, s->valuestring);
        if (!f) {
            err_set(e, ERR_IO, "%s: its index names the file %.100s, which the repository does not have",
                    name, s->valuestring);
            goto out;
        }
        f->is_wanted = true;
    }
    ok = true;
out:
    cJSON_Delete(root);
    return ok;
}

/* Files at the root that end with suffix. *first: one of them. */
static int count_of(const struct hub_listing *l, const char *suffix, struct hub_file **first)
{
    int n = 0;
    *first = NULL;
    for (int i = 0; i < l->n_files; i++)
        if (has_suffix(l->files[i].path, suffix) && !strchr(l->files[i].path, '/') && n++ == 0)
            *first = &l->files[i];
    return n;
}

static void name_files(struct buf *b, const struct hub_listing *l, const char *suffix)
{
    int n = 0;
    for (int i = 0; i < l->n_files; i++)
        if (has_suffix(l->files[i].path, suffix))
            buf_printf(b, "%s%s", n++ ? ", " : "", l->files[i].path);
}

bool hub_want_weights(struct hub_listing *l, const char *index, size_t index_bytes, const char *name,
                      struct err *e)
{
    struct hub_file *only, *whole = hub_listing_find(l, "model.safetensors");
    if (index)
        return want_shards(l, index, index_bytes, name, e);
    if (!whole && count_of(l, ".safetensors", &only) == 1)
        whole = only;
    int n_gguf = count_of(l, ".gguf", &only);
    if (!whole && n_gguf == 1)
        whole = only;
    if (whole) {
        whole->is_wanted = true;
        return true;
    }
    if (n_gguf == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: expected weights as safetensors or GGUF, found none in the repository", name);
    struct buf names;
    buf_init(&names, 600);
    name_files(&names, l, ".gguf");
    err_set(e, ERR_USAGE,
            "%s has several GGUF files: choose one with %s:TAG (TAG a part of its name, such as Q8_0): %s%s",
            name, name, names.p ? names.p : "", names.failed ? ", ..." : "");
    buf_fini(&names);
    return false;
}

bool hub_want_tagged(struct hub_listing *l, const char *tag, const char *name, struct err *e)
{
    int n = 0;
    for (int i = 0; i < l->n_files; i++) {
        struct hub_file *f = &l->files[i];
        f->is_wanted = !strchr(f->path, '/') && hub_is_tagged(f->path, tag);
        n += f->is_wanted;
    }
    if (n > 0)
        return true;
    struct buf names;
    buf_init(&names, 600);
    name_files(&names, l, ".gguf");
    err_set(e, ERR_IO, "%s: no GGUF file with %s in its name; the repository has %s", name, tag,
            names.n ? names.p : "none");
    buf_fini(&names);
    return false;
}

bool hub_want_glob(struct hub_listing *l, const char *glob, const char *name, struct err *e)
{
    int n = 0;
    for (int i = 0; i < l->n_files; i++) {
        l->files[i].is_wanted = fnmatch(glob, l->files[i].path, 0) == 0;
        n += l->files[i].is_wanted;
    }
    return n > 0 || err_set(e, ERR_IO, "%s: the repository has no file %s", name, glob);
}
