/* YAML on top of libyaml: one document as a small tree, with limits and line numbers. For meta.yaml and the like.
 *
 * Refused: anchors, aliases and tags, keys that are no scalars, equal keys in one mapping, more than 32 levels, more
 * than 100000 nodes, a second document, NUL in a scalar.
 */
#ifndef MILKIT_FORMAT_YAML_H
#define MILKIT_FORMAT_YAML_H

#include "base/buf.h"

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_node {
    enum yaml_kind kind;
    bool is_plain;    /* a scalar without quotes: may be a number, a boolean or null */
    int line;         /* from 1 */
    const char *key;  /* of an entry of a mapping, else NULL */
    const char *text; /* of a scalar */
    struct yaml_node *child, *next;
};

/* where: file name for messages. The tree lives in the arena. *out is NULL for a text without a document. */
bool yaml_parse(struct yaml_node **out, struct arena *a, const char *text, size_t bytes, const char *where,
                struct err *e) MUST_CHECK;
const char *yaml_kind_name(const struct yaml_node *n); /* "mapping", ... for messages */
/* An empty plain scalar, ~ or null. */
bool yaml_is_null(const struct yaml_node *n);
/* Plain decimal integers; true, false, yes, no, on, off; decimal numbers. False for anything else. */
bool yaml_get_int(const struct yaml_node *n, int64_t *value) MUST_CHECK;
bool yaml_get_bool(const struct yaml_node *n, bool *value) MUST_CHECK;
bool yaml_get_double(const struct yaml_node *n, double *value) MUST_CHECK;
/* The integer that a text spells: optional sign and decimal digits, nothing else. */
bool yaml_text_int(const char *text, int64_t *value) MUST_CHECK;
/* Writing: appends a number with a dot, which YAML 1.1 wants in every number that is not an integer. */
void yaml_put_number(struct buf *b, double d);

#endif
