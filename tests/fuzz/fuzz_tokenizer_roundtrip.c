/* Any bytes as text, and as ids, for a real tokenizer: text that NFC leaves alone comes back (broken bytes as
 * U+FFFD), and a stream gives what decoding the whole gives, in well-formed pieces. */
// links: tokenizer
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_decode(const struct tokenizer *t, const struct ids *ids, struct buf *whole)
{
    struct err e;
    struct buf streamed;
    buf_init(&streamed, 1 << 26);
    struct token_stream *s = token_stream_new(t, false);
    check(tokenizer_decode(t, ids->p, ids->n, false, whole, &e));
    for (size_t i = 0; i < ids->n; i++) {
        check(token_stream_push(s, ids->p[i], &streamed, &e));
        check(utf8_valid_prefix(streamed.p, streamed.n) == streamed.n);
    }
    check(token_stream_flush(s, &streamed, &e));
    check(streamed.n == whole->n && (whole->n == 0 || memcmp(streamed.p, whole->p, whole->n) == 0));
    token_stream_free(s);
    buf_fini(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t; /* opened once: that is what a fuzzer's time goes to otherwise */
    struct err e = {0};
    if (size > 4096)
        return 0;
    if (!t)
        check(tokenizer_open(&t, MILKIT_TEST_DATA "/models/qwen3-tiny", &e));
    struct buf text, back;
    struct ids ids = {0};
    buf_init(&text, 1 << 20);
    buf_init(&back, 1 << 20);
    utf8_append_lossy(&text, (const char *)data, size);
    check(tokenizer_encode(t, (const char *)data, size, false, &ids, &e));
    check_decode(t, &ids, &back);
    if (nfc_is_stable(text.p, text.n))
        check(text.n == back.n && (text.n == 0 || memcmp(text.p, back.p, text.n) == 0));

    ids.n = 0;
    buf_clear(&back);
    for (size_t i = 0; i + 1 < size; i += 2)
        ids_push(&ids, data[i] | (data[i + 1] & 7) << 8);
    check_decode(t, &ids, &back);
    buf_fini(&text);
    buf_fini(&back);
    ids_free(&ids);
    return 0;
}
