/* Calls the default function of one Core ML model with zeros and prints the shapes that come out: predict MODEL */
#include <milkit.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16 };

int main(int argc, char **argv)
{
    mk_library *library = NULL;
    mk_model *model = NULL;
    mk_function *f = NULL;
    mk_state *state = NULL;
    mk_result *result = NULL;
    mk_error *e = NULL;
    const char *names[MOST];
    mk_tensor in[MOST];
    size_t n = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: predict MODEL\n");
        return MK_USAGE;
    }
    if (!mk_library_open(&library, NULL, &e) && !mk_model_open(&model, library, argv[1], NULL, &e) &&
        !mk_function_open(&f, model, NULL, &e)) {
        for (; n < MOST && n < mk_function_ports(f, MK_INPUTS); n++) {
            mk_port port = {sizeof port, NULL, 0, 0, {0}, 0, false};
            size_t elements = 1;
            mk_function_port(f, MK_INPUTS, n, &port, NULL);
            mk_tensor t = {sizeof t, MK_F32, port.rank, {0}, {0}, NULL};
            for (int i = 0; i < port.rank; i++)
                elements *= (size_t)(t.dims[i] = port.dims[i]);
            t.data = calloc(elements, sizeof(float));
            names[n] = port.name;
            in[n] = t;
        }
        if (!mk_function_ports(f, MK_STATES) || !mk_state_new(&state, f, &e))
            mk_predict(f, names, in, n, state, NULL, &result, &e);
    }
    for (size_t k = 0; result && k < mk_result_count(result); k++) {
        const char *name;
        mk_tensor out = {sizeof out, 0, 0, {0}, {0}, NULL};
        mk_result_get(result, k, &name, &out, NULL);
        printf("%s:", name);
        for (int i = 0; i < out.rank; i++)
            printf(i + 1 < out.rank ? " %lld" : " %lld\n", (long long)out.dims[i]);
    }
    if (e)
        fprintf(stderr, "predict: %s\n", mk_error_message(e));
    int status = (int)mk_error_status(e);
    while (n > 0)
        free(in[--n].data);
    mk_result_free(result);
    mk_state_free(state);
    mk_function_close(f);
    mk_model_close(model);
    mk_library_close(library);
    mk_error_free(e);
    return status;
}
