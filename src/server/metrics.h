/* What is counted, for /metrics. */
#ifndef MILKIT_SERVER_METRICS_H
#define MILKIT_SERVER_METRICS_H

#include "base/buf.h"

#define METRICS_ENDPOINTS 96

struct metrics;
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* endpoint: a row of endpoints.def, or -1. */
void metrics_count_request(struct metrics *m, int endpoint, int status, double seconds);
enum cancel_phase { CANCELLED_WAITING, CANCELLED_PROMPT, CANCELLED_ANSWER };
void metrics_count_cancelled(struct metrics *m, enum cancel_phase phase);
void metrics_count_times(struct metrics *m, double wait_seconds, double first_seconds);
/* Prometheus' text. paths [n]: of the endpoints. */
void metrics_put(struct metrics *m, const char *const *paths, int n, struct buf *out);

#endif
