/* Core ML behind a C interface: loading a function, predicting, states, what the system plans to do with each op.
 *
 * coreml.m is the one file that speaks Objective-C (manual reference counting); coreml_none.c stands in its place where
 * there is no Core ML, and refuses. Nothing here keeps pointers of the caller but between a call's open and close.
 */
#ifndef MILKIT_COREML_COREML_H
#define MILKIT_COREML_COREML_H

#include "base/err.h"
#include "mil/port.h"

/* Which devices the system may choose from. */
enum coreml_units {
    COREML_CPU_AND_ENGINE, /* the default: what packages of this layout are made for */
    COREML_CPU_AND_GPU,
    COREML_CPU_ONLY, /* known to give NaN with graphs in fp16 that have states */
    COREML_ALL
};

/* "cpu-and-ane", "cpu-and-gpu", "cpu-only", "all"; NULL: the first. ERR_USAGE: another name. */
bool coreml_units_find(const char *name, enum coreml_units *out, struct err *e) MUST_CHECK;
/* ERR_UNSUPPORTED: this program was built without Core ML. */
bool coreml_check(struct err *e) MUST_CHECK;
/* "Core ML", or what stands for it. */
const char *coreml_name(void);

/* A .mlpackage compiled by the system into a folder that is the caller's to remove: *out on the heap. */
bool coreml_compile(const char *mlpackage, char **out, struct err *e) MUST_CHECK;

/* One function of one .mlmodelc. May be shared by threads. */
struct coreml_model;
/* function NULL: the default one. The first time on a machine this compiles for the device: seconds to minutes. */
bool coreml_model_open(struct coreml_model **out, const char *mlmodelc, const char *function,
                       enum coreml_units units, struct err *e) MUST_CHECK;
void coreml_model_close(struct coreml_model *m); /* calls and states of it may still be open; accepts NULL */
/* Does the model take and give these ports, and have these states, by its own description? ERR_FORMAT names what differs. */
bool coreml_model_agrees(const struct coreml_model *m, const struct mil_port *inputs, int n_inputs,
                         const struct mil_port *outputs, int n_outputs, const struct mil_port *states,
                         int n_states, struct err *e) MUST_CHECK;

/* States by name, zeros at first. Shared by all functions that declare them, one call at a time. */
struct coreml_state;
bool coreml_state_open(struct coreml_state **out, const struct coreml_model *m, struct err *e) MUST_CHECK;
void coreml_state_close(struct coreml_state *s); /* accepts NULL */
void coreml_state_clear(struct coreml_state *s); /* all zeros */
/* The type that the system holds a state in: MIL_FP16 or MIL_FP32. */
bool coreml_state_type(struct coreml_state *s, const char *name, enum mil_dtype *out,
                       struct err *e) MUST_CHECK;
/* Elements [first, first + n) of a state in row-major order, in that type. What fails makes the next call with these states fail. */
void coreml_state_read(struct coreml_state *s, const char *name, int64_t first, int64_t n, void *dst);
void coreml_state_write(struct coreml_state *s, const char *name, int64_t first, int64_t n, const void *src);

/* The workspace of one caller of one function, for ports of given shapes, of fp16, fp32 and int32. */
struct coreml_call;
/* inputs, outputs: outlive the call. */
bool coreml_call_open(struct coreml_call **out, const struct coreml_model *m, const struct mil_port *inputs,
                      int n_inputs, const struct mil_port *outputs, int n_outputs, struct err *e) MUST_CHECK;
void coreml_call_close(struct coreml_call *c); /* accepts NULL */
/* inputs, outputs: float or int32 [n_elems] each, row-major. state: NULL when the function has none. ERR_FAILED: what the system said. */
bool coreml_call_run(struct coreml_call *c, const void *const *inputs, void *const *outputs,
                     struct coreml_state *state, struct err *e) MUST_CHECK;

/* What the system intends for one op of a function: it can still do otherwise. */
struct coreml_plan_op {
    const char *type;      /* "ios18.conv" */
    const char *output;    /* name of its first output, "" when it has none */
    const char *preferred; /* "engine", "gpu", "processor"; "" when it does not say (constants) */
    bool on_engine, on_gpu, on_processor; /* supported */
    double cost;                          /* share of the whole, NAN when it does not say */
};
typedef bool coreml_plan_fn(void *context, const struct coreml_plan_op *op, struct err *e);
/* Ops in the order of the program, blocks with them. Compiles for the device in full, as loading does. function NULL: the default one. */
bool coreml_plan(const char *mlmodelc, const char *function, enum coreml_units units, coreml_plan_fn *each,
                 void *context, struct err *e) MUST_CHECK;

#endif
