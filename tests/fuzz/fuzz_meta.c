// links: format
/* Any bytes as meta.yaml: what is read can be written and read again, and writing then changes nothing more.
 */
#include <stdlib.h>
#include <string.h>
#include "format/meta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The text of what `text` says. Numbers that are cut to two digits may vanish, so it need not be the same
 * text. */
static char *rewrite(const char *text, size_t bytes, size_t *n)
{
    struct err e = {0};
    struct meta *m = NULL;
    struct buf b;
    if (!meta_parse(&m, text, bytes, "fuzz", &e)) {
        if (!e.msg[0] || m)
            abort();
        return NULL;
    }
    buf_init(&b, 8 << 20);
    meta_write(m, &b);
    if (b.failed)
        abort();
    meta_free(m);
    return buf_take(&b, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = 0;
    char *first = rewrite((const char *)data, size, &n);
    if (!first || n > 200000) {
        free(first);
        return 0;
    }
    char *second = rewrite(first, n, &n);
    if (!second)
        abort();
    char *third = rewrite(second, n, &n);
    if (!third || strcmp(second, third) != 0)
        abort();
    free(first);
    free(second);
    free(third);
    return 0;
}
