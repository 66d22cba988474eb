/* milkit list: the packages that chat and run have made and kept, and what they take. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/terminal.h"
#include "cli/cli.h"
#include "format/json.h"
#include "hub/store.h"

static void print_json(const struct store_list *l)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_puts(&b, "[");
    for (size_t i = 0; i < l->n; i++) {
        const struct store_entry *x = &l->entries[i];
        const struct {
            const char *key, *text;
        } texts[] = {
            {"name", x->name}, {"source", x->source}, {"settings", x->settings}, {"package", x->package}};
        buf_puts(&b, i ? ",\n {" : "{");
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            json_put_key(&b, texts[k].key);
            json_put_string(&b, texts[k].text, strlen(texts[k].text));
        }
        buf_printf(&b, ", \"bytes\": %lld, \"used\": %lld}", (long long)x->bytes, (long long)x->used_s);
    }
    buf_puts(&b, "]\n");
    cli_put_json(b.p, b.n);
    buf_fini(&b);
}

static void print_table(struct cli *c, const struct store_list *l)
{
    int64_t sum = 0;
    char *folder = store_folder();
    for (size_t i = 0; i < l->n; i++) {
        const struct store_entry *x = &l->entries[i];
        time_t used = (time_t)x->used_s;
        struct tm when;
        char date[32] = "?";
        if (localtime_r(&used, &when))
            strftime(date, sizeof date, "%Y-%m-%d", &when);
        printf("%-44s %9.1f MB  %s  ", x->name, (double)x->bytes / 1e6, date);
        terminal_put(stdout, x->source);
        printf("  %s\n", x->settings);
        sum += x->bytes;
    }
    log_info(&c->log, "%zu packages, %.1f MB in %s", l->n, (double)sum / 1e6, folder);
    free(folder);
}

int cmd_list(struct cli *c, int argc, char **argv)
{
    struct store_list l;
    bool json = false, help = false;
    int n_positional = 0;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--json", CLI_FLAG, &json, NULL, "one JSON array"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), NULL, 0, &n_positional,
                   "[--json]", &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    bool ok = store_read(&l, &e);
    if (ok) {
        if (json)
            print_json(&l);
        else
            print_table(c, &l);
        ok = cli_flush(&e);
    }
    store_list_free(&l);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
