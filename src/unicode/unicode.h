/* Facts about characters as the tokenizers library has them: classes of Unicode 16.0, normal forms of Unicode 9.0.
 *
 * The tables are part of the program, so that ids do not depend on the version of a library that is installed.
 * Code points are at most U+10FFFF.
 */
#ifndef MILKIT_UNICODE_UNICODE_H
#define MILKIT_UNICODE_UNICODE_H

#include "base/buf.h"

/* In the order of the generated table. */
enum unicode_category {
    UNICODE_LU,
    UNICODE_LL,
    UNICODE_LT,
    UNICODE_LM,
    UNICODE_LO,
    UNICODE_MN,
    UNICODE_MC,
    UNICODE_ME,
    UNICODE_ND,
    UNICODE_NL,
    UNICODE_NO,
    UNICODE_PC,
    UNICODE_PD,
    UNICODE_PS,
    UNICODE_PE,
    UNICODE_PI,
    UNICODE_PF,
    UNICODE_PO,
    UNICODE_SM,
    UNICODE_SC,
    UNICODE_SK,
    UNICODE_SO,
    UNICODE_ZS,
    UNICODE_ZL,
    UNICODE_ZP,
    UNICODE_CC,
    UNICODE_CF,
    UNICODE_CO,
    UNICODE_CN
};

enum unicode_category unicode_category(uint32_t cp);
/* White_Space, which is \s and what strips take. */
bool unicode_is_white(uint32_t cp);
/* \w of the library's own code (single_word, Whitespace): letters, marks, decimal digits, letter numbers, connectors,
 * the two joiners, circled letters. Its pattern engine counts superscript digits, too, and no joiners. */
bool unicode_is_word(uint32_t cp);

/* A class of characters as \p{name} names it. */
struct unicode_set {
    uint32_t categories;    /* bit c: the category c */
    const uint32_t *ranges; /* NULL, or first and last code points of a script */
    size_t n_ranges;
};
/* False for a name that is not known. */
bool unicode_set_find(struct unicode_set *out, const char *name, size_t n);
/* What the library's own code takes for punctuation: that of Unicode 8.0, and symbols of ASCII. */
struct unicode_set unicode_punctuation(void);
/* Appends the set (negated: its complement) as ranges of a class of PCRE2, large ones first, which is the order in
 * which they are tried. newer: only what was assigned after Unicode 14.0. */
void unicode_set_append(struct buf *out, const struct unicode_set *set, bool negated, bool newer);

/* Whether NFC may change cp or compose it with what is before it; else a boundary of NFC lies before it. */
bool unicode_nfc_may_change(uint32_t cp);
uint8_t unicode_combining_class(uint32_t cp);
/* One step of canonical decomposition: the number of code points in out, 0 when cp has none. */
int unicode_decompose(uint32_t cp, uint32_t out[2]);
/* Whether NFKC and NFKD decompose cp further than NFC and NFD. */
bool unicode_is_compat(uint32_t cp);
/* What a and b compose to, 0 when nothing. */
uint32_t unicode_compose(uint32_t a, uint32_t b);
/* Lower case; U+0130, which becomes two characters, is left to the caller. */
uint32_t unicode_lower(uint32_t cp);

#endif
