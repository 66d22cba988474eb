/* milkit inspect: the report for people, from the object that --json prints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "cli/inspect_print.h"

#define INDENT_MAX 8

static const char *string_of(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));

    return s ? s : "";
}

static double number_of(const cJSON *o, const char *key)
{
    double v = cJSON_GetNumberValue(json_get(o, key));

    return isnan(v) ? 0 : v;
}

static void put_bytes(FILE *f, double bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;

    while (bytes >= 1000 && unit < 4) {
        bytes /= 1000;
        unit++;
    }
    fprintf(f, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void put_shape(FILE *f, const cJSON *shape)
{
    const cJSON *d;

    fputc('[', f);
    cJSON_ArrayForEach(d, shape)
    {
        fputs(d == shape->child ? "" : ", ", f);
        if (d->valuedouble < 0)
            fputc('?', f);
        else
            fprintf(f, "%.0f", d->valuedouble);
    }
    fputc(']', f);
}

/* A scalar of any type behind its key. */
static void put_field(FILE *f, int indent, const cJSON *item)
{
    fprintf(f, "%*s", indent * 2, "");
    terminal_put(f, item->string);
    fputs(": ", f);
    if (cJSON_IsString(item))
        terminal_put(f, item->valuestring);
    else if (cJSON_IsBool(item))
        fputs(cJSON_IsTrue(item) ? "true" : "false", f);
    else if (cJSON_IsNumber(item))
        fprintf(f, "%.15g", item->valuedouble);
    else
        fputs("none", f);
    fputc('\n', f);
}

static void put_fields(FILE *f, int indent, const cJSON *o)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, o)
    {
        if (strcmp(item->string, "kind") == 0)
            continue;
        if (!cJSON_IsObject(item) && !cJSON_IsArray(item)) {
            put_field(f, indent, item);
        } else if (cJSON_IsObject(item) && item->child && indent < INDENT_MAX) {
            fprintf(f, "%*s", indent * 2, "");
            terminal_put(f, item->string);
            fputs(":\n", f);
            put_fields(f, indent + 1, item);
        } else if (cJSON_IsArray(item) && cJSON_IsString(item->child)) {
            const cJSON *s;
            fprintf(f, "%*s", indent * 2, "");
            terminal_put(f, item->string);
            fputs(":", f);
            cJSON_ArrayForEach(s, item)
            {
                fputs(s == item->child ? " " : ", ", f);
                terminal_put(f, cJSON_GetStringValue(s));
            }
            fputc('\n', f);
        }
    }
}

static void put_dtypes(FILE *f, const cJSON *dtypes)
{
    const cJSON *d;

    cJSON_ArrayForEach(d, dtypes)
    {
        fputs(d == dtypes->child ? " (" : "; ", f);
        fprintf(f, "%.0f ", number_of(d, "count"));
        terminal_put(f, d->string);
        fputs(" ", f);
        put_bytes(f, number_of(d, "bytes"));
    }
    fputs(dtypes && dtypes->child ? ")" : "", f);
}

/* ---- models ---- */

static void put_variables(FILE *f, const char *what, const cJSON *list)
{
    const cJSON *v, *shape;

    cJSON_ArrayForEach(v, list)
    {
        fprintf(f, "    %-8s", what);
        terminal_put(f, string_of(v, "name"));
        fputs("  ", f);
        terminal_put(f, string_of(v, "type"));
        if (json_get(v, "ranges")) {
            fputs("  ranges", f);
            cJSON_ArrayForEach(shape, json_get(v, "ranges"))
            {
                fputc(' ', f);
                put_shape(f, shape);
            }
        }
        if (json_get(v, "enumerated_shapes")) {
            fputs("  one of", f);
            cJSON_ArrayForEach(shape, json_get(v, "enumerated_shapes"))
            {
                fputc(' ', f);
                put_shape(f, shape);
            }
        }
        fputc('\n', f);
    }
}

static void put_function(FILE *f, const cJSON *fn, const char *default_name)
{
    const cJSON *op, *unknown = json_get(fn, "unknown_operations");
    int column = 0;

    fputs("  function ", f);
    terminal_put(f, string_of(fn, "name"));
    fprintf(f, "%s: ", strcmp(string_of(fn, "name"), default_name) == 0 ? " (default)" : "");
    terminal_put(f, string_of(fn, "opset"));
    fprintf(f, ", %.0f operations\n", number_of(fn, "operations"));
    put_variables(f, "input", json_get(fn, "inputs"));
    put_variables(f, "state", json_get(fn, "states"));
    put_variables(f, "output", json_get(fn, "outputs"));
    cJSON_ArrayForEach(op, json_get(fn, "histogram"))
    {
        if (column == 0)
            column = fprintf(f, "    %-8s", "ops");
        else if (column > 90)
            column = fprintf(f, "\n    %-8s", "") - 1;
        terminal_put(f, op->string);
        column += (int)strlen(op->string) + fprintf(f, " %.0f%s", op->valuedouble, op->next ? ", " : "\n");
    }
    cJSON_ArrayForEach(op, unknown)
    {
        fprintf(f, "    %-8s", "unknown");
        terminal_put(f, cJSON_GetStringValue(op));
        fputc('\n', f);
    }
}

static void put_weights(FILE *f, const cJSON *w)
{
    const cJSON *file;

    fprintf(f, "  weights: %.0f values, ", number_of(w, "values"));
    put_bytes(f, number_of(w, "bytes"));
    put_dtypes(f, json_get(w, "dtypes"));
    fputc('\n', f);
    cJSON_ArrayForEach(file, json_get(w, "files"))
    {
        fputs("    ", f);
        terminal_put(f, string_of(file, "name"));
        fputs(": ", f);
        if (json_get(file, "bytes"))
            put_bytes(f, number_of(file, "bytes"));
        else
            terminal_put(f, json_get(file, "problem") ? string_of(file, "problem") : "size unknown");
        fputc('\n', f);
    }
}

static void print_model(FILE *f, const cJSON *o)
{
    const cJSON *fn, *metadata = json_get(o, "metadata");

    terminal_put(f, string_of(o, "path"));
    fprintf(f, ": Core ML program (%s), specification version %.0f\n", string_of(o, "kind"),
            number_of(o, "specification_version"));
    put_fields(f, 1, metadata);
    cJSON_ArrayForEach(fn, json_get(o, "functions")) put_function(f, fn, string_of(o, "default_function"));
    put_weights(f, json_get(o, "weights"));
}

/* ---- files ---- */

/* A key of a GGUF file. */
static void put_metadata(FILE *f, const cJSON *item)
{
    const cJSON *first = json_get(item, "first"), *x;

    if (!first) {
        put_field(f, 1, item);
        return;
    }
    fputs("  ", f);
    terminal_put(f, item->string);
    fprintf(f, ": %.0f of %s:", number_of(item, "length"), string_of(item, "array_of"));
    cJSON_ArrayForEach(x, first)
    {
        fputc(' ', f);
        if (cJSON_IsString(x))
            terminal_put(f, x->valuestring);
        else if (cJSON_IsBool(x))
            fputs(cJSON_IsTrue(x) ? "true" : "false", f);
        else
            fprintf(f, "%.9g", x->valuedouble);
    }
    fputs(number_of(item, "length") > cJSON_GetArraySize(first) ? " ...\n" : "\n", f);
}

static void print_tensors(FILE *f, const cJSON *o)
{
    const cJSON *t, *totals = json_get(o, "totals"), *list = json_get(o, "tensors");
    bool several_files = false;

    cJSON_ArrayForEach(t, list) several_files =
        several_files || strcmp(string_of(t, "file"), string_of(list->child, "file")) != 0;
    terminal_put(f, string_of(o, "path"));
    fprintf(f, ": %s", string_of(o, "kind"));
    if (json_get(o, "model_type")) {
        fputs(" of model_type ", f);
        terminal_put(f, string_of(o, "model_type"));
    }
    if (json_get(o, "metadata"))
        fprintf(f, " version %.0f, %.0f file%s", number_of(o, "version"), number_of(o, "files"),
                number_of(o, "files") == 1 ? "" : "s");
    fputc('\n', f);
    cJSON_ArrayForEach(t, json_get(o, "metadata")) put_metadata(f, t);
    cJSON_ArrayForEach(t, list)
    {
        fputs("  ", f);
        terminal_put(f, string_of(t, "name"));
        fputs("  ", f);
        terminal_put(f, string_of(t, "dtype"));
        fputc(' ', f);
        put_shape(f, json_get(t, "shape"));
        fputs("  ", f);
        put_bytes(f, number_of(t, "bytes"));
        if (several_files) {
            fputs("  ", f);
            terminal_put(f, string_of(t, "file"));
        }
        fputc('\n', f);
    }
    cJSON_ArrayForEach(t, json_get(o, "absent"))
    {
        fputs("  ", f);
        terminal_put(f, string_of(t, "name"));
        fputs("  can't be read from ", f);
        terminal_put(f, string_of(t, "file"));
        fputc('\n', f);
    }
    fprintf(f, "%.0f tensors, %.0f elements, ", number_of(totals, "tensors"), number_of(totals, "elements"));
    put_bytes(f, number_of(totals, "bytes"));
    put_dtypes(f, json_get(o, "dtypes"));
    fputc('\n', f);
}

static void print_records(FILE *f, const cJSON *o)
{
    const cJSON *r, *totals = json_get(o, "totals");

    terminal_put(f, string_of(o, "path"));
    fputs(": weight file\n", f);
    cJSON_ArrayForEach(r, json_get(o, "records"))
    {
        fprintf(f, "  %12.0f  %-12s %12.0f elements  ", number_of(r, "offset"), string_of(r, "dtype"),
                number_of(r, "elements"));
        put_bytes(f, number_of(r, "bytes"));
        fputc('\n', f);
    }
    fprintf(f, "%.0f records, ", number_of(totals, "records"));
    put_bytes(f, number_of(totals, "bytes"));
    put_dtypes(f, json_get(o, "dtypes"));
    fputc('\n', f);
}

static void print_tokenizer(FILE *f, const cJSON *o)
{
    const cJSON *t;

    terminal_put(f, string_of(o, "path"));
    fprintf(f, ": tokenizer, %.0f tokens, ids below %.0f\n", number_of(o, "tokens"),
            number_of(o, "vocab_size"));
    cJSON_ArrayForEach(t, json_get(o, "special_tokens"))
    {
        fprintf(f, "  %8.0f  ", number_of(t, "id"));
        terminal_put(f, string_of(t, "token"));
        fputc('\n', f);
    }
}

static void print_meta(FILE *f, const cJSON *o, int indent)
{
    const cJSON *s;

    put_fields(f, indent, o);
    cJSON_ArrayForEach(s, json_get(o, "states"))
    {
        fprintf(f, "%*sstate ", indent * 2, "");
        terminal_put(f, string_of(s, "name"));
        fputs(": ", f);
        terminal_put(f, string_of(s, "dtype"));
        fputc(' ', f);
        put_shape(f, json_get(s, "shape"));
        fputc('\n', f);
    }
}

void inspect_print(FILE *f, const cJSON *o)
{
    const char *kind = string_of(o, "kind");
    const cJSON *model;

    if (strcmp(kind, "safetensors") == 0 || strcmp(kind, "checkpoint") == 0 || strcmp(kind, "gguf") == 0) {
        print_tensors(f, o);
    } else if (strcmp(kind, "weight file") == 0) {
        print_records(f, o);
    } else if (strcmp(kind, "tokenizer") == 0) {
        print_tokenizer(f, o);
    } else if (strcmp(kind, "meta") == 0) {
        print_meta(f, o, 0);
    } else if (strcmp(kind, "package") == 0) {
        terminal_put(f, string_of(o, "path"));
        fputs(": package of several models\n", f);
        print_meta(f, json_get(o, "meta"), 1);
        cJSON_ArrayForEach(model, json_get(o, "models")) print_model(f, model);
        fprintf(f, "%.0f models, weights ", number_of(json_get(o, "totals"), "models"));
        put_bytes(f, number_of(json_get(o, "totals"), "weight_bytes"));
        fputc('\n', f);
    } else {
        print_model(f, o);
    }
}
