/* Chips and systems that packages are made for: what is published of them, as a table (chips.def).
 *
 * Families are those of the Neural Engine compiler's parameters; limits and speeds follow them. Nothing here was measured by milkit.
 */
#ifndef MILKIT_DEVICE_CHIP_H
#define MILKIT_DEVICE_CHIP_H

#include <stdint.h>
#include "base/err.h"

enum chip_family { CHIP_H13 = 13, CHIP_H14, CHIP_H15, CHIP_H16, CHIP_H17, CHIP_H18 };

struct chip {
    const char *name; /* "M4 Pro" */
    enum chip_family family;
    bool is_phone;
    double fp16_tflops; /* 0: nobody measured it */
    double stream_gb_per_s;
    const char *basis; /* of these two numbers */
};

/* Any spelling: "M4 Pro", "m4-pro", "m4pro". ERR_USAGE names those there are. */
bool chip_find(const struct chip **out, const char *name, struct err *e) MUST_CHECK;
const struct chip *chip_at(int i); /* in the order of the table; NULL behind the last */

enum system_kind { SYSTEM_ANY, SYSTEM_MACOS, SYSTEM_IOS };
struct device_system {
    enum system_kind kind;
    int version; /* 0: any */
};
/* "macOS 26", "ios18", "macos". */
bool device_system_read(struct device_system *out, const char *text, struct err *e) MUST_CHECK;
const char *device_system_name(enum system_kind kind); /* "macOS"; "any" */

/* The longest axis that this family's compiler takes. */
int64_t chip_axis_max(enum chip_family family);

#endif
