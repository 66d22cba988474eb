/* Pre-tokenizers: a chain of splitters; each splits every piece of the one before as a string of its own.
 *
 * Pieces are handed on as soon as they are known, depth first, so nothing is stored but where each splitter
 * stands.
 */
#include "text/tokenizer_parts.h"

struct chain {
    const struct splitter *steps;
    int n_steps;
    struct regex_scratch *scratch;
    struct buf *prefixed;
    word_fn fn;
    void *ctx;
};

static bool run_step(const struct chain *c, int i_step, const char *text, size_t n, struct err *e);

/* Puts the parts that the matches cut the text into together as the behaviour says. */
struct joiner {
    const struct chain *chain;
    int i_step;
    const char *text;
    size_t begin, end;   /* the piece not handed on yet; empty: none */
    bool piece_is_match; /* how the piece was last extended */
};

static bool flush(struct joiner *j, struct err *e)
{
    size_t begin = j->begin, end = j->end;
    j->begin = j->end;
    return begin == end || run_step(j->chain, j->i_step + 1, j->text + begin, end - begin, e);
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

static bool split(const struct chain *c, int i_step, const char *text, size_t n, struct err *e)
{
    const struct splitter *step = &c->steps[i_step];
    struct joiner j = {.chain = c, .i_step = i_step, .text = text};
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

static bool run_step(const struct chain *c, int i_step, const char *text, size_t n, struct err *e)
{
    if (i_step == c->n_steps)
        return c->fn(c->ctx, text, n, e);
    const struct splitter *step = &c->steps[i_step];
    if (step->add_prefix_space && text[0] != ' ') {
        struct buf *b = &c->prefixed[i_step];
        buf_clear(b);
        buf_putc(b, ' ');
        buf_append(b, text, n);
        if (b->failed)
            return err_set(e, ERR_LIMIT, "text of more than %zu bytes", b->max_bytes);
        text = b->p;
        n = b->n;
    }
    return step->regex ? split(c, i_step, text, n, e) : run_step(c, i_step + 1, text, n, e);
}

bool pretokenize(const struct splitter *steps, int n_steps, struct regex_scratch *scratch,
                 struct buf *prefixed, const char *text, size_t n, word_fn fn, void *ctx, struct err *e)
{
    struct chain c = {steps, n_steps, scratch, prefixed, fn, ctx};
    return n == 0 || run_step(&c, 0, text, n, e);
}
