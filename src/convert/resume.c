/* Keys of work folders and the journal of finished parts. */
#include "convert/resume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "format/mlmodelc.h"

#define JOURNAL_BYTES_MAX ((size_t)256 << 20)
#define KEY_BYTES_MAX ((size_t)256 << 20)
#define FILES_MAX 4096
#define DEPTH_MAX 16

struct convert_journal {
    char *folder, *path;
    cJSON *parts; /* [{"name", "files": [{"path", "bytes", "hash"}], "report"}], the file's "parts" */
};

/* ---- key ---- */

static void put_spec(struct buf *b, const char *name, const struct quant_spec *s)
{
    buf_printf(b, "%s %d %d %lld %lld %d\n", name, (int)s->kind, s->bits, (long long)s->group,
               (long long)s->block, (int)s->method);
}

static void put_choices(struct buf *b, const struct quant_choices *c)
{
    for (int i = 0; i < c->n; i++)
        buf_printf(b, "%s %d %d\n", c->list[i].name, c->list[i].ordinal, c->list[i].bits);
}

/* A file as it is told from another one without reading all of it. */
static bool put_file(struct buf *b, const char *path, struct err *e)
{
    struct stat st;
    char *base = path_base(path);
    bool ok = stat(path, &st) == 0;
    if (ok)
        buf_printf(b, "file %s %lld %lld.%09ld\n", base, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec);
    else
        err_set_errno(e, "%s: can't be looked at", path);
    free(base);
    return ok;
}

bool convert_work_key(char key[17], const struct convert_options *o, const struct quant_choices *choices,
                      const struct arch_model *m, const char *prefix, struct err *e)
{
    const struct arch_settings *s = &m->settings;
    struct buf b;
    const char *given = o->source ? o->source->path : o->checkpoint;
    char *real = realpath(given, NULL), *config = cJSON_PrintUnformatted(m->config.top);
    uint8_t digest[32];
    buf_init(&b, KEY_BYTES_MAX);
    buf_printf(&b, "milkit %s\n%s\n%s\n%s\n", o->version ? o->version : "", real ? real : given,
               config ? config : "", prefix);
    buf_printf(&b, "%lld %lld %d %d %d %d %s\n", (long long)s->context_length, (long long)s->batch_size,
               s->n_chunks, s->split_lm_head, s->gdn_chunk, (int)o->format, o->only ? o->only : "");
    buf_printf(&b, "exact %d %d %d\n", s->exact_norms, s->exact_topk, s->anemll_rotate);
    buf_printf(&b, "residual %.17g\n", s->residual_scale);
    put_spec(&b, "embeddings", &o->embeddings);
    put_spec(&b, "ffn", &o->ffn);
    buf_printf(&b, "mixed %.17g\n", o->ffn_mean_bits);
    if (choices)
        put_choices(&b, choices);
    put_spec(&b, "head", &o->head);
    if (o->guide)
        buf_printf(&b, "guide %s\n", o->guide_key ? o->guide_key : "");
    bool ok = true;
    const char *file = "";
    for (int i = 0; i < m->tensors->n_tensors && ok; i++) {
        const struct st_tensor *t = &m->tensors->tensors[i];
        char shape[128];
        if (strcmp(t->file, file) != 0)
            ok = put_file(&b, t->file, e);
        file = t->file;
        st_shape_text(shape, t->shape, t->rank);
        buf_printf(&b, "%s %s %s %llu\n", t->name, t->dtype_name, shape, (unsigned long long)t->bytes);
    }
    ok = ok && (!b.failed || err_set(e, ERR_LIMIT, "%s: too many tensors", o->checkpoint));
    if (ok) {
        sha256(digest, b.p, b.n);
        for (int i = 0; i < 8; i++)
            snprintf(key + 2 * i, 3, "%02x", digest[i]);
    }
    buf_fini(&b);
    cJSON_free(config);
    free(real);
    return ok;
}

/* ---- files of a part ---- */

static uint64_t mix(uint64_t v, uint64_t word)
{
    v = (v ^ word) * 0x9FB21C651E98DF25u;
    return v << 29 | v >> 35;
}

/* 128 bits that tell whole files from cut and half-written ones; not made against an adversary. */
static bool hash_file(char hash[33], int64_t *bytes, const char *path, struct err *e)
{
    struct map_file *map = NULL;
    if (!map_open(&map, path, e))
        return false;
    uint64_t lane[4] = {0x243F6A8885A308D3u, 0x13198A2E03707344u, 0xA4093822299F31D0u, 0x082EFA98EC4E6C89u};
    size_t at = 0;
    for (; map->bytes - at >= 32; at += 32) {
        uint64_t words[4];
        memcpy(words, map->data + at, 32);
        for (int i = 0; i < 4; i++)
            lane[i] = mix(lane[i], words[i]);
    }
    uint64_t rest[4] = {0};
    if (map->bytes > at)
        memcpy(rest, map->data + at, map->bytes - at);
    for (int i = 0; i < 4; i++)
        lane[i] = mix(mix(lane[i], rest[i]), map->bytes);
    uint64_t a = mix(mix(lane[0], lane[1]), mix(lane[2], lane[3]));
    uint64_t b = mix(mix(lane[3], lane[0] + 1), mix(lane[1], lane[2] + 1));
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    *bytes = (int64_t)map->bytes;
    map_close(map);
    return true;
}

struct file_walk {
    const char *folder; /* paths are relative to it */
    cJSON *files;
    /* The file that was hashed last for each inode: both forms share their weights. */
    struct stat *seen;
    int n;
};

static bool add_file(struct file_walk *w, const char *path, const struct stat *st, struct err *e)
{
    char hash[33];
    int64_t bytes = 0;
    if (w->n == FILES_MAX)
        return err_set(e, ERR_LIMIT, "%s: more than %d files", w->folder, FILES_MAX);
    int same = -1;
    for (int i = 0; i < w->n && same < 0; i++) {
        if (w->seen[i].st_ino == st->st_ino && w->seen[i].st_dev == st->st_dev)
            same = i;
    }
    if (same >= 0) {
        const cJSON *other = cJSON_GetArrayItem(w->files, same);
        snprintf(hash, sizeof hash, "%s", json_get(other, "hash")->valuestring);
        bytes = st->st_size;
    } else if (!hash_file(hash, &bytes, path, e)) {
        return false;
    }
    w->seen[w->n++] = *st;
    cJSON *file = cJSON_CreateObject();
    cJSON_AddStringToObject(file, "path", path + strlen(w->folder) + 1);
    cJSON_AddNumberToObject(file, "bytes", (double)bytes);
    cJSON_AddStringToObject(file, "hash", hash);
    cJSON_AddItemToArray(w->files, file);
    return true;
}

static bool walk_tree(struct file_walk *w, const char *path, int depth, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return err_set_errno(e, "%s: can't be looked at", path);
    if (S_ISREG(st.st_mode))
        return add_file(w, path, &st, e);
    if (!S_ISDIR(st.st_mode) || depth > DEPTH_MAX)
        return err_set(e, ERR_FORMAT, "%s: expected a file or folder of a model", path);
    struct path_list list;
    bool ok = path_list_read(&list, path, e);
    if (!ok)
        return false;
    for (size_t i = 0; i < list.n && ok; i++) {
        char *child = path_join(path, list.names[i]);
        ok = walk_tree(w, child, depth + 1, e);
        free(child);
    }
    path_list_free(&list);
    return ok;
}

/* Every file of the part as it is on disk now, in a fixed order; NULL on failure. */
static cJSON *list_files(const struct convert_part *p, enum convert_format format, const char *folder,
                         struct err *e)
{
    char *folders[2];
    int n = convert_part_folders(p, format, folders);
    struct file_walk w = {.folder = folder, .files = cJSON_CreateArray()};
    w.seen = xcalloc(FILES_MAX, sizeof *w.seen);
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char *path = path_join(folder, folders[i]);
        ok = ok && walk_tree(&w, path, 0, e);
        free(path);
        free(folders[i]);
    }
    free(w.seen);
    if (!ok) {
        cJSON_Delete(w.files);
        return NULL;
    }
    return w.files;
}

/* ---- journal ---- */

struct convert_journal *convert_journal_open(const char *folder)
{
    struct convert_journal *j = xcalloc(1, sizeof *j);
    cJSON *root = NULL;
    j->folder = xstrdup(folder);
    j->path = path_join(folder, CONVERT_JOURNAL_NAME);
    if (path_exists(j->path) && !json_read_file(&root, j->path, JOURNAL_BYTES_MAX, NULL))
        root = NULL;
    const cJSON *parts = json_get(root, "parts");
    j->parts = cJSON_IsArray(parts) ? cJSON_DetachItemViaPointer(root, (cJSON *)parts) : cJSON_CreateArray();
    cJSON_Delete(root);
    return j;
}

void convert_journal_close(struct convert_journal *j)
{
    if (!j)
        return;
    cJSON_Delete(j->parts);
    free(j->folder);
    free(j->path);
    free(j);
}

static cJSON *find_part(const struct convert_journal *j, const char *name)
{
    for (cJSON *part = j->parts->child; part; part = part->next) {
        const cJSON *found = json_get(part, "name");
        if (cJSON_IsString(found) && strcmp(found->valuestring, name) == 0)
            return part;
    }
    return NULL;
}

int convert_journal_parts(const struct convert_journal *j)
{
    return j ? cJSON_GetArraySize(j->parts) : 0;
}

bool convert_journal_take(const struct convert_journal *j, struct convert_part *p, enum convert_format format)
{
    const cJSON *part = find_part(j, p->name), *report = json_get(part, "report");
    if (!cJSON_IsObject(report))
        return false;
    cJSON *files = list_files(p, format, j->folder, NULL);
    p->is_done = files && cJSON_Compare(files, json_get(part, "files"), true);
    cJSON_Delete(files);
    if (p->is_done) {
        char *text = cJSON_PrintUnformatted(report);
        p->report = xstrdup(text ? text : "{}");
        cJSON_free(text);
    }
    return p->is_done;
}

bool convert_journal_add(struct convert_journal *j, const struct convert_part *p, enum convert_format format,
                         struct err *e)
{
    cJSON *files = list_files(p, format, j->folder, e), *report = NULL, *old;
    if (!files)
        return false;
    if (!json_parse(&report, p->report, strlen(p->report), "report", e)) {
        cJSON_Delete(files);
        return false;
    }
    while ((old = find_part(j, p->name)))
        cJSON_Delete(cJSON_DetachItemViaPointer(j->parts, old));
    cJSON *part = cJSON_CreateObject(), *root = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "name", p->name);
    cJSON_AddItemToObject(part, "files", files);
    cJSON_AddItemToObject(part, "report", report);
    cJSON_AddItemToArray(j->parts, part);
    cJSON_AddItemReferenceToObject(root, "parts", j->parts);
    char *text = cJSON_PrintUnformatted(root);
    bool ok = text ? file_write(j->path, text, strlen(text), e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!ok)
        cJSON_Delete(cJSON_DetachItemViaPointer(j->parts, part));
    cJSON_free(text);
    cJSON_Delete(root);
    return ok;
}

bool convert_journal_remove(const struct convert_journal *j, struct err *e)
{
    return path_remove_tree(j->path, e);
}
