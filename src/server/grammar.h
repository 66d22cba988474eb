/* Grammars that an answer must follow: read from GBNF (llama.cpp's notation), run as an automaton over the bytes of tokens.
 *
 * A state is a set of places in the grammar with what is open around each. Repetitions are counted, not copied, so {0,100000} costs what {0,3}
 * costs. Sets are kept with the bytes that lead from one to another, so that a mask over a vocabulary walks known ways. Left recursion, endless empty
 * loops, and grammars or states beyond the limits are refused.
 */
#ifndef MILKIT_SERVER_GRAMMAR_H
#define MILKIT_SERVER_GRAMMAR_H

#include "base/buf.h"
#include "base/err.h"
#include "server/vocabulary_bytes.h"

#define GRAMMAR_TEXT_BYTES_MAX ((size_t)1 << 20)

struct grammar;
/* text: GBNF with a rule "root". ERR_FORMAT: where it is wrong. */
bool grammar_parse(struct grammar **out, const char *text, size_t n, struct err *e) MUST_CHECK;
struct grammar *grammar_keep(struct grammar *g); /* NULL: NULL */
void grammar_free(struct grammar *g);            /* gives one reference back; accepts NULL */

/* Where an answer stands. One thread at a time. */
struct grammar_state;
struct grammar_state *grammar_state_new(struct grammar *g);
void grammar_state_free(struct grammar_state *s); /* accepts NULL */
/* May bytes follow? Nothing changes. */
bool grammar_accepts(struct grammar_state *s, const char *bytes, size_t n);
/* They follow. False: they may not, and nothing changed. */
bool grammar_advance(struct grammar_state *s, const char *bytes, size_t n);
/* May the text end here? */
bool grammar_can_end(struct grammar_state *s);

/* A vocabulary in the order of its bytes. Immutable. */
struct grammar_vocabulary;
struct grammar_vocabulary *grammar_vocabulary_new(const struct vocabulary_bytes *v);
void grammar_vocabulary_free(struct grammar_vocabulary *v); /* accepts NULL */
/* allowed [n of the vocabulary]: whether each token may follow; tokens without bytes may not. How many may. */
size_t grammar_mask(struct grammar_state *s, const struct grammar_vocabulary *v, bool *allowed);

#endif
