/* What a plain read of files costs: each thread sums its own part of the mapped bytes, one linear stream. The yardstick
 * of decode, which has to read the weights once per token.
 *
 * bench_read THREADS ROUNDS FILE... prints GB/s, median and best. */
// links: measure
#include <stdio.h>
#include <stdlib.h>
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "measure/machine.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct pool *pool = NULL;
    struct machine_span *spans;
    double bytes = 0, seconds[100];
    int n_threads = argc > 3 ? atoi(argv[1]) : 0, n_rounds = argc > 3 ? atoi(argv[2]) : 0;
    if (n_threads < 1 || n_threads > 64 || n_rounds < 1 || n_rounds > 100) {
        fprintf(stderr, "bench_read THREADS ROUNDS FILE...\n");
        return 2;
    }
    int n_files = argc - 3;
    spans = xcalloc((size_t)n_files, sizeof *spans);
    for (int i = 0; i < n_files; i++) {
        struct map_file *file;
        if (!map_open(&file, argv[3 + i], &e)) {
            fprintf(stderr, "bench_read: %s\n", e.msg);
            return 1;
        }
        spans[i] = (struct machine_span){.data = file->data, .bytes = file->bytes};
        bytes += (double)file->bytes;
    }
    if (!pool_new(&pool, n_threads, &e))
        return 1;
    (void)machine_read(pool, spans, n_files); /* brings the files into the page cache */
    for (int r = 0; r < n_rounds; r++)
        seconds[r] = machine_read(pool, spans, n_files);
    qsort(seconds, (size_t)n_rounds, sizeof *seconds, by_value);
    printf("%.2f %.2f\n", bytes / seconds[n_rounds / 2] * 1e-9, bytes / seconds[0] * 1e-9);
    pool_free(pool);
    return 0;
}
