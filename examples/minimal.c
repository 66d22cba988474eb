/* Continues a text: minimal PACKAGE TEXT */
#include <milkit.h>
#include <stdio.h>
#include <string.h>

static bool print_token(void *context, int32_t id)
{
    mk_decoder *decoder = *(mk_decoder **)context;
    const char *text;
    size_t n;
    if (mk_decoder_add(decoder, id, &text, &n, NULL) != MK_OK)
        return false;
    fwrite(text, 1, n, stdout);
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    mk_library *library = NULL;
    mk_package *package = NULL;
    mk_session *session = NULL;
    mk_sampler *sampler = NULL;
    mk_error *e = NULL;
    mk_decoder *decoder = NULL;
    mk_generate what = {sizeof what, 32, 0, NULL, 0, print_token, &decoder};
    int32_t ids[4096];
    size_t n = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: minimal PACKAGE TEXT\n");
        return MK_USAGE;
    }
    if (mk_library_open(&library, NULL, &e) || mk_package_open(&package, library, argv[1], NULL, &e) ||
        mk_tokenize(mk_package_tokenizer(package), argv[2], strlen(argv[2]), MK_SPECIAL, ids, 4096, &n, &e) ||
        mk_session_new(&session, package, &e) || mk_session_sync(session, ids, n, NULL, NULL, &e) ||
        mk_sampler_new(&sampler, package, "{\"greedy\": true}", &e) ||
        mk_decoder_new(&decoder, mk_package_tokenizer(package), 0, &e) ||
        mk_session_generate(session, sampler, &what, NULL, &n, NULL, &e))
        fprintf(stderr, "minimal: %s\n", mk_error_message(e));
    else
        printf("\n");
    mk_decoder_free(decoder);
    mk_sampler_free(sampler);
    mk_session_free(session);
    mk_package_close(package);
    mk_library_close(library);
    int status = (int)mk_error_status(e);
    mk_error_free(e);
    return status;
}
