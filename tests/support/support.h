/* Shared by the unit tests: cmocka with what it needs, data paths, scratch folders, and a skip that is heard.
 */
#ifndef MILKIT_TESTS_SUPPORT_H
#define MILKIT_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

/* "" when ../shared is not there */
#define HAVE_SHARED (MILKIT_SHARED[0] != '\0')
#define SKIP_WITHOUT_SHARED()                                                                                \
    do {                                                                                                     \
        if (!HAVE_SHARED) {                                                                                  \
            printf("skipped: needs ../shared\n");                                                            \
            skip();                                                                                          \
        }                                                                                                    \
    } while (0)

/* A call that must succeed, with e as its last argument (an err of the macro's own, which may hide another
 * e): prints the message when not. */
#define ASSERT_OK(call)                                                                                      \
    do {                                                                                                     \
        _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wshadow\"") struct err err_ = {0}; \
        struct err *e = &err_;                                                                               \
        _Pragma("GCC diagnostic pop") if (!(call)) fail_msg("%s: %s", #call, err_.msg);                      \
        (void)e;                                                                                             \
    } while (0)

#endif
