/* Invariants: what holds by milkit's own doing, whatever the input is. A broken one is a fault of the program, so it
 * ends it on the spot. Checked where NDEBUG is not defined: debug, sanitizer and fuzz builds. Input is checked by errors
 * (err.h), in every build.
 */
#ifndef MILKIT_BASE_INVARIANT_H
#define MILKIT_BASE_INVARIANT_H

/* Prints "FILE:LINE: broken invariant: TEXT" and aborts. */
_Noreturn void invariant_broken(const char *file, int line, const char *text);

#ifdef NDEBUG
#define INVARIANTS_CHECKED 0
#else
#define INVARIANTS_CHECKED 1
#endif

/* The condition is compiled in every build and evaluated in those that check; text says what must hold. */
#define INVARIANT(condition, text)                                                                           \
    ((void)(INVARIANTS_CHECKED && !(condition) ? (invariant_broken(__FILE__, __LINE__, text), 0) : 0))

#endif
