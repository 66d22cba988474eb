/* For tests of the library's door: calls with the mk_error ** last, named e. */
#ifndef MILKIT_TESTS_API_H
#define MILKIT_TESTS_API_H

#include <string.h>
#include "milkit.h"
#include "support.h"

static inline void assert_status(mk_status found, mk_status expected, mk_error **e, const char *text)
{
    if (found != expected)
        print_error("status %s: %s\n", mk_status_name(found), mk_error_message(*e));
    assert_int_equal(found, expected);
    assert_int_equal(mk_error_status(*e), expected);
    if (text && !strstr(mk_error_message(*e), text))
        fail_msg("expected '%s' in: %s", text, mk_error_message(*e));
    mk_error_free(*e);
    *e = NULL;
}

#define OK(call)                                                                                             \
    do {                                                                                                     \
        mk_error *error = NULL, **e = &error;                                                                \
        mk_status status = (call);                                                                           \
        assert_status(status, MK_OK, e, NULL);                                                               \
    } while (0)

/* Fails with this status, and with this text in its message (NULL: any). */
#define FAILS(call, code, text)                                                                              \
    do {                                                                                                     \
        mk_error *error = NULL, **e = &error;                                                                \
        mk_status status = (call);                                                                           \
        assert_status(status, code, e, text);                                                                \
    } while (0)

#endif
