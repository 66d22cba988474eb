// links: format
/* Any bytes as a weight file: a walk ends, and the data of every record can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "format/blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint32_t sink; /* keeps the reads from being optimised away */

static void touch(const struct blob_record *r)
{
    uint32_t sum = 0;
    for (uint64_t i = 0; i < r->bytes; i++)
        sum += r->data[i];
    sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct err e = {0};
    struct blob_file *b = NULL;
    struct blob_record r;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (blob_open(&b, path, &e)) {
        bool found = true;
        uint64_t last = 0;
        while (found && blob_next(b, last, &r, &found, &e) && found) {
            if (r.offset <= last)
                abort();
            touch(&r);
            last = r.offset;
        }
        for (uint64_t offset = 0; offset <= size && offset < 4096; offset += 32)
            if (blob_get(b, offset, &r, &e))
                touch(&r);
    } else if (!e.msg[0] || b) {
        abort();
    }
    blob_close(b);
    close(fd);
    return 0;
}
