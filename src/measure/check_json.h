/* What check.h and check_bench.h found out, as one JSON object. */
#ifndef MILKIT_MEASURE_CHECK_JSON_H
#define MILKIT_MEASURE_CHECK_JSON_H

#include "measure/check.h"
#include "measure/check_bench.h"

struct check_json {
    const struct check *check;
    const char *checkpoint;            /* as the user named it; NULL: nothing was compared */
    const struct tokenizer *tokenizer; /* NULL: the package has none */
    const struct check_bench *bench;   /* NULL: nothing was measured */
    bool with_layers;
};
/* why: what check_judge says. */
bool check_put_json(struct buf *b, const struct check_json *o, enum check_verdict v, const struct buf *why,
                    struct err *e) MUST_CHECK;

#endif
