/* milkit serve: packages behind an HTTP interface. A client of milkit.h alone. */
#ifndef MILKIT_SERVER_SERVER_H
#define MILKIT_SERVER_SERVER_H

#include <stdatomic.h>
#include "base/log.h"
#include "milkit.h"

struct server_model {
    const char *name, *path; /* of the package's folder */
};
struct server_options {
    mk_library *library;
    const struct server_model *models; /* [n_models], the first one is the default */
    int n_models, n_open_max;          /* packages open at once */
    int32_t precision;
    const char *backend, *compute_units; /* of mk_package_options */
    const char *host;
    int port;
    const char *const *keys; /* [n_keys]; none: everybody may */
    int n_keys;
    const char *origins;       /* of web pages that may ask: "a,b", "localhost" or "*"; NULL: none */
    const char *allowed_hosts; /* "a,b": more names by which a loopback server may be called */
    int n_slots, n_waiting, n_connections;
    int64_t max_tokens; /* of an answer where the request does not say; -1: until the context is full */
    double grace_seconds, ping_seconds;
    uint64_t cache_memory_bytes, cache_file_bytes; /* of states that slots gave up, for each open model */
    const char *cache_folder;                      /* they outlast the server there; NULL: they don't */
    bool has_page, has_metrics, has_slots, is_strict_model, logs_json;
    bool has_llama_names; /* of metrics */
    struct log *log;
    const atomic_int *stop; /* not 0: stop */
    void (*listening)(void *context, const char *address);
    void *context;
};
/* Until it is told to stop. ERR_IO: the address is taken. */
bool server_run(const struct server_options *o, struct err *e) MUST_CHECK;

#endif
