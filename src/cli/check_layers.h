/* milkit check: where a package leaves its checkpoint. The residual stream behind every layer and the states
 * by name, package against reference.
 */
#ifndef MILKIT_CLI_CHECK_LAYERS_H
#define MILKIT_CLI_CHECK_LAYERS_H

#include "base/buf.h"
#include "measure/check_limits.h"
#include "reference/reference.h"
#include "runtime/session.h"

struct check_layers;
/* The model must have been opened with watch_layers. Both are borrowed. */
bool check_layers_new(struct check_layers **out, const struct model *m, struct reference *r,
                      struct err *e) MUST_CHECK;
void check_layers_free(struct check_layers *l); /* accepts NULL */
/* Appends n tokens to both sides; every call of the package is compared as it ends. */
bool check_layers_feed(struct check_layers *l, struct reference_session *r, struct session *s,
                       const int32_t *tokens, size_t n, struct progress *progress, struct err *e) MUST_CHECK;
/* Compares the states as they are now. */
bool check_layers_states(struct check_layers *l, const struct reference_session *r, struct session *s,
                         struct err *e) MUST_CHECK;
/* Sentences (a line each) about what is outside the limits; nothing when all is well. */
void check_layers_judge(const struct check_layers *l, const struct check_limits *limits, struct buf *why);
/* A line: the worst layer and state. */
void check_layers_put_worst(const struct check_layers *l, struct buf *b);
void check_layers_put_table(const struct check_layers *l, struct buf *b);
/* "layers": [...], "states": [...], with a comma behind */
void check_layers_put_json(const struct check_layers *l, struct buf *b);

#endif
