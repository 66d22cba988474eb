/* Any bytes as a tokenizer.json; what is accepted must encode and decode without trouble. */
// links: tokenizer
#include <stdint.h>
#include <stdlib.h>

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "Hello  world, it's 12345 <x> caf\xc3\xa9 e\xcc\x81\n\n\xe4\xb8\xad\xff \xf0\x9f\x98\x80  ";
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (!tokenizer_parse(&t, (const char *)data, size, "fuzz", &e)) {
        if (t || e.code == ERR_NONE || !e.msg[0])
            abort();
        return 0;
    }
    struct ids ids = {0};
    struct buf out;
    buf_init(&out, 1 << 20);
    if (tokenizer_encode(t, text, sizeof text - 1, true, &ids, &e)) {
        for (size_t i = 0; i < ids.n; i++)
            if (ids.p[i] < 0)
                abort();
        for (int32_t id = -1; id < 300; id++)
            ids_push(&ids, id);
        if (!tokenizer_decode(t, ids.p, ids.n, true, &out, &e) && e.code == ERR_NONE)
            abort();
    } else if (e.code == ERR_NONE) {
        abort();
    }
    buf_fini(&out);
    ids_free(&ids);
    tokenizer_free(t);
    return 0;
}
