// Any program that the text reader accepts may be verified; a sound one, inferred for other shapes.
// links: mil
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "mil/infer.h"
#include "mil/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unknown sizes become n: what a caller would ask for. Contradictions are errors, never crashes. */
static void infer_for_size(const struct mil_function *f, int64_t n)
{
    struct arena *a = arena_new(0);
    struct err e = {0};
    const struct mil_type **types = ARENA_ARRAY(a, const struct mil_type *, f->n_vars + 1);
    const struct mil_type **inputs = ARENA_ARRAY(a, const struct mil_type *, f->n_inputs + 1);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = f->inputs[i]->type;
        int64_t dims[MIL_RANK_MAX];
        if (t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX)
            continue;
        for (int k = 0; k < t->rank; k++)
            dims[k] = t->dims[k] < 0 ? n : t->dims[k];
        inputs[i] = mil_type_new_tensor(a, t->dtype, t->rank, dims);
    }
    if (!mil_infer_function(f, inputs, types, NULL, a, &e) && (e.code == ERR_NONE || e.msg[0] == '\0'))
        abort();
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mil_model *m = mil_model_new(0);
    struct err e = {0};
    if (mil_text_read(m, (const char *)data, size, "fuzz", &e)) {
        if (mil_verify(m, &e)) {
            for (int i = 0; i < m->program->n_functions; i++) {
                infer_for_size(m->program->functions[i], 1);
                infer_for_size(m->program->functions[i], 7);
            }
        } else if (e.code == ERR_NONE || e.code == ERR_BUG || e.msg[0] == '\0') {
            fprintf(stderr, "an error without a reason: %s\n", e.msg);
            abort();
        }
    }
    mil_model_close(m);
    return 0;
}
