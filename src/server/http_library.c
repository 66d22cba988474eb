/* Loads libmicrohttpd by name. It stays loaded. */
#include <dlfcn.h>
#include <string.h>
#include "server/http_internal.h"

static bool find(void *library, const char *name, void *pointer, struct err *e)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return err_set(e, ERR_UNSUPPORTED,
                       "serving needs %s, which the installed libmicrohttpd does not have", name);
    memcpy(pointer, &symbol, sizeof symbol);
    return true;
}

bool http_library_load(struct http_library *l, struct err *e)
{
    static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so.13",
                                        "libmicrohttpd.12.dylib"};
    void *library = NULL;
    bool ok = true;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNSUPPORTED, "serving needs libmicrohttpd (%s), which is not installed",
                       names[0]);
#define HTTP_FIND(name) ok = ok && find(library, #name, &l->name, e);
    HTTP_LIBRARY(HTTP_FIND)
#undef HTTP_FIND
    return ok;
}
