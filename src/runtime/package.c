/* Finding the parts of a package: names from meta.yaml, the other extension, the aliases of old packages. */
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "format/json.h"
#include "format/mlpackage.h"
#include "runtime/package.h"

#define JSON_BYTES_MAX ((size_t)64 << 20)
#define EOS_MAX 1024

static bool is_model(const char *path)
{
    enum model_path_kind kind = model_path_kind(path);
    return kind == MODEL_PATH_MLMODELC || kind == MODEL_PATH_MLPACKAGE || kind == MODEL_PATH_MLMODEL;
}

/* Length of the name without the extension of a model; the whole length when it has none. */
static size_t stem_length(const char *name)
{
    static const char *const extensions[] = {".mlmodelc", ".mlpackage"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (has_suffix(name, extensions[i]))
            return strlen(name) - strlen(extensions[i]);
    return strlen(name);
}

/* folder/name as it stands, else with the other extension; NULL when neither is a model. */
static char *try_name(const char *folder, const char *name)
{
    static const char *const extensions[] = {"", ".mlmodelc", ".mlpackage"};
    char *found = NULL;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions && !found; i++) {
        char *file =
            i == 0 ? xstrdup(name) : xasprintf("%.*s%s", (int)stem_length(name), name, extensions[i]);
        char *path = path_join(folder, file);
        if (is_model(path))
            found = path;
        else
            free(path);
        free(file);
    }
    return found;
}

static char *lut_suffix(int bits)
{
    return bits == META_NONE ? xstrdup("") : xasprintf("_lut%d", bits);
}

/* name without "_lutN" before its extension; NULL when it has none. */
static char *without_lut(const char *name)
{
    const char *at = strstr(name, "_lut");
    if (!at)
        return NULL;
    const char *rest = at + 4 + strspn(at + 4, "0123456789");
    return rest == at + 4 ? NULL : xasprintf("%.*s%s", (int)(at - name), name, rest);
}

/* Tries the name of meta.yaml, then the built name, then each without its LUT suffix. */
static char *find_part(const struct package *p, const char *key_value, const char *part, int lut)
{
    char *suffix = lut_suffix(lut), *names[4] = {NULL}, *found = NULL;
    const char *prefix = p->meta->model_prefix ? p->meta->model_prefix : PREFIX_ANEMLL;
    if (key_value) {
        names[0] = xstrdup(key_value);
        names[1] = without_lut(key_value);
    }
    names[2] = xasprintf(PART_NAME_FORMAT, prefix, part, suffix);
    names[3] = xasprintf("%s_%s", prefix, part);
    for (int i = 0; i < 4 && !found; i++)
        if (names[i])
            found = try_name(p->path, names[i]);
    for (int i = 0; i < 4; i++)
        free(names[i]);
    free(suffix);
    return found;
}

/* what: for people; part: as find_part took it. */
static bool missing_part(const struct package *p, const char *what, const char *key_value, const char *part,
                         struct err *e)
{
    const char *prefix = p->meta->model_prefix ? p->meta->model_prefix : PREFIX_ANEMLL;
    char *name = key_value ? xasprintf("%.*s", (int)stem_length(key_value), key_value)
                           : xasprintf("%s_%s", prefix, part);
    err_set(e, ERR_FORMAT,
            "%s: no model for the %s: expected %s as .mlmodelc or .mlpackage, found neither complete",
            p->path, what, name);
    free(name);
    return false;
}

/* The name of chunk i (1-based) out of the first chunk's name; old names without a chunk number get one. */
static char *chunk_name(const char *first, int i, int n)
{
    const char *at = strstr(first, CHUNK_MARK);
    if (at && strlen(at) >= strlen(CHUNK_MARK) + 2)
        return xasprintf("%.*s" CHUNK_MARK "%02d%s", (int)(at - first), first, i,
                         at + strlen(CHUNK_MARK) + 2);
    size_t stem = stem_length(first);
    return xasprintf("%.*s" CHUNK_SUFFIX_FORMAT "%s", (int)stem, first, i, n, first + stem);
}

/* "_chunk_02of04" says 4; 0: the name does not say. */
static int chunks_in_name(const char *name)
{
    const char *at = strstr(name, CHUNK_MARK);
    int n = 0;
    if (!at)
        return 0;
    at += strlen(CHUNK_MARK);
    at += strspn(at, "0123456789");
    if (strncmp(at, "of", 2) != 0)
        return 0;
    for (at += 2; *at >= '0' && *at <= '9' && n < 1000; at++)
        n = 10 * n + (*at - '0');
    return n;
}

/* The second file of chunk i, where there is one: prefill functions (key pf), or the rotating ones (split_rotate). */
static bool find_more(struct package *p, int i, const char *first, const char *suffix, struct err *e)
{
    const struct meta *m = p->meta;
    const char *prefix = m->model_prefix ? m->model_prefix : PREFIX_ANEMLL;
    char *names[3] = {NULL};
    if (m->pf && (!m->ffn || strcmp(m->pf, m->ffn) != 0))
        names[0] = chunk_name(m->pf, i + 1, p->n_chunks);
    if (m->split_rotate) {
        char *chunk = chunk_name(first, i + 1, p->n_chunks);
        names[1] = xasprintf("%.*s" ROTATE_SUFFIX, (int)stem_length(chunk), chunk);
        names[2] =
            xasprintf(PART_NAME_FORMAT CHUNK_SUFFIX_FORMAT, prefix, PART_PREFILL, suffix, i + 1, p->n_chunks);
        free(chunk);
    }
    for (int k = 0; k < 3 && !p->more_chunks[i]; k++)
        if (names[k])
            p->more_chunks[i] = try_name(p->path, names[k]);
    bool ok =
        p->more_chunks[i] || !m->split_rotate ||
        err_set(e, ERR_FORMAT,
                "%s: decoder chunk %d of %d: meta.yaml says split_rotate, but its second file is missing: "
                "expected %s (.mlmodelc or .mlpackage)",
                p->path, i + 1, p->n_chunks, names[0] ? names[0] : names[1]);
    for (int k = 0; k < 3; k++)
        free(names[k]);
    return ok;
}

static bool find_chunks(struct package *p, struct err *e)
{
    char *suffix = lut_suffix(p->meta->lut_ffn);
    char *built = xasprintf(PART_NAME_FORMAT, p->meta->model_prefix ? p->meta->model_prefix : PREFIX_ANEMLL,
                            PART_DECODER, suffix);
    const char *first = p->meta->ffn ? p->meta->ffn : built;
    int n_in_name = chunks_in_name(first);
    bool ok = true;
    p->n_chunks = p->meta->num_chunks;
    p->chunks = xcalloc((size_t)p->n_chunks, sizeof *p->chunks);
    p->more_chunks = xcalloc((size_t)p->n_chunks, sizeof *p->more_chunks);
    if (n_in_name > 0 && n_in_name != p->n_chunks)
        ok = err_set(e, ERR_FORMAT, "%s: meta.yaml says num_chunks %d, but ffn is %s, one of %d", p->path,
                     p->n_chunks, first, n_in_name);
    for (int i = 0; ok && i < p->n_chunks; i++) {
        char *name = chunk_name(first, i + 1, p->n_chunks);
        p->chunks[i] = try_name(p->path, name);
        if (!p->chunks[i] && p->n_chunks == 1)
            p->chunks[i] = try_name(p->path, first);
        if (!p->chunks[i])
            ok = err_set(e, ERR_FORMAT,
                         "%s: decoder chunk %d of %d is missing: expected %s (.mlmodelc or .mlpackage)",
                         p->path, i + 1, p->n_chunks, name);
        ok = ok && find_more(p, i, first, suffix, e);
        free(name);
    }
    free(built);
    free(suffix);
    return ok;
}

static bool find_monolithic(struct package *p, struct err *e)
{
    const struct meta *m = p->meta;
    p->n_chunks = 1;
    p->chunks = xcalloc(1, sizeof *p->chunks);
    p->more_chunks = xcalloc(1, sizeof *p->more_chunks);
    p->chunks[0] = find_part(p, m->monolithic_model, PART_MONOLITHIC, m->lut_ffn);
    return p->chunks[0] ||
           missing_part(p, "whole (model_type monolithic)", m->monolithic_model, PART_MONOLITHIC, e);
}

static bool find_parts(struct package *p, struct err *e)
{
    const struct meta *m = p->meta;
    if (p->is_monolithic)
        return find_monolithic(p, e);
    p->embeddings = find_part(p, m->embeddings, PART_EMBEDDINGS, m->lut_embeddings);
    p->lm_head = find_part(p, m->lm_head, PART_LM_HEAD, m->lut_lmhead);
    if (!p->embeddings)
        return missing_part(p, "embeddings", m->embeddings, PART_EMBEDDINGS, e);
    if (!p->lm_head)
        return missing_part(p, "LM head", m->lm_head, PART_LM_HEAD, e);
    return find_chunks(p, e);
}

/* ---- stop ids and sampling ---- */

/* Real models have a handful; the limit keeps a hostile list short. */
static void add_eos(void *context, int32_t id)
{
    struct package *p = context;
    if (id < 0 || p->n_eos == EOS_MAX || package_is_eos(p, id)) /* -1: no such token */
        return;
    p->eos = xrealloc(p->eos, sizeof *p->eos * (size_t)(p->n_eos + 1));
    p->eos[p->n_eos++] = id;
}

static bool read_optional_json(const struct package *p, const char *name, cJSON **out, struct err *e)
{
    char *path = path_join(p->path, name);
    bool ok = true;
    *out = NULL;
    if (path_exists(path))
        ok = json_read_file(out, path, JSON_BYTES_MAX, e);
    free(path);
    return ok;
}

static bool read_generation_config(const struct package *p, cJSON **out, struct err *e)
{
    char *path = path_join(p->path, "generation_config.json");
    bool ok = true;
    *out = NULL;
    if (path_exists(path))
        ok = sampling_read_json_file(out, path, e);
    free(path);
    return ok;
}

static void add_warning(void *context, const char *sentence)
{
    struct package *p = context;
    p->warnings = xrealloc(p->warnings, sizeof *p->warnings * (size_t)(p->n_warnings + 1));
    p->warnings[p->n_warnings++] = xstrdup(sentence);
}

static void read_stops(struct package *p, const cJSON *object, const char *name)
{
    char *where = path_join(p->path, name);
    sampling_read_stops(object, where, add_eos, add_warning, p);
    free(where);
}

/* As in transformers, a bad word that is a stop id alone is none: an answer must be able to end. */
static void drop_stops(struct package *p)
{
    struct recommended_sampling *s = &p->sampling;
    int n = 0;
    for (int i = 0; i < s->n_bad_words; i++) {
        struct token_sequence word = s->bad_words[i];
        if (word.n == 1 && package_is_eos(p, word.ids[0]))
            free(word.ids);
        else
            s->bad_words[n++] = word;
    }
    s->n_bad_words = n;
}

static void take_sampling(struct package *p, const cJSON *generation)
{
    struct recommended_sampling *of_meta = &p->meta->sampling;
    if (of_meta->is_present) {
        p->sampling = *of_meta;
        sampling_init(of_meta);
    } else if (generation) {
        char *where = path_join(p->path, "generation_config.json");
        sampling_read(&p->sampling, generation, where, add_warning, p);
        free(where);
    }
    drop_stops(p);
}

static bool read_configs(struct package *p, struct err *e)
{
    cJSON *generation = NULL, *config = NULL;
    bool ok = false;
    if (!read_generation_config(p, &generation, e) || !read_optional_json(p, "config.json", &config, e))
        goto done;
    read_stops(p, generation, "generation_config.json");
    read_stops(p, config, "config.json");
    read_stops(p, json_get(config, "text_config"), "config.json: text_config");
    take_sampling(p, generation);
    ok = true;
done:
    cJSON_Delete(generation);
    cJSON_Delete(config);
    return ok || err_wrap(e, "%s", p->path);
}

static bool no_meta(const char *path, struct err *e)
{
    bool is_checkpoint = folder_has(path, "config.json");
    if (is_model(path) && (path_is_folder(path) || has_suffix(path, ".mlmodel")))
        return err_set(e, ERR_FORMAT, "%s: expected a package folder with meta.yaml, found a single model",
                       path);
    if (!folder_check(path, "a package folder or its meta.yaml", NULL, e))
        return false;
    if (is_checkpoint)
        return err_set(e, ERR_FORMAT,
                       "%s: expected a package folder with meta.yaml, found a Hugging Face checkpoint", path),
               err_set_hint(e, HINT_CONVERT);
    return err_set(e, ERR_FORMAT, "%s: expected a package folder, found no meta.yaml in it", path);
}

bool package_open(struct package **out, const char *path, struct err *e)
{
    struct package *p = xcalloc(1, sizeof *p);
    bool ok = false;
    *out = NULL;
    sampling_init(&p->sampling);
    p->path = path_is_folder(path) ? xstrdup(path) : path_folder(path);
    char *meta_path = path_is_folder(path) ? path_join(path, FILE_META) : xstrdup(path);
    if (!path_exists(meta_path) || !(has_suffix(meta_path, ".yaml") || has_suffix(meta_path, ".yml"))) {
        no_meta(path, e);
        goto done;
    }
    if (!meta_read(&p->meta, meta_path, e))
        goto done;
    for (int i = 0; i < p->meta->n_warnings; i++)
        add_warning(p, p->meta->warnings[i]);
    const struct meta *m = p->meta;
    p->is_monolithic = m->monolithic_model || (m->model_type && strcmp(m->model_type, "monolithic") == 0);
    if (m->num_chunks < 1 || m->num_chunks > 99 || m->batch_size < 1 || m->batch_size > 65536 ||
        m->context_length < 1 || m->context_length > (1 << 24)) {
        err_set(e, ERR_FORMAT, "%s: num_chunks %d, batch_size %lld or context_length %lld is out of range",
                meta_path, m->num_chunks, (long long)m->batch_size, (long long)m->context_length);
        goto done;
    }
    if (!find_parts(p, e) || !read_configs(p, e))
        goto done;
    *out = p;
    p = NULL;
    ok = true;
done:
    free(meta_path);
    package_close(p);
    return ok;
}

void package_close(struct package *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_chunks; i++) {
        free(p->chunks[i]);
        free(p->more_chunks[i]);
    }
    free(p->chunks);
    free(p->more_chunks);
    free(p->embeddings);
    free(p->lm_head);
    free(p->path);
    free(p->eos);
    sampling_fini(&p->sampling);
    for (int i = 0; i < p->n_warnings; i++)
        free(p->warnings[i]);
    free(p->warnings);
    meta_free(p->meta);
    free(p);
}

/* ---- forms ---- */

/* The same model in the other form, NULL when it is not there. */
static char *other_form(const char *path)
{
    size_t n = path ? stem_length(path) : 0;
    if (!path || !path[n])
        return NULL;
    char *other =
        xasprintf("%.*s%s", (int)n, path, has_suffix(path, ".mlmodelc") ? ".mlpackage" : ".mlmodelc");
    if (is_model(other))
        return other;
    free(other);
    return NULL;
}

/* Embeddings, head, the chunks, their second files; the path of one that is not there is NULL. */
static int count_files(const struct package *p)
{
    return 2 + 2 * p->n_chunks;
}

static char **file_path(const struct package *p, int i)
{
    if (i < 2)
        return i == 0 ? (char **)&p->embeddings : (char **)&p->lm_head;
    return i < 2 + p->n_chunks ? &p->chunks[i - 2] : &p->more_chunks[i - 2 - p->n_chunks];
}

const char *package_form(const struct package *p)
{
    int n_compiled = 0, n = 0;
    for (int i = 0; i < count_files(p); i++) {
        const char *path = *file_path(p, i);
        n += path != NULL;
        n_compiled += path && has_suffix(path, ".mlmodelc");
    }
    return n_compiled == n ? "mlmodelc" : n_compiled == 0 ? "mlpackage" : "mixed";
}

int package_count_other_form(const struct package *p)
{
    int n = 0;
    for (int i = 0; i < count_files(p); i++) {
        char *other = other_form(*file_path(p, i));
        n += other != NULL;
        free(other);
    }
    return n;
}

void package_take_other_form(struct package *p)
{
    for (int i = 0; i < count_files(p); i++) {
        char **path = file_path(p, i), *other = other_form(*path);
        if (other) {
            free(*path);
            *path = other;
        }
    }
}

bool package_tokenizer(const struct package *p, struct tokenizer **out, struct err *e)
{
    *out = NULL;
    if (!folder_has(p->path, "tokenizer.json"))
        return err_set(e, ERR_FORMAT, "%s: no tokenizer.json, so the package runs on token ids alone",
                       p->path);
    return tokenizer_open(out, p->path, e);
}

void package_add_tokenizer_eos(struct package *p, const struct tokenizer *t)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
    for (int i = 0; i < 2; i++) {
        cJSON *config = NULL;
        if (!read_optional_json(p, names[i], &config, NULL))
            continue;
        const cJSON *item = json_get(config, "eos_token");
        if (cJSON_IsObject(item)) /* an added token written out: {"content": "...", ...} */
            item = json_get(item, "content");
        if (cJSON_IsString(item))
            add_eos(p, tokenizer_id(t, item->valuestring));
        cJSON_Delete(config);
    }
}

bool package_is_eos(const struct package *p, int32_t id)
{
    for (int i = 0; i < p->n_eos; i++)
        if (p->eos[i] == id)
            return true;
    return false;
}
