/* The end of a program that finds one of its invariants broken. */
#include <stdio.h>
#include <stdlib.h>
#include "base/invariant.h"

void invariant_broken(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, text);
    abort();
}
