/* A program as a user of the library writes it, for tests that compare it with commands: library_client PACKAGE IDS N SINGLY OUT
 * IDS: "1,2,3"; N: tokens to generate greedily behind them, printed as "4,5,6"; SINGLY: 1: a token a call, 0: the contract's calls;
 * OUT: the logits of the prompt's positions that these calls yield, float32, one row after the other. */
#include <stdio.h>
#include <stdlib.h>
#include "milkit.h"

struct out {
    FILE *file;
    bool comma;
};

static bool write_row(void *context, int64_t position, const float *logits, size_t n)
{
    struct out *o = context;
    (void)position;
    return fwrite(logits, sizeof *logits, n, o->file) == n;
}

static bool print_id(void *context, int32_t id)
{
    struct out *o = context;
    printf(o->comma ? ",%d" : "%d", id);
    o->comma = true;
    return true;
}

static size_t read_ids(const char *text, int32_t *ids, size_t most)
{
    size_t n = 0;
    while (*text && n < most) {
        char *end;
        ids[n++] = (int32_t)strtol(text, &end, 10);
        text = *end ? end + 1 : end;
    }
    return n;
}

int main(int argc, char **argv)
{
    enum { MOST = 4096 };
    static int32_t ids[MOST];
    mk_library *library = NULL;
    mk_package *package = NULL;
    mk_session *session = NULL, *fed = NULL;
    mk_sampler *sampler = NULL;
    mk_error *e = NULL;
    struct out out = {0};
    mk_generate what = {.size = sizeof what, .fn = print_id, .context = &out};
    if (argc != 6 || !(out.file = fopen(argv[5], "wb")))
        return 2;
    size_t n = read_ids(argv[2], ids, MOST), n_generated;
    what.limit = atoi(argv[3]);
    uint32_t flags = atoi(argv[4]) ? MK_FEED_SINGLY : 0;
    if (!mk_library_open(&library, NULL, &e) && !mk_package_open(&package, library, argv[1], NULL, &e) &&
        !mk_session_new(&fed, package, &e) &&
        !mk_session_feed(fed, ids, n, flags, write_row, &out, NULL, &e) &&
        !mk_session_new(&session, package, &e) && !mk_session_sync(session, ids, n, NULL, NULL, &e) &&
        !mk_sampler_new(&sampler, package, "{\"greedy\": true}", &e))
        mk_session_generate(session, sampler, &what, NULL, &n_generated, NULL, &e);
    printf("\n");
    if (e)
        fprintf(stderr, "%s\n", mk_error_message(e));
    int status = (int)mk_error_status(e);
    mk_error_free(e);
    mk_sampler_free(sampler);
    mk_session_free(fed);
    mk_session_free(session);
    mk_package_close(package);
    mk_library_close(library);
    return fclose(out.file) == 0 ? status : 1;
}
