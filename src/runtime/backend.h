/* What computes the functions of a package: a table of functions that model, session and snapshots call, so that they
 * know no engine. backends.def lists the backends that there are; each is one file, backend_<name>.c, whose own structures
 * begin with those of this header.
 *
 * Inputs and outputs of a run are float32 or int32 buffers in row-major order of the declared shape, whatever a backend
 * holds inside. They are handed on without copies: an output of one run can be bound as the input of another.
 */
#ifndef MILKIT_RUNTIME_BACKEND_H
#define MILKIT_RUNTIME_BACKEND_H

#include <stdio.h>
#include "base/half.h"
#include "base/pool.h"
#include "base/stop.h"
#include "mil/port.h"

/* Files of sessions hold these numbers. */
enum model_precision {
    PRECISION_DEFAULT = 0, /* float32 inside of fused steps, fp16 in caches: the promises about bits hold */
    PRECISION_FP32 = 1,    /* op by op in float32, states too */
    PRECISION_FP16 = 2,    /* op by op, each result rounded to fp16 */
    PRECISION_ANE = 3      /* op by op, the Neural Engine's arithmetic as it was published */
};

struct buf;

struct backend_options {
    enum model_precision precision;
    bool watch_range;      /* package_range is wanted */
    const char *emulation; /* switches of PRECISION_ANE; NULL: the defaults; outlives the package */
    const char *
        compute_units; /* the devices that it may choose from, in its words; NULL: its default; read by open alone */
    const struct stop *stop; /* asked while functions are made; may be NULL, outlives the package */
};

/* Of values that a package's programs declare fp16. */
struct backend_range {
    double largest;                   /* finite magnitude; 0: nothing was seen */
    char function[64], variable[128]; /* where */
    int64_t n_beyond;                 /* numbers that fp16 does not hold, but for -inf (masks) */
};

/* What the functions of one package share. */
struct backend_package {
    const char *device; /* what computes, for people: "avx512" */
};

/* A file of the package, as a program in memory and by its path: the path may be NULL for a backend that reads programs. */
struct backend_source {
    const struct mil_model *mil;
    const char *path;
};

/* One function for given shapes: immutable, shared by runs and threads. Borrows its source. */
struct backend_function {
    int n_inputs, n_outputs;
    const struct mil_port *inputs, *outputs;
};

/* The workspace of one caller of one function. */
struct backend_run {
    const struct backend_function *function;
};

struct backend_state {
    const char *name;
    enum mil_dtype dtype; /* as declared: MIL_FP16 */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t n_elems;
    /* Its new contents are computed from the old ones, or it is a window that values move through. */
    bool is_recurrent;
    int elem_bytes; /* as it is held: 2 (fp16) or 4 (float32); 0: declared, but no function looks at it */
};

/* States by name, shared by all functions and chunks that declare them. */
struct backend_states {
    int n;
    struct backend_state *list;
};

/* Runs of one function that execute together. */
struct backend_batch {
    int n_runs;
    struct backend_run **runs; /* for inputs and outputs; not for run_execute */
};

struct backend_member {
    struct backend_states *states; /* as in run_execute */
    const struct stop *stop;       /* of this member alone; may be NULL */
    bool has_failed;               /* true beforehand: left out */
    struct err error;              /* then: why */
};

struct backend {
    const char *name;
    /* Functions are made of the program in memory: outputs that were added to it are there. */
    bool reads_programs;

    bool (*open)(struct backend_package **out, const struct backend_options *o, struct err *e) MUST_CHECK;
    void (*close)(struct backend_package *p); /* accepts NULL */
    /* What was seen in all runs so far, of a package opened with watch_range; NULL where a backend can't tell. */
    void (*package_range)(const struct backend_package *p, struct backend_range *out);
    /* Every file of the package, before a function of one of them is made: how a state is held can depend on all that
     * is done with it, and what the functions may cost together on all of them. Without any a function stands for itself. */
    void (*add_program)(struct backend_package *p, const struct mil_model *m);
    /* By the programs that were added. */
    bool (*state_is_recurrent)(const struct backend_package *p, const char *state);

    /* ERR_USAGE: a shape that the program does not allow. */
    bool (*function_open)(struct backend_function **out, struct backend_package *p,
                          const struct backend_source *source, const char *name,
                          const struct mil_input_shape *shapes, int n_shapes, struct err *e) MUST_CHECK;
    void (*function_close)(struct backend_function *f); /* before its package; accepts NULL */

    struct backend_states *(*states_new)(struct backend_package *p);
    /* Adds the states that a function declares, zeros at first; one that is there must have the same shape (ERR_FORMAT). */
    bool (*states_add)(struct backend_states *s, const struct backend_function *f, struct err *e) MUST_CHECK;
    void (*states_clear)(struct backend_states *s); /* all zeros */
    void (*states_free)(struct backend_states *s);  /* accepts NULL */
    /* n bytes from `first` on of state i as it is held, within n_elems * elem_bytes. */
    void (*state_read)(const struct backend_states *s, int i, size_t first, size_t n, void *dst);
    void (*state_write)(struct backend_states *s, int i, size_t first, size_t n, const void *src);
    /* All of state i as declared, rounded where more is held. dst, src [n_elems]. */
    void (*state_get)(const struct backend_states *s, int i, f16 *dst);
    void (*state_set)(struct backend_states *s, int i, const f16 *src);

    /* pool: whose threads it may use. stop: asked while it executes, may be NULL. Both outlive the run. */
    bool (*run_open)(struct backend_run **out, const struct backend_function *f, struct pool *pool,
                     const struct stop *stop, struct err *e) MUST_CHECK;
    void (*run_close)(struct backend_run *r); /* accepts NULL */
    /* The run's own buffer of input i: float or int32 [n_elems]. */
    void *(*run_input)(struct backend_run *r, int i);
    /* Reads a buffer of the caller instead (an output of another run); NULL goes back to the own one. */
    void (*run_bind_input)(struct backend_run *r, int i, const void *data);
    /* Stays where it is as long as the run lives. */
    const void *(*run_output)(const struct backend_run *r, int i);
    /* Rounds output i to its declared fp16, in place. */
    void (*run_round_output)(struct backend_run *r, int i);
    /* states: NULL when the function has none. ERR_FAILED: an index out of range, or what the device refused;
     * ERR_CANCELLED: stopped. The states are not defined then. */
    bool (*run_execute)(struct backend_run *r, struct backend_states *states, struct err *e) MUST_CHECK;

    /* Several runs at once, for less than one after another costs; all three NULL where a backend can't. Each member gets the bits that it
     * gets alone, whatever becomes of the others. members [n]: of the first n runs. False: nothing was done. */
    bool (*batch_open)(struct backend_batch **out, const struct backend_function *f, int n_runs,
                       struct pool *pool, struct err *e) MUST_CHECK;
    void (*batch_close)(struct backend_batch *b); /* accepts NULL */
    bool (*batch_execute)(struct backend_batch *b, struct backend_member *members, int n,
                          struct err *e) MUST_CHECK;

    /* What a function was made into; all three NULL where there is nothing to tell. measured: a run that took times,
     * or NULL. */
    void (*run_measure)(struct backend_run *r); /* from now on */
    void (*print_plan)(const struct backend_function *f, const struct backend_run *measured, FILE *out);
    /* Members of a JSON object that the caller has begun. */
    void (*put_plan)(const struct backend_function *f, const struct backend_run *measured, struct buf *out);
};

/* A row of backends.def by its name; NULL: the first. ERR_USAGE: there is none of this name. */
bool backend_find(const struct backend **out, const char *name, struct err *e) MUST_CHECK;

/* Index by name, -1 when absent. */
int backend_find_input(const struct backend_function *f, const char *name);
int backend_find_output(const struct backend_function *f, const char *name);
int backend_find_state(const struct backend_states *s, const char *name);
/* Bytes of a state as it is held. */
size_t backend_state_bytes(const struct backend_state *s);

#endif
