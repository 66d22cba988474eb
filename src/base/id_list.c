/* Lists of token ids as text. */
#include "base/id_list.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool id_list_read(const char *text, const char *where, enum err_code fault, int32_t **ids, size_t *n,
                  struct err *e)
{
    static const char separators[] = ", \t\r\n";
    size_t capacity = 0, count = 0;
    int32_t *list = NULL;
    *ids = NULL;
    *n = 0;
    for (const char *p = text + strspn(text, separators); *p; p += strspn(p, separators)) {
        char *end = NULL;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || (*end && !strchr(separators, *end)) || errno == ERANGE || v < 0 || v > INT32_MAX) {
            free(list);
            return err_set(e, fault, "%s: expected token ids separated by commas, found '%.*s' as number %zu",
                           where, (int)strcspn(p, separators), p, count + 1);
        }
        list = mem_grow(list, count, &capacity, sizeof *list);
        list[count++] = (int32_t)v;
        p = end;
    }
    if (count == 0)
        return err_set(e, fault, "%s: no token id in it", where);
    *ids = list;
    *n = count;
    return true;
}

bool id_list_check(const int32_t *ids, size_t n, int64_t vocab_size, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return err_set(e, ERR_USAGE, "token %zu: expected an id below %lld (the vocabulary), found %d", i,
                           (long long)vocab_size, ids[i]);
    return true;
}
