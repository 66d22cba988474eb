/* Reading a tokenizer.json: every part is known or refused by name; nothing is skipped that could change an
 * id.
 *
 * "truncation" and "padding" are left aside: they are settings of a caller's batches, and callers of the
 * library reset them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

/* The pattern of the ByteLevel pre-tokenizer (GPT-2's). */
#define BYTE_LEVEL_PATTERN                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static bool unsupported(const char *where, const char *part, const char *name, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s \"%.100s\" is not supported", where, part, name);
}

static bool expected(const char *where, const char *part, const char *what, const cJSON *found, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: %s: expected %s, found %s", where, part, what, json_type_name(found));
}

static bool read_type(const cJSON *item, const char **type, const char *part, const char *where,
                      struct err *e)
{
    *type = NULL;
    if (!cJSON_IsObject(item))
        return expected(where, part, "an object", item, e);
    if (!json_get_string(item, "type", type, where, e))
        return false;
    return *type || expected(where, part, "a \"type\"", NULL, e);
}

/* Calls read for the part itself, or for each member when it is a Sequence. */
typedef bool (*part_fn)(struct tokenizer *t, const cJSON *item, const char *type, const char *where,
                        struct err *e);

static bool read_parts(struct tokenizer *t, const cJSON *item, const char *part, const char *members,
                       part_fn read, const char *where, struct err *e)
{
    const char *type;
    if (!item || cJSON_IsNull(item))
        return true;
    if (!read_type(item, &type, part, where, e))
        return false;
    if (strcmp(type, "Sequence") != 0)
        return read(t, item, type, where, e);
    const cJSON *list = json_get(item, members);
    if (!cJSON_IsArray(list))
        return expected(where, members, "an array", list, e);
    for (const cJSON *member = list->child; member; member = member->next) {
        if (!read_type(member, &type, part, where, e))
            return false;
        if (strcmp(type, "Sequence") == 0)
            return unsupported(where, part, "Sequence in a Sequence", e);
        if (!read(t, member, type, where, e))
            return false;
    }
    return true;
}

/* --- model
 * ---------------------------------------------------------------------------------------------------- */

/* Looks up the symbols that words start as. */
static void index_symbols(struct bpe_model *m)
{
    m->n_ids = m->vocab.n_ids;
    if (!m->is_byte_level) {
        m->bmp_symbols = xmalloc(0x10000 * sizeof *m->bmp_symbols);
        memset(m->bmp_symbols, 0xff, 0x10000 * sizeof *m->bmp_symbols);
    }
    for (int32_t id = 0; id < m->n_ids && m->bmp_symbols; id++) {
        const char *token = vocab_text(&m->vocab, id);
        uint32_t cp;
        if (token && *token && !token[utf8_next(token, &cp)] && cp < 0x10000)
            m->bmp_symbols[cp] = id;
    }
    for (int b = 0; b < 256; b++) {
        char text[8];
        uint32_t cp = byte_level_char((uint8_t)b);
        size_t n = 1;
        text[0] = (char)cp;
        if (cp >= 0x80) {
            text[0] = (char)(0xc0 | cp >> 6);
            text[1] = (char)(0x80 | (cp & 0x3f));
            n = 2;
        }
        m->byte_symbol[b] = vocab_find(&m->vocab, text, n);
        if (b < 128) {
            text[0] = (char)b;
            m->ascii_symbol[b] = vocab_find(&m->vocab, text, 1);
        }
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        m->fallback_token[b] = vocab_find(&m->vocab, text, 6);
    }
}

static bool read_model(struct bpe_model *m, const cJSON *model, struct str vocab, struct str merges,
                       const char *where, struct err *e)
{
    if (!cJSON_IsObject(model))
        return expected(where, "model", "an object", model, e);
    const char *type = "BPE"; /* old files leave it out; what has merges is BPE */
    const char *unk = NULL, *prefix = "", *suffix = "";
    double dropout = 0;
    if (!json_get_string(model, "type", &type, where, e) ||
        !json_get_string(model, "unk_token", &unk, where, e) ||
        !json_get_string(model, "continuing_subword_prefix", &prefix, where, e) ||
        !json_get_string(model, "end_of_word_suffix", &suffix, where, e) ||
        !json_get_double(model, "dropout", &dropout, where, e) ||
        !json_get_bool(model, "fuse_unk", &m->fuse_unk, where, e) ||
        !json_get_bool(model, "byte_fallback", &m->byte_fallback, where, e) ||
        !json_get_bool(model, "ignore_merges", &m->ignore_merges, where, e))
        return false;
    if (strcmp(type, "BPE") != 0)
        return unsupported(where, "tokenizer model", type, e);
    if (*prefix || *suffix)
        return unsupported(where, "BPE with a prefix or suffix", *prefix ? prefix : suffix, e);
    if (dropout != 0)
        return unsupported(where, "BPE option", "dropout", e);
    if (!vocab.p)
        return expected(where, "model.vocab", "an object", json_get(model, "vocab"), e);
    if (!merges.p)
        return expected(where, "model.merges", "an array", json_get(model, "merges"), e);
    if (!tokenizer_read_vocab(m, vocab, where, e) || !tokenizer_read_merges(m, merges, where, e))
        return false;
    index_symbols(m);
    bpe_index_joints(m);
    m->unk = unk ? vocab_find(&m->vocab, unk, strlen(unk)) : -1;
    if (unk && m->unk < 0)
        return err_set(e, ERR_FORMAT, "%s: unk_token \"%.100s\" is not in the vocabulary", where, unk);
    return true;
}

/* --- normalizer
 * ------------------------------------------------------------------------------------------------- */

static bool read_replacement(struct normalizer *out, const cJSON *item, const char *where, struct err *e)
{
    const char *from = NULL, *regex = NULL, *to = NULL;
    const cJSON *pattern = json_get(item, "pattern");
    if (!json_get_string(pattern, "String", &from, where, e) ||
        !json_get_string(pattern, "Regex", &regex, where, e) ||
        !json_get_string(item, "content", &to, where, e))
        return false;
    if (!(from ? *from : regex ? 1 : 0) || !to)
        return unsupported(where, "Replace with", "no pattern or no content", e);
    *out = (struct normalizer){.kind = NORMALIZE_REPLACE_MATCHES};
    if (!from && !regex_new(&out->regex, regex, e))
        return err_wrap(e, "%s: Replace", where);
    if (from) {
        out->kind = NORMALIZE_REPLACE;
        out->from = xstrdup(from);
    }
    out->to = xstrdup(to);
    return true;
}

static bool read_normalizer(struct tokenizer *t, const cJSON *item, const char *type, const char *where,
                            struct err *e)
{
    static const struct {
        const char *type;
        enum normalizer_kind kind;
    } plain[] = {{"NFC", NORMALIZE_NFC},
                 {"NFD", NORMALIZE_NFD},
                 {"NFKC", NORMALIZE_NFKC},
                 {"NFKD", NORMALIZE_NFKD},
                 {"Lowercase", NORMALIZE_LOWERCASE}};
    if (t->n_normalizers == TOKENIZER_MAX_STEPS)
        return err_set(e, ERR_LIMIT, "%s: more than %d normalizers", where, TOKENIZER_MAX_STEPS);
    struct normalizer *step = &t->normalizers[t->n_normalizers];
    bool is_known = false;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && !is_known; i++) {
        is_known = strcmp(type, plain[i].type) == 0;
        *step = (struct normalizer){.kind = plain[i].kind};
    }
    if (strcmp(type, "Prepend") == 0) {
        const char *prepend = NULL;
        if (!json_get_string(item, "prepend", &prepend, where, e))
            return false;
        if (!prepend)
            return expected(where, "Prepend", "a text \"prepend\"", NULL, e);
        *step = (struct normalizer){.kind = NORMALIZE_PREPEND, .to = xstrdup(prepend)};
    } else if (strcmp(type, "Strip") == 0) {
        *step = (struct normalizer){.kind = NORMALIZE_STRIP};
        if (!json_get_bool(item, "strip_left", &step->left, where, e) ||
            !json_get_bool(item, "strip_right", &step->right, where, e))
            return false;
    } else if (strcmp(type, "Replace") == 0) {
        if (!read_replacement(step, item, where, e))
            return false;
    } else if (!is_known) {
        return unsupported(where, "normalizer", type, e);
    }
    t->n_normalizers++;
    return true;
}

/* --- pre-tokenizer
 * ---------------------------------------------------------------------------------------------- */

static bool read_behavior(struct splitter *step, const cJSON *item, const char *by_default, const char *where,
                          struct err *e)
{
    static const char *const behaviors[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                            "MergedWithNext"};
    const char *behavior = by_default;
    if (!json_get_string(item, "behavior", &behavior, where, e))
        return false;
    for (int i = 0; i < 5; i++) {
        if (strcmp(behavior, behaviors[i]) == 0) {
            step->behavior = (enum split_behavior)i;
            return true;
        }
    }
    return unsupported(where, "split behavior", behavior, e);
}

static bool read_split(struct splitter *step, const cJSON *item, const char *where, struct err *e)
{
    const cJSON *pattern = json_get(item, "pattern");
    const char *regex = NULL, *literal = NULL;
    if (!json_get_string(pattern, "Regex", &regex, where, e) ||
        !json_get_string(pattern, "String", &literal, where, e) || !read_behavior(step, item, "", where, e) ||
        !json_get_bool(item, "invert", &step->invert, where, e))
        return false;
    if (!regex && !literal)
        return expected(where, "Split", "a pattern", pattern, e);
    if (!(regex ? regex_new(&step->regex, regex, e) : regex_new_literal(&step->regex, literal, e)))
        return err_wrap(e, "%s: pre_tokenizer", where);
    return true;
}

/* One character of a member of a part. */
static bool read_char(char out[8], const cJSON *item, const char *key, const char *where, struct err *e)
{
    const char *text = NULL;
    uint32_t cp;
    if (!json_get_string(item, key, &text, where, e))
        return false;
    if (!text || !*text || text[utf8_next(text, &cp)])
        return expected(where, key, "one character", json_get(item, key), e);
    memcpy(out, text, strlen(text) + 1);
    return true;
}

/* "prepend_scheme" and the older "add_prefix_space" of Metaspace. */
static bool read_prepend_scheme(enum splitter_prefix *out, const cJSON *item, const char *where,
                                struct err *e)
{
    const char *scheme = "always";
    bool add_prefix_space = true;
    if (!json_get_string(item, "prepend_scheme", &scheme, where, e) ||
        !json_get_bool(item, "add_prefix_space", &add_prefix_space, where, e))
        return false;
    *out = strcmp(scheme, "always") == 0  ? PREFIX_ALWAYS
           : strcmp(scheme, "first") == 0 ? PREFIX_FIRST
                                          : PREFIX_NEVER;
    if (*out == PREFIX_NEVER && strcmp(scheme, "never") != 0)
        return unsupported(where, "prepend_scheme", scheme, e);
    return add_prefix_space || *out == PREFIX_NEVER ||
           err_set(e, ERR_FORMAT, "%s: Metaspace: add_prefix_space is false, but prepend_scheme is %s", where,
                   scheme);
}

static bool read_metaspace(struct tokenizer *t, struct splitter *step, const cJSON *item, const char *where,
                           struct err *e)
{
    bool split = true;
    if (!read_char(step->prefix, item, "replacement", where, e) ||
        !read_prepend_scheme(&step->prefix_when, item, where, e) ||
        !json_get_bool(item, "split", &split, where, e))
        return false;
    /* "first" asks whether a piece starts where the text did before it was normalised */
    for (int i = 0; i < t->n_normalizers && step->prefix_when == PREFIX_FIRST; i++) {
        const struct normalizer *n = &t->normalizers[i];
        if (n->kind == NORMALIZE_REPLACE_MATCHES || (n->kind == NORMALIZE_STRIP && n->left) ||
            (n->kind == NORMALIZE_REPLACE && !*n->to))
            return unsupported(where, "behind a normalizer that may drop the start of a text: prepend_scheme",
                               "first", e);
    }
    step->blank = xstrdup(step->prefix);
    step->behavior = SPLIT_MERGED_NEXT;
    return !split || regex_new_literal(&step->regex, step->blank, e);
}

/* A pre-tokenizer that is one splitter; its step is empty so far. */
static bool read_one_splitter(struct tokenizer *t, struct splitter *step, const cJSON *item, const char *type,
                              const char *where, struct err *e)
{
    if (strcmp(type, "Split") == 0)
        return read_split(step, item, where, e);
    if (strcmp(type, "ByteLevel") == 0) {
        bool use_regex = true, add_prefix_space = true;
        if (!json_get_bool(item, "use_regex", &use_regex, where, e) ||
            !json_get_bool(item, "add_prefix_space", &add_prefix_space, where, e))
            return false;
        t->model.is_byte_level = true;
        if (t->has_prefix_space ? t->prefix_space : add_prefix_space) {
            step->prefix_when = PREFIX_ALWAYS;
            step->prefix[0] = ' ';
        }
        return !use_regex || regex_new(&step->regex, BYTE_LEVEL_PATTERN, e);
    }
    if (strcmp(type, "Digits") == 0) {
        bool one_by_one = false;
        if (!json_get_bool(item, "individual_digits", &one_by_one, where, e))
            return false;
        step->behavior = one_by_one ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return regex_new(&step->regex, "\\p{N}", e);
    }
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, step, item, where, e);
    if (strcmp(type, "Punctuation") == 0)
        return read_behavior(step, item, "Isolated", where, e) &&
               regex_new_builtin(&step->regex, REGEX_PUNCTUATION, e);
    step->behavior = SPLIT_REMOVED;
    if (strcmp(type, "WhitespaceSplit") == 0)
        return regex_new_builtin(&step->regex, REGEX_WHITE, e);
    if (strcmp(type, "Whitespace") == 0) {
        step->invert = true;
        return regex_new_builtin(&step->regex, REGEX_WORD_OR_OTHER, e);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        char delimiter[8];
        return read_char(delimiter, item, "delimiter", where, e) &&
               regex_new_literal(&step->regex, delimiter, e);
    }
    return unsupported(where, "pre-tokenizer", type, e);
}

static bool read_splitter(struct tokenizer *t, const cJSON *item, const char *type, const char *where,
                          struct err *e)
{
    if (t->model.is_byte_level)
        return unsupported(where, "pre-tokenizer behind ByteLevel", type, e);
    if (t->n_splitters == TOKENIZER_MAX_STEPS)
        return err_set(e, ERR_LIMIT, "%s: more than %d pre-tokenizers", where, TOKENIZER_MAX_STEPS);
    struct splitter *step = &t->splitters[t->n_splitters];
    *step = (struct splitter){.behavior = SPLIT_ISOLATED};
    if (!read_one_splitter(t, step, item, type, where, e)) {
        splitter_fini(step);
        return false;
    }
    t->n_splitters += step->regex || step->blank || step->prefix_when != PREFIX_NEVER;
    return true;
}

/* --- post-processor
 * --------------------------------------------------------------------------------------------- */

/* The ids of one special token of a template. */
static bool push_template_token(struct ids *out, const cJSON *tokens, const char *name, const char *where,
                                struct err *e)
{
    const cJSON *ids = json_get(name ? json_get(tokens, name) : NULL, "ids");
    if (!cJSON_IsArray(ids))
        return err_set(e, ERR_FORMAT, "%s: post_processor: special token \"%.100s\" has no ids", where,
                       name ? name : "");
    for (const cJSON *id = ids->child; id; id = id->next) {
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < TOKENIZER_MAX_ID))
            return expected(where, "post_processor: ids", "ids", id, e);
        ids_push(out, (int32_t)id->valuedouble);
    }
    return true;
}

static bool read_template(struct ids *before, struct ids *after, const cJSON *item, const char *where,
                          struct err *e)
{
    const cJSON *single = json_get(item, "single"), *tokens = json_get(item, "special_tokens");
    if (!cJSON_IsArray(single))
        return expected(where, "post_processor: single", "an array", single, e);
    bool has_text = false;
    for (const cJSON *piece = single->child; piece; piece = piece->next) {
        const cJSON *text = json_get(piece, "Sequence"), *special = json_get(piece, "SpecialToken");
        const char *name = NULL;
        if (!json_get_string(text ? text : special, "id", &name, where, e))
            return false;
        if (text && (has_text || !name || strcmp(name, "A") != 0))
            return unsupported(where, "post-processor template with the text", name ? name : "", e);
        has_text = has_text || text;
        if (!text && !push_template_token(has_text ? after : before, tokens, name, where, e))
            return false;
    }
    return has_text || unsupported(where, "post-processor", "template without the text", e);
}

/* "cls": ["<s>", 0] */
static bool read_named_token(struct ids *out, const cJSON *item, const char *key, const char *where,
                             struct err *e)
{
    const cJSON *pair = json_get(item, key);
    const cJSON *id = cJSON_IsArray(pair) && pair->child ? pair->child->next : NULL;
    if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < TOKENIZER_MAX_ID))
        return expected(where, key, "a token and its id", id ? id : pair, e);
    ids_push(out, (int32_t)id->valuedouble);
    return true;
}

static bool read_processor(struct tokenizer *t, const cJSON *item, const char *type, const char *where,
                           struct err *e)
{
    if (strcmp(type, "ByteLevel") == 0) /* adjusts offsets only */
        return true;
    bool is_pair = strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0;
    if (!is_pair && strcmp(type, "TemplateProcessing") != 0)
        return unsupported(where, "post-processor", type, e);
    if (t->prefix.n + t->suffix.n > 0)
        return unsupported(where, "post-processor", "two templates", e);
    if (is_pair)
        return read_named_token(&t->prefix, item, "cls", where, e) &&
               read_named_token(&t->suffix, item, "sep", where, e);
    return read_template(&t->prefix, &t->suffix, item, where, e);
}

/* --- decoder
 * ------------------------------------------------------------------------------------------------------ */

static bool read_decoder_strip(struct decoder_strip *out, const cJSON *item, const char *where, struct err *e)
{
    int64_t start = 0, stop = 0;
    if (out->content[0])
        return unsupported(where, "decoder", "Strip twice", e);
    if (!read_char(out->content, item, "content", where, e) ||
        !json_get_int(item, "start", &start, where, e) || !json_get_int(item, "stop", &stop, where, e))
        return false;
    if (start < 0 || stop < 0 || start > DECODER_MAX_STRIP || stop > DECODER_MAX_STRIP)
        return err_set(e, ERR_LIMIT, "%s: decoder Strip: start and stop are from 0 to %d", where,
                       DECODER_MAX_STRIP);
    out->n_start = (int)start;
    out->n_stop = (int)stop;
    return true;
}

/* The steps have one order: Metaspace, Replace, Strip, ByteFallback, Fuse, Strip. Any may be left out. */
static bool read_decoder(struct tokenizer *t, const cJSON *item, const char *type, const char *where,
                         struct err *e)
{
    struct decoder *d = &t->decoder;
    bool is_first = d->kind == DECODE_JOIN;
    if (strcmp(type, "ByteLevel") == 0 && is_first) {
        d->kind = DECODE_BYTE_LEVEL;
        return true;
    }
    if (d->kind == DECODE_BYTE_LEVEL) {
        if (strcmp(type, "Fuse") == 0) /* the pieces are put together in any case */
            return true;
        return unsupported(where, "decoder beside ByteLevel", type, e);
    }
    d->kind = DECODE_CHAIN;
    if (strcmp(type, "Fuse") == 0) {
        d->is_fused = true;
        return true;
    }
    if (strcmp(type, "Strip") == 0 && (d->is_fused || !d->byte_fallback)) {
        struct decoder_strip *strip = d->is_fused ? &d->text_strip : &d->token_strip;
        return read_decoder_strip(strip, item, where, e);
    }
    if (d->is_fused)
        return unsupported(where, "decoder behind Fuse", type, e);
    if (strcmp(type, "ByteFallback") == 0 && !d->byte_fallback) {
        d->byte_fallback = true;
        return true;
    }
    if (d->byte_fallback)
        return unsupported(where, "decoder behind ByteFallback", type, e);
    if (d->token_strip.content[0])
        return unsupported(where, "decoder behind Strip", type, e);
    if (strcmp(type, "Metaspace") == 0 && is_first) {
        enum splitter_prefix when;
        char blank[8];
        if (!read_char(blank, item, "replacement", where, e) || !read_prepend_scheme(&when, item, where, e))
            return false;
        d->blank = xstrdup(blank);
        d->drops_first = when != PREFIX_NEVER;
        return true;
    }
    if (strcmp(type, "Replace") != 0)
        return unsupported(where, "decoder", type, e);
    if (d->n_replacements == TOKENIZER_MAX_STEPS)
        return err_set(e, ERR_LIMIT, "%s: more than %d decoders", where, TOKENIZER_MAX_STEPS);
    if (!read_replacement(&d->replacements[d->n_replacements], item, where, e))
        return false;
    d->n_replacements++;
    return true;
}

static bool is_byte_level(const cJSON *part, const char *members)
{
    const cJSON *type = json_get(part, "type"), *list = json_get(part, members);
    bool found = cJSON_IsString(type) && strcmp(type->valuestring, "ByteLevel") == 0;
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item && !found; item = item->next)
        found = is_byte_level(item, members);
    return found;
}

/* Such a file is read as it is, whatever class is declared. */
static bool has_byte_level(const cJSON *root)
{
    return is_byte_level(json_get(root, "pre_tokenizer"), "pretokenizers") ||
           is_byte_level(json_get(root, "decoder"), "decoders");
}

bool tokenizer_load(struct tokenizer *t, const cJSON *root, struct str vocab, struct str merges,
                    const struct tokenizer_config *config, const char *where, struct err *e)
{
    const char *version = "1.0";
    if (!cJSON_IsObject(root))
        return expected(where, "tokenizer", "an object", root, e);
    if (!json_get_string(root, "version", &version, where, e))
        return false;
    if (strcmp(version, "1.0") != 0)
        return unsupported(where, "tokenizer version", version, e);
    t->has_prefix_space = config && config->has_prefix_space;
    t->prefix_space = config && config->prefix_space;
    t->splits_special = config && config->splits_special;
    cJSON *own = NULL;
    if (config && config->own_parts && !has_byte_level(root)) {
        if (!json_parse(&own, config->own_parts, strlen(config->own_parts), where, e))
            return false;
        t->has_own_parts = true;
    }
    const cJSON *parts = own ? own : root;
    /* the pre-tokenizer tells whether symbols are bytes; added tokens need the normalizer and the model's ids
     */
    bool ok = read_parts(t, json_get(parts, "normalizer"), "normalizer", "normalizers", read_normalizer,
                         where, e) &&
              read_parts(t, json_get(parts, "pre_tokenizer"), "pre-tokenizer", "pretokenizers", read_splitter,
                         where, e) &&
              read_parts(t, json_get(parts, "decoder"), "decoder", "decoders", read_decoder, where, e) &&
              read_model(&t->model, json_get(root, "model"), vocab, merges, where, e) &&
              tokenizer_add_tokens(t, json_get(root, "added_tokens"), config, where, e) &&
              read_parts(t, json_get(root, "post_processor"), "post-processor", "processors", read_processor,
                         where, e);
    cJSON_Delete(own);
    return ok;
}
