/* What a package costs: files, copies of weights, length of programs. */
#include <stdlib.h>
#include <string.h>
#include "device/cost.h"
#include "lint/checks.h"

void lint_check_file_bytes(struct lint_scan *s)
{
    double limit = lint_is_phone(s) ? 950e6 : 2e9;
    double bytes = device_weight_bytes(s->program->model);
    if (bytes > limit)
        lint_add(s, s->rule->severity, NULL, "%.2f GB of weights, at most %.2f", bytes / 1e9, limit / 1e9);
}

void lint_check_weight_copies(struct lint_scan *s)
{
    double files = 0, copies = 0;
    int n_shared = 0;
    for (int i = 0; i < s->n_programs; i++) {
        const struct mil_model *m = s->programs[i].model;
        double once = device_weight_bytes(m), all = 0;
        for (int k = 0; k < m->program->n_functions; k++)
            all += device_function_cost(m->program->functions[k]).weight_bytes;
        files += once;
        copies += all;
        n_shared += all > once;
    }
    if (n_shared > 0 && copies >= 1e6)
        lint_add(s, s->rule->severity, NULL,
                 "%.3g GB on the engine for %.3g GB in files: each function has its own copy", copies / 1e9,
                 files / 1e9);
}

void lint_check_depth(struct lint_scan *s)
{
    const struct lint_function *f = s->function;
    int *depth = xcalloc((size_t)f->f->n_vars + 1, sizeof *depth), longest = 0;
    for (int i = 0; i < f->n_ops; i++) {
        const struct mil_op *op = f->ops[i];
        int d = 0;
        for (int k = 0; k < op->n_args; k++)
            for (int n = 0; n < op->args[k].n; n++)
                if (op->args[k].bindings[n].var && depth[op->args[k].bindings[n].var->id] > d)
                    d = depth[op->args[k].bindings[n].var->id];
        d += mil_op_is(op, "conv");
        for (int k = 0; k < op->n_outputs; k++)
            depth[op->outputs[k]->id] = d;
        longest = d > longest ? d : longest;
    }
    if (longest > 380)
        lint_add(s, s->rule->severity, NULL, "%d convolutions one behind the other", longest);
    free(depth);
}

/* Section "who decides": what a call of the engine must save is about a quarter of a millisecond. The time is that of streaming the
 * weights and of starting the ops, the two terms that the forecast has for a decode. */
void lint_check_small(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    double stream = s->options->chip ? s->options->chip->stream_gb_per_s : 64;
    double ms = device_function_cost(f).weight_bytes / (stream * 1e6);
    int n = 0;
    for (int i = 0; i < s->function->n_ops; i++)
        n += !lint_op_is_constant(s->function->ops[i]);
    ms += n * 0.77e-3;
    if (lint_has_states(f) && ms < 0.25)
        lint_add(s, s->rule->severity, NULL, "about %.2f ms of work", ms);
}
