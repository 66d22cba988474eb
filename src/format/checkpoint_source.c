/* A GGUF file as a checkpoint folder. */
#include "format/checkpoint_source.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "format/checkpoint.h"
#include "format/gguf_model.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define TOKENIZER_BYTES_MAX ((size_t)1 << 30)
#define TEMPORARY_NAME "milkit-checkpoint"
#define TEMPLATE_KEY "tokenizer.chat_template"

struct open_source {
    struct checkpoint_source s;
    struct arena *arena;
    struct out_folder *temporary;
};

/* ---- files ---- */

static bool put_file(const char *folder, const char *name, const char *text, size_t n, struct err *e)
{
    char *path = path_join(folder, name);
    FILE *f = fopen(path, "wbx"); /* nobody needs it on the disk: it is gone soon */
    bool ok = f && fwrite(text, 1, n, f) == n;
    ok = (!f || fclose(f) == 0) && ok;
    if (!ok)
        err_set_errno(e, "%s: can't write", path);
    free(path);
    return ok;
}

/* Consumes the object. */
static bool put_json(const char *folder, const char *name, cJSON *o, struct err *e)
{
    char *text = cJSON_Print(o);
    bool ok = text ? put_file(folder, name, text, strlen(text), e)
                   : err_set(e, ERR_NOMEM, "%s does not fit into memory", name);
    cJSON_free(text);
    cJSON_Delete(o);
    return ok;
}

static bool put_tokenizer(const char *folder, struct gguf_model *m, struct err *e)
{
    struct buf b;
    cJSON *config;
    if (!gguf_find_key(m->file, "tokenizer.ggml.model") &&
        !gguf_find_key(m->file, "tokenizer.huggingface.json")) {
        gguf_model_note(m, "the file has no tokenizer");
        return true;
    }
    buf_init(&b, TOKENIZER_BYTES_MAX);
    bool ok = gguf_tokenizer_make(&b, m, e);
    if (ok && b.failed)
        ok = err_set(e, ERR_LIMIT, "%s: the tokenizer has more than %zu bytes", m->file->path,
                     TOKENIZER_BYTES_MAX);
    ok = ok && put_file(folder, CHECKPOINT_TOKENIZER, b.p, b.n, e) &&
         gguf_tokenizer_config_make(&config, m, e) &&
         put_json(folder, CHECKPOINT_TOKENIZER_CONFIG, config, e);
    buf_fini(&b);
    return ok;
}

/* A name that a file's key gives must stay a name. */
static bool is_plain_name(const char *name)
{
    return name[0] && name[0] != '.' && strlen(name) <= 64 &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] == '\0';
}

static bool put_named_template(const char *folder, struct gguf_model *m, const struct gguf_key *k,
                               struct err *e)
{
    const char *name = k->name + strlen(TEMPLATE_KEY) + 1;
    if (k->kind != GGUF_STRING || !is_plain_name(name)) {
        gguf_model_note(m, "key %.100s: not a template with a plain name, left out", k->name);
        return true;
    }
    char *templates = path_join(folder, CHECKPOINT_TEMPLATES);
    char *file = xasprintf("%s%s", name, CHECKPOINT_TEMPLATE_SUFFIX);
    bool ok = folder_make(templates, e) && put_file(templates, file, (const char *)k->data, (size_t)k->n, e);
    free(templates);
    free(file);
    return ok;
}

static bool put_templates(const char *folder, struct gguf_model *m, struct err *e)
{
    struct str text = {NULL, 0};
    size_t n = strlen(TEMPLATE_KEY);
    if (!gguf_get_string(m->file, TEMPLATE_KEY, &text, e) ||
        (text.p && !put_file(folder, CHECKPOINT_TEMPLATE, text.p, text.n, e)))
        return false;
    for (int i = 0; i < m->file->n_keys; i++) {
        const struct gguf_key *k = &m->file->keys[i];
        if (strncmp(k->name, TEMPLATE_KEY ".", n + 1) == 0 && !put_named_template(folder, m, k, e))
            return false;
    }
    return true;
}

static bool put_settings(const char *folder, struct gguf_model *m, const char *overrides, struct err *e)
{
    cJSON *config = NULL, *generation = NULL, *other = NULL;
    bool ok = !overrides || json_read_file(&other, overrides, CONFIG_BYTES_MAX, e);
    if (ok && other && !cJSON_IsObject(other))
        ok = err_set(e, ERR_FORMAT, "%s: expected an object, found %s", overrides, json_type_name(other));
    ok = ok && gguf_config_make(&config, m, other, e) && put_json(folder, "config.json", config, e) &&
         gguf_generation_make(&generation, m, e) && put_json(folder, CHECKPOINT_GENERATION, generation, e);
    cJSON_Delete(other);
    return ok;
}

static bool put_link(const char *folder, const char *path, struct err *e)
{
    char here[PATH_MAX];
    if (path[0] != '/' && !getcwd(here, sizeof here))
        return err_set_errno(e, "%s: can't tell the current folder", path);
    char *target = path[0] == '/' ? xstrdup(path) : path_join(here, path);
    char *link = path_join(folder, CHECKPOINT_GGUF);
    bool ok = symlink(target, link) == 0 || err_set_errno(e, "%s: can't make a link", link);
    free(target);
    free(link);
    return ok;
}

/* ---- what the file holds ---- */

static void describe_types(struct open_source *o, const struct gguf *g)
{
    struct buf b;
    double bits = 0, elements = 0;
    bool is_packed = false;
    buf_init(&b, 1 << 12);
    for (uint32_t id = 0; id < 64; id++) {
        const struct gguf_block_type *type = gguf_block_type(id);
        int n = 0;
        for (int i = 0; type && i < g->n_tensors; i++) {
            if (g->tensors[i].type != id)
                continue;
            n++;
            if (g->tensors[i].rank < 2)
                continue;
            bits += 8 * (double)g->tensors[i].bytes;
            elements += (double)g->tensors[i].n_elems;
            is_packed = is_packed || 8 * type->bytes < 16 * type->elements;
        }
        if (n > 0)
            buf_printf(&b, "%s%s %d", b.n ? ", " : "", type->name, n);
    }
    o->s.packed_types = is_packed ? arena_strdup(o->arena, b.p) : NULL;
    o->s.packed_bits = elements > 0 ? bits / elements : 0;
    buf_fini(&b);
}

/* ---- the door ---- */

static bool make_folder(struct open_source *o, const char *file, const char *overrides, struct err *e)
{
    struct gguf *g = NULL;
    struct gguf_model *m = NULL;
    const char *where = getenv("TMPDIR");
    char *path = path_join(where && where[0] ? where : "/tmp", TEMPORARY_NAME);
    bool ok =
        gguf_open(&g, file, e) && gguf_model_open(&m, g, e) && out_folder_open(&o->temporary, path, true, e);
    if (ok) {
        o->s.folder = arena_strdup(o->arena, out_folder_path(o->temporary));
        o->s.is_gguf = true;
        ok = put_settings(o->s.folder, m, overrides, e) && put_tokenizer(o->s.folder, m, e) &&
             put_templates(o->s.folder, m, e) && put_link(o->s.folder, file, e) && gguf_check(g, e);
        describe_types(o, g);
        const char **notes = ARENA_ARRAY(o->arena, const char *, m->n_notes + 1);
        for (int i = 0; i < m->n_notes; i++)
            notes[i] = arena_strdup(o->arena, m->notes[i]);
        o->s.notes = notes;
        o->s.n_notes = m->n_notes;
    }
    gguf_model_close(m);
    gguf_close(g);
    free(path);
    return ok;
}

/* The one GGUF file of a folder without config.json, heap; NULL: there is none, or not one alone. */
static char *find_gguf(const char *folder)
{
    struct path_list list = {0};
    char *config = path_join(folder, "config.json"), *found = NULL;
    int n = 0;
    bool is_plain = !path_is_folder(folder) || path_exists(config) || !path_list_read(&list, folder, NULL);
    for (size_t i = 0; !is_plain && i < list.n; i++) {
        const char *name = list.names[i], *part = strstr(name, "-of-");
        /* Of a model in several files the first one stands for all. */
        bool is_later = part && part - name > 6 && strncmp(part - 6, "-00001", 6) != 0;
        if (!has_suffix(name, ".gguf") || is_later)
            continue;
        free(found);
        found = ++n == 1 ? path_join(folder, name) : NULL;
    }
    path_list_free(&list);
    free(config);
    return found;
}

bool checkpoint_source_open(struct checkpoint_source **out, const char *path, const char *overrides,
                            struct err *e)
{
    struct arena *arena = arena_new(0);
    struct open_source *o = ARENA_NEW(arena, struct open_source);
    char *inside = find_gguf(path);
    const char *file = inside ? inside : path_is_folder(path) ? NULL : gguf_is_file(path) ? path : NULL;
    bool ok = true;
    *out = NULL;
    o->arena = arena;
    o->s.path = o->s.folder = arena_strdup(arena, path);
    if (file)
        ok = make_folder(o, file, overrides, e) || checkpoint_source_fail(&o->s, e);
    else if (overrides)
        ok = err_set(
            e, ERR_USAGE,
            "a configuration replaces keys of what a GGUF file says; %s is a folder with a config.json",
            path);
    free(inside);
    if (ok)
        *out = &o->s;
    else
        checkpoint_source_close(&o->s);
    return ok;
}

void checkpoint_source_close(struct checkpoint_source *s)
{
    struct open_source *o = (struct open_source *)s;
    if (!o)
        return;
    out_folder_abort(o->temporary);
    arena_free(o->arena);
}

bool checkpoint_source_fail(const struct checkpoint_source *s, struct err *e)
{
    char *at = s && s->is_gguf && e ? strstr(e->msg, s->folder) : NULL;
    if (!at)
        return false;
    struct err copy = *e;
    int before = (int)(at - e->msg);
    return err_set(e, copy.code, "%.*s%s%s", before, copy.msg, s->path,
                   copy.msg + before + strlen(s->folder));
}

void checkpoint_source_say(const struct checkpoint_source *s, struct log *log)
{
    for (int i = 0; i < s->n_notes; i++)
        log_info(log, "%s: %s", s->path, s->notes[i]);
}
