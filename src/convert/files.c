/* Copies what a package takes over from the checkpoint and writes meta.yaml. */
#include "convert/files.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/checkpoint.h"
#include "format/contract.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

/* What the file names say about weights: "_lut4", "_int8", "_int4", nothing for fp16. */
static const char *suffix(char dst[16], const struct quant_spec *s)
{
    dst[0] = '\0';
    if (s->kind == QUANT_LUT)
        snprintf(dst, 16, "_lut%d", s->bits);
    else if (s->kind != QUANT_NONE)
        snprintf(dst, 16, "_int%d", s->bits);
    return dst;
}

char *convert_embeddings_name(const char *prefix, const struct quant_spec *s)
{
    char text[16];
    return xasprintf(PART_NAME_FORMAT, prefix, PART_EMBEDDINGS, suffix(text, s));
}

char *convert_chunk_name(const char *prefix, const struct quant_spec *s, int i_chunk, int n_chunks)
{
    char text[16];
    return xasprintf(PART_NAME_FORMAT CHUNK_SUFFIX_FORMAT, prefix, PART_DECODER, suffix(text, s), i_chunk + 1,
                     n_chunks);
}

char *convert_head_name(const char *prefix, const struct quant_spec *s)
{
    char text[16];
    return xasprintf(PART_NAME_FORMAT, prefix, PART_LM_HEAD, suffix(text, s));
}

/* A pointer of git LFS in the place of a file would make a package that looks whole. */
static bool copy_file(const char *from, const char *to, struct err *e)
{
    struct map_file *map = NULL;
    if (!map_open(&map, from, e))
        return false;
    map_close(map);
    return file_copy(from, to, e);
}

/* tokenizer_class of tokenizer_config.json, heap; NULL when it says none. */
static bool read_tokenizer_class(const char *checkpoint, char **out, struct err *e)
{
    char *path = path_join(checkpoint, "tokenizer_config.json");
    cJSON *config = NULL;
    const char *name = NULL;
    bool ok = true;
    *out = NULL;
    if (path_exists(path)) {
        ok = json_read_file(&config, path, CONFIG_BYTES_MAX, e) &&
             json_get_string(config, "tokenizer_class", &name, path, e);
        if (ok && name)
            *out = xstrdup(name);
    }
    cJSON_Delete(config);
    free(path);
    return ok;
}

/* The source's text with one key more before the last brace: everything else stays byte for byte. */
static void put_config(struct buf *b, const char *text, size_t bytes, const char *tokenizer_class)
{
    size_t end = bytes;
    while (end > 0 && text[end - 1] != '}')
        end--;
    size_t last = end > 0 ? end - 1 : 0;
    while (last > 0 && strchr(" \t\r\n", text[last - 1]))
        last--;
    buf_append(b, text, last);
    buf_puts(b, ",\n  \"tokenizer_class\": ");
    json_put_string(b, tokenizer_class, strlen(tokenizer_class));
    buf_puts(b, "\n}\n");
}

static bool copy_config(const char *checkpoint, const char *folder, struct err *e)
{
    char *from = path_join(checkpoint, "config.json"), *to = path_join(folder, "config.json");
    char *text = NULL, *tokenizer_class = NULL;
    size_t bytes = 0;
    cJSON *config = NULL;
    struct buf b;
    buf_init(&b, 2 * CONFIG_BYTES_MAX);
    bool ok = file_read(&text, &bytes, from, CONFIG_BYTES_MAX, e) &&
              json_parse(&config, text, bytes, from, e) &&
              read_tokenizer_class(checkpoint, &tokenizer_class, e);
    if (ok) {
        const cJSON *present = json_get(config, "tokenizer_class");
        if (tokenizer_class && !present)
            put_config(&b, text, bytes, tokenizer_class);
        else
            buf_append(&b, text, bytes);
        ok = file_write(to, b.p, b.n, e);
    }
    buf_fini(&b);
    cJSON_Delete(config);
    free(tokenizer_class);
    free(text);
    free(from);
    free(to);
    return ok;
}

static bool is_json(const char *path, struct err *e)
{
    cJSON *root = NULL;
    bool ok = json_read_file(&root, path, CONFIG_BYTES_MAX, e);
    cJSON_Delete(root);
    return ok;
}

/* The templates of a folder, and nothing else that may be in it. */
static bool copy_templates(const char *from, const char *to, struct err *e)
{
    struct path_list list = {0};
    bool ok = path_list_read(&list, from, e) && folder_make(to, e);
    for (size_t i = 0; i < list.n && ok; i++) {
        char *source = path_join(from, list.names[i]), *target = path_join(to, list.names[i]);
        if (has_suffix(source, CHECKPOINT_TEMPLATE_SUFFIX) && !path_is_folder(source))
            ok = copy_file(source, target, e);
        free(source);
        free(target);
    }
    path_list_free(&list);
    return ok;
}

bool convert_copy_files(const struct convert_options *o, const char *folder, bool *has_tokenizer,
                        struct err *e)
{
    *has_tokenizer = false;
    bool ok = copy_config(o->checkpoint, folder, e);
    for (const struct checkpoint_file *f = checkpoint_files; f->name && ok; f++) {
        char *from = path_join(o->checkpoint, f->name), *to = path_join(folder, f->name);
        if (f->kind == CHECKPOINT_TEMPLATE_FOLDER) {
            ok = !path_is_folder(from) || copy_templates(from, to, e);
        } else if (path_exists(from)) {
            ok = (f->kind != CHECKPOINT_SETTINGS || is_json(from, e)) && copy_file(from, to, e);
            *has_tokenizer = *has_tokenizer || strcmp(f->name, CHECKPOINT_TOKENIZER) == 0;
        }
        free(from);
        free(to);
    }
    return ok;
}

/* Of a file, or of the files in a folder of templates. */
static uint64_t bytes_at(const char *path, enum checkpoint_file_kind kind)
{
    struct path_list list = {0};
    int64_t bytes = kind == CHECKPOINT_TEMPLATE_FOLDER ? 0 : file_bytes(path);
    uint64_t sum = bytes > 0 ? (uint64_t)bytes : 0;
    if (kind == CHECKPOINT_TEMPLATE_FOLDER && path_is_folder(path) && path_list_read(&list, path, NULL)) {
        for (size_t i = 0; i < list.n; i++) {
            char *file = path_join(path, list.names[i]);
            sum += bytes_at(file, CHECKPOINT_COPIED);
            free(file);
        }
    }
    path_list_free(&list);
    return sum;
}

uint64_t convert_copied_bytes(const char *checkpoint)
{
    uint64_t sum = 0;
    for (const struct checkpoint_file *f = checkpoint_files; f->name; f++) {
        char *path = path_join(checkpoint, f->name);
        sum += bytes_at(path, f->kind);
        free(path);
    }
    return sum;
}

/* ---- meta.yaml ---- */

/* The model's name for people: "Qwen-Qwen3-0.6B" of a hub cache folder
 * (models--Qwen--Qwen3-0.6B/snapshots/...), the name of a GGUF file, else the folder's. Heap. */
static char *model_name(const struct convert_options *o)
{
    const char *checkpoint = o->checkpoint;
    if (o->source && o->source->is_gguf) {
        char *file = path_base(o->source->path), *part = strstr(file, "-00001-of-");
        file[strlen(file) - (has_suffix(file, ".gguf") ? strlen(".gguf") : 0)] = '\0';
        if (part && strspn(part + 10, "0123456789") == strlen(part + 10))
            *part = '\0';
        return file;
    }
    char *real = realpath(checkpoint, NULL);
    const char *path = real ? real : checkpoint;
    const char *hub = strstr(path, "/models--");
    char *name;
    if (hub) {
        hub += strlen("/models--");
        name = xasprintf("%.*s", (int)strcspn(hub, "/"), hub);
        char *to = name;
        for (const char *p = name; *p; p++) {
            *to++ = *p;
            if (p[0] == '-' && p[1] == '-')
                p++;
        }
        *to = '\0';
    } else {
        name = path_base(path);
    }
    free(real);
    return name;
}

static void warn(void *context, const char *sentence)
{
    log_warn(context, "%s", sentence);
}

static bool read_sampling(const struct convert_options *o, struct meta *meta, struct err *e)
{
    char *path = path_join(o->checkpoint, "generation_config.json");
    cJSON *config = NULL;
    struct buf unused;
    bool ok = true;
    buf_init(&unused, 4096);
    if (path_exists(path)) {
        ok = sampling_read_json_file(&config, path, e);
        sampling_read(&meta->sampling, config, path, warn, o->log);
        sampling_read_stops(config, path, NULL, warn, o->log);
        sampling_put_unused(config, &unused);
        if (unused.n > 0)
            log_warn(o->log, "%s: not used, here and in packages: %s", path, unused.p);
    }
    buf_fini(&unused);
    cJSON_Delete(config);
    free(path);
    return ok;
}

/* Ids that a package can't use, of config.json. */
static void warn_of_stops(const struct convert_options *o, const struct config *c)
{
    char *text = xasprintf("%s: text_config", c->path);
    sampling_read_stops(c->top, c->path, NULL, warn, o->log);
    if (c->text != c->top)
        sampling_read_stops(c->text, text, NULL, warn, o->log);
    free(text);
}

static char *compiled_name(char *name)
{
    char *full = xasprintf("%s.mlmodelc", name);
    free(name);
    return full;
}

static void fill_quantization(const struct quant_spec *s, int *lut, int *per_channel, char **quant,
                              struct meta *meta)
{
    *lut = META_NONE;
    if (s->kind == QUANT_LUT) {
        *lut = s->bits;
        *per_channel = (int)s->group;
        if (!meta->lut_method)
            meta->lut_method = xstrdup(quant_method_name(s->method));
    } else if (s->kind == QUANT_INT8) {
        *quant = xstrdup("int8");
    } else if (s->kind == QUANT_INT4) {
        *quant = xasprintf("int4,%lld", (long long)s->block);
    }
}

static void fill_meta(const struct convert_options *o, const struct arch_model *m, const char *prefix,
                      struct meta *meta)
{
    const struct arch_settings *s = &m->settings;
    char *model = model_name(o);
    meta->name = xasprintf("anemll-%s-ctx%lld", model, (long long)s->context_length);
    free(meta->version);
    meta->version = xstrdup("0.3.5");
    meta->description =
        xasprintf("%s for the Apple Neural Engine\nContext length: %lld\nBatch size: %lld\nChunks: %d", model,
                  (long long)s->context_length, (long long)s->batch_size, s->n_chunks);
    free(model);
    meta->author = xstrdup("milkit");
    meta->framework = xstrdup("Core ML");
    meta->language = xstrdup("C");
    meta->architecture = xstrdup(m->family->name);
    meta->context_length = s->context_length;
    meta->batch_size = s->batch_size;
    fill_quantization(&o->embeddings, &meta->lut_embeddings, &meta->lut_embeddings_per_channel,
                      &meta->quant_embeddings, meta);
    fill_quantization(&o->ffn, &meta->lut_ffn, &meta->lut_ffn_per_channel, &meta->quant_ffn, meta);
    meta->lut_ffn_mixed = o->ffn_mean_bits;
    fill_quantization(&o->head, &meta->lut_lmhead, &meta->lut_lmhead_per_channel, &meta->quant_lmhead, meta);
    meta->num_chunks = s->n_chunks;
    meta->model_prefix = xstrdup(prefix);
    /* ANEMLL's loaders strip the extension and look for both, so this is right for .mlpackage too. */
    meta->embeddings = compiled_name(convert_embeddings_name(prefix, &o->embeddings));
    meta->lm_head = compiled_name(convert_head_name(prefix, &o->head));
    meta->ffn = compiled_name(convert_chunk_name(prefix, &o->ffn, 0, s->n_chunks));
    meta->split_lm_head = s->split_lm_head;
    meta->vocab_size = m->vocab_size;
    meta->n_lm_head_chunk_sizes = s->split_lm_head;
    meta->lm_head_chunk_sizes = xcalloc((size_t)s->split_lm_head, sizeof *meta->lm_head_chunk_sizes);
    for (int i = 0; i < s->split_lm_head; i++)
        meta->lm_head_chunk_sizes[i] =
            m->vocab_size / s->split_lm_head + (i < m->vocab_size % s->split_lm_head);
    meta->prefill_dynamic_slice = true;
    meta->prefill_last_token_output = true;
    meta->residual_scale = s->residual_scale < 1 ? s->residual_scale : 0;
    meta->hidden_size = m->hidden_size;
    meta->num_layers = m->n_layers;
}

bool convert_write_meta(const struct convert_options *o, const struct arch_model *m, const char *prefix,
                        const char *folder, struct err *e)
{
    struct meta *meta = meta_new();
    char *path = path_join(folder, FILE_META);
    struct buf b;
    buf_init(&b, (size_t)16 << 20);
    fill_meta(o, m, prefix, meta);
    m->family->fill_meta(m, meta);
    bool ok = read_sampling(o, meta, e);
    if (ok) {
        warn_of_stops(o, &m->config);
        meta_write(meta, &b);
        ok = !b.failed || err_set(e, ERR_LIMIT, "%s: too large", path);
        ok = ok && file_write(path, b.p, b.n, e);
    }
    buf_fini(&b);
    free(path);
    meta_free(meta);
    return ok;
}
