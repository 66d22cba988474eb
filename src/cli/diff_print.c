#include "cli/diff_print.h"
#include "base/terminal.h"

static const char *text_of(const cJSON *one, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(one, key);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

static double number_of(const cJSON *one, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(one, key);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* "  x  a -> b" with "-" for what is not there. */
static void put_sides(FILE *f, const cJSON *one)
{
    const char *a = text_of(one, "a"), *b = text_of(one, "b");
    fprintf(f, ": ");
    terminal_put(f, a ? a : "-");
    fprintf(f, " -> ");
    terminal_put(f, b ? b : "-");
}

static void put_word(FILE *f, const cJSON *one, const char *key, const char *after)
{
    const char *s = text_of(one, key);
    if (!s)
        return;
    terminal_put(f, s);
    fputs(after, f);
}

void diff_print(FILE *f, const cJSON *o)
{
    const cJSON *one;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "same")))
        fprintf(f, "same program, weights and metadata\n");
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(o, "metadata"))
    {
        fprintf(f, "metadata ");
        put_word(f, one, "key", "");
        put_sides(f, one);
        fputc('\n', f);
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(o, "functions"))
    {
        put_word(f, one, "function", ", ");
        put_word(f, one, "what", " ");
        put_word(f, one, "name", "");
        put_sides(f, one);
        fputc('\n', f);
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(o, "operations"))
    {
        const cJSON *place;
        put_word(f, one, "function", ", op ");
        put_word(f, one, "type", "");
        fprintf(f, ": %.0f in the first alone, %.0f in the second alone, %.0f changed (",
                number_of(one, "only_a"), number_of(one, "only_b"), number_of(one, "changed"));
        cJSON_ArrayForEach(place, cJSON_GetObjectItemCaseSensitive(one, "places"))
        {
            terminal_put(f, place->valuestring);
            if (place->next)
                fputs(", ", f);
        }
        fprintf(f, ")\n");
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(o, "weights"))
    {
        put_word(f, one, "function", ", weight ");
        put_word(f, one, "name", "");
        put_sides(f, one);
        if (cJSON_GetObjectItemCaseSensitive(one, "elements"))
            fprintf(f, ", %.0f of %.0f elements differ, at most by %.6g", number_of(one, "differ"),
                    number_of(one, "elements"), number_of(one, "largest_difference"));
        fputc('\n', f);
    }
}
