/* Linked with tests of sessions (-Wl,--wrap=model_open): what they open in the default precision is run by the coreml backend on the
 * stand-in, and nothing of it may live at the end. What is the engine's own (other precisions, layers that are watched,
 * backends of a test's own) stays there, and is counted. */
#include <stdio.h>
#include <unistd.h>
#include "runtime/model.h"
#include "standin.h"

static int n_by_coreml, n_by_engine;

bool __real_model_open(struct model **out, const char *path, const struct model_options *options,
                       struct err *e);
bool __wrap_model_open(struct model **out, const char *path, const struct model_options *options,
                       struct err *e);
bool __wrap_model_open(struct model **out, const char *path, const struct model_options *options,
                       struct err *e)
{
    struct model_options o = *options;
    bool is_ours =
        !o.backend && !o.backend_name && !o.emulation && !o.watch_layers && o.precision == PRECISION_DEFAULT;
    if (is_ours)
        o.backend_name = "coreml";
    *(is_ours ? &n_by_coreml : &n_by_engine) += 1;
    return __real_model_open(out, path, &o, e);
}

__attribute__((destructor)) static void look_back(void)
{
    int n_left = standin_end();
    printf("coreml: %d packages, %ld predictions, outputs: %ld in given memory, %ld with gaps; engine: %d "
           "packages; "
           "%d objects live, %d compiled models left\n",
           n_by_coreml, standin_predictions(), standin_backings_used(), standin_padded_outputs(), n_by_engine,
           standin_living(), n_left);
    fflush(stdout);
    /* Tests that were all skipped open nothing. */
    bool has_run = n_by_coreml + n_by_engine > 0;
    if (standin_living() != 0 || n_left != 0 ||
        (has_run && (n_by_coreml == 0 || standin_padded_outputs() == 0)))
        _exit(1);
}
