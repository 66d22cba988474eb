/* What checks look at, and how they report: for this folder alone. */
#ifndef MILKIT_LINT_SCAN_H
#define MILKIT_LINT_SCAN_H

#include "device/models.h"
#include "lint/lint.h"
#include "mil/mil.h"
#include "mil/ops.h"

/* Who uses a variable. */
struct lint_use {
    const struct mil_op *op;
    const struct mil_arg *arg;
    int next; /* of the same variable; -1: the last */
};

/* One function, with what is asked again and again. */
struct lint_function {
    const struct mil_function *f;
    const struct mil_op **ops; /* of all blocks, in order: [n_ops], without const */
    int n_ops;
    struct lint_use *uses;
    int n_uses;
    int *first_use;    /* by variable id */
    bool *is_prologue; /* by variable id: follows from integer inputs and constants alone */
    bool *is_output;   /* by variable id: of the function or of a block in it */
    bool *
        only_steers; /* by variable id: whole numbers that only say where slices and tables are read or written */
    bool *is_computed;  /* by variable id: not an input, a constant, or these joined and reshaped */
    bool looks_up_only; /* an embedding: gathers of tables and what changes shapes */
};

struct lint_place {
    char *operation, *text; /* in the report's arena */
};

#define LINT_PLACES_MAX 5
struct lint_finding {
    const struct lint_rule *rule;
    enum lint_severity severity;
    const char *program, *function; /* NULL: of the package, of the model */
    int count, n_places;
    struct lint_place places[LINT_PLACES_MAX];
};

struct lint_scan {
    struct arena *arena; /* of the report */
    struct lint_finding *findings;
    size_t n_findings, capacity;
    const struct lint_options *options;
    const struct device_model *programs; /* [n_programs] */
    int n_programs;
    /* What is looked at now. */
    const struct lint_rule *rule;
    const struct device_model *program;
    const struct lint_function *function;
};

/* op NULL: of the whole. */
void lint_add(struct lint_scan *s, enum lint_severity severity, const struct mil_op *op, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* With the rule's own severity, a note where the op belongs to the prologue (the processor's work before the engine begins). */
void lint_add_op(struct lint_scan *s, const struct mil_op *op, const char *fmt, ...) PRINTF_LIKE(3, 4);

bool lint_is_phone(const struct lint_scan *s);
/* Can the target be of a family up to this one; is it surely not newer? */
bool lint_may_be_up_to(const struct lint_scan *s, enum chip_family family);
bool lint_is_up_to(const struct lint_scan *s, enum chip_family family);

struct lint_function *lint_function_new(const struct mil_function *f, struct arena *a);

bool lint_op_is_constant(const struct mil_op *op);                     /* const and constexpr_* */
bool lint_op_is_in(const struct mil_op *op, const char *const *names); /* NULL ends the list */
/* Begin, end and indices: where integers steer an op and are not computed with. */
bool lint_arg_steers(const struct mil_op *op, const struct mil_arg *arg);
/* The shape moves, the elements stay: reshape, transpose, expand_dims, squeeze, identity, cast between floats. */
bool lint_op_is_view(const struct mil_op *op);
/* Behind views, the op that made the elements of a variable; NULL: an input. */
const struct mil_op *lint_maker(const struct mil_var *v);
const struct mil_var *lint_behind_views(const struct mil_var *v);
const struct mil_op *lint_arg_maker(const struct mil_op *op, const char *arg);
/* The tensor type of an argument; NULL when there is none. */
const struct mil_type *lint_arg_type(const struct mil_op *op, const char *arg);
const struct mil_type *lint_output_type(const struct mil_op *op);
bool lint_is_integer(const struct mil_type *t); /* bool counts */
/* The state that a read_state's tensor came from, or NULL. */
const struct mil_var *lint_state_read(const struct mil_var *v);
bool lint_has_states(const struct mil_function *f);
/* The weight behind a binding, packed as it is stored: the value in a blob or in the text, and the op that expands it (NULL: const). */
const struct mil_value *lint_weight(const struct mil_var *v, const struct mil_op **expands);

#endif
