/* Reports of a Mac (tools/mac_report.sh): lines of text for people, and one line of JSON for each measured point.
 *
 * The line of a point: {"milkit_mac_report": 1, "model", "weights", "chip", "system": texts, "calls", "operations", "weight_mb",
 * "cache_mb", "tokens_per_second": numbers above 0}. All other lines are left alone. Files of up to 16 MB and 256 points.
 */
#ifndef MILKIT_DEVICE_REPORT_H
#define MILKIT_DEVICE_REPORT_H

#include "base/mem.h"
#include "device/forecast.h"

struct report {
    int n;
    struct speed_point *points; /* in an arena of the caller's */
};

/* Adds the points of a text. ERR_FORMAT: it has none, or one that is wrong; ERR_USAGE: a chip that is in no table. where: for messages. */
bool report_parse(struct report *r, const char *text, size_t bytes, const char *where, struct arena *a,
                  struct err *e) MUST_CHECK;
bool report_read(struct report *r, const char *path, struct arena *a, struct err *e) MUST_CHECK;

#endif
