// links: format
/* Any bytes as JSON: a tree whose texts can be written again, or an error. */
#include <stdlib.h>
#include <string.h>
#include "format/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const cJSON *item, struct buf *b)
{
    for (; item; item = item->next) {
        struct err e = {0};
        int64_t i = 0;
        const char *s = NULL;
        if (item->string) {
            json_put_string(b, item->string, strlen(item->string));
            if (!json_get_int(item, "a", &i, "fuzz", &e) && !e.msg[0])
                abort();
            if (!json_get_string(item, "a", &s, "fuzz", &e) && !e.msg[0])
                abort();
        }
        if (cJSON_IsString(item))
            json_put_string(b, item->valuestring, strlen(item->valuestring));
        if (cJSON_IsNumber(item))
            json_put_double(b, item->valuedouble);
        walk(item->child, b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    cJSON *root = NULL;
    struct buf b;
    /* An exact copy, so that a read behind the end is seen. */
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    buf_init(&b, 1 << 20);
    if (json_parse(&root, text, size, "fuzz", &e))
        walk(root, &b);
    else if (!e.msg[0] || root)
        abort();
    cJSON_Delete(root);
    buf_fini(&b);
    free(text);
    return 0;
}
