/* The device that each op of a function is expected on, as Core ML's compiler is reported to choose it.
 *
 * It cuts a program into segments by estimated cost before the engine's own compiler sees it: entering a segment of the engine costs
 * 0.125 ms, each change of device 0.125 ms, results that leave the engine 0.125 ms, and the cheapest path wins. What ops cost on the
 * engine is estimated from published rates; what they cost on the processor is an assumption, stated here: 100 G operations/s, 30 GB/s.
 * Work that only integer inputs take part in comes first, on the processor, and is not part of the path.
 */
#ifndef MILKIT_DEVICE_PLACE_H
#define MILKIT_DEVICE_PLACE_H

#include "device/chip.h"
#include "device/models.h"
#include "format/json.h"

struct place_op {
    const struct mil_op *op;
    bool on_engine, is_prologue;
    const char *reason;                   /* static */
    double ms_on_engine, ms_on_processor; /* ms_on_engine of an op that it does not take: INFINITY */
};

struct placement {
    struct place_op *ops; /* [n_ops], heap: without constants, in the order of the program */
    int n_ops, n_engine, n_prologue, n_segments;
    double ms; /* of the path */
};

void place_function(struct placement *out, const struct mil_function *f, const struct chip *chip);
void placement_fini(struct placement *p);
/* Every function of every model: adds "schema", "path", "chip", "basis", "parts" to o. */
bool place_path(cJSON *o, const char *path, const struct chip *chip, struct err *e) MUST_CHECK;

#endif
