/* Which backends there are. */
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
