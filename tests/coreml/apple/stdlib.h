/* Of the C library what src/coreml uses: the machine that checks for Apple's target has no headers of its own for it. */
#include <stddef.h>
void free(void *p);
