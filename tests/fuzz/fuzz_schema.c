// links: server
/* Any bytes as a JSON schema, or (behind a 'g') as a grammar, and behind a zero a text that is to follow it. A schema that is taken becomes a grammar
 * that is taken, whose texts are JSON; what may follow, follows, and what may not changes nothing.
 */
#include <stdlib.h>
#include <string.h>
#include "format/json.h"
#include "server/grammar.h"
#include "server/schema_grammar.h"

#define STEPS_MAX 400 /* bytes of the text: enough, and bounded */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void follow(struct grammar *g, const char *text, size_t n, bool is_json)
{
    struct grammar_state *s = grammar_state_new(g);
    cJSON *value = NULL;
    for (size_t i = 0; i < n; i++) {
        bool may = grammar_accepts(s, text + i, 1), could_end = grammar_can_end(s);
        if (grammar_advance(s, text + i, 1) != may)
            abort();
        if (!may) {
            if (grammar_can_end(s) != could_end || grammar_accepts(s, text + i, 1))
                abort();
            break;
        }
        if (!is_json || !grammar_can_end(s))
            continue;
        if (!json_parse(&value, text, i + 1, "fuzz", NULL))
            abort();
        cJSON_Delete(value);
    }
    grammar_state_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct grammar *g = NULL;
    cJSON *schema = NULL;
    struct buf grammar;
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    const char *end = memchr(text, 0, size);
    size_t n = end ? (size_t)(end - text) : size, n_rest = end ? size - n - 1 : 0;
    const char *rest = end ? end + 1 : text;
    buf_init(&grammar, GRAMMAR_TEXT_BYTES_MAX);
    n_rest = n_rest > STEPS_MAX ? STEPS_MAX : n_rest;
    if (n > 0 && text[0] == 'g') {
        if (grammar_parse(&g, text + 1, n - 1, &e))
            follow(g, rest, n_rest, false);
        else if (!e.msg[0])
            abort();
    } else if (n > 0 && json_parse(&schema, text + 1, n - 1, "fuzz", &e)) {
        bool is_strict = text[0] != 'l';
        if (!schema_grammar(&grammar, schema, is_strict, "", "", &e)) {
            if (!e.msg[0])
                abort();
        } else if (grammar_parse(&g, grammar.p, grammar.n, &e)) {
            follow(g, rest, n_rest, true);
        } else if (strstr(e.msg, "no rule") || strstr(e.msg, "expected")) {
            abort(); /* it may be too large, or refer to itself without end; it is never ill-formed */
        }
    }
    grammar_free(g);
    cJSON_Delete(schema);
    buf_fini(&grammar);
    free(text);
    return 0;
}
