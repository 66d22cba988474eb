/* Which backends there are, and what is looked up in their structures. */
#include <string.h>
#include "runtime/backend.h"

#define BACKEND(name) extern const struct backend backend_##name;
#include "runtime/backends.def"
#undef BACKEND

static const struct backend *const backends[] = {
#define BACKEND(name) &backend_##name,
#include "runtime/backends.def"
#undef BACKEND
};

bool backend_find(const struct backend **out, const char *name, struct err *e)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!name || strcmp(backends[i]->name, name) == 0) {
            *out = backends[i];
            return true;
        }
    return err_set(e, ERR_USAGE, "no backend %s", name);
}

int backend_find_input(const struct backend_function *f, const char *name)
{
    return mil_port_find(f->inputs, f->n_inputs, name);
}

int backend_find_output(const struct backend_function *f, const char *name)
{
    return mil_port_find(f->outputs, f->n_outputs, name);
}

int backend_find_state(const struct backend_states *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return i;
    return -1;
}

size_t backend_state_bytes(const struct backend_state *s)
{
    return (size_t)s->n_elems * (size_t)s->elem_bytes;
}
