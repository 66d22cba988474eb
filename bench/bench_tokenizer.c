/* Times opening a tokenizer.json, encoding and decoding, in processor time of one core.
 *
 *     bench_tokenizer TOKENIZER_JSON TEXT...
 *
 * TEXT: plain files, or .jsonl files whose "text" members are taken. Their lines are mixed to 4 MB; a third of them is
 * cut at random places, so that not every word was met before. */
// links: tokenizer
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/file.h"
#include "format/json.h"
#include "format/json_line.h"
#include "tokenizer/tokenizer.h"

#define TEXT_BYTES ((size_t)4 << 20)
#define ROUNDS 5

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static bool add_file(struct buf *text, const char *path, struct err *e)
{
    char *file = NULL;
    size_t bytes;
    if (!file_read(&file, &bytes, path, (size_t)256 << 20, e))
        return false;
    bool ok = true;
    if (!has_suffix(path, ".jsonl")) {
        buf_append(text, file, bytes);
        buf_putc(text, '\n');
    }
    for (char *p = file, *end; has_suffix(path, ".jsonl") && ok && p < file + bytes; p = end + 1) {
        cJSON *item = NULL;
        end = memchr(p, '\n', (size_t)(file + bytes - p));
        end = end ? end : file + bytes;
        ok = json_line_parse(&item, p, (size_t)(end - p), path, e);
        if (ok && json_get(item, "text"))
            json_line_string(text, json_get(item, "text"));
        buf_putc(text, '\n');
        cJSON_Delete(item);
    }
    free(file);
    return ok;
}

/* Lines in random order until there are enough. */
static void mix(struct buf *out, const struct buf *text)
{
    uint32_t seed = 1;
    while (out->n < TEXT_BYTES && text->n > 0) {
        size_t high = next_random(&seed), begin = (high << 8 ^ next_random(&seed)) % text->n;
        if (next_random(&seed) % 3) /* at the start of a line */
            while (begin > 0 && text->p[begin - 1] != '\n')
                begin--;
        const char *end = memchr(text->p + begin, '\n', text->n - begin);
        buf_append(out, text->p + begin, end ? (size_t)(end - text->p) + 1 - begin : text->n - begin);
    }
}

static bool measure(const struct tokenizer *t, const struct buf *text, struct err *e)
{
    double best_encode = 1e9, best_decode = 1e9;
    size_t n_ids = 0;
    bool ok = true;
    for (int round = 0; round < ROUNDS && ok; round++) {
        struct ids ids = {0};
        struct buf back;
        buf_init(&back, TEXT_BYTES * 8);
        double start = cpu_seconds();
        ok = tokenizer_encode(t, text->p, text->n, false, &ids, e);
        double middle = cpu_seconds();
        ok = ok && tokenizer_decode(t, ids.p, ids.n, false, &back, e);
        double end = cpu_seconds();
        best_encode = middle - start < best_encode ? middle - start : best_encode;
        best_decode = end - middle < best_decode ? end - middle : best_decode;
        n_ids = ids.n;
        buf_fini(&back);
        ids_free(&ids);
    }
    if (ok)
        printf("encode %6.1f MB/s, decode %6.1f MB/s: %zu bytes, %zu ids\n",
               (double)text->n * 1e-6 / best_encode, (double)text->n * 1e-6 / best_decode, text->n, n_ids);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER_JSON TEXT...\n");
        return 2;
    }
    struct err e = {0};
    struct tokenizer *t = NULL;
    struct buf source, text;
    struct rusage usage;
    buf_init(&source, (size_t)256 << 20);
    buf_init(&text, TEXT_BYTES * 2 + ((size_t)256 << 20));
    double start = cpu_seconds();
    bool ok = tokenizer_open(&t, argv[1], &e);
    double seconds = cpu_seconds() - start;
    getrusage(RUSAGE_SELF, &usage);
    if (ok)
        printf("open %.3f s, %.1f MB at most, of a file of %.1f MB\n", seconds,
               (double)usage.ru_maxrss * 1024e-6, (double)file_bytes(argv[1]) * 1e-6);
    for (int i = 2; i < argc && ok; i++)
        ok = add_file(&source, argv[i], &e);
    mix(&text, &source);
    ok = ok && measure(t, &text, &e);
    if (!ok)
        fprintf(stderr, "%s\n", e.msg);
    tokenizer_free(t);
    buf_fini(&source);
    buf_fini(&text);
    return ok ? 0 : 1;
}
