/* Opening and closing a set of safetensors files: a file, a folder, or an index. */
#include <stdlib.h>
#include "format/safetensors_internal.h"

bool safetensors_open(struct safetensors **out, const char *path, struct err *e)
{
    *out = NULL;
    char *inside = NULL;
    bool has_index = false;
    if (path_is_folder(path)) {
        inside = st_find_in_folder(path, &has_index, e);
        if (!inside)
            return false;
        path = inside;
    }
    struct st_open_set *set = xcalloc(1, sizeof *set);
    set->arena = arena_new(0);
    set->by_name = table_new();
    set->metadata_end = &set->metadata;
    set->s.path = arena_strdup(set->arena, path);
    set->s.has_unread_index = has_index;
    bool ok = has_suffix(path, ".json") ? st_open_index(set, path, e)
              : gguf_is_file(path)      ? st_add_gguf(set, path, e)
                                        : st_add_path(set, path, e);
    if (ok) {
        st_link_scales(&set->s);
        *out = &set->s;
    } else {
        if (has_index)
            err_wrap(e, "the index beside model.safetensors is not read");
        safetensors_close(&set->s);
    }
    free(inside);
    return ok;
}

void safetensors_close(struct safetensors *s)
{
    struct st_open_set *set = (struct st_open_set *)s;
    if (!set)
        return;
    for (int i = 0; i < set->n_maps; i++)
        map_close(set->maps[i]);
    gguf_model_close(set->gguf_model);
    gguf_close(set->gguf);
    free(set->maps);
    free(set->s.tensors);
    free(set->s.absent);
    table_free(set->by_name);
    arena_free(set->arena);
    free(set);
}

bool safetensors_check(const struct safetensors *s, struct err *e)
{
    const struct st_open_set *set = (const struct st_open_set *)s;
    bool ok = true;
    for (int i = 0; i < set->n_maps && ok; i++)
        ok = map_check(set->maps[i], e);
    return ok && (!set->gguf || gguf_check(set->gguf, e));
}
