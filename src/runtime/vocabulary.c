/* Tokenizer and vocabulary, one beside the other. */
#include "runtime/vocabulary.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "format/contract.h"
#include "format/json.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)

static int64_t said_by_meta(const char *folder)
{
    char *path = path_join(folder, FILE_META);
    struct meta *m = NULL;
    int64_t size = 0;
    if (path_exists(path) && meta_read(&m, path, NULL))
        size = m->vocab_size;
    meta_free(m);
    free(path);
    return size;
}

static int64_t said_by_config(const char *folder)
{
    char *path = path_join(folder, "config.json");
    cJSON *config = NULL;
    int64_t size = 0;
    if (path_exists(path) && json_read_file(&config, path, CONFIG_BYTES_MAX, NULL)) {
        bool ok = json_get_int(config, "vocab_size", &size, path, NULL);
        if (size == 0)
            ok = json_get_int(json_get(config, "text_config"), "vocab_size", &size, path, NULL);
        size = ok && size > 0 ? size : 0;
    }
    cJSON_Delete(config);
    free(path);
    return size;
}

int64_t vocabulary_of_folder(const char *folder)
{
    int64_t size = said_by_meta(folder);
    return size > 0 ? size : said_by_config(folder);
}

static const char *token_of(const struct tokenizer *t, int32_t id)
{
    const char *token = tokenizer_token(t, id);
    return token ? token : "";
}

void vocabulary_check_tokenizer(struct log *l, const char *where, const struct tokenizer *t,
                                int64_t vocab_size)
{
    int32_t last = tokenizer_vocab_size(t) - 1;
    if (vocab_size > 0 && last >= vocab_size)
        log_warn(
            l,
            "%s: the tokenizer has ids up to %d (\"%.64s\"), the model's vocabulary has %lld tokens: a text "
            "with a token beyond it can't be run",
            where, last, token_of(t, last), (long long)vocab_size);
}

void vocabulary_check_stops(struct log *l, const struct package *p, int64_t vocab_size)
{
    for (int i = 0; vocab_size > 0 && i < p->n_eos; i++)
        if (p->eos[i] >= vocab_size)
            log_warn(l,
                     "%s: the stop id %d is beyond the model's vocabulary of %lld tokens: it never stops "
                     "anything",
                     p->path, p->eos[i], (long long)vocab_size);
}

void vocabulary_check_written(struct log *l, const char *folder)
{
    struct tokenizer *t = NULL;
    struct package *p = NULL;
    struct err e = {0};
    int64_t size = vocabulary_of_folder(folder);
    if (!tokenizer_open(&t, folder, &e))
        log_warn(l, "the package has a tokenizer that milkit can't read: %s", e.msg);
    else
        vocabulary_check_tokenizer(l, folder, t, size);
    if (package_open(&p, folder, NULL)) {
        if (t)
            package_add_tokenizer_eos(p, t);
        vocabulary_check_stops(l, p, size);
    }
    package_close(p);
    tokenizer_free(t);
}

bool vocabulary_check_ids(const struct tokenizer *t, const char *where, int64_t vocab_size,
                          const int32_t *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return err_set(
                e, ERR_FORMAT,
                "%s: the tokenizer gives the id %d (\"%.64s\"), the model's vocabulary has %lld tokens: "
                "tokenizer.json does not fit the model",
                where, ids[i], token_of(t, ids[i]), (long long)vocab_size);
    return true;
}

bool vocabulary_encode(const struct tokenizer *t, const char *where, int64_t vocab_size, const char *text,
                       size_t bytes, struct ids *out, struct err *e)
{
    size_t n = out->n;
    return tokenizer_encode(t, text, bytes, true, out, e) &&
           vocabulary_check_ids(t, where, vocab_size, out->p + n, out->n - n, e);
}
