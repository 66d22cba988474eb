/* What tests ask of the stand-in for Core ML, and tell it. MILKIT_STANDIN, in the environment, has the same words: comma-separated. */
#ifndef MILKIT_TESTS_STANDIN_H
#define MILKIT_TESTS_STANDIN_H

#include <stdbool.h>

/* Words:
 *   half-states     states are seen as fp16, as Core ML has them; otherwise as the engine behind the stand-in holds them
 *   no-backings     predictions into memory of the caller's fail
 *   zero-strides    arrays have no gaps, and say that their strides are 0
 *   fail-load       loading fails as it does where the compiler of the Neural Engine refuses
 *   fail-predict    predictions fail as they do where the Neural Engine stops
 *   fail-every=N    each N-th does
 *   raise           predictions raise an exception
 *   raise-state     looks into states do
 *   die             the first prediction ends the process
 *   old-system      parts that came with macOS 15 are not there: they raise */
void standin_set(const char *words);
int standin_living(void);          /* objects */
long standin_predictions(void);    /* that were asked for */
long standin_backings_used(void);  /* outputs that came in memory of the caller's */
long standin_padded_outputs(void); /* that came in rows with gaps */
/* Closes what models shared. How many compiled models were left lying around? */
int standin_end(void);

#endif
