/* What a plain read of files costs: each thread sums its own part of the mapped bytes, one linear stream. The yardstick
 * of decode, which has to read the weights once per token.
 *
 * bench_read THREADS ROUNDS FILE... prints GB/s, median and best. */
// links: base
#include <stdio.h>
#include <stdlib.h>
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"

struct job {
    struct map_file **files;
    int n_files;
    uint64_t sums[64];
};

static void read_part(void *context, int i_thread, int n_threads)
{
    struct job *j = context;
    uint64_t sum[8] = {0};
    for (int f = 0; f < j->n_files; f++) {
        int64_t n = (int64_t)(j->files[f]->bytes / 64), begin, end;
        const uint64_t *p = (const uint64_t *)(const void *)j->files[f]->data;
        pool_split(n, 64, i_thread, n_threads, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            for (int k = 0; k < 8; k++)
                sum[k] += p[8 * i + k];
    }
    for (int k = 1; k < 8; k++)
        sum[0] += sum[k];
    j->sums[i_thread] = sum[0];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct pool *pool = NULL;
    struct job j = {0};
    double bytes = 0, seconds[100];
    int n_threads = argc > 3 ? atoi(argv[1]) : 0, n_rounds = argc > 3 ? atoi(argv[2]) : 0;
    if (n_threads < 1 || n_threads > 64 || n_rounds < 1 || n_rounds > 100) {
        fprintf(stderr, "bench_read THREADS ROUNDS FILE...\n");
        return 2;
    }
    j.n_files = argc - 3;
    j.files = xcalloc((size_t)j.n_files, sizeof *j.files);
    for (int i = 0; i < j.n_files; i++) {
        if (!map_open(&j.files[i], argv[3 + i], &e)) {
            fprintf(stderr, "bench_read: %s\n", e.msg);
            return 1;
        }
        bytes += (double)j.files[i]->bytes;
    }
    if (!pool_new(&pool, n_threads, &e))
        return 1;
    pool_run(pool, read_part, &j); /* brings the files into the page cache */
    for (int r = 0; r < n_rounds; r++) {
        double start = clock_seconds();
        pool_run(pool, read_part, &j);
        seconds[r] = clock_seconds() - start;
    }
    qsort(seconds, (size_t)n_rounds, sizeof *seconds, by_value);
    printf("%.2f %.2f\n", bytes / seconds[n_rounds / 2] * 1e-9, bytes / seconds[0] * 1e-9);
    pool_free(pool);
    return 0;
}
