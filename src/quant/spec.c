/* Settings of quantization as people write them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "quant/quant.h"

#define GROUP_MAX ((int64_t)1 << 31)
#define BLOCK_MAX 4096
#define DEFAULT_GROUP 8
#define DEFAULT_BLOCK 32

static const struct {
    const char *name;
    enum quant_needs needs;
} methods[QUANT_METHODS] = {[QUANT_KMEANS] = {"kmeans", QUANT_NEEDS_NOTHING},
                            [QUANT_EXACT] = {"exact", QUANT_NEEDS_NOTHING},
                            [QUANT_ACTIVATION] = {"activation", QUANT_NEEDS_INPUTS},
                            [QUANT_FISHER] = {"fisher", QUANT_NEEDS_GRADIENTS},
                            [QUANT_FEEDBACK] = {"feedback", QUANT_NEEDS_INPUTS},
                            [QUANT_BEST] = {"best", QUANT_NEEDS_INPUTS}};

const char *quant_method_name(enum quant_method m)
{
    return methods[m].name;
}

enum quant_needs quant_method_needs(enum quant_method m)
{
    return methods[m].needs;
}

bool quant_method_find(const char *name, enum quant_method *out)
{
    for (int i = 0; i < QUANT_METHODS; i++) {
        if (strcmp(methods[i].name, name) != 0)
            continue;
        *out = (enum quant_method)i;
        return true;
    }
    return false;
}

char *quant_method_list(void)
{
    struct buf b;
    size_t n;
    buf_init(&b, 1024);
    for (int i = 0; i < QUANT_METHODS; i++)
        buf_printf(&b, "%s%s", i == 0 ? "" : i == QUANT_METHODS - 1 ? " or " : ", ", methods[i].name);
    return buf_take(&b, &n);
}

/* A whole decimal number up to the end of the text. */
static bool parse_number(const char *text, int64_t max, int64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 12)
        return false;
    long long v = strtoll(text, &end, 10);
    *out = v;
    return *end == '\0' && v <= max;
}

bool quant_parse_lut(struct quant_spec *out, const char *name, const char *text, struct err *e)
{
    char bits_text[8];
    int64_t bits = 0, group = DEFAULT_GROUP;
    size_t n = strcspn(text, ",");
    *out = (struct quant_spec){0};
    if (!text[0] || strcmp(text, "none") == 0)
        return true;
    if (n < sizeof bits_text) {
        memcpy(bits_text, text, n);
        bits_text[n] = '\0';
    }
    if (n >= sizeof bits_text || !parse_number(bits_text, 8, &bits) || bits < 1 || bits == 5 || bits == 7)
        return err_set(e, ERR_USAGE, "%s: expected 1, 2, 3, 4, 6 or 8 bits (or none), found '%s'", name,
                       text);
    if (text[n] == ',') {
        const char *rest = text + n + 1;
        if (strcmp(rest, "tensor") == 0)
            group = 0;
        else if (!parse_number(rest, GROUP_MAX, &group))
            return err_set(e, ERR_USAGE,
                           "%s: expected a number of channels a table (0 or tensor: all) behind the comma, "
                           "found '%s'",
                           name, rest);
    }
    out->kind = QUANT_LUT;
    out->bits = (int)bits;
    out->group = group;
    return true;
}

bool quant_parse_linear(struct quant_spec *out, const char *name, const char *text, struct err *e)
{
    *out = (struct quant_spec){0};
    if (!text[0] || strcmp(text, "none") == 0)
        return true;
    if (strcmp(text, "int8") == 0 || strcmp(text, "int8,tensor") == 0) {
        out->kind = QUANT_INT8;
        out->bits = 8;
        out->group = text[4] ? 0 : 1;
        return true;
    }
    if (strncmp(text, "int4", 4) == 0 && (text[4] == '\0' || text[4] == ',')) {
        int64_t block = DEFAULT_BLOCK;
        if (text[4] && (!parse_number(text + 5, BLOCK_MAX, &block) || block < 1))
            return err_set(e, ERR_USAGE, "%s: expected int4,B with a block of 1 to %d inputs, found '%s'",
                           name, BLOCK_MAX, text);
        out->kind = QUANT_INT4;
        out->bits = 4;
        out->block = block;
        return true;
    }
    return err_set(e, ERR_USAGE, "%s: expected int8, int8,tensor, int4,B or none, found '%s'", name, text);
}

void quant_describe(char dst[64], const struct quant_spec *s)
{
    switch (s->kind) {
    case QUANT_LUT:
        if (s->group > 0)
            snprintf(dst, 64, "LUT%d, %lld channel%s a table, %s", s->bits, (long long)s->group,
                     s->group == 1 ? "" : "s", quant_method_name(s->method));
        else
            snprintf(dst, 64, "LUT%d, one table a tensor, %s", s->bits, quant_method_name(s->method));
        break;
    case QUANT_INT8:
        snprintf(dst, 64, "int8, one scale a %s", s->group > 0 ? "channel" : "tensor");
        break;
    case QUANT_INT4:
        snprintf(dst, 64, "int4, one scale for %lld inputs", (long long)s->block);
        break;
    default:
        snprintf(dst, 64, "fp16");
        break;
    }
}
