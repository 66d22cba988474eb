/* Tokenizer: opening, closing and questions about the vocabulary. The work is in the tokenizer_*.c files. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/checkpoint.h"
#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

static bool parse(struct tokenizer **out, const char *json, size_t bytes,
                  const struct tokenizer_config *config, const char *where, struct err *e)
{
    *out = NULL;
    cJSON *root = NULL;
    size_t good = utf8_valid_prefix(json, bytes);
    if (good < bytes) /* all strings are well-formed from here on; PCRE2 is told so */
        return err_set(e, ERR_FORMAT, "%s: not UTF-8 at byte %zu", where, good);
    struct str vocab, merges;
    struct buf rest;
    buf_init(&rest, TOKENIZER_MAX_JSON_BYTES);
    tokenizer_scan((struct str){json, bytes}, &vocab, &merges, &rest);
    struct tokenizer *t = xcalloc(1, sizeof *t);
    bool ok = !rest.failed || err_set(e, ERR_LIMIT, "%s: more than %zu bytes", where, rest.max_bytes);
    ok = ok && json_parse(&root, rest.p ? rest.p : "", rest.n, where, e) &&
         tokenizer_load(t, root, vocab, merges, config, where, e);
    cJSON_Delete(root);
    buf_fini(&rest);
    if (ok)
        *out = t;
    else
        tokenizer_free(t);
    return ok;
}

bool tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, const char *where, struct err *e)
{
    return parse(out, json, bytes, NULL, where, e);
}

void tokenizer_set_clean_up(struct tokenizer *t, bool clean_up)
{
    t->decoder.clean_up = clean_up;
}

bool tokenizer_open(struct tokenizer **out, const char *path, struct err *e)
{
    *out = NULL;
    char *file = path_is_folder(path) ? path_join(path, CHECKPOINT_TOKENIZER) : xstrdup(path);
    struct map_file *map = NULL;
    bool ok = map_open(&map, file, e);
    if (ok && map->bytes > TOKENIZER_MAX_JSON_BYTES)
        ok = err_set(e, ERR_LIMIT, "%s: %zu bytes, at most %zu are allowed", file, map->bytes,
                     TOKENIZER_MAX_JSON_BYTES);
    struct tokenizer_config config = {0};
    char *folder = path_folder(file);
    ok = ok && tokenizer_config_read(&config, folder, e) &&
         parse(out, (const char *)map->data, map->bytes, &config, file, e);
    if (ok)
        tokenizer_set_clean_up(*out, config.clean_up);
    tokenizer_config_fini(&config);
    free(folder);
    map_close(map);
    free(file);
    return ok;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_fini(&t->model.vocab);
    merges_fini(&t->model.merges);
    free(t->model.joints);
    free(t->model.bmp_symbols);
    for (int i = 0; i < t->n_normalizers; i++)
        normalizer_fini(&t->normalizers[i]);
    for (int i = 0; i < t->decoder.n_replacements; i++)
        normalizer_fini(&t->decoder.replacements[i]);
    free(t->decoder.blank);
    for (int i = 0; i < t->n_splitters; i++)
        splitter_fini(&t->splitters[i]);
    added_set_fini(&t->added_raw);
    added_set_fini(&t->added_normalized);
    free(t->is_special);
    ids_free(&t->prefix);
    ids_free(&t->suffix);
    free(t);
}

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->model.vocab.n_ids;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return vocab_find(&t->model.vocab, token, strlen(token));
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id)
{
    return vocab_text(&t->model.vocab, id);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->model.vocab.n_ids && t->is_special[id];
}
