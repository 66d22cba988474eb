/* Speed of a package on a chip that nobody has here, by a formula fitted to published measurements (speeds.def):
 *
 *   ms of a token = a * calls + b * operations + c * MB of weights / (GB/s of the chip) + MB of cache / K
 *
 * with relative least squares over the rows that take part. Eight rows and four constants: a forecast is a range, and one for a chip
 * without a row of its own says that it extrapolates.
 */
#ifndef MILKIT_DEVICE_FORECAST_H
#define MILKIT_DEVICE_FORECAST_H

#include "device/chip.h"
#include "format/json.h"

struct speed_point {
    const char *model, *weights, *chip;
    double calls, ops, weight_mb, cache_mb, tokens_per_s;
    bool is_fitted;
    const char *cache, *source, *remark;
};
const struct speed_point *speed_point_at(int i); /* NULL behind the last */

enum { FORECAST_CALL, FORECAST_OP, FORECAST_WEIGHT, FORECAST_CACHE, FORECAST_TERMS };
struct forecast_fit {
    double terms[FORECAST_TERMS];     /* ms a call, ms an op, of the stream, ms a MB of cache */
    int n;                            /* points it rests on */
    double median_error, worst_error; /* of its own points, relative */
    double median_error_without, worst_error_without; /* of each point by a fit to the others */
};
/* more [n_more]: measured points besides the table's, all of them fitted. ERR_FORMAT: fewer than five points, or they do not tell
 * the terms apart. */
bool forecast_fit_all(struct forecast_fit *out, const struct speed_point *more, int n_more,
                      struct err *e) MUST_CHECK;
/* ms of a token */
double forecast_token_ms(const struct forecast_fit *f, const struct speed_point *p, const struct chip *chip);
bool forecast_has_point(const struct chip *chip); /* the fit has one of this chip */

/* A package: adds "schema", "path", "chip", "decode", "prefill", "memory", "caveats", "basis". */
bool forecast_path(cJSON *o, const char *path, const struct chip *chip, struct err *e) MUST_CHECK;
/* The fit: its constants, errors and points, measured beside forecast: "constants", "errors", "points". more [n_more]:
 * as of forecast_fit_all. */
bool forecast_report_fit(cJSON *o, const struct speed_point *more, int n_more, struct err *e) MUST_CHECK;

#endif
