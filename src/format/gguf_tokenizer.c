/* tokenizer.json of a GGUF file, which holds tokens, their kinds and either merges (byte-level BPE) or scores (SentencePiece),
 * and names the rule that splits a text into words.
 *
 * Scores become merges as the tokenizers library derives them from a SentencePiece model: every split of a token into two
 * tokens is a merge, in the order of falling scores, then of falling lengths of the left and of the right part. Tokens that
 * users defined come first (their score in SentencePiece is 0; GGUF writes -1000), and their runs of spaces are written
 * with U+2581 again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "format/gguf_model.h"

#define BLANK "\xe2\x96\x81" /* U+2581 */
#define TOKENS_MAX (1 << 24)
#define MERGES_MAX 8000000
#define SPLIT_BYTES_MAX 256 /* of a token that is split into two; real ones have up to 93 */

enum token_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct vocabulary {
    struct gguf_model *m;
    bool is_sentencepiece;
    struct str *tokens; /* [n]; changed ones are in the arena */
    uint8_t *types;     /* [n] */
    uint64_t n;
    const struct gguf_key *scores, *merges;
};

/* ---- rules that split a text ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS_BY_THREE                                                                                       \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS
#define WORDS_BY_ONE                                                                                         \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS
#define WORDS_WITH_MARKS                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* digits: "\\p{N}" or with {1,3}; tail: what may follow a word */
#define WORDS_BY_CASE(digits, tail)                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail     \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BLANKS

/* split NULL: GPT-2's own pattern, which is ByteLevel's. */
struct rule {
    const char *names; /* of tokenizer.ggml.pre, with spaces around each */
    const char *split;
    bool by_digits;     /* every digit for itself, before */
    bool ignore_merges; /* a word that is a token is one, whatever merges say */
    bool adds_bos;      /* where no key says */
    bool composes;      /* NFC, as the models' own tokenizers do */
};
static const struct rule rules[] = {
    {" llama-bpe llama3 llama-v3 falcon3 pixtral lfm2 ", WORDS_BY_THREE, false, true, true, false},
    {" smaug-bpe dbrx chatglm-bpe glm4 ", WORDS_BY_THREE, false, false, false, false},
    {" qwen2 deepseek-r1-qwen megrez ", WORDS_BY_ONE, false, false, false, true},
    {" stablelm2 hunyuan solar-open grok-2 ", WORDS_BY_ONE, false, false, false, false},
    {" qwen35 ", WORDS_WITH_MARKS, false, false, false, true},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ", NULL, true, false, false,
     false},
    {" gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 ", NULL, false, false, false, false},
    {" tekken ", WORDS_BY_CASE("\\p{N}", ""), false, true, true, false},
    {" gpt-4o llama4 ", WORDS_BY_CASE("\\p{N}{1,3}", CONTRACTIONS "?"), false, false, false, false},
};
#define N_RULES (sizeof rules / sizeof rules[0])

static const struct rule *rule_of(const char *name)
{
    char padded[80];
    snprintf(padded, sizeof padded, " %s ", name);
    for (size_t i = 0; i < N_RULES; i++) {
        if (!strchr(name, ' ') && strstr(rules[i].names, padded))
            return &rules[i];
    }
    return NULL;
}

/* A file without a name for it is older than the names: the architecture tells what the rule must have been. */
static bool find_rule(struct gguf_model *m, uint64_t n_tokens, const struct rule **out, struct err *e)
{
    struct str pre = {NULL, 0};
    char name[64] = "";
    const char *model_type = m->architecture->model_type;
    if (!gguf_get_string(m->file, "tokenizer.ggml.pre", &pre, e))
        return false;
    if (pre.p)
        snprintf(name, sizeof name, "%.*s", (int)(pre.n < sizeof name ? pre.n : sizeof name - 1), pre.p);
    if (!pre.p || strcmp(name, "default") == 0) {
        const char *taken = strncmp(model_type, "qwen", 4) == 0                      ? "qwen2"
                            : strcmp(model_type, "smollm3") == 0                     ? "smaug-bpe"
                            : strcmp(model_type, "llama") == 0 && n_tokens >= 128000 ? "llama-bpe"
                                                                                     : "gpt-2";
        gguf_model_note(m,
                        "tokenizer.ggml.pre does not name the rule that splits a text: %s taken; ids may "
                        "differ from those "
                        "that the model was trained on",
                        taken);
        snprintf(name, sizeof name, "%s", taken);
    }
    *out = rule_of(name);
    return *out || err_set(e, ERR_UNSUPPORTED,
                           "%s: key tokenizer.ggml.pre: expected a rule that milkit knows (llama-bpe, qwen2, "
                           "smollm, gpt-2, "
                           "tekken, ...), found \"%s\"",
                           m->file->path, name);
}

/* ---- tokens ---- */

static bool same(struct str s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.p, text, s.n) == 0;
}

/* A run of spaces that a user defined: with U+2581, as it stands in tokenizer.json. */
static struct str with_blanks(struct arena *arena, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != ' ')
            return s;
    }
    char *text = arena_alloc(arena, 3 * s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        memcpy(text + 3 * i, BLANK, 3);
    return (struct str){text, 3 * s.n};
}

static bool same_count(const struct vocabulary *v, const char *name, const struct gguf_key *k, struct err *e)
{
    return !k || k->n == v->n ||
           err_set(e, ERR_FORMAT, "%s: key %s: expected %llu elements, as many as tokens, found %llu",
                   v->m->file->path, name, (unsigned long long)v->n, (unsigned long long)k->n);
}

static bool read_model_name(struct vocabulary *v, struct err *e)
{
    struct str model = {NULL, 0};
    if (!gguf_get_string(v->m->file, "tokenizer.ggml.model", &model, e))
        return false;
    v->is_sentencepiece = model.p && same(model, "llama");
    return v->is_sentencepiece || (model.p && same(model, "gpt2")) ||
           err_set(e, ERR_UNSUPPORTED,
                   "%s: key tokenizer.ggml.model: expected gpt2 (byte-level BPE) or llama (SentencePiece), "
                   "found %.*s",
                   v->m->file->path, model.p ? (int)(model.n < 64 ? model.n : 64) : 4,
                   model.p ? model.p : "none");
}

static bool read_vocabulary(struct vocabulary *v, struct gguf_model *m, struct err *e)
{
    static const char tokens_key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type";
    const struct gguf_key *tokens, *types;
    *v = (struct vocabulary){.m = m};
    if (!read_model_name(v, e) || !gguf_get_array(m->file, tokens_key, GGUF_STRING, &tokens, e) ||
        !gguf_get_array(m->file, types_key, GGUF_I32, &types, e) ||
        !gguf_get_array(m->file, "tokenizer.ggml.scores", GGUF_F32, &v->scores, e) ||
        !gguf_get_array(m->file, "tokenizer.ggml.merges", GGUF_STRING, &v->merges, e))
        return false;
    if (!tokens || tokens->n == 0 || tokens->n > TOKENS_MAX || (int64_t)tokens->n > m->vocab_size)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s: expected 1 to %lld tokens (the rows of token_embd.weight), found %llu",
                       m->file->path, tokens_key, (long long)m->vocab_size,
                       tokens ? (unsigned long long)tokens->n : 0);
    v->n = tokens->n;
    if (!same_count(v, types_key, types, e) || !same_count(v, "tokenizer.ggml.scores", v->scores, e))
        return false;
    if (v->is_sentencepiece ? !v->scores : !v->merges)
        return err_set(e, ERR_FORMAT, "%s: key tokenizer.ggml.%s is missing", m->file->path,
                       v->is_sentencepiece ? "scores" : "merges");
    v->tokens = arena_try_alloc(m->arena, (size_t)v->n, sizeof *v->tokens, e);
    v->types = v->tokens ? arena_try_alloc(m->arena, (size_t)v->n, 1, e) : NULL;
    if (!v->types)
        return false;
    const uint8_t *at = tokens->data;
    for (uint64_t i = 0; i < v->n; i++) {
        double type = types ? gguf_number_at(types, i) : NORMAL;
        v->tokens[i] = gguf_next_string(&at);
        if (memchr(v->tokens[i].p, 0, v->tokens[i].n))
            return err_set(e, ERR_FORMAT, "%s: key %s: token %llu: expected a text without zeros",
                           m->file->path, tokens_key, (unsigned long long)i);
        if (!(type >= 0 && type <= BYTE))
            return err_set(e, ERR_FORMAT, "%s: key %s: token %llu: expected 1 to %d, found %g", m->file->path,
                           types_key, (unsigned long long)i, BYTE, type);
        v->types[i] = (uint8_t)type;
        if (v->is_sentencepiece && v->types[i] == USER_DEFINED)
            v->tokens[i] = with_blanks(m->arena, v->tokens[i]);
    }
    return true;
}

/* Writers fill tables up with tokens of this form, which no text is to become. */
static bool is_padding(const struct vocabulary *v, uint64_t i)
{
    return v->types[i] == UNUSED && !v->is_sentencepiece && v->tokens[i].n > 4 &&
           memcmp(v->tokens[i].p, "[PAD", 4) == 0;
}

/* ---- merges of scores ---- */

struct merge {
    uint32_t left, right;
    float score;
    uint32_t left_length, right_length; /* characters */
    uint32_t order;
};

static int compare_merges(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_length != y->left_length)
        return x->left_length > y->left_length ? -1 : 1;
    if (x->right_length != y->right_length)
        return x->right_length > y->right_length ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

struct merge_list {
    struct merge *p;
    size_t n, capacity;
    struct table *ids; /* id + 1 by text */
    struct buf text;
};

static uint32_t find_id(struct merge_list *l, const char *p, size_t n)
{
    buf_clear(&l->text);
    buf_append(&l->text, p, n);
    return (uint32_t)(uintptr_t)table_get(l->ids, l->text.p ? l->text.p : "");
}

/* All splits of one token into two, by their ids. */
static bool add_splits(struct merge_list *l, const struct vocabulary *v, uint64_t id, struct err *e)
{
    struct str s = v->tokens[id];
    float score = v->types[id] == USER_DEFINED ? 0.0f : (float)gguf_number_at(v->scores, id);
    size_t first = l->n;
    uint32_t length = 0, cp;
    for (size_t at = 0; at < s.n; length++)
        at += utf8_next(s.p + at, &cp);
    uint32_t i = 0;
    for (size_t at = utf8_next(s.p, &cp); at < s.n; at += utf8_next(s.p + at, &cp)) {
        uint32_t left = find_id(l, s.p, at), right = left ? find_id(l, s.p + at, s.n - at) : 0;
        i++;
        if (!right)
            continue;
        if (l->n == MERGES_MAX)
            return err_set(e, ERR_LIMIT, "%s: the tokens make more than %d merges", v->m->file->path,
                           MERGES_MAX);
        l->p = mem_grow(l->p, l->n, &l->capacity, sizeof *l->p);
        l->p[l->n++] = (struct merge){.left = left - 1,
                                      .right = right - 1,
                                      .score = score,
                                      .left_length = i,
                                      .right_length = length - i};
    }
    if (l->n > first)
        qsort(l->p + first, l->n - first, sizeof *l->p, compare_pairs);
    for (size_t k = first; k < l->n; k++)
        l->p[k].order = (uint32_t)k;
    return true;
}

static bool put_merges_of_scores(struct buf *b, const struct vocabulary *v, struct err *e)
{
    struct merge_list l = {.ids = table_new()};
    bool ok = true;
    buf_init(&l.text, (size_t)1 << 30);
    for (uint64_t i = 0; i < v->n; i++) {
        buf_clear(&l.text);
        buf_append(&l.text, v->tokens[i].p, v->tokens[i].n);
        (void)table_put(l.ids, l.text.p ? l.text.p : "", (void *)(uintptr_t)(i + 1));
    }
    for (uint64_t i = 0; i < v->n && ok; i++) {
        if ((v->types[i] == NORMAL || v->types[i] == USER_DEFINED) && v->tokens[i].n > 0 &&
            v->tokens[i].n <= SPLIT_BYTES_MAX)
            ok = add_splits(&l, v, i, e);
    }
    if (ok && l.n > 0)
        qsort(l.p, l.n, sizeof *l.p, compare_merges);
    for (size_t i = 0; i < l.n && ok; i++) {
        buf_puts(b, i ? ",\n[" : "\n[");
        json_put_string(b, v->tokens[l.p[i].left].p, v->tokens[l.p[i].left].n);
        buf_putc(b, ',');
        json_put_string(b, v->tokens[l.p[i].right].p, v->tokens[l.p[i].right].n);
        buf_putc(b, ']');
    }
    buf_fini(&l.text);
    table_free(l.ids);
    free(l.p);
    return ok;
}

static bool put_listed_merges(struct buf *b, const struct vocabulary *v, struct err *e)
{
    const uint8_t *at = v->merges->data;
    for (uint64_t i = 0; i < v->merges->n; i++) {
        struct str s = gguf_next_string(&at);
        const char *blank = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 2) : NULL;
        if (!blank)
            return err_set(e, ERR_FORMAT,
                           "%s: key tokenizer.ggml.merges: element %llu: expected two tokens with a space "
                           "between them, found \"%.*s\"",
                           v->m->file->path, (unsigned long long)i, (int)(s.n < 64 ? s.n : 64), s.p);
        buf_puts(b, i ? ",\n[" : "\n[");
        json_put_string(b, s.p, (size_t)(blank - s.p));
        buf_putc(b, ',');
        json_put_string(b, blank + 1, s.n - (size_t)(blank - s.p) - 1);
        buf_putc(b, ']');
    }
    return true;
}

/* ---- the parts of tokenizer.json ---- */

static void put_added(struct buf *b, const struct vocabulary *v)
{
    bool is_first = true;
    buf_puts(b, "  \"added_tokens\": [");
    for (uint64_t i = 0; i < v->n; i++) {
        int type = v->types[i];
        if ((type != UNKNOWN && type != CONTROL && type != USER_DEFINED) || v->tokens[i].n == 0)
            continue;
        buf_printf(b, "%s\n    {\"id\": %llu, \"content\": ", is_first ? "" : ",", (unsigned long long)i);
        json_put_string(b, v->tokens[i].p, v->tokens[i].n);
        buf_printf(b,
                   ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                   "\"special\": %s}",
                   type == USER_DEFINED ? "false" : "true");
        is_first = false;
    }
    buf_puts(b, "\n  ],\n");
}

static void put_vocabulary(struct buf *b, const struct vocabulary *v)
{
    struct table *seen = table_new();
    struct buf text;
    uint64_t n_repeated = 0;
    bool is_first = true;
    buf_init(&text, (size_t)1 << 30);
    buf_puts(b, "    \"vocab\": {");
    for (uint64_t i = 0; i < v->n; i++) {
        buf_clear(&text);
        buf_append(&text, v->tokens[i].p, v->tokens[i].n);
        if (is_padding(v, i))
            continue;
        if (!table_put(seen, text.p ? text.p : "", seen)) {
            n_repeated++;
            continue;
        }
        buf_puts(b, is_first ? "\n" : ",\n");
        json_put_string(b, v->tokens[i].p, v->tokens[i].n);
        buf_printf(b, ": %llu", (unsigned long long)i);
        is_first = false;
    }
    buf_puts(b, "\n    },\n");
    if (n_repeated > 0)
        gguf_model_note(
            v->m,
            "tokenizer.ggml.tokens: %llu tokens repeat the text of an earlier one and can't be met in a text",
            (unsigned long long)n_repeated);
    table_free(seen);
    buf_fini(&text);
}

static void put_template_token(struct buf *b, const struct vocabulary *v, int64_t id)
{
    buf_puts(b, "{\"SpecialToken\": {\"id\": ");
    json_put_string(b, v->tokens[id].p, v->tokens[id].n);
    buf_puts(b, ", \"type_id\": 0}}");
}

static void put_template_ids(struct buf *b, const struct vocabulary *v, int64_t id)
{
    json_put_string(b, v->tokens[id].p, v->tokens[id].n);
    buf_printf(b, ": {\"id\": ");
    json_put_string(b, v->tokens[id].p, v->tokens[id].n);
    buf_printf(b, ", \"ids\": [%lld], \"tokens\": [", (long long)id);
    json_put_string(b, v->tokens[id].p, v->tokens[id].n);
    buf_puts(b, "]}");
}

/* Ids that stand around every text; -1: none. */
static bool read_around(const struct vocabulary *v, bool adds_bos, int64_t *bos, int64_t *eos, struct err *e)
{
    static const char bos_key[] = "tokenizer.ggml.bos_token_id", eos_key[] = "tokenizer.ggml.eos_token_id";
    bool adds_eos = false;
    *bos = *eos = -1;
    if (!gguf_get_bool(v->m->file, "tokenizer.ggml.add_bos_token", &adds_bos, e) ||
        !gguf_get_bool(v->m->file, "tokenizer.ggml.add_eos_token", &adds_eos, e))
        return false;
    return (!adds_bos || gguf_token_id(v->m, bos_key, bos, e)) &&
           (!adds_eos || gguf_token_id(v->m, eos_key, eos, e));
}

static void put_processor(struct buf *b, const struct vocabulary *v, int64_t bos, int64_t eos)
{
    buf_puts(b, "  \"post_processor\": ");
    if (bos < 0 && eos < 0) {
        buf_puts(b, v->is_sentencepiece
                        ? "null,\n"
                        : "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, "
                          "\"use_regex\": false},\n");
        return;
    }
    buf_puts(b, "{\"type\": \"TemplateProcessing\", \"single\": [");
    if (bos >= 0)
        put_template_token(b, v, bos);
    buf_printf(b, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}%s", bos >= 0 ? ", " : "",
               eos >= 0 ? ", " : "");
    if (eos >= 0)
        put_template_token(b, v, eos);
    buf_puts(b, "], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
                "\"B\", \"type_id\": 1}}], "
                "\"special_tokens\": {");
    if (bos >= 0)
        put_template_ids(b, v, bos);
    buf_puts(b, bos >= 0 && eos >= 0 && eos != bos ? ", " : "");
    if (eos >= 0 && eos != bos)
        put_template_ids(b, v, eos);
    buf_puts(b, "}},\n");
}

static void put_byte_level(struct buf *b, const struct rule *rule)
{
    static const char level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": ";
    buf_puts(b, rule->composes ? "  \"normalizer\": {\"type\": \"NFC\"},\n" : "  \"normalizer\": null,\n");
    buf_puts(b, "  \"pre_tokenizer\": ");
    if (rule->by_digits) {
        buf_printf(b,
                   "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                   "\"individual_digits\": true}, %strue}]}",
                   level);
    } else if (!rule->split) {
        buf_printf(b, "%strue}", level);
    } else {
        buf_puts(
            b,
            "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        json_put_string(b, rule->split, strlen(rule->split));
        buf_printf(b, "}, \"behavior\": \"Isolated\", \"invert\": false}, %sfalse}]}", level);
    }
    buf_puts(b, ",\n");
}

static void put_sentencepiece(struct buf *b, bool adds_space)
{
    static const char replace[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" BLANK "\"}";
    if (adds_space)
        buf_printf(b,
                   "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
                   "\"prepend\": \"" BLANK "\"}, %s]},\n",
                   replace);
    else
        buf_printf(b, "  \"normalizer\": %s,\n", replace);
    buf_puts(b, "  \"pre_tokenizer\": null,\n");
}

static void put_decoder(struct buf *b, const struct vocabulary *v, bool adds_space)
{
    if (!v->is_sentencepiece) {
        buf_puts(b, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
                    "true, \"use_regex\": true},\n");
        return;
    }
    buf_puts(b, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                "{\"String\": \"" BLANK
                "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    buf_puts(b, adds_space ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n"
                           : "]},\n");
}

static bool put_model(struct buf *b, const struct vocabulary *v, bool ignore_merges, struct err *e)
{
    int64_t unknown;
    if (!gguf_token_id(v->m, "tokenizer.ggml.unknown_token_id", &unknown, e))
        return false;
    for (uint64_t i = 0; unknown < 0 && v->is_sentencepiece && i < v->n; i++)
        unknown = v->types[i] == UNKNOWN ? (int64_t)i : -1;
    buf_puts(b, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    if (unknown >= 0 && v->is_sentencepiece)
        json_put_string(b, v->tokens[unknown].p, v->tokens[unknown].n);
    else
        buf_puts(b, "null");
    buf_printf(b,
               ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
               "\"fuse_unk\": %s,\n"
               "    \"byte_fallback\": %s,\n    \"ignore_merges\": %s,\n",
               v->is_sentencepiece ? "true" : "false", v->is_sentencepiece ? "true" : "false",
               ignore_merges ? "true" : "false");
    put_vocabulary(b, v);
    buf_puts(b, "    \"merges\": [");
    if (!(v->is_sentencepiece ? put_merges_of_scores(b, v, e) : put_listed_merges(b, v, e)))
        return false;
    buf_puts(b, "\n    ]\n  }\n}\n");
    return true;
}

bool gguf_tokenizer_make(struct buf *b, struct gguf_model *m, struct err *e)
{
    struct vocabulary v;
    struct str whole = {NULL, 0};
    const struct rule *rule = NULL;
    bool adds_space = true;
    int64_t bos, eos;
    if (!gguf_get_string(m->file, "tokenizer.huggingface.json", &whole, e))
        return false;
    if (whole.p) {
        buf_append(b, whole.p, whole.n);
        return true;
    }
    if (!read_vocabulary(&v, m, e) || (!v.is_sentencepiece && !find_rule(m, v.n, &rule, e)) ||
        !gguf_get_bool(m->file, "tokenizer.ggml.add_space_prefix", &adds_space, e) ||
        !read_around(&v, v.is_sentencepiece || rule->adds_bos, &bos, &eos, e))
        return false;
    buf_puts(b, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(b, &v);
    if (v.is_sentencepiece)
        put_sentencepiece(b, adds_space);
    else
        put_byte_level(b, rule);
    put_processor(b, &v, bos, eos);
    put_decoder(b, &v, adds_space);
    return put_model(b, &v, rule && rule->ignore_merges, e);
}

/* ---- special tokens ---- */

bool gguf_token_id(const struct gguf_model *m, const char *key, int64_t *id, struct err *e)
{
    const struct gguf_key *tokens = gguf_find_key(m->file, "tokenizer.ggml.tokens");
    *id = -1;
    if (!tokens || !gguf_find_key(m->file, key))
        return true;
    /* Writers without such a token leave all bits set. */
    if (!gguf_get_int(m->file, key, id, e))
        return false;
    if (*id == -1 || *id == UINT32_MAX) {
        *id = -1;
        return true;
    }
    return (*id >= 0 && (uint64_t)*id < tokens->n) ||
           err_set(e, ERR_FORMAT, "%s: key %s: expected an id of the %llu tokens, found %lld", m->file->path,
                   key, (unsigned long long)tokens->n, (long long)*id);
}

static void add_stop(int64_t ids[GGUF_STOP_IDS_MAX], int *n, int64_t id)
{
    for (int i = 0; i < *n; i++) {
        if (ids[i] == id)
            return;
    }
    if (id >= 0 && *n < GGUF_STOP_IDS_MAX)
        ids[(*n)++] = id;
}

bool gguf_stop_ids(const struct gguf_model *m, int64_t ids[GGUF_STOP_IDS_MAX], int *n, struct err *e)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const texts[] = {"<|eot_id|>",    "<|im_end|>",    "<|end|>",
                                        "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                                        "<|eom_id|>",    "<EOT>",         "</s>"};
    const struct gguf_key *tokens, *types;
    int64_t id;
    *n = 0;
    for (int i = 0; i < 3; i++) {
        if (!gguf_token_id(m, keys[i], &id, e))
            return false;
        add_stop(ids, n, id);
    }
    if (!gguf_get_array(m->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, e) ||
        !gguf_get_array(m->file, "tokenizer.ggml.token_type", GGUF_I32, &types, e))
        return false;
    const uint8_t *at = tokens ? tokens->data : NULL;
    for (uint64_t i = 0; tokens && i < tokens->n; i++) {
        struct str s = gguf_next_string(&at);
        bool is_control = types && i < types->n && gguf_number_at(types, i) == CONTROL;
        for (size_t k = 0; is_control && k < sizeof texts / sizeof texts[0]; k++) {
            if (same(s, texts[k]))
                add_stop(ids, n, (int64_t)i);
        }
    }
    return true;
}

static bool put_named_token(cJSON *o, const struct gguf_model *m, const char *name, const char *key,
                            struct err *e)
{
    const struct gguf_key *tokens;
    int64_t id;
    if (!gguf_token_id(m, key, &id, e) ||
        !gguf_get_array(m->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, e))
        return false;
    const uint8_t *at = tokens ? tokens->data : NULL;
    struct str s = {"", 0};
    for (int64_t i = 0; i <= id; i++)
        s = gguf_next_string(&at);
    if (id >= 0) {
        char *text = arena_strndup(m->arena, s.p, s.n);
        cJSON_AddStringToObject(o, name, text);
    }
    return true;
}

bool gguf_tokenizer_config_make(cJSON **out, const struct gguf_model *m, struct err *e)
{
    static const char *const named[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                           {"sep_token", "tokenizer.ggml.seperator_token_id"},
                                           {"pad_token", "tokenizer.ggml.padding_token_id"}};
    cJSON *o = cJSON_CreateObject();
    bool ok = true;
    for (size_t i = 0; i < sizeof named / sizeof named[0] && ok; i++)
        ok = put_named_token(o, m, named[i][0], named[i][1], e);
    cJSON_AddFalseToObject(o, "clean_up_tokenization_spaces");
    cJSON_AddNumberToObject(o, "model_max_length", (double)m->positions);
    cJSON_AddStringToObject(o, "tokenizer_class", "PreTrainedTokenizerFast");
    *out = ok ? o : NULL;
    if (!ok)
        cJSON_Delete(o);
    return ok;
}
