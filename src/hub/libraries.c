/* Loads libcurl and libcrypto by name, at the first download. They stay: what they have registered for the end of the
 * program must be there then. */
#include <dlfcn.h>
#include <string.h>
#include "hub/hub_internal.h"

static bool load(void **handle, const char *const *names, const char *what, struct err *e)
{
    *handle = NULL;
    for (int i = 0; names[i] && !*handle; i++)
        *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return *handle ||
           err_set(e, ERR_UNSUPPORTED, "downloads need %s (%s), which is not installed", what, names[0]);
}

static bool find(void *library, const char *name, void *pointer, struct err *e)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return err_set(e, ERR_UNSUPPORTED, "downloads need %s, which the installed library does not have",
                       name);
    memcpy(pointer, &symbol, sizeof symbol);
    return true;
}

bool hub_libraries_load(struct hub_libraries *l, struct err *e)
{
    static const char *const curl[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib", NULL};
    static const char *const crypto[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.3.dylib", NULL};
    *l = (struct hub_libraries){0};
    bool ok = load(&l->curl, curl, "libcurl", e) && load(&l->crypto, crypto, "libcrypto", e);
#define HUB_FIND_CURL(name) ok = ok && find(l->curl, #name, &l->name, e);
#define HUB_FIND_CRYPTO(name) ok = ok && find(l->crypto, #name, &l->name, e);
    HUB_CURL(HUB_FIND_CURL)
    HUB_CRYPTO(HUB_FIND_CRYPTO)
    if (ok && l->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        ok = err_set(e, ERR_FAILED, "libcurl can't begin its work");
    return ok;
}
