/* The bytes of tokens, one behind the other. */
#include "server/vocabulary_bytes.h"
#include <stdlib.h>

#define ALL_BYTES_MAX ((size_t)1 << 30)

struct vocabulary_bytes {
    int32_t n;
    size_t *begin;    /* [n + 1] into text */
    bool *is_special; /* [n] */
    struct buf text;
};

static void add(struct vocabulary_bytes *v, const mk_tokenizer *t, int32_t id)
{
    char small[256], *bytes = small, *large = NULL;
    size_t n = 0;
    mk_status status = mk_token_bytes(t, id, 0, small, sizeof small, &n, NULL);
    if (status == MK_OK && n == 0) {
        status = mk_token_bytes(t, id, MK_SPECIAL, small, sizeof small, &n, NULL);
        v->is_special[id] = n > 0;
    }
    if (status == MK_LIMIT && n > sizeof small) {
        bytes = large = xmalloc(n);
        status = mk_token_bytes(t, id, MK_SPECIAL, large, n, &n, NULL);
    }
    if (status == MK_OK)
        buf_append(&v->text, bytes, n);
    free(large);
}

struct vocabulary_bytes *vocabulary_bytes_new(const mk_package *p)
{
    const mk_tokenizer *t = mk_package_tokenizer(p);
    if (mk_tokenizer_size(t) == 0)
        return NULL;
    struct vocabulary_bytes *v = xcalloc(1, sizeof *v);
    v->n = mk_package_vocab_size(p);
    v->begin = xcalloc((size_t)v->n + 1, sizeof *v->begin);
    v->is_special = xcalloc((size_t)v->n + 1, sizeof *v->is_special);
    buf_init(&v->text, ALL_BYTES_MAX);
    for (int32_t id = 0; id < v->n; id++) {
        v->begin[id] = v->text.n;
        add(v, t, id);
    }
    v->begin[v->n] = v->text.n;
    return v;
}

void vocabulary_bytes_free(struct vocabulary_bytes *v)
{
    if (!v)
        return;
    free(v->begin);
    free(v->is_special);
    buf_fini(&v->text);
    free(v);
}

static struct str all(const struct vocabulary_bytes *v, int32_t id)
{
    return (struct str){v->text.p ? v->text.p + v->begin[id] : "", v->begin[id + 1] - v->begin[id]};
}

struct str vocabulary_bytes_of(const struct vocabulary_bytes *v, int32_t id)
{
    return v->is_special[id] ? (struct str){"", 0} : all(v, id);
}

struct str vocabulary_bytes_special(const struct vocabulary_bytes *v, int32_t id)
{
    return v->is_special[id] ? all(v, id) : (struct str){"", 0};
}

int32_t vocabulary_bytes_count(const struct vocabulary_bytes *v)
{
    return v->n;
}
