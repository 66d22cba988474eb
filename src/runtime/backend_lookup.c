/* What is looked up in the structures of backends: apart from the table of them, for they use it, too. */
#include <string.h>
#include "runtime/backend.h"

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
