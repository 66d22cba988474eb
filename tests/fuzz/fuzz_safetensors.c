// links: format
/* Any bytes as a safetensors file: it opens with tensors that can be read to the last byte, or it is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct safetensors *s)
{
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        struct err e = {0};
        if (safetensors_find(s, t->name) != t || t->n_elems < 0)
            abort();
        if (t->dtype == ST_UNKNOWN || t->n_elems > 100000)
            continue;
        float *f32 = malloc((size_t)t->n_elems * 4 + 1);
        uint16_t *f16 = malloc((size_t)t->n_elems * 2 + 1);
        if (!st_read_f32(t, f32, &e) && !e.msg[0])
            abort();
        if (!st_read_f16(t, 0, t->n_elems, f16, &e) && !e.msg[0])
            abort();
        free(f32);
        free(f16);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct err e = {0};
    struct safetensors *s = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (safetensors_open(&s, path, &e))
        read_all(s);
    else if (!e.msg[0] || s)
        abort();
    safetensors_close(s);
    close(fd);
    return 0;
}
