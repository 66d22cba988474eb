/* Names the tensors of a checkpoint that a package does not need, in few words: whole subtrees where nothing below
 * is used, with * for a layer's number. */
#include <stdlib.h>
#include <string.h>
#include "convert/report.h"

#define GROUPS_MAX 8
#define NAME_MAX_SHOWN 120

struct group {
    const char *name;
    int n;
};

/* Bytes of the first part of a name that ends before a dot behind `from`, or of all of it. */
static size_t prefix_end(const char *name, size_t from)
{
    return from + strcspn(name + from, ".");
}

static void put_prefixes(struct table *used, struct arena *arena, const char *name)
{
    for (size_t n = prefix_end(name, 0); name[n]; n = prefix_end(name, n + 1))
        table_put(used, arena_printf(arena, "%.*s", (int)n, name), used);
}

/* The shortest start of an unused tensor's name that no used one has, numbers as *. */
static const char *group_name(const struct table *used, struct arena *arena, const char *name)
{
    size_t n = prefix_end(name, 0);
    while (name[n] && table_get(used, arena_printf(arena, "%.*s", (int)n, name)))
        n = prefix_end(name, n + 1);
    char *out = arena_printf(arena, "%.*s%s", (int)(n < NAME_MAX_SHOWN ? n : NAME_MAX_SHOWN), name,
                             name[n] ? ".*" : "");
    char *to = out;
    for (const char *p = out; *p;) {
        size_t part = strcspn(p, "."), n_digits = strspn(p, "0123456789");
        if (part > 0 && n_digits == part)
            *to++ = '*';
        else
            to = (char *)memmove(to, p, part) + part;
        p += part;
        if (*p)
            *to++ = *p++;
    }
    *to = '\0';
    return out;
}

char *convert_left_out(const struct arch_model *m)
{
    struct arena *arena = arena_new(0);
    struct table *used = table_new(), *found = table_new();
    struct group *groups = xcalloc((size_t)m->tensors->n_tensors + 1, sizeof *groups);
    struct buf text;
    int n_groups = 0, n_more = 0;
    buf_init(&text, 1 << 16);
    for (int i = 0; i < m->tensors->n_tensors; i++) {
        if (m->tensor_used[i])
            put_prefixes(used, arena, m->tensors->tensors[i].name);
    }
    for (int i = 0; i < m->tensors->n_tensors; i++) {
        if (m->tensor_used[i])
            continue;
        const char *name = group_name(used, arena, m->tensors->tensors[i].name);
        struct group *g = table_get(found, name);
        if (!g) {
            g = &groups[n_groups++];
            g->name = name;
            table_put(found, name, g);
        }
        g->n++;
    }
    for (int i = 0; i < n_groups; i++) {
        if (i >= GROUPS_MAX)
            n_more += groups[i].n;
        else if (groups[i].n > 1)
            buf_printf(&text, "%s%s (%d)", i ? ", " : "", groups[i].name, groups[i].n);
        else
            buf_printf(&text, "%s%s", i ? ", " : "", groups[i].name);
    }
    if (n_more > 0)
        buf_printf(&text, " and %d more", n_more);
    char *result = n_groups > 0 ? buf_take(&text, NULL) : NULL;
    buf_fini(&text);
    free(groups);
    table_free(used);
    table_free(found);
    arena_free(arena);
    return result;
}
