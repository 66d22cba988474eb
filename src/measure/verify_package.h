/* Does the engine run a package that was just written? For `milkit convert`, before the package gets its name. */
#ifndef MILKIT_MEASURE_VERIFY_PACKAGE_H
#define MILKIT_MEASURE_VERIFY_PACKAGE_H

#include "base/log.h"

/* The most seconds that it takes; what was not reached by then counts as right. */
#define VERIFY_SECONDS 5.0

struct verify_package {
    struct log *log;
    int n_threads; /* 0: all */
};

/* convert_options.verify; context: a struct verify_package. Plans both functions of all parts, runs one token through
 * infer and a batch through prefill. Weights stay mapped. */
bool verify_package(void *context, const char *folder, struct err *e) MUST_CHECK;

#endif
