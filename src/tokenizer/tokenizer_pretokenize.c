/* Pre-tokenizers: a chain of splitters; each splits every piece of the one before as a string of its own.
 *
 * Pieces are handed on as soon as they are known, depth first, so nothing is stored but where each splitter
 * stands.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"

struct chain {
    const struct splitter *steps;
    int n_steps;
    struct regex_scratch *scratch;
    struct buf *changed;
    word_fn fn;
    void *ctx;
};

void splitter_fini(struct splitter *step)
{
    regex_free(step->regex);
    free(step->blank);
}

static bool run_step(const struct chain *c, int i_step, const char *text, size_t n, bool is_start,
                     struct err *e);

/* Puts the parts that the matches cut the text into together as the behaviour says. */
struct joiner {
    const struct chain *chain;
    int i_step;
    const char *text;
    size_t begin, end;   /* the piece not handed on yet; empty: none */
    bool piece_is_match; /* how the piece was last extended */
    bool is_start;       /* text is the start of all text */
};

static bool flush(struct joiner *j, struct err *e)
{
    size_t begin = j->begin, end = j->end;
    j->begin = j->end;
    return begin == end ||
           run_step(j->chain, j->i_step + 1, j->text + begin, end - begin, j->is_start && begin == 0, e);
}

static bool join_part(struct joiner *j, size_t begin, size_t end, bool is_match, struct err *e)
{
    const struct splitter *step = &j->chain->steps[j->i_step];
    if (step->invert)
        is_match = !is_match;
    bool has_piece = j->end > j->begin;
    bool extend = false;
    switch (step->behavior) {
    case SPLIT_REMOVED:
        if (is_match)
            begin = end;
        break;
    case SPLIT_ISOLATED:
        break;
    case SPLIT_CONTIGUOUS:
        extend = is_match == j->piece_is_match;
        break;
    case SPLIT_MERGED_PREVIOUS:
        extend = is_match && !j->piece_is_match;
        break;
    case SPLIT_MERGED_NEXT:
        extend = !is_match && j->piece_is_match;
        break;
    }
    j->piece_is_match = is_match;
    if (extend && has_piece) {
        j->end = end;
        return true;
    }
    if (!flush(j, e))
        return false;
    j->begin = begin;
    j->end = end;
    return true;
}

/* A pattern that matches everywhere, each match a piece. */
static bool split_words(const struct chain *c, int i_step, const struct word_rules *rules, const char *text,
                        size_t n, bool is_start, struct err *e)
{
    bool is_last = i_step + 1 == c->n_steps;
    for (size_t done = 0, end; done < n; done = end) {
        end = word_rules_end(rules, text, n, done);
        if (!(is_last ? c->fn(c->ctx, text + done, end - done, e)
                      : run_step(c, i_step + 1, text + done, end - done, is_start && done == 0, e)))
            return false;
    }
    return true;
}

static bool split(const struct chain *c, int i_step, const char *text, size_t n, bool is_start, struct err *e)
{
    const struct splitter *step = &c->steps[i_step];
    const struct word_rules *rules = regex_word_rules(step->regex);
    if (rules && (step->behavior == SPLIT_ISOLATED || (step->behavior == SPLIT_REMOVED && step->invert)))
        return split_words(c, i_step, rules, text, n, is_start, e);
    struct joiner j = {.chain = c, .i_step = i_step, .text = text, .is_start = is_start};
    size_t done = 0, not_empty_at = SIZE_MAX;
    for (;;) {
        bool found;
        size_t begin, end;
        if (!regex_find(step->regex, c->scratch, text, n, done, not_empty_at, &found, &begin, &end, e))
            return false;
        if (!found)
            break;
        if (begin > done && !join_part(&j, done, begin, false, e))
            return false;
        if (!join_part(&j, begin, end, true, e))
            return false;
        done = not_empty_at = end;
    }
    if (done < n && !join_part(&j, done, n, false, e))
        return false;
    return flush(&j, e);
}

static bool run_step(const struct chain *c, int i_step, const char *text, size_t n, bool is_start,
                     struct err *e)
{
    if (i_step == c->n_steps)
        return c->fn(c->ctx, text, n, e);
    const struct splitter *step = &c->steps[i_step];
    size_t prefix_n = strlen(step->prefix);
    bool starts_blank = step->blank && text[0] == ' ' && strcmp(step->blank, step->prefix) == 0;
    bool has_prefix = starts_blank || (n >= prefix_n && memcmp(text, step->prefix, prefix_n) == 0);
    bool adds_prefix = !has_prefix && (step->prefix_when == PREFIX_ALWAYS ||
                                       (step->prefix_when == PREFIX_FIRST && is_start));
    if (adds_prefix || step->blank) {
        struct buf *b = &c->changed[i_step];
        buf_clear(b);
        if (adds_prefix)
            buf_puts(b, step->prefix);
        if (step->blank)
            replace_append(b, text, n, " ", step->blank);
        else
            buf_append(b, text, n);
        if (b->failed)
            return err_set(e, ERR_LIMIT, "text of more than %zu bytes", b->max_bytes);
        text = b->p;
        n = b->n;
    }
    return step->regex ? split(c, i_step, text, n, is_start, e)
                       : run_step(c, i_step + 1, text, n, is_start, e);
}

bool pretokenize(const struct splitter *steps, int n_steps, struct regex_scratch *scratch,
                 struct buf *changed, const char *text, size_t n, bool is_start, word_fn fn, void *ctx,
                 struct err *e)
{
    struct chain c = {steps, n_steps, scratch, changed, fn, ctx};
    return n == 0 || run_step(&c, 0, text, n, is_start, e);
}
