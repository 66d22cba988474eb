/* The hub's answer about a model, and the choice of files: any bytes are a list or an error; no name leads out of a snapshot. */
// links: hub
#include <stdlib.h>
#include <string.h>
#include "hub/hub_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct hub_listing l;
    struct err e = {0};
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (hub_listing_read(&l, text, bytes, "fuzz", &e)) {
        struct hub_file *index;
        hub_want_settings(&l, &index);
        bool ok = hub_want_weights(&l, index ? text : NULL, bytes, "org/name", &e);
        for (int i = 0; ok && i < l.n_files; i++)
            if (strstr(l.files[i].path, "..") == l.files[i].path || l.files[i].path[0] == '/' ||
                l.files[i].bytes < 0)
                abort();
        hub_listing_free(&l);
    } else if (!e.msg[0]) {
        abort();
    }
    free(text);
    return 0;
}
