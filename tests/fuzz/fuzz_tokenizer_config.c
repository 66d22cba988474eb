/* Any bytes as the files beside a tokenizer.json, one behind the other with 0xFF between: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, config.json. With what is accepted small tokenizers, on bytes and on characters, must load, encode and decode. */
// links: tokenizer
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKENS "{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"special\":true,\"normalized\":false}],"
#define MERGES "\"merges\":[[\"a\",\"b\"]]}}"

static const char *const bases[] = {
    TOKENS "\"normalizer\":{\"type\":\"Lowercase\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":"
           "{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\\u0120\":2,"
           "\"ab\":3}," MERGES,
    TOKENS "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},\"model\":{\"type\":\"BPE\","
           "\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"\\u2581\":2,\"ab\":3}," MERGES,
};

/* The next object of the input; false when it is something else. */
static bool take_object(cJSON **out, const uint8_t **data, size_t *size)
{
    const uint8_t *end = memchr(*data, 0xff, *size);
    size_t n = end ? (size_t)(end - *data) : *size;
    bool ok = n == 0 || tokenizer_config_object(out, (struct str){(const char *)*data, n}, "fuzz", NULL);
    *data += end ? n + 1 : n;
    *size -= end ? n + 1 : n;
    return ok;
}

static bool load(struct tokenizer *t, const char *base, const struct tokenizer_config *c, struct err *e)
{
    struct str vocab, merges;
    struct buf rest;
    cJSON *root = NULL;
    buf_init(&rest, 1 << 16);
    tokenizer_scan((struct str){base, strlen(base)}, &vocab, &merges, &rest);
    if (!json_parse(&root, rest.p, rest.n, "base", e))
        abort();
    bool ok = tokenizer_load(t, root, vocab, merges, c, "base", e);
    cJSON_Delete(root);
    buf_fini(&rest);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "a b <x> <X> ab<pad> A";
    struct tokenizer_config c = {0};
    struct err e = {0};
    bool ok = take_object(&c.config, &data, &size) && take_object(&c.map, &data, &size) &&
              take_object(&c.added, &data, &size) && take_object(&c.model, &data, &size);
    if (ok && !tokenizer_config_take(&c, "fuzz", &e)) {
        ok = false;
        if (e.code == ERR_NONE || !e.msg[0])
            abort();
    }
    for (size_t k = 0; ok && k < sizeof bases / sizeof *bases; k++) {
        struct tokenizer *t = xcalloc(1, sizeof *t);
        struct ids ids = {0};
        struct buf out;
        buf_init(&out, 1 << 20);
        if (!load(t, bases[k], &c, &e)) {
            if (e.code == ERR_NONE)
                abort();
        } else if (tokenizer_encode(t, text, sizeof text - 1, true, &ids, &e)) {
            for (size_t i = 0; i < ids.n; i++)
                if (ids.p[i] < 0 || ids.p[i] >= tokenizer_vocab_size(t))
                    abort();
            if (!tokenizer_decode(t, ids.p, ids.n, true, &out, &e))
                abort();
        }
        buf_fini(&out);
        ids_free(&ids);
        tokenizer_free(t);
    }
    tokenizer_config_fini(&c);
    return 0;
}
