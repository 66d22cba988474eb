// coremldata.bin: what is read lies inside the input, and is written again as it was.
// links: format
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/mlmodelc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct coremldata c, again;
    struct err e = {0};
    struct buf b;

    if (!coremldata_read(&c, data, size, "fuzz", &e)) {
        check(e.code != ERR_NONE && e.code != ERR_BUG && e.msg[0], "an error without a reason");
        return 0;
    }
    check(c.n_description <= size && c.description >= data && c.description + c.n_description <= data + size,
          "a description outside the input");
    if (c.tail) {
        check(c.tail + c.n_tail == data + size, "a tail outside the input");
        return 0;
    }
    size_t n_functions = (size_t)(data + size - (c.description + c.n_description)) / 16;
    buf_init(&b, size + 64);
    coremldata_write(&b, c.specification_version, c.description, c.n_description, (int)n_functions);
    check(!b.failed && b.n == size, "written to another length");
    check(coremldata_read(&again, (const uint8_t *)b.p, b.n, "written", &e), "written, but not read");
    check(again.n_description == c.n_description &&
              memcmp(again.description, c.description, c.n_description) == 0 &&
              again.specification_version == c.specification_version,
          "read differently");
    buf_fini(&b);
    return 0;
}
