/* Which files a checkpoint has: the index of its shards, and the file of a folder that is to be opened.
 *
 * An index may list more than is there: files that were left out on purpose hold what not everybody needs. So
 * what is not there is noted, and missed by whoever asks for it.
 */
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "format/json.h"
#include "format/safetensors_internal.h"

#define INDEX_BYTES_MAX ((size_t)100 << 20)
#define SHARDS_MAX 10000

/* A shard is a file at or below the index's folder: a plain relative path. */
static bool is_safe_name(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        p += *p == '/';
    }
    return true;
}

/* A file of the index. */
struct shard {
    const char *why; /* it can't be read; NULL where it can */
};

/* The index and its entries. */
struct index {
    const char *path;
    char *folder;
    const cJSON *map;     /* weight_map */
    struct table *shards; /* struct shard by file name */
    int n_whole;          /* files that could be read */
    struct err first;     /* of a file that could not */
};

/* Fails only when memory is short: what is wrong with the file is for those who need it. */
static bool add_shard(struct st_open_set *set, struct index *x, const char *name, struct err *e)
{
    struct shard *shard = ARENA_NEW(set->arena, struct shard);
    struct err why = {0};
    char *path = path_join(x->folder, name);
    bool ok =
        path_exists(path) ? st_add_path(set, path, &why) : err_set(&why, ERR_FORMAT, "%s is not there", path);
    free(path);
    table_put(x->shards, name, shard);
    x->n_whole += ok;
    if (ok)
        return true;
    shard->why = arena_strdup(set->arena, why.msg);
    if (!x->first.code)
        x->first = why;
    if (why.code == ERR_NOMEM && e)
        *e = why;
    return why.code != ERR_NOMEM;
}

static bool add_shards(struct st_open_set *set, struct index *x, struct err *e)
{
    for (const cJSON *c = x->map->child; c; c = c->next) {
        if (!cJSON_IsString(c))
            return err_set(e, ERR_FORMAT, "%s: weight_map: tensor %.200s: expected a file name, found %s",
                           x->path, c->string, json_type_name(c));
        if (table_get(x->shards, c->valuestring))
            continue;
        if (!is_safe_name(c->valuestring))
            return err_set(e, ERR_FORMAT,
                           "%s: weight_map: expected file names beside the index, found \"%.200s\"", x->path,
                           c->valuestring);
        if (table_count(x->shards) == SHARDS_MAX)
            return err_set(e, ERR_LIMIT, "%s: weight_map: more than %d files", x->path, SHARDS_MAX);
        if (!add_shard(set, x, c->valuestring, e))
            return false;
    }
    if (x->n_whole > 0)
        return true;
    if (e)
        *e = x->first;
    return err_wrap(e, "%s: the checkpoint is incomplete; none of the %zu files can be read", x->path,
                    table_count(x->shards));
}

static bool is_path_of(const char *path, const char *name)
{
    size_t n = strlen(path), n_name = strlen(name);
    return n > n_name && path[n - n_name - 1] == '/' && strcmp(path + n - n_name, name) == 0;
}

static void note_absent(struct st_open_set *set, const struct index *x, const cJSON *c, size_t *capacity)
{
    const struct shard *shard = table_get(x->shards, c->valuestring);
    struct st_name *entry = table_get(set->by_name, c->string);
    if (entry && entry->i_tensor >= 0 && is_path_of(set->s.tensors[entry->i_tensor].file, c->valuestring))
        return;
    if (!entry) {
        entry = ARENA_NEW(set->arena, struct st_name);
        table_put(set->by_name, c->string, entry);
        entry->why = shard->why ? shard->why
                                : arena_printf(set->arena, "%s lists it in %.200s, which has no such tensor",
                                               x->path, c->valuestring);
    } else if (entry->i_tensor >= 0) {
        entry->why = arena_printf(set->arena, "%s lists it in %.200s, found it in %.200s", x->path,
                                  c->valuestring, set->s.tensors[entry->i_tensor].file);
    }
    entry->i_tensor = -1;
    set->s.absent = mem_grow(set->s.absent, (size_t)set->s.n_absent, capacity, sizeof *set->s.absent);
    set->s.absent[set->s.n_absent++] = (struct st_absent){.name = arena_strdup(set->arena, c->string),
                                                          .file = arena_strdup(set->arena, c->valuestring),
                                                          .has_file = !shard->why};
}

bool st_open_index(struct st_open_set *set, const char *index, struct err *e)
{
    cJSON *root = NULL;
    size_t capacity = 0;
    struct index x = {.path = set->s.path, .folder = path_folder(index), .shards = table_new()};
    bool ok = json_read_file(&root, index, INDEX_BYTES_MAX, e);
    x.map = json_get(root, "weight_map");
    if (ok && (!cJSON_IsObject(x.map) || !x.map->child))
        ok = err_set(e, ERR_FORMAT, "%s: weight_map: expected an object of tensors and files, found %s",
                     index, x.map && cJSON_IsObject(x.map) ? "an empty one" : json_type_name(x.map));
    ok = ok && add_shards(set, &x, e);
    for (const cJSON *c = ok ? x.map->child : NULL; c; c = c->next)
        note_absent(set, &x, c, &capacity);
    cJSON_Delete(root);
    table_free(x.shards);
    free(x.folder);
    return ok;
}

char *st_find_in_folder(const char *folder, bool *has_index, struct err *e)
{
    static const char *const preferred[] = {"model.safetensors", "model.safetensors.index.json"};
    char *found = NULL;
    int n_indexes = 0, n_files = 0, n_torch = 0, n_ggufs = 0;
    bool is_package = false;
    const char *index = NULL, *file = NULL, *gguf = NULL;
    struct path_list list = {0};
    if (!path_list_read(&list, folder, e))
        return NULL;
    for (size_t k = 0; k < 2 && !found; k++)
        for (size_t i = 0; i < list.n && !found; i++)
            if (strcmp(list.names[i], preferred[k]) == 0)
                found = path_join(folder, list.names[i]);
    bool is_single = found && has_suffix(found, ".safetensors");
    for (size_t i = 0; i < list.n; i++) {
        const char *name = list.names[i];
        if (has_suffix(name, ".index.json") && !has_suffix(name, ".bin.index.json")) {
            index = name;
            n_indexes++;
        } else if (has_suffix(name, ".safetensors")) {
            file = name;
            n_files++;
        } else if (has_suffix(name, ".gguf")) {
            gguf = name;
            n_ggufs++;
        }
        is_package = is_package || strcmp(name, FILE_META) == 0;
        n_torch += has_suffix(name, ".bin") || has_suffix(name, ".pth") || has_suffix(name, ".pt");
    }
    if (!found && (n_indexes == 1 || (n_indexes == 0 && n_files == 1)))
        found = path_join(folder, n_indexes == 1 ? index : file);
    if (!found && n_indexes + n_files == 0 && n_ggufs == 1)
        found = path_join(folder, gguf);
    if (!found && n_indexes + n_files > 0)
        err_set(e, ERR_FORMAT,
                "%s: expected model.safetensors, its index or one safetensors file, found %d safetensors "
                "files and %d "
                "indexes: name the one to read",
                folder, n_files, n_indexes);
    else if (!found && n_torch > 0)
        err_set(e, ERR_UNSUPPORTED, "%s: expected safetensors weights, found only PyTorch's (.bin, .pt)",
                folder);
    else if (!found)
        err_set(e, ERR_FORMAT, "%s: expected a checkpoint with model.safetensors, found %s", folder,
                is_package ? "a package (meta.yaml)" : "no safetensors file");
    *has_index = is_single && n_indexes > 0;
    path_list_free(&list);
    return found;
}
