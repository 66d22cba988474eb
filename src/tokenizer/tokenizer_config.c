/* What the files beside a tokenizer.json declare: tokenizer_config.json, and where that has no added_tokens_decoder, as
 * older checkpoints do, special_tokens_map.json and added_tokens.json.
 *
 * The tokens come in the order in which transformers adds them to what tokenizer.json has, since new ones are numbered in
 * that order: added_tokens_decoder by id, the seven named ones, the model's own named ones, the extra ones.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/checkpoint.h"
#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

#define MAX_CONFIG_BYTES ((size_t)64 << 20)
#define MAX_NAMES 4096 /* each is looked for among the others */

static const char *const token_names[TOKENIZER_N_NAMES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};

static bool expected(const char *where, const char *key, const char *what, const cJSON *item, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: %s: expected %s, found %s", where, key, what, json_type_name(item));
}

/* --- entries --- */

static void push(struct tokenizer_config *c, const struct added_entry *a)
{
    c->entries = mem_grow(c->entries, c->n, &c->capacity, sizeof *c->entries);
    c->entries[c->n++] = *a;
}

bool added_entry_read(struct added_entry *out, const cJSON *item, bool special, const char *where,
                      const char *key, struct err *e)
{
    bool has_normalized = cJSON_IsBool(json_get(item, "normalized"));
    *out = (struct added_entry){.special = special};
    if (cJSON_IsString(item)) {
        out->text = item->valuestring;
        return true;
    }
    if (!cJSON_IsObject(item))
        return expected(where, key, "an object", item, e);
    if (!json_get_string(item, "content", &out->text, where, e) ||
        !json_get_bool(item, "single_word", &out->single_word, where, e) ||
        !json_get_bool(item, "lstrip", &out->lstrip, where, e) ||
        !json_get_bool(item, "rstrip", &out->rstrip, where, e) ||
        !json_get_bool(item, "normalized", &out->normalized, where, e) ||
        !json_get_bool(item, "special", &out->special, where, e))
        return false;
    if (!has_normalized)
        out->normalized = !out->special;
    return out->text || expected(where, key, "a string \"content\"", json_get(item, "content"), e);
}

/* A token of a name (bos_token, ...) is special whatever its object says. */
static bool push_named(struct tokenizer_config *c, const cJSON *item, const char *where, const char *key,
                       struct err *e)
{
    struct added_entry a;
    if (!cJSON_IsString(item) && !cJSON_IsObject(item))
        return true; /* null, and false in the place of none */
    if (!added_entry_read(&a, item, true, where, key, e))
        return false;
    if (!a.special && !cJSON_IsBool(json_get(item, "normalized")))
        a.normalized = false;
    a.special = a.only_new = true;
    a.marks = !json_get(c->config, "added_tokens_decoder"); /* that says itself what is special */
    push(c, &a);
    return true;
}

/* What the class fills in where no file says anything, null included. It changes nothing of a token that is there. */
static bool push_default(struct tokenizer_config *c, const char *text)
{
    const struct added_entry a = {.text = text, .special = true, .only_new = true, .of_class = true};
    if (text)
        push(c, &a);
    return true;
}

static bool push_extra(struct tokenizer_config *c, const cJSON *list, const char *where, const char *key,
                       struct err *e)
{
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next) {
        struct added_entry a;
        if (!added_entry_read(&a, item, true, where, key, e))
            return false;
        a.only_new = true;
        push(c, &a);
    }
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = ((const struct added_entry *)a)->id, y = ((const struct added_entry *)b)->id;
    return (x > y) - (x < y);
}

static bool read_key_id(int64_t *id, const char *key)
{
    size_t n = strlen(key);
    *id = 0;
    if (n == 0 || n > 9 || key[strspn(key, "0123456789")])
        return false;
    *id = strtoll(key, NULL, 10);
    return true;
}

static bool push_decoder(struct tokenizer_config *c, const cJSON *decoder, const char *where, struct err *e)
{
    static const char name[] = "added_tokens_decoder";
    if (!cJSON_IsObject(decoder))
        return expected(where, name, "an object", decoder, e);
    for (const cJSON *item = decoder->child; item; item = item->next) {
        struct added_entry a;
        int64_t id;
        if (!read_key_id(&id, item->string))
            return err_set(e, ERR_FORMAT, "%s: %s: expected ids as keys, found \"%.100s\"", where, name,
                           item->string);
        if (!cJSON_IsObject(item))
            return expected(where, name, "objects", item, e);
        if (!added_entry_read(&a, item, false, where, name, e))
            return false;
        a.id = id;
        push(c, &a);
    }
    return true;
}

/* --- the older files --- */

/* What both files say of a key; the map's word comes first. */
static const cJSON *said(const struct tokenizer_config *c, const char *key)
{
    const cJSON *item = json_get(c->map, key);
    return item ? item : json_get(c->config, key);
}

/* A text, or with objects the content of one. */
static void note_text(struct table *texts, const cJSON *item, bool objects)
{
    const cJSON *content = objects && cJSON_IsObject(item) ? json_get(item, "content") : item;
    if (cJSON_IsString(content))
        (void)table_put(texts, content->valuestring, texts);
}

static void note_list(struct table *texts, const cJSON *list, bool objects)
{
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
        note_text(texts, item, objects);
}

/* {"text": id} */
static bool push_added_file(struct tokenizer_config *c, const char *where, struct err *e)
{
    struct table *texts =
        table_new(); /* special here; what tokenizer_config.json has as objects is not yet */
    bool ok = true;
    for (size_t i = 0; i < TOKENIZER_N_NAMES; i++)
        note_text(texts, said(c, token_names[i]), json_get(c->map, token_names[i]) != NULL);
    note_list(texts, json_get(c->config, "extra_special_tokens"), false);
    note_list(texts, json_get(c->config, "additional_special_tokens"), false);
    note_list(texts, json_get(c->map, "extra_special_tokens"), true);
    for (const cJSON *item = c->added ? c->added->child : NULL; item && ok; item = item->next) {
        bool special = table_get(texts, item->string) != NULL;
        ok = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < TOKENIZER_MAX_ID;
        if (!ok) {
            expected(where, item->string, "an id", item, e);
            break;
        }
        const struct added_entry a = {.text = item->string,
                                      .id = (int64_t)item->valuedouble,
                                      .special = special,
                                      .normalized = !special,
                                      .older = true};
        push(c, &a);
    }
    table_free(texts);
    return ok;
}

/* --- reading --- */

bool tokenizer_config_object(cJSON **out, struct str text, const char *where, struct err *e)
{
    *out = NULL;
    size_t good = utf8_valid_prefix(text.p, text.n);
    if (good < text.n) /* all strings are well-formed from here on */
        return err_set(e, ERR_FORMAT, "%s: not UTF-8 at byte %zu", where, good);
    return json_parse(out, text.p, text.n, where, e) &&
           (cJSON_IsObject(*out) ||
            err_set(e, ERR_FORMAT, "%s: expected an object, found %s", where, json_type_name(*out)));
}

/* *out stays NULL when there is no such file. */
static bool read_object(cJSON **out, const char *folder, const char *name, struct err *e)
{
    char *path = path_join(folder, name), *text = NULL;
    size_t n = 0;
    bool ok = true;
    *out = NULL;
    if (path_exists(path))
        ok = file_read(&text, &n, path, MAX_CONFIG_BYTES, e) &&
             tokenizer_config_object(out, (struct str){text, n}, path, e);
    free(text);
    free(path);
    return ok;
}

static bool has_token_name(const char *key)
{
    for (size_t i = 0; i < TOKENIZER_N_NAMES; i++)
        if (strcmp(key, token_names[i]) == 0)
            return true;
    return false;
}

static bool is_own_name(const cJSON *item)
{
    return has_suffix(item->string, "_token") && !has_token_name(item->string);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_IsObject(object) ? json_get(object, key) : NULL;
}

/* A name of the model's own as text in tokenizer_config.json, or in an object of extra tokens; NULL: none. */
static const cJSON *plain_own_name(const struct tokenizer_config *c, const char *key)
{
    const cJSON *item = member(json_get(c->map, "extra_special_tokens"), key);
    if (!item)
        item = member(json_get(c->config, "extra_special_tokens"), key);
    if (!item && cJSON_IsString(json_get(c->config, key)))
        item = json_get(c->config, key);
    return item;
}

/* Names as "image_token", and the members of extra_special_tokens where it is an object. What is written as an object, and
 * what the map has, comes first, but another word for the same name goes before it. */
static bool push_own_names(struct tokenizer_config *c, const char *where, struct err *e)
{
    const cJSON *first[] = {c->config, c->map}, *item;
    const cJSON *extra[] = {json_get(c->config, "extra_special_tokens"),
                            json_get(c->map, "extra_special_tokens")};
    for (int i = 0; i < 2; i++)
        for (item = first[i] ? first[i]->child : NULL; item; item = item->next) {
            if (!is_own_name(item) || (i == 0 && cJSON_IsString(item)))
                continue;
            const cJSON *plain = plain_own_name(c, item->string);
            if (!push_named(c, plain ? plain : said(c, item->string), where, item->string, e))
                return false;
        }
    for (item = c->config ? c->config->child : NULL; item; item = item->next)
        if (is_own_name(item) && cJSON_IsString(item) &&
            !push_named(c, plain_own_name(c, item->string), where, item->string, e))
            return false;
    for (int i = 0; i < 2; i++)
        for (item = cJSON_IsObject(extra[i]) ? extra[i]->child : NULL; item; item = item->next)
            if (!push_named(c, plain_own_name(c, item->string), where, item->string, e))
                return false;
    return true;
}

static bool is_filled(const cJSON *item)
{
    return (cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child;
}

/* additional_special_tokens is the older name; where a file has both, or the older file has another list, the newer name
 * counts. */
static bool push_extra_tokens(struct tokenizer_config *c, const char *where, struct err *e)
{
    static const char newer[] = "extra_special_tokens", older[] = "additional_special_tokens";
    const cJSON *own = json_get(c->config, newer), *of_map = json_get(c->map, newer);
    const cJSON *additional = json_get(c->config, older);
    const char *key = newer;
    bool has_newer = own && !cJSON_IsObject(own);
    if (additional && !is_filled(own)) {
        own = additional;
        key = older;
        has_newer = true;
    }
    has_newer = has_newer || cJSON_IsArray(of_map);
    if (!push_extra(c, own, where, key, e) || !push_extra(c, of_map, where, newer, e))
        return false;
    return has_newer || push_extra(c, json_get(c->map, older), where, older, e);
}

/* A token that has a name is special, whatever added_tokens_decoder says. */
static void mark_named(struct tokenizer_config *c, size_t n_listed)
{
    struct table *texts = table_new();
    for (size_t i = n_listed; i < c->n; i++)
        if (!c->entries[i].of_class)
            (void)table_put(texts, c->entries[i].text, texts);
    for (size_t i = 0; i < n_listed; i++)
        if (table_get(texts, c->entries[i].text))
            c->entries[i].special = true;
    table_free(texts);
}

static bool check_names(const cJSON *object, const char *where, struct err *e)
{
    int n = 0;
    for (const cJSON *item = cJSON_IsObject(object) ? object->child : NULL; item; item = item->next)
        n++;
    return n <= MAX_NAMES || err_set(e, ERR_LIMIT,
                                     "%s: an object of names with %d members, at most %d are "
                                     "allowed",
                                     where, n, MAX_NAMES);
}

static bool push_tokens(struct tokenizer_config *c, const char *where, struct err *e)
{
    static const char extra[] = "extra_special_tokens";
    const cJSON *decoder = json_get(c->config, "added_tokens_decoder");
    if (!check_names(c->config, where, e) || !check_names(c->map, where, e) ||
        !check_names(json_get(c->config, extra), where, e) || !check_names(json_get(c->map, extra), where, e))
        return false;
    if (!(decoder ? push_decoder(c, decoder, where, e) : push_added_file(c, CHECKPOINT_ADDED_TOKENS, e)))
        return false;
    size_t n_listed = c->n;
    /* Stable: of equal ids the first one comes first. */
    mem_sort_stable(c->entries, n_listed, sizeof *c->entries, compare_ids);
    for (size_t i = 0; i < TOKENIZER_N_NAMES; i++) {
        const cJSON *item = said(c, token_names[i]);
        if (item ? !push_named(c, item, where, token_names[i], e) : !push_default(c, c->class->names[i]))
            return false;
    }
    if (!push_own_names(c, where, e))
        return false;
    mark_named(c, n_listed);
    return push_extra_tokens(c, where, e);
}

/* The class that transformers would read the tokenizer with. */
static bool read_class(struct tokenizer_config *c, const char *where, struct err *e)
{
    const char *declared = NULL, *model_type = NULL;
    if (!json_get_string(c->config, "tokenizer_class", &declared, where, e) ||
        (!declared && !json_get_string(c->model, "tokenizer_class", &declared, "config.json", e)) ||
        !json_get_string(c->model, "model_type", &model_type, "config.json", e))
        return false;
    c->class = tokenizer_class_find(declared, model_type);
    return true;
}

static bool read_flags(struct tokenizer_config *c, const char *where, struct err *e)
{
    bool wanted = false, meant = false;
    if (!json_get_bool(c->config, "clean_up_tokenization_spaces", &wanted, where, e) ||
        !json_get_bool(c->config, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                       &meant, where, e))
        return false;
    c->clean_up = wanted && meant; /* as in transformers, for BPE only when it says twice that it means it */
    const cJSON *prefix = json_get(c->config, "add_prefix_space");
    if (cJSON_IsBool(prefix) && c->class->prefix == PREFIX_OF_BYTES) {
        c->has_prefix_space = true;
        c->prefix_space = cJSON_IsTrue(prefix);
    }
    if (c->class->prefix == PREFIX_OF_BLANKS || c->class->prefix == PREFIX_OF_CODE_BLANKS)
        c->own_parts = tokenizer_class_parts(c->class, !cJSON_IsFalse(prefix),
                                             cJSON_IsTrue(json_get(c->config, "legacy")));
    return json_get_bool(c->config, "split_special_tokens", &c->splits_special, where, e);
}

bool tokenizer_config_take(struct tokenizer_config *c, const char *where, struct err *e)
{
    return read_class(c, where, e) && read_flags(c, where, e) && push_tokens(c, where, e);
}

bool tokenizer_config_read(struct tokenizer_config *c, const char *folder, struct err *e)
{
    static const char name[] = CHECKPOINT_TOKENIZER_CONFIG;
    *c = (struct tokenizer_config){0};
    char *where = path_join(folder, name);
    bool ok = read_object(&c->config, folder, name, e);
    if (ok && !json_get(c->config, "added_tokens_decoder"))
        ok = read_object(&c->map, folder, CHECKPOINT_SPECIAL_TOKENS, e) &&
             read_object(&c->added, folder, CHECKPOINT_ADDED_TOKENS, e);
    ok = ok && read_object(&c->model, folder, "config.json", e) && tokenizer_config_take(c, where, e);
    free(where);
    return ok;
}

void tokenizer_config_fini(struct tokenizer_config *c)
{
    free(c->entries);
    cJSON_Delete(c->config);
    cJSON_Delete(c->map);
    cJSON_Delete(c->added);
    cJSON_Delete(c->model);
    free(c->own_parts);
    *c = (struct tokenizer_config){0};
}
