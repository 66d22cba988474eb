/* A build without Core ML: everything is refused, the same way. */
#include "coreml/coreml.h"

bool coreml_check(struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without Core ML, which only Apple's systems have");
}

const char *coreml_name(void)
{
    return "no Core ML";
}

bool coreml_compile(const char *mlpackage, char **out, struct err *e)
{
    (void)mlpackage;
    *out = NULL;
    return coreml_check(e);
}

bool coreml_model_open(struct coreml_model **out, const char *mlmodelc, const char *function,
                       enum coreml_units units, struct err *e)
{
    (void)mlmodelc;
    (void)function;
    (void)units;
    *out = NULL;
    return coreml_check(e);
}

void coreml_model_close(struct coreml_model *m)
{
    (void)m;
}

bool coreml_model_agrees(const struct coreml_model *m, const struct mil_port *inputs, int n_inputs,
                         const struct mil_port *outputs, int n_outputs, const struct mil_port *states,
                         int n_states, struct err *e)
{
    (void)m;
    (void)inputs;
    (void)n_inputs;
    (void)outputs;
    (void)n_outputs;
    (void)states;
    (void)n_states;
    return coreml_check(e);
}

bool coreml_state_open(struct coreml_state **out, const struct coreml_model *m, struct err *e)
{
    (void)m;
    *out = NULL;
    return coreml_check(e);
}

void coreml_state_close(struct coreml_state *s)
{
    (void)s;
}

void coreml_state_clear(struct coreml_state *s)
{
    (void)s;
}

bool coreml_state_type(struct coreml_state *s, const char *name, enum mil_dtype *out, struct err *e)
{
    (void)s;
    (void)name;
    *out = MIL_DTYPE_NONE;
    return coreml_check(e);
}

void coreml_state_read(struct coreml_state *s, const char *name, int64_t first, int64_t n, void *dst)
{
    (void)s;
    (void)name;
    (void)first;
    (void)n;
    (void)dst;
}

void coreml_state_write(struct coreml_state *s, const char *name, int64_t first, int64_t n, const void *src)
{
    (void)s;
    (void)name;
    (void)first;
    (void)n;
    (void)src;
}

bool coreml_call_open(struct coreml_call **out, const struct coreml_model *m, const struct mil_port *inputs,
                      int n_inputs, const struct mil_port *outputs, int n_outputs, struct err *e)
{
    (void)m;
    (void)inputs;
    (void)n_inputs;
    (void)outputs;
    (void)n_outputs;
    *out = NULL;
    return coreml_check(e);
}

void coreml_call_close(struct coreml_call *c)
{
    (void)c;
}

bool coreml_call_run(struct coreml_call *c, const void *const *inputs, void *const *outputs,
                     struct coreml_state *state, struct err *e)
{
    (void)c;
    (void)inputs;
    (void)outputs;
    (void)state;
    return coreml_check(e);
}

bool coreml_plan(const char *mlmodelc, const char *function, enum coreml_units units, coreml_plan_fn *each,
                 void *context, struct err *e)
{
    (void)mlmodelc;
    (void)function;
    (void)units;
    (void)each;
    (void)context;
    return coreml_check(e);
}
