/* Functions that no plan can be made of before they run: shapes that depend on values, cond, while_loop, lists.
 *
 * The ops are taken one by one, in order, each as a function of its own that the backend makes for the shapes at hand (and for
 * the numbers, where a shape depends on them); those functions are kept for the next time. Slower than a plan, and used only
 * where there can't be one.
 */
#ifndef MILKIT_RUNTIME_INTERPRETER_H
#define MILKIT_RUNTIME_INTERPRETER_H

#include "runtime/backend.h"

/* A tensor between ops: float32 or int32, row-major. */
struct interpreter_tensor {
    enum mil_dtype dtype; /* as declared */
    bool is_int;          /* data holds int32, else float */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t n_elems;
    void *data; /* [n_elems] */
    int n_references;
};

struct interpreter;
/* For one caller at a time. Borrows all that it is given; source and f outlive it. */
struct interpreter *interpreter_new(const struct backend *b, struct backend_package *package,
                                    const struct backend_source *source, const struct mil_function *f,
                                    struct pool *pool);
void interpreter_free(struct interpreter *p); /* accepts NULL */

/* dims [rank]; the data is zeros. NULL: does not fit into memory. */
struct interpreter_tensor *interpreter_tensor_new(enum mil_dtype d, int rank, const int64_t *dims,
                                                  struct err *e);
void interpreter_tensor_free(struct interpreter_tensor *t); /* one reference less; accepts NULL */

/* inputs [tensor inputs of the function, in order], borrowed. states: NULL when it has none. outputs [outputs of the function]: the
 * caller's references, all NULL on failure. stop may be NULL. */
bool interpreter_run(struct interpreter *p, struct interpreter_tensor *const *inputs,
                     struct backend_states *states, const struct stop *stop,
                     struct interpreter_tensor **outputs, struct err *e) MUST_CHECK;

#endif
