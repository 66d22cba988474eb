// links: chat
/* Any bytes as a file of /load: what is read can be saved, the saved file can be read, and then saving gives the same
 * bytes; a file that is refused changes nothing. */
#include <stdlib.h>
#include <string.h>
#include "chat/conversation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *saved(const struct conversation *c, size_t *n)
{
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    conversation_put(c, &b);
    if (b.failed)
        abort();
    return buf_take(&b, n);
}

static void clear(struct conversation *c)
{
    conversation_clear(c);
    conversation_set_system(c, NULL);
    free(c->messages);
    free(c->system);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation c = {0}, again = {0};
    struct err e = {0};
    size_t n_first = 0, n_second = 0;
    struct message m = {.content = strdup("before"), .bytes = 6};
    conversation_add(&c, &m);
    char *before = saved(&c, &n_first);
    if (!conversation_parse(&c, (struct str){(const char *)data, size}, "fuzz", &e)) {
        char *after = saved(&c, &n_second);
        if (!e.msg[0] || n_first != n_second || memcmp(before, after, n_first) != 0)
            abort();
        free(after);
    } else {
        char *first = saved(&c, &n_first);
        if (!conversation_parse(&again, (struct str){first, n_first}, "saved", &e))
            abort();
        char *second = saved(&again, &n_second);
        if (c.n != again.n || n_first != n_second || memcmp(first, second, n_first) != 0)
            abort();
        free(first);
        free(second);
    }
    free(before);
    clear(&c);
    clear(&again);
    return 0;
}
