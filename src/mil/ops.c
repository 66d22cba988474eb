/* Look-ups in the op table, and the names that Apple's metadata gives to ops and opsets. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/ops.h"

static const struct mil_op_info rows[MIL_OP_COUNT] = {
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc)                               \
    [MIL_OP_##id] = {MIL_OP_##id, name, opset, histogram, inputs, doc, MIL_RULE_##rule},
#include "mil/ops.def"
#undef MIL_OP
};

static const struct {
    const char *name, *doc;
} rule_texts[MIL_RULE_COUNT] = {
#define RULE_TEXT(name, doc) {#name, doc},
    MIL_RULES(RULE_TEXT)
#undef RULE_TEXT
};

const struct mil_op_info *mil_op_info_find(const char *name)
{
    for (int i = 1; i < MIL_OP_COUNT; i++) {
        if (rows[i].name[0] == name[0] && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

const struct mil_op_info *mil_op_info_by_id(enum mil_op_id id)
{
    return (int)id > 0 && (int)id < MIL_OP_COUNT ? &rows[id] : NULL;
}

const char *mil_rule_name(enum mil_rule rule)
{
    return (int)rule >= 0 && (int)rule < MIL_RULE_COUNT ? rule_texts[rule].name : "?";
}

const char *mil_rule_doc(enum mil_rule rule)
{
    return (int)rule >= 0 && (int)rule < MIL_RULE_COUNT ? rule_texts[rule].doc : "?";
}

bool mil_op_input_next(const char **at, struct mil_op_input *input)
{
    const char *p = *at;
    while (*p == ' ')
        p++;
    if (!*p)
        return false;
    *input = (struct mil_op_input){.name = {p, strcspn(p, ":")}};
    p += input->name.n;
    if (*p == ':' && p[1]) {
        input->type_class = p[1];
        p += 2;
    }
    for (; *p && *p != ' '; p++) {
        input->is_optional |= *p == '?';
        input->is_variadic |= *p == '*';
        input->is_compile_time |= *p == '!';
    }
    *at = p;
    return true;
}

void mil_op_histogram_key(char dst[96], const char *op_type, int opset)
{
    const struct mil_op_info *info = mil_op_info_find(op_type);
    int prefix = 0;
    for (const char *p = info ? info->histogram : ""; *p; p += strcspn(p, " "), p += *p == ' ') {
        int changed = atoi(p);
        if (changed <= opset && changed > prefix)
            prefix = changed;
    }
    size_t n = prefix ? (size_t)snprintf(dst, 96, "Ios%d.", prefix) : 0;
    bool upper = prefix == 0;
    for (const char *p = op_type; *p && n + 1 < 96; p++) {
        if (*p == '_') {
            upper = true;
            continue;
        }
        dst[n++] = upper ? (char)toupper((unsigned char)*p) : *p;
        upper = false;
    }
    dst[n] = '\0';
}

int mil_opset_number(const char *opset)
{
    if (!opset)
        return 0;
    for (int n = 15; n <= 19; n++) {
        char protobuf[16], text[16];
        snprintf(protobuf, sizeof protobuf, "CoreML%d", n - 10);
        snprintf(text, sizeof text, "ios%d", n);
        if (strcmp(opset, protobuf) == 0 || strcmp(opset, text) == 0)
            return n;
    }
    return 0;
}
