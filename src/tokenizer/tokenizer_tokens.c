/* Added tokens while a tokenizer is read: those of tokenizer.json, then what the files beside it declare, put together as
 * the tokenizers library does when one is added after the other.
 *
 * A token that comes again with other flags takes them and keeps its id, but stays special once it was, and is decoded as
 * its normalised text once it was one that matches normalised text.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"

struct state {
    struct added_entry newest;
    int32_t id;
    bool is_listed; /* in tokenizer.json or added_tokens_decoder, or what takes its place */
    bool is_special, was_normalized;
};

struct additions {
    struct tokenizer *t;
    struct state *states; /* in the order of their first coming */
    size_t n, capacity;
    uint32_t *of_id; /* [n_of_id] state + 1; 0: no added token */
    size_t n_of_id;
    int32_t next_id;
    uint8_t *taken; /* [TOKENIZER_MAX_ID / 8] bits: ids that tokenizer.json names; NULL where nobody asks */
};

static struct state *find(const struct additions *a, const char *text)
{
    int32_t id = vocab_find(&a->t->model.vocab, text, strlen(text));
    return id >= 0 && (size_t)id < a->n_of_id && a->of_id[id] ? &a->states[a->of_id[id] - 1] : NULL;
}

/* A token that the model has keeps the model's id, others follow the last one; what a file says is only a remark. */
static bool take_new(struct additions *a, const struct added_entry *entry, struct state **out, struct err *e)
{
    struct vocab *v = &a->t->model.vocab;
    size_t length = strlen(entry->text);
    int32_t id = vocab_find(v, entry->text, length);
    bool is_new;
    if (id < 0) {
        id = a->next_id;
        if (!vocab_add(v, entry->text, length, id, &is_new, e))
            return false;
    }
    a->next_id = id >= a->next_id ? id + 1 : a->next_id;
    if ((size_t)id >= a->n_of_id) {
        size_t n = (size_t)v->n_ids + 64;
        a->of_id = xrealloc(a->of_id, n * sizeof *a->of_id);
        memset(a->of_id + a->n_of_id, 0, (n - a->n_of_id) * sizeof *a->of_id);
        a->n_of_id = n;
    }
    a->states = mem_grow(a->states, a->n, &a->capacity, sizeof *a->states);
    a->of_id[id] = (uint32_t)a->n + 1;
    a->states[a->n] = (struct state){.id = id, .is_listed = !entry->only_new};
    *out = &a->states[a->n++];
    return true;
}

static bool add(struct additions *a, const struct added_entry *entry, struct err *e)
{
    if (!*entry->text) /* the library drops empty ones */
        return true;
    if (entry->older && (a->taken[entry->id / 8] >> entry->id % 8 & 1)) /* that id is another token's */
        return true;
    struct state *s = find(a, entry->text);
    struct added_entry marked;
    if (entry->only_new && s && s->is_listed) {
        if (!entry->marks)
            return true;
        marked = s->newest;
        marked.special = true;
        entry = &marked;
    }
    if (!s && !take_new(a, entry, &s, e))
        return false;
    s->is_special = s->is_special || entry->special;
    s->was_normalized = s->was_normalized || entry->normalized;
    if (!(entry->older && s->newest.text && s->newest.id > entry->id))
        s->newest = *entry;
    return true;
}

/* --- the sets that encoding walks over --- */

static void push(struct added_set *set, const struct state *s, struct str text, bool splits_special)
{
    if (text.n == 0)
        return;
    char *copy = xmalloc(text.n);
    memcpy(copy, text.p, text.n);
    added_set_push(set, (struct added_token){copy, text.n, s->id, s->newest.single_word, s->newest.lstrip,
                                             s->newest.rstrip, splits_special && s->is_special});
}

static bool add_to_sets(struct tokenizer *t, const struct state *s, struct regex_scratch *regex,
                        struct err *e)
{
    struct str text = {s->newest.text, strlen(s->newest.text)}, normal = text;
    struct buf scratch[2];
    bool ok = true;
    if (!s->newest.normalized)
        push(&t->added_raw, s, text, t->splits_special);
    if (!s->was_normalized)
        return true;
    buf_init(&scratch[0], TOKENIZER_MAX_JSON_BYTES);
    buf_init(&scratch[1], TOKENIZER_MAX_JSON_BYTES);
    regex_scratch_expect(regex, text.n);
    ok = normalize(t->normalizers, t->n_normalizers, regex, text, scratch, &normal, e);
    /* the library decodes such a token as the text that it matches */
    if (ok && (normal.n != text.n || memcmp(normal.p, text.p, text.n) != 0))
        ok = vocab_set_text(&t->model.vocab, s->id, normal.p, normal.n, e);
    if (ok && s->newest.normalized)
        push(&t->added_normalized, s, normal, t->splits_special);
    buf_fini(&scratch[0]);
    buf_fini(&scratch[1]);
    return ok;
}

static bool finish(struct additions *a, struct err *e)
{
    struct tokenizer *t = a->t;
    struct regex_scratch *regex = regex_scratch_new(0);
    bool ok = true;
    for (size_t i = 0; i < a->n && ok; i++)
        ok = add_to_sets(t, &a->states[i], regex, e);
    regex_scratch_free(regex);
    added_set_finish(&t->added_raw);
    added_set_finish(&t->added_normalized);
    t->is_special = xcalloc((size_t)t->model.vocab.n_ids + 1, 1);
    for (size_t i = 0; i < a->n && ok; i++) /* the library knows special ones by their own text */
        if (a->states[i].is_special &&
            strcmp(vocab_text(&t->model.vocab, a->states[i].id), a->states[i].newest.text) == 0)
            t->is_special[a->states[i].id] = 1;
    return ok;
}

/* --- reading --- */

static bool read_entry(struct added_entry *out, const cJSON *item, const char *where, struct err *e)
{
    if (!cJSON_IsObject(item))
        return err_set(e, ERR_FORMAT, "%s: added_tokens: expected objects, found %s", where,
                       json_type_name(item));
    int64_t id = -1;
    if (!added_entry_read(out, item, false, where, "added_tokens", e) ||
        !json_get_int(item, "id", &id, where, e))
        return false;
    if (!cJSON_IsBool(json_get(item, "normalized")))
        out->normalized = true;
    out->id = id;
    if (id < 0 || id >= TOKENIZER_MAX_ID)
        return err_set(e, ERR_FORMAT, "%s: added_tokens: \"%.100s\": expected an id from 0 to %d, found %lld",
                       where, out->text, TOKENIZER_MAX_ID - 1, (long long)id);
    return true;
}

bool tokenizer_add_tokens(struct tokenizer *t, const cJSON *list, const struct tokenizer_config *config,
                          const char *where, struct err *e)
{
    if (list && !cJSON_IsArray(list) && !cJSON_IsNull(list))
        return err_set(e, ERR_FORMAT, "%s: added_tokens: expected an array, found %s", where,
                       json_type_name(list));
    struct additions a = {.t = t, .next_id = (int32_t)t->model.vocab.n_used};
    bool ok = true;
    if (config && config->added)
        a.taken = xcalloc(TOKENIZER_MAX_ID / 8, 1);
    for (const cJSON *item = list ? list->child : NULL; item && ok; item = item->next) {
        struct added_entry entry;
        ok = read_entry(&entry, item, where, e) && (add(&a, &entry, e) || err_wrap(e, "%s", where));
        if (ok && a.taken)
            a.taken[entry.id / 8] |= (uint8_t)(1 << entry.id % 8);
    }
    for (size_t i = 0; config && i < config->n && ok; i++)
        ok = (config->entries[i].of_class && config->own_parts && !t->has_own_parts) ||
             add(&a, &config->entries[i], e) || err_wrap(e, "%s: what is declared beside it", where);
    ok = ok && finish(&a, e);
    free(a.states);
    free(a.of_id);
    free(a.taken);
    return ok;
}
