/* Converts a checkpoint with 6-bit palettes and shows how far it is: convert CHECKPOINT PACKAGE */
#include <milkit.h>
#include <stdio.h>

static bool show(void *context, const mk_progress *p)
{
    (void)context;
    fprintf(stderr, "%s: %.0f of %.0f %s\n", p->stage, p->done, p->total, p->unit);
    return true; /* false would stop the conversion */
}

int main(int argc, char **argv)
{
    mk_library *library = NULL;
    mk_text *report = NULL;
    mk_error *e = NULL;
    mk_call call = {sizeof call, NULL, show, NULL};
    if (argc != 3) {
        fprintf(stderr, "usage: convert CHECKPOINT PACKAGE\n");
        return MK_USAGE;
    }
    if (mk_library_open(&library, NULL, &e) ||
        mk_convert(library, argv[1], argv[2], "{\"context\": 256, \"lut-ffn\": \"6,8\", \"lut-head\": \"6,8\"}",
                   &call, &report, &e))
        fprintf(stderr, "convert: %s\n", mk_error_message(e));
    else
        printf("%s\n", mk_text_data(report, NULL));
    mk_text_free(report);
    mk_library_close(library);
    int status = (int)mk_error_status(e);
    mk_error_free(e);
    return status;
}
