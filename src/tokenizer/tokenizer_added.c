/* Added tokens: found in text before BPE sees it, leftmost first and the longest of those.
 *
 * The set is sorted bytewise, so the tokens that start with the bytes read so far are always one range of it,
 * and reading one more byte narrows the range by bisection: a trie without nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"
#include "base/utf8.h"

void added_set_push(struct added_set *s, struct added_token token)
{
    s->tokens = mem_grow(s->tokens, s->n, &s->capacity, sizeof *s->tokens);
    s->tokens[s->n++] = token;
}

static int compare_tokens(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (order == 0 && a->n != b->n)
        order = a->n < b->n ? -1 : 1;
    return order;
}

void added_set_finish(struct added_set *s)
{
    /* Stable: of equal texts the first one given stays first. */
    mem_sort_stable(s->tokens, s->n, sizeof *s->tokens, compare_tokens);
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (kept > 0 && compare_tokens(&s->tokens[kept - 1], &s->tokens[i]) == 0)
            free(s->tokens[i].text);
        else
            s->tokens[kept++] = s->tokens[i];
    }
    s->n = kept;
    size_t at = 0;
    for (unsigned byte = 0; byte <= 256; byte++) {
        while (at < s->n && (uint8_t)s->tokens[at].text[0] < byte)
            at++;
        s->first[byte] = (uint32_t)at;
    }
    bool is_one_byte = s->n > 0 && s->tokens[0].text[0] == s->tokens[s->n - 1].text[0];
    s->only_first = is_one_byte ? (uint8_t)s->tokens[0].text[0] : -1;
}

void added_set_fini(struct added_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->tokens[i].text);
    free(s->tokens);
}

/* First token of [low, high) whose byte at `depth` is at least `byte`; all of them are longer than depth. */
static size_t lower_bound(const struct added_set *s, size_t low, size_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uint8_t)s->tokens[middle].text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct added_token *longest_at(const struct added_set *s, const char *text, size_t n)
{
    const struct added_token *best = NULL;
    size_t low = s->first[(uint8_t)text[0]], high = s->first[(uint8_t)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (s->tokens[low].n == depth) /* the shortest sorts first */
            best = &s->tokens[low++];
        if (depth == n)
            break;
        low = lower_bound(s, low, high, depth, (uint8_t)text[depth]);
        high = lower_bound(s, low, high, depth, (uint8_t)text[depth] + 1u);
    }
    return best;
}

static bool stands_alone(const struct added_walk *w, size_t begin, size_t end)
{
    uint32_t cp;
    if (begin > 0) {
        (void)utf8_next(w->text + utf8_back(w->text, begin), &cp);
        if (unicode_is_word(cp))
            return false;
    }
    if (end < w->n) {
        (void)utf8_next(w->text + end, &cp);
        if (unicode_is_word(cp))
            return false;
    }
    return true;
}

/* Finds the next token that counts. */
static bool find_match(struct added_walk *w)
{
    const struct added_set *s = w->set;
    while (s->n > 0 && w->scan < w->n) {
        uint8_t byte = (uint8_t)w->text[w->scan];
        if (s->only_first >= 0) {
            const char *hit = memchr(w->text + w->scan, s->only_first, w->n - w->scan);
            if (!hit)
                break;
            w->scan = (size_t)(hit - w->text);
        } else if (s->first[byte] == s->first[byte + 1]) {
            w->scan++;
            continue;
        }
        const struct added_token *token = longest_at(s, w->text + w->scan, w->n - w->scan);
        if (!token) {
            w->scan++;
            continue;
        }
        size_t begin = w->scan, end = begin + token->n;
        w->scan = end; /* also for one that is dropped: the library goes on behind it */
        if (token->is_passed_over || (token->single_word && !stands_alone(w, begin, end)))
            continue;
        uint32_t cp;
        while (token->lstrip && begin > w->done) {
            size_t back = utf8_back(w->text, begin);
            (void)utf8_next(w->text + back, &cp);
            if (!unicode_is_white(cp))
                break;
            begin = back;
        }
        if (token->rstrip && end < w->done) /* inside the blanks that the match before took */
            end = w->done;
        while (token->rstrip && end < w->n) {
            size_t length = utf8_next(w->text + end, &cp);
            if (!unicode_is_white(cp))
                break;
            end += length;
        }
        w->match = token;
        w->match_begin = begin;
        w->match_end = end;
        return true;
    }
    w->scan = w->n;
    return false;
}

void added_walk_init(struct added_walk *w, const struct added_set *set, const char *text, size_t n)
{
    *w = (struct added_walk){.set = set, .text = text, .n = n};
}

bool added_walk_next(struct added_walk *w, struct str *part, const struct added_token **token)
{
    if (!w->has_match)
        w->has_match = find_match(w);
    size_t begin = w->done;
    *token = NULL;
    if (!w->has_match) {
        w->done = w->n;
    } else if (begin < w->match_begin) {
        w->done = w->match_begin;
    } else {
        /* a token that starts with blanks may begin inside the blanks that the one before it took */
        *token = w->match;
        w->done = w->match_end;
        w->has_match = false;
    }
    *part = (struct str){w->text + begin, w->done > begin ? w->done - begin : 0};
    return *token || part->n > 0;
}
