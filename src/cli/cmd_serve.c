/* milkit serve: packages behind an HTTP interface. The server itself is src/server. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "cli/client.h"
#include "cli/download.h"
#include "server/server.h"

#define SYNOPSIS "DIR|NAME... [OPTIONS]"
#define MODELS_MAX 32
#define KEYS_MAX (2 * CLI_WORDS_MAX)
#define MEBIBYTES_MAX ((int64_t)1 << 30)
#define KEY_FILE_BYTES_MAX ((size_t)1 << 20)

struct serve {
    struct cli *c;
    struct package_options package;
    struct server_options o;
    struct server_model models[MODELS_MAX];
    int64_t port, n_slots, n_waiting, n_connections, n_open, cache_ram, cache_disk;
    double grace, ping;
    bool no_page, metrics, slots, json;
    const char *alias, *key_file, *metrics_names, *log_format;
    struct cli_words keys;
    const char *all_keys[KEYS_MAX];
    char *key_text;
    char *names[MODELS_MAX];
    mk_library *library;
};

static void say_listening(void *context, const char *address)
{
    struct serve *r = context;
    (void)r;
    printf("listening on %s\n", address);
    fflush(stdout);
}

static bool add_key(struct serve *r, const char *key, struct err *e)
{
    if (!key[0])
        return err_set(e, ERR_USAGE, "--api-key: expected a key, found nothing");
    if (r->o.n_keys == KEYS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d keys", KEYS_MAX);
    r->all_keys[r->o.n_keys++] = key;
    return true;
}

static bool is_readable_by_others(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & S_IROTH) != 0;
}

/* One key a line; blank lines and those that begin with # are left out. */
static bool read_key_file(struct serve *r, struct err *e)
{
    size_t bytes;
    char *save = NULL;
    if (!r->key_file)
        return true;
    if (is_readable_by_others(r->key_file))
        return err_set(e, ERR_USAGE,
                       "%s: everybody on this machine may read it; make it yours alone (chmod 600)",
                       r->key_file);
    if (!file_read(&r->key_text, &bytes, r->key_file, KEY_FILE_BYTES_MAX, e))
        return false;
    for (char *line = strtok_r(r->key_text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
        if (line[0] != '#' && !add_key(r, line, e))
            return false;
    return r->o.n_keys > 0 || err_set(e, ERR_USAGE, "%s: expected keys, one a line", r->key_file);
}

static bool collect_keys(struct serve *r, struct err *e)
{
    const char *variable = getenv("MILKIT_API_KEY");
    for (int i = 0; i < r->keys.n; i++)
        if (!add_key(r, r->keys.words[i], e))
            return false;
    if (r->keys.n > 0)
        log_warn(&r->c->log, "a key on the command line can be seen by all who list processes");
    if (variable && variable[0] && !add_key(r, variable, e))
        return false;
    r->o.keys = r->all_keys;
    return read_key_file(r, e);
}

static bool in_range(const char *option, int64_t value, int64_t least, int64_t most, struct err *e)
{
    return (value >= least && value <= most) ||
           err_set(e, ERR_USAGE, "%s: expected %lld to %lld, found %lld", option, (long long)least,
                   (long long)most, (long long)value);
}

static bool check(struct serve *r, struct err *e)
{
    if (!in_range("--port", r->port, 0, 65535, e) || !in_range("--parallel", r->n_slots, 1, 256, e) ||
        !in_range("--queue", r->n_waiting, 0, 65536, e) ||
        !in_range("--connections", r->n_connections, 1, 16384, e) ||
        !in_range("--open", r->n_open, 1, MODELS_MAX, e) ||
        !in_range("--cache-ram", r->cache_ram, 0, MEBIBYTES_MAX, e) ||
        !in_range("--cache-disk", r->cache_disk, 0, MEBIBYTES_MAX, e) ||
        !in_range("--n-predict", r->o.max_tokens, -1, INT32_MAX, e))
        return false;
    if (!(r->grace >= 0 && r->grace <= 86400))
        return err_set(e, ERR_USAGE, "--grace: expected 0 to 86400 seconds, found %g", r->grace);
    if (r->log_format && strcmp(r->log_format, "json") != 0 && strcmp(r->log_format, "text") != 0)
        return err_set(e, ERR_USAGE, "--log-format: expected text or json, found '%s'", r->log_format);
    if (r->metrics_names && strcmp(r->metrics_names, "milkit") != 0 &&
        strcmp(r->metrics_names, "llamacpp") != 0)
        return err_set(e, ERR_USAGE, "--metrics-names: expected milkit or llamacpp, found '%s'",
                       r->metrics_names);
    r->o.logs_json = r->log_format && strcmp(r->log_format, "json") == 0;
    r->o.has_llama_names = r->metrics_names && strcmp(r->metrics_names, "llamacpp") == 0;
    r->o.port = (int)r->port;
    r->o.n_slots = (int)r->n_slots;
    r->o.n_waiting = (int)r->n_waiting;
    r->o.n_connections = (int)r->n_connections;
    r->o.n_open_max = (int)r->n_open;
    r->o.grace_seconds = r->grace;
    r->o.cache_memory_bytes = (uint64_t)r->cache_ram << 20;
    r->o.cache_file_bytes = (uint64_t)r->cache_disk << 20;
    r->o.has_page = !r->no_page;
    r->o.has_metrics = r->metrics || r->metrics_names;
    r->o.has_slots = r->slots;
    return true;
}

/* The folder of the package that the user names, and what requests call it. */
static bool add_model(struct serve *r, const char *named, struct err *e)
{
    int i = r->o.n_models, precision;
    const char *path;
    struct package_options one = r->package;
    one.path = named;
    if (i == MODELS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d models", MODELS_MAX);
    if (!package_options_check(r->c, &one, &path, &precision, e) ||
        (!r->library && !client_open(r->c, one.n_threads, &r->library, e)))
        return false;
    if (client_is_checkpoint(path) && !client_keep_package(r->c, r->library, named, &path, e))
        return false;
    r->o.precision = precision;
    r->o.backend = r->package.backend;
    r->o.compute_units = r->package.compute_units;
    r->names[i] = i == 0 && r->alias ? xstrdup(r->alias) : path_base(named);
    for (int k = 0; k < i; k++)
        if (strcmp(r->names[k], r->names[i]) == 0) {
            r->o.n_models++; /* its name is freed with the others */
            return err_set(e, ERR_USAGE, "two models are named %s", r->names[i]);
        }
    r->models[i] = (struct server_model){.name = r->names[i], .path = path};
    r->o.n_models++;
    return true;
}

int cmd_serve(struct cli *c, int argc, char **argv)
{
    struct serve r = {.c = c,
                      .port = 8080,
                      .n_slots = 4,
                      .n_waiting = 64,
                      .n_connections = 256,
                      .n_open = 2,
                      .cache_ram = 256,
                      .cache_disk = 4096,
                      .grace = 10,
                      .package.takes_checkpoint = true,
                      .o = {.host = "127.0.0.1", .max_tokens = -1}};
    const char *named[MODELS_MAX];
    int n_named = 0;
    bool help = false;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--host", CLI_STRING, &r.o.host, "ADDRESS",
         "where to listen (127.0.0.1); a path that ends in .sock: a socket"},
        {"--port", CLI_INT, &r.port, "N", "port (8080; 0: any)"},
        {"--api-key", CLI_WORDS, &r.keys, "KEY",
         "who asks must have it; may be given several times (or MILKIT_API_KEY)"},
        {"--api-key-file", CLI_STRING, &r.key_file, "FILE", "keys, one a line"},
        {"-a,--alias", CLI_STRING, &r.alias, "NAME",
         "what requests call the first model (its folder's name)"},
        {"-np,--parallel", CLI_INT, &r.n_slots, "N", "answers at once (4); each has its own states"},
        {"--queue", CLI_INT, &r.n_waiting, "N", "requests that may wait (64), then 429"},
        {"--connections", CLI_INT, &r.n_connections, "N", "connections (256), then 503"},
        {"--open,--models-max", CLI_INT, &r.n_open, "N", "models open at once (2)"},
        {"-cram,--cache-ram", CLI_INT, &r.cache_ram, "MIB",
         "of states of conversations that are at rest, in memory, for each model (256; 0: none)"},
        {"--cache-dir", CLI_STRING, &r.o.cache_folder, "DIR",
         "keep such states in files, too, where the next start finds them; they hold what was said"},
        {"--cache-disk", CLI_INT, &r.cache_disk, "MIB", "of such files for each model (4096)"},
        {"--strict-model", CLI_FLAG, &r.o.is_strict_model, NULL,
         "404 for a model that is not there, else the first answers"},
        {"-n,--n-predict", CLI_INT, &r.o.max_tokens, "N",
         "tokens of an answer where the request does not say (-1: until the context is full)"},
        {"--cors-origins", CLI_STRING, &r.o.origins, "LIST",
         "web pages that may ask: origins with commas, localhost or *"},
        {"--allowed-hosts", CLI_STRING, &r.o.allowed_hosts, "LIST", "more names by which the server goes"},
        {"--metrics", CLI_FLAG, &r.metrics, NULL, "answer /metrics"},
        {"--metrics-names", CLI_STRING, &r.metrics_names, "WHOSE",
         "names of the metrics: milkit, or llamacpp's as well"},
        {"--slots", CLI_FLAG, &r.slots, NULL, "answer /slots"},
        {"--no-ui,--no-webui", CLI_FLAG, &r.no_page, NULL, "no web page"},
        {"--grace", CLI_DOUBLE, &r.grace, "SECONDS",
         "for answers that run when the server is told to stop (10)"},
        {"--log-format", CLI_STRING, &r.log_format, "HOW", "a request's line of the log: text or json"},
        PACKAGE_OPTION_ROWS(r.package),
        DOWNLOAD_OPTION_ROW(r.package.yes),
    };
    bool ok = cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), named, MODELS_MAX,
                        &n_named, SYNOPSIS, &help, &e);
    if (ok && help)
        return 0;
    if (ok && r.package.path)
        ok = add_model(&r, r.package.path, &e);
    for (int i = 0; i < n_named && ok; i++)
        ok = add_model(&r, named[i], &e);
    if (ok && r.o.n_models == 0)
        ok = err_set(&e, ERR_USAGE, "expected a package folder");
    ok = ok && check(&r, &e) && collect_keys(&r, &e);
    if (ok) {
        r.o.library = r.library;
        r.o.models = r.models;
        r.o.log = &c->log;
        r.o.stop = c->stop_signal;
        r.o.listening = say_listening;
        r.o.context = &r;
        ok = server_run(&r.o, &e);
    }
    mk_library_close(r.library);
    free(r.key_text);
    for (int i = 0; i < r.o.n_models; i++)
        free(r.names[i]);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
