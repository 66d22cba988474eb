// A model file that is read is written, and what is written is read and written as it was.
// links: mil
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/protobuf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WRITTEN_MAX ((size_t)64 << 20)

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->msg);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mil_model *first = mil_model_new(0), *second = mil_model_new(0);
    struct buf written, again;
    struct err e = {0};

    buf_init(&written, WRITTEN_MAX);
    buf_init(&again, WRITTEN_MAX);
    if (!mil_protobuf_read(first, data, size, "fuzz", &e)) {
        if (e.code == ERR_NONE || e.code == ERR_BUG || e.msg[0] == '\0')
            die("an error without a reason", &e);
        goto done;
    }
    if (!mil_protobuf_write(first, &written, &e))
        die("read, but not written", &e);
    if (!mil_protobuf_read(second, (const uint8_t *)written.p, written.n, "written", &e))
        die("written, but not read", &e);
    if (!mil_protobuf_write(second, &again, &e))
        die("read again, but not written", &e);
    if (written.n != again.n || memcmp(written.p, again.p, written.n) != 0)
        die("written twice, differently", &e);
    /* the description packed from what was read of it must be readable too */
    second->description.bytes = NULL;
    buf_clear(&again);
    if (mil_protobuf_write(second, &again, &e)) {
        struct mil_model *third = mil_model_new(0);
        if (!mil_protobuf_read(third, (const uint8_t *)again.p, again.n, "repacked", &e))
            die("repacked, but not read", &e);
        mil_model_close(third);
    } else if (e.code != ERR_UNSUPPORTED) {
        die("not repacked", &e);
    }
done:
    buf_fini(&written);
    buf_fini(&again);
    mil_model_close(first);
    mil_model_close(second);
    return 0;
}
