// Text that parses must print, and the printed text must parse and print to the same bytes.
// links: mil
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PRINTED_MAX ((size_t)64 << 20)

static void die(const char *what, const struct err *e, const char *text)
{
    fprintf(stderr, "%s: %s\n%s\n", what, e->msg, text ? text : "");
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mil_model *first = mil_model_new(0), *second = mil_model_new(0);
    struct buf printed, again;
    struct err e = {0};

    buf_init(&printed, PRINTED_MAX);
    buf_init(&again, PRINTED_MAX);
    if (!mil_text_read(first, (const char *)data, size, "fuzz", &e)) {
        if (e.code == ERR_NONE || e.code == ERR_BUG || e.msg[0] == '\0')
            die("an error without a reason", &e, NULL);
        goto done;
    }
    if (!mil_text_write(first, NULL, &printed, &e)) {
        if (e.code != ERR_LIMIT)
            die("can't be printed", &e, NULL);
        goto done;
    }
    if (!mil_text_read(second, printed.p, printed.n, "printed", &e))
        die("can't be read back", &e, printed.p);
    if (!mil_text_write(second, NULL, &again, &e))
        die("can't be printed again", &e, printed.p);
    if (again.n != printed.n || memcmp(again.p, printed.p, again.n) != 0)
        die("prints differently", &e, printed.p);
done:
    buf_fini(&printed);
    buf_fini(&again);
    mil_model_close(first);
    mil_model_close(second);
    return 0;
}
