/* Chips and systems by name. */
#include "device/chip.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

static const struct chip chips[] = {
#define CHIP(name, family, is_phone, tflops, stream, basis)                                                  \
    {name, CHIP_##family, is_phone, tflops, stream, basis},
#include "device/chips.def"
#undef CHIP
};
#define N_CHIPS ((int)(sizeof chips / sizeof chips[0]))

/* Letters and digits, in lower case. */
static void plain_name(char *dst, size_t n, const char *text)
{
    size_t k = 0;
    for (; *text && k + 1 < n; text++)
        if (isalnum((unsigned char)*text))
            dst[k++] = (char)tolower((unsigned char)*text);
    dst[k] = '\0';
}

bool chip_find(const struct chip **out, const char *name, struct err *e)
{
    char wanted[32], found[32];
    plain_name(wanted, sizeof wanted, name);
    for (int i = 0; i < N_CHIPS; i++) {
        plain_name(found, sizeof found, chips[i].name);
        if (strcmp(wanted, found) == 0) {
            *out = &chips[i];
            return true;
        }
    }
    struct buf b;
    buf_init(&b, 512);
    for (int i = 0; i < N_CHIPS; i++)
        buf_printf(&b, "%s%s", i ? ", " : "", chips[i].name);
    err_set(e, ERR_USAGE, "chip: expected one of %s; found '%s'", b.p, name);
    buf_fini(&b);
    return false;
}

const struct chip *chip_at(int i)
{
    return i >= 0 && i < N_CHIPS ? &chips[i] : NULL;
}

const char *device_system_name(enum system_kind kind)
{
    return kind == SYSTEM_MACOS ? "macOS" : kind == SYSTEM_IOS ? "iOS" : "any";
}

bool device_system_read(struct device_system *out, const char *text, struct err *e)
{
    char name[32];
    plain_name(name, sizeof name, text);
    const char *digits = NULL;
    *out = (struct device_system){0};
    if (strncmp(name, "macos", 5) == 0) {
        out->kind = SYSTEM_MACOS;
        digits = name + 5;
    } else if (strncmp(name, "ios", 3) == 0) {
        out->kind = SYSTEM_IOS;
        digits = name + 3;
    }
    char *end = NULL;
    long version = digits && *digits ? strtol(digits, &end, 10) : 0;
    if (!digits || (end && *end) || version < 0 || version > 99)
        return err_set(e, ERR_USAGE, "system: expected macOS or iOS and a version (macOS 26), found '%s'",
                       text);
    out->version = (int)version;
    return true;
}

int64_t chip_axis_max(enum chip_family family)
{
    return family <= CHIP_H15 ? 16384 : 65536;
}
