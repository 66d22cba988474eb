/* milkit forecast: speed and memory of a package on a chip, by published measurements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "device/report.h"

#define SYNOPSIS "PACKAGE|MODEL --chip CHIP [--json] | --fit [REPORT ...] [--json]"
#define REPORTS_MAX 64

static double number(const cJSON *o, const char *key)
{
    double v = cJSON_GetNumberValue(json_get(o, key));
    return isnan(v) ? 0 : v;
}

static const char *string(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));
    return s ? s : "";
}

static void print_package(const cJSON *o)
{
    const cJSON *decode = json_get(o, "decode"), *speed = json_get(decode, "tokens_per_second"),
                *ms = json_get(decode, "ms"), *prefill = json_get(o, "prefill"),
                *basis = json_get(o, "basis"), *caveat;
    printf("on %s, forecast from published measurements:\n", string(o, "chip"));
    printf("decode   %.3g tokens/s (%.3g to %.3g): %.2f ms calls, %.2f ms operations, %.2f ms weights, %.2f "
           "ms cache\n",
           number(speed, "forecast"), number(speed, "low"), number(speed, "high"), number(ms, "calls"),
           number(ms, "operations"), number(ms, "weights"), number(ms, "cache"));
    printf("         %.0f calls, %.0f operations, %.1f MB of weights and %.1f MB of cache a token\n",
           number(decode, "calls"), number(decode, "operations"), number(decode, "weight_mb"),
           number(decode, "cache_mb"));
    if (json_get(prefill, "not_forecast"))
        printf("prefill  not forecast: %s\n", string(prefill, "not_forecast"));
    else if (prefill)
        printf("prefill  %.2g tokens/s in batches of %.0f (%s)\n", number(prefill, "tokens_per_second"),
               number(prefill, "batch"), string(prefill, "accuracy"));
    printf("memory   %.1f MB on the engine (%s)\n", number(json_get(o, "memory"), "mb_on_engine"),
           string(json_get(o, "memory"), "of"));
    printf("load     %s\n", string(o, "load_time"));
    printf("basis    %.0f points; leaving one out, the fit errs by %.1f %% (median) and %.1f %% (worst); "
           "chip: %s\n",
           number(basis, "points"), 100 * number(basis, "median_error_leaving_one_out"),
           100 * number(basis, "worst_error_leaving_one_out"), string(basis, "chip_numbers"));
    cJSON_ArrayForEach(caveat, json_get(o, "caveats")) printf("note     %s\n", cJSON_GetStringValue(caveat));
}

static void print_fit(const cJSON *o)
{
    const cJSON *c = json_get(o, "constants"), *errors = json_get(o, "errors"), *p;
    printf("ms of a token = %.3f * calls + %.3g * operations + %.3f * MB / (GB/s) + MB of cache / %.1f\n",
           number(c, "ms_per_call"), number(c, "ms_per_operation"), number(c, "share_of_the_stream"),
           1 / number(c, "ms_per_mb_of_cache"));
    printf(
        "%.0f points: error %.1f %% median, %.1f %% worst; leaving one out %.1f %% median, %.1f %% worst\n\n",
        number(errors, "points"), 100 * number(errors, "median"), 100 * number(errors, "worst"),
        100 * number(errors, "median_leaving_one_out"), 100 * number(errors, "worst_leaving_one_out"));
    printf("%-28s %-10s %9s %9s  %s\n", "model", "chip", "measured", "forecast", "");
    cJSON_ArrayForEach(p, json_get(o, "points"))
    {
        printf("%-28s %-10s %9.1f %9.1f  %s%s\n", string(p, "model"), string(p, "chip"),
               number(p, "measured"), number(p, "forecast"),
               cJSON_IsTrue(json_get(p, "fitted")) ? "fitted; " : "", string(p, "source"));
    }
}

/* The fit, with what reports of Macs measured. */
static bool report_fit(cJSON *o, const char *const *paths, int n, struct err *e)
{
    struct arena *a = arena_new(0);
    struct report r = {0};
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = report_read(&r, paths[i], a, e);
    ok = ok && forecast_report_fit(o, r.points, r.n, e);
    arena_free(a);
    return ok;
}

int cmd_forecast(struct cli *c, int argc, char **argv)
{
    const char *paths[REPORTS_MAX], *path = NULL, *name = NULL;
    const struct chip *chip = NULL;
    bool fit = false, json = false, help = false;
    int n_positional = 0;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--chip", CLI_STRING, &name, "CHIP", "M4, A18 Pro, M5 Max, ..."},
        {"--fit", CLI_FLAG, &fit, NULL,
         "show the formula, its errors and the measurements it rests on, with those of reports of "
         "tools/mac_report.sh"},
        {"--json", CLI_FLAG, &json, NULL, "one JSON object"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), paths, REPORTS_MAX,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    cJSON *o = cJSON_CreateObject();
    bool ok = true;
    path = n_positional > 0 ? paths[0] : NULL;
    if (!fit && n_positional != 1)
        ok = err_set(&e, ERR_USAGE, "expected a package or a model");
    else if (!fit && !name)
        ok = err_set(&e, ERR_USAGE, "expected a chip (--chip M4)");
    ok = ok && (!name || chip_find(&chip, name, &e));
    if (ok)
        ok = fit ? report_fit(o, paths, n_positional, &e)
                 : cli_resolve(c, &path, &e) && forecast_path(o, path, chip, &e);
    char *text = ok && json ? cJSON_Print(o) : NULL;
    if (text) {
        cli_put_json(text, strlen(text));
        putchar('\n');
    } else if (ok && !json) {
        (fit ? print_fit : print_package)(o);
    } else if (ok) {
        ok = err_set(&e, ERR_NOMEM, "the report does not fit into memory");
    }
    cJSON_free(text);
    cJSON_Delete(o);
    ok = ok && cli_flush(&e);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
