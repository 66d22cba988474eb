/* Inside the reader of the text form: the cursor over the text, shared by programs (text_read.c) and by types
 * and values (text_value.c). Every function that returns false has filled the error, with line and column. */
#ifndef MILKIT_MIL_TEXT_READER_INTERNAL_H
#define MILKIT_MIL_TEXT_READER_INTERNAL_H

#include "base/buf.h"
#include "mil/mil.h"

#define TEXT_NESTING_MAX 64
#define TEXT_BYTES_MAX ((size_t)2 << 30)

struct text_reader {
    const char *begin, *p, *end;
    const char *where;
    struct arena *arena;
    struct err *e;
    int depth;
    /* Items of lists that are still being read; each list remembers where it began. */
    void **stack;
    size_t n_stack, stack_capacity;
    struct buf scratch; /* bytes of one tensor or string */
};

/* Error at `at` (a place in the text). Returns false. */
bool text_fail(struct text_reader *r, const char *at, enum err_code code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Skips white space; then the next character, '\0' at the end of the text. */
char text_peek(struct text_reader *r);
/* Takes c if it is next. */
bool text_take(struct text_reader *r, char c);
bool text_expect(struct text_reader *r, char c, const char *what) MUST_CHECK;
/* An identifier as it stands in the text, n = 0 when there is none; consumed. */
struct str text_identifier(struct text_reader *r);
bool text_expect_identifier(struct text_reader *r, struct str *out, const char *what) MUST_CHECK;
bool text_str_is(struct str s, const char *word);
bool text_unsigned(struct text_reader *r, uint64_t max, uint64_t *v, const char *what) MUST_CHECK;
/* What is next, for messages: "'x'" or "the end of the text". */
void text_describe_next(struct text_reader *r, char dst[48]);

void text_push(struct text_reader *r, void *item);
/* Moves the items pushed since mark into the arena as an array of pointers (NULL when there is none). */
bool text_pop(struct text_reader *r, size_t mark, void ***items, int *n) MUST_CHECK;

bool text_read_type(struct text_reader *r, const struct mil_type **out) MUST_CHECK;
/* type "(" ... ")" */
bool text_read_value(struct text_reader *r, const struct mil_value **out) MUST_CHECK;

#endif
