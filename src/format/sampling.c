/* Recommended sampling: one table of keys with their ranges for both files that hold it. */
#include "format/sampling.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "format/yaml.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

enum excluded { EXCLUDES_NONE, EXCLUDES_MIN, EXCLUDES_MAX };

struct number_key {
    const char *key, *alias; /* alias: as other writers of meta.yaml spell it */
    size_t offset;
    double min, max;
    enum excluded excluded;
    const char *range;
};

#define NUMBER(name, alias, min, max, excluded, range)                                                       \
    {                                                                                                        \
#name, alias, offsetof(struct recommended_sampling, name), min, max, excluded, range                 \
    }

static const struct number_key numbers[] = {
    NUMBER(temperature, NULL, 0, SAMPLING_TEMPERATURE_MAX, EXCLUDES_NONE, "a number from 0 to 100"),
    NUMBER(top_p, "topP", 0, 1, EXCLUDES_MIN, "a number above 0, at most 1"),
    NUMBER(min_p, "minP", 0, 1, EXCLUDES_MAX, "a number of at least 0, below 1"),
    NUMBER(repetition_penalty, NULL, 0, SAMPLING_PENALTY_MAX, EXCLUDES_MIN, "a number above 0, at most 100"),
    NUMBER(presence_penalty, NULL, -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, EXCLUDES_NONE,
           "a number from -100 to 100"),
    NUMBER(frequency_penalty, NULL, -SAMPLING_PENALTY_MAX, SAMPLING_PENALTY_MAX, EXCLUDES_NONE,
           "a number from -100 to 100"),
};
#define N_NUMBERS (sizeof numbers / sizeof numbers[0])

void sampling_init(struct recommended_sampling *s)
{
    *s = (struct recommended_sampling){.top_k = -1};
    for (size_t i = 0; i < N_NUMBERS; i++)
        *(double *)((char *)s + numbers[i].offset) = NAN;
}

static void clear_bad_words(struct recommended_sampling *s)
{
    for (int i = 0; i < s->n_bad_words; i++)
        free(s->bad_words[i].ids);
    free(s->bad_words);
    s->bad_words = NULL;
    s->n_bad_words = 0;
}

void sampling_fini(struct recommended_sampling *s)
{
    free(s->suppressed);
    clear_bad_words(s);
    sampling_init(s);
}

/* ---- reading ---- */

struct reader {
    struct recommended_sampling *s;
    const char *where;
    sampling_warn_fn warn;
    void *context;
};

static void leave_out(const struct reader *r, const char *key, const char *expected, const cJSON *found)
{
    struct buf text;
    buf_init(&text, 4096);
    buf_printf(&text, "%s: %s: expected %s, found ", r->where, key, expected);
    if (cJSON_IsNumber(found) && isfinite(found->valuedouble))
        buf_printf(&text, "%.6g", found->valuedouble);
    else if (cJSON_IsNumber(found))
        buf_puts(&text, "a number that is not finite");
    else if (cJSON_IsString(found))
        buf_printf(&text, "the string \"%.64s\"", found->valuestring);
    else
        buf_printf(&text, "%s", json_type_name(found));
    buf_puts(&text, ": the value is left out");
    r->warn(r->context, text.p);
    buf_fini(&text);
}

/* Either name of a key, null being absent. */
static const cJSON *present(const cJSON *object, const char *key, const char *alias)
{
    const cJSON *item = json_get(object, key);
    if (!item && alias)
        item = json_get(object, alias);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

static bool is_integer(const cJSON *item, double min, double max)
{
    return cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max &&
           item->valuedouble == floor(item->valuedouble);
}

/* The ids of a list, heap; NULL when it is anything else, empty or longer than max. */
static int32_t *read_ids(const cJSON *list, int max, int *n)
{
    int32_t *ids = NULL;
    bool ok = cJSON_IsArray(list);
    *n = 0;
    for (const cJSON *item = ok ? list->child : NULL; item && ok; item = item->next) {
        ok = is_integer(item, 0, INT32_MAX) && *n < max;
        if (!ok)
            break;
        if ((*n & (*n - 1)) == 0) /* at each power of two */
            ids = xrealloc(ids, sizeof *ids * (size_t)(*n > 0 ? 2 * *n : 1));
        ids[(*n)++] = (int32_t)item->valuedouble;
    }
    if (!ok) {
        free(ids);
        ids = NULL;
        *n = 0;
    }
    return ids;
}

static void read_suppressed(const struct reader *r, const cJSON *list)
{
    int n;
    int32_t *ids = read_ids(list, SAMPLING_IDS_MAX, &n);
    if (!ids && !(cJSON_IsArray(list) && !list->child)) {
        leave_out(r, "suppress_tokens", "a list of at most 8192 token ids", list);
        return;
    }
    free(r->s->suppressed);
    r->s->suppressed = ids;
    r->s->n_suppressed = n;
}

static void read_bad_words(const struct reader *r, const cJSON *list)
{
    struct recommended_sampling *s = r->s;
    bool ok = cJSON_IsArray(list);
    int left = SAMPLING_IDS_MAX;
    clear_bad_words(s);
    for (const cJSON *item = ok ? list->child : NULL; item && ok; item = item->next) {
        struct token_sequence word;
        word.ids = read_ids(item, left, &word.n);
        ok = word.ids != NULL;
        if (!ok)
            break;
        left -= word.n;
        s->bad_words = xrealloc(s->bad_words, sizeof *s->bad_words * (size_t)(s->n_bad_words + 1));
        s->bad_words[s->n_bad_words++] = word;
    }
    if (!ok) {
        clear_bad_words(s);
        leave_out(r, "bad_words_ids", "lists of token ids, at most 8192 in all", list);
    }
}

void sampling_read(struct recommended_sampling *s, const cJSON *object, const char *where,
                   sampling_warn_fn warn, void *context)
{
    const struct reader r = {s, where, warn, context};
    const cJSON *item;
    if (object && !cJSON_IsObject(object))
        leave_out(&r, "the file", "an object", object);
    for (item = cJSON_IsObject(object) ? object->child : NULL; item; item = item->next)
        s->is_present = s->is_present || (!cJSON_IsNull(item) && sampling_knows(item->string));
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct number_key *k = &numbers[i];
        item = present(object, k->key, k->alias);
        if (!item)
            continue;
        double d = item->valuedouble;
        if (cJSON_IsNumber(item) && d >= k->min && d <= k->max &&
            !(k->excluded == EXCLUDES_MIN && d == k->min) && !(k->excluded == EXCLUDES_MAX && d == k->max))
            *(double *)((char *)s + k->offset) = d;
        else
            leave_out(&r, k->key, k->range, item);
    }
    item = present(object, "top_k", "topK");
    if (is_integer(item, -1, INT32_MAX)) /* some write -1 for none */
        s->top_k = item->valuedouble > 0 ? (int64_t)item->valuedouble : 0;
    else if (item)
        leave_out(&r, "top_k", "an integer of at least 0", item);
    item = present(object, "do_sample", NULL);
    if (cJSON_IsBool(item))
        s->do_sample = cJSON_IsTrue(item);
    else if (item)
        leave_out(&r, "do_sample", "true or false", item);
    if ((item = present(object, "suppress_tokens", NULL)))
        read_suppressed(&r, item);
    if ((item = present(object, "bad_words_ids", NULL)))
        read_bad_words(&r, item);
}

/* -1 is how some write that there is none. */
static bool is_id_or_none(const cJSON *item)
{
    return is_integer(item, -1, INT32_MAX);
}

void sampling_read_stops(const cJSON *object, const char *where, void (*add)(void *context, int32_t id),
                         sampling_warn_fn warn, void *context)
{
    static const char *const single[] = {"bos_token_id", "pad_token_id"};
    const struct reader r = {NULL, where, warn, context};
    const cJSON *stops = present(object, "eos_token_id", NULL), *bad = NULL;
    const cJSON *first = cJSON_IsArray(stops) ? stops->child : stops;
    for (const cJSON *item = first; item; item = item == stops ? NULL : item->next) {
        if (!is_id_or_none(item))
            bad = bad ? bad : item;
        else if (add && item->valuedouble >= 0)
            add(context, (int32_t)item->valuedouble);
    }
    if (bad)
        leave_out(&r, "eos_token_id", "a token id or a list of token ids", bad);
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        const cJSON *item = present(object, single[i], NULL);
        if (item && !is_id_or_none(item))
            leave_out(&r, single[i], "a token id", item);
    }
}

bool sampling_knows(const char *key)
{
    static const char *const others[] = {"top_k", "topK", "do_sample", "suppress_tokens", "bad_words_ids"};
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (strcmp(key, numbers[i].key) == 0 || (numbers[i].alias && strcmp(key, numbers[i].alias) == 0))
            return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key, others[i]) == 0)
            return true;
    return false;
}

/* Appends the text with every NaN and Infinity outside of strings written as a number too large for a double. */
static void put_finite(struct buf *out, const char *text, size_t n)
{
    static const char *const words[] = {"NaN", "Infinity"};
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        size_t skip = 0;
        if (in_string && text[i] == '\\' && i + 1 < n) {
            buf_putc(out, text[i++]);
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            for (size_t k = 0; k < 2 && !skip; k++)
                if (n - i >= strlen(words[k]) && memcmp(text + i, words[k], strlen(words[k])) == 0)
                    skip = strlen(words[k]);
        }
        if (skip) {
            buf_puts(out, "1e999");
            i += skip - 1;
        } else {
            buf_putc(out, text[i]);
        }
    }
}

bool sampling_read_json_file(cJSON **out, const char *path, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    struct buf finite;
    *out = NULL;
    if (!file_read(&text, &n, path, CONFIG_BYTES_MAX, e))
        return false;
    buf_init(&finite, 2 * CONFIG_BYTES_MAX);
    put_finite(&finite, text, n);
    bool ok = json_parse(out, finite.p ? finite.p : "", finite.n, path, e);
    buf_fini(&finite);
    free(text);
    return ok;
}

/* ---- what is not used ---- */

void sampling_put_unused(const cJSON *object, struct buf *out)
{
    static const struct {
        const char *key;
        double neutral; /* of numbers */
    } keys[] = {
        {"no_repeat_ngram_size", 0},
        {"encoder_no_repeat_ngram_size", 0},
        {"encoder_repetition_penalty", 1},
        {"typical_p", 1},
        {"epsilon_cutoff", 0},
        {"eta_cutoff", 0},
        {"top_h", 1},
        {"penalty_alpha", 0},
        {"num_beams", 1},
        {"num_beam_groups", 1},
        {"diversity_penalty", 0},
        {"guidance_scale", 1},
        {"min_length", 0},
        {"min_new_tokens", 0},
        {"begin_suppress_tokens", NAN},
        {"forced_bos_token_id", NAN},
        {"forced_eos_token_id", NAN},
        {"forced_decoder_ids", NAN},
        {"sequence_bias", NAN},
        {"constraints", NAN},
        {"force_words_ids", NAN},
        {"exponential_decay_length_penalty", NAN},
        {"watermarking_config", NAN},
        {"stop_strings", NAN},
        {"token_healing", 0},
        {"dola_layers", NAN},
    };
    bool is_first = true;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *item = present(object, keys[i].key, NULL);
        if (!item || cJSON_IsFalse(item) || (cJSON_IsNumber(item) && item->valuedouble == keys[i].neutral) ||
            ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child))
            continue;
        buf_printf(out, "%s%s", is_first ? "" : ", ", keys[i].key);
        is_first = false;
    }
}

/* ---- writing ---- */

static void put_ids(struct buf *b, const int32_t *ids, int n)
{
    buf_putc(b, '[');
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? ", " : "", ids[i]);
    buf_putc(b, ']');
}

void sampling_put_yaml(const struct recommended_sampling *s, struct buf *b)
{
    static const size_t first = 2; /* temperature, top_p, then top_k: the order of the package format */
    buf_printf(b, "{do_sample: %s", s->do_sample ? "true" : "false");
    for (size_t i = 0; i < N_NUMBERS; i++) {
        double d = *(const double *)((const char *)s + numbers[i].offset);
        if (i == first && s->top_k >= 0)
            buf_printf(b, ", top_k: %lld", (long long)s->top_k);
        if (!isfinite(d))
            continue;
        buf_printf(b, ", %s: ", numbers[i].key);
        yaml_put_number(b, d);
    }
    if (s->n_suppressed > 0) {
        buf_puts(b, ", suppress_tokens: ");
        put_ids(b, s->suppressed, s->n_suppressed);
    }
    if (s->n_bad_words > 0) {
        buf_puts(b, ", bad_words_ids: [");
        for (int i = 0; i < s->n_bad_words; i++) {
            buf_puts(b, i ? ", " : "");
            put_ids(b, s->bad_words[i].ids, s->bad_words[i].n);
        }
        buf_putc(b, ']');
    }
    buf_putc(b, '}');
}
