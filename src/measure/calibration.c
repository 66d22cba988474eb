/* Reading the text, and the one that weights are measured on when the user gives none: plain prose, talk, instructions,
 * numbers and code, in the proportions of ordinary use. */
#include "measure/calibration.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/mlmodelc.h"

#define TEXT_BYTES_MAX ((size_t)64 << 20)

const char calibration_text[] =
    "The old harbour lies at the end of a narrow bay, and for most of the year the wind comes from the "
    "west. Boats leave before sunrise and return in the afternoon, when the market opens and the first "
    "buyers walk along the quay. In winter the work is harder: the days are short, ropes freeze, and a "
    "trip that takes two hours in summer may take five. Nobody here would call it romantic, but few would "
    "want to live anywhere else.\n\n"
    "\"Did you check the engine?\" she asked.\n"
    "\"Twice,\" he said. \"It starts, but it does not sound right. I think the pump is worn out.\"\n"
    "\"Then we wait until Thursday. The part costs 48 euros, and Peter can bring it.\"\n\n"
    "Water boils at 100 degrees Celsius at sea level, and at a lower temperature on a mountain, because "
    "the air pressure is lower there. Light travels about 300,000 kilometres in one second; sound needs "
    "almost three seconds for a single kilometre. A year has 365 days, and every fourth one, with few "
    "exceptions, has 366.\n\n"
    "How to make a simple bread:\n"
    "1. Mix 500 g of flour, 10 g of salt and 7 g of dry yeast.\n"
    "2. Add 320 ml of warm water and knead for ten minutes.\n"
    "3. Let the dough rest for an hour, form a loaf, and bake it at 220 degrees until it is brown.\n\n"
    "def mean(values):\n"
    "    total = 0\n"
    "    for value in values:\n"
    "        total += value\n"
    "    return total / len(values) if values else None\n\n"
    "The committee met on 14 March and agreed on three points. First, the school will stay open next year. "
    "Second, the town buys the field behind the station, if the owner accepts the price. Third, everyone "
    "who spoke against the plan may answer in writing, and the answers will be published together with the "
    "decision. What is a fair price? That depends on whom you ask, and on when. Once upon a time a little "
    "girl found a small red ball in the garden; she was so happy that she ran to her mother and showed it "
    "to her.\n";

static bool encode_text(const struct calibration *c, const char *checkpoint, struct ids *ids, struct err *e)
{
    const char *from = c->from;
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t bytes = strlen(calibration_text);
    if (!tokenizer_open(&t, checkpoint, e)) {
        err_wrap(e,
                 "weights are measured on a text, for which the checkpoint's tokenizer is needed, or on ids");
        return err_set_hint(e, HINT_CALIBRATION_IDS);
    }
    bool ok = (!from || c->read_text(from, &text, &bytes, TEXT_BYTES_MAX, e)) &&
              tokenizer_encode(t, from ? text : calibration_text, bytes, true, ids, e);
    free(text);
    tokenizer_free(t);
    return ok;
}

static bool read_once(struct calibration *c, const char *checkpoint, struct err *e)
{
    const char *from = c->from;
    bool is_ids = from && from[0] == '@', is_self = from && strcmp(from, CALIBRATION_SELF) == 0;
    if (c->ids.n > 0)
        return true;
    if (!(is_ids    ? c->read_ids(from, &c->ids.p, &c->ids.n, e)
          : is_self ? c->write_self(c->context, c->n_text, &c->ids, e)
                    : encode_text(c, checkpoint, &c->ids, e)))
        return false;
    return c->ids.n >= 2 || err_set(e, ERR_FORMAT, "%s: expected a text of some words, found %zu token%s",
                                    from ? from : "the calibration text", c->ids.n, c->ids.n == 1 ? "" : "s");
}

bool calibration_read(struct calibration *c, const char *checkpoint, struct ids *ids, struct err *e)
{
    if (!read_once(c, checkpoint, e))
        return false;
    for (size_t i = 0; i < c->ids.n; i++)
        ids_push(ids, c->ids.p[i]);
    return true;
}

void calibration_fini(struct calibration *c)
{
    ids_free(&c->ids);
}

void calibration_key(const struct ids *ids, char key[CALIBRATION_KEY_SIZE])
{
    uint8_t digest[32];
    sha256(digest, ids->p, ids->n * sizeof *ids->p);
    for (int i = 0; i < (CALIBRATION_KEY_SIZE - 1) / 2; i++)
        snprintf(key + 2 * i, 3, "%02x", digest[i]);
}
