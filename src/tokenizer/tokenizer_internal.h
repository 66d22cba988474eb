/* Inside the tokenizer: its parts and what the tokenizer_*.c files need of each other. Nobody else includes this.
 *
 * Text runs through: invalid bytes -> U+FFFD; added tokens that match raw text are cut out; each piece between them is
 * normalised; added tokens that match normalised text are cut out; each remaining piece is split into words by
 * the pre-tokenizers; each word becomes ids by BPE; the post-processor adds its tokens around.
 */
#ifndef MILKIT_TOKENIZER_INTERNAL_H
#define MILKIT_TOKENIZER_INTERNAL_H

#include "format/json.h"
#include "tokenizer/tokenizer.h"

/* Limits on what a tokenizer.json may ask for. */
#define TOKENIZER_MAX_JSON_BYTES ((size_t)512 << 20)
#define TOKENIZER_MAX_ID (1 << 22) /* ids index arrays, so a small file must not name a huge one */
#define TOKENIZER_MAX_STEPS 16     /* normalizers, pre-tokenizers, decoder parts */
#define TOKENIZER_MAX_TEXT_BYTES ((size_t)1 << 30) /* positions are 31-bit */

/* --- vocabulary (tokenizer_vocab.c): strings <-> ids and the merge table ------------------------------------- */

struct vocab_slot {
    uint32_t offset; /* of the token in text, plus 1; 0: free */
    uint32_t n, hash;
    int32_t id;
};

struct vocab {
    char *text; /* tokens, each with a 0 byte behind it */
    size_t text_bytes, text_capacity;
    uint32_t *offset_of_id; /* [n_ids], plus 1; 0: no such token */
    int32_t n_ids;          /* largest id + 1 */
    size_t ids_capacity;
    struct vocab_slot *slots; /* open addressing, power of two, at most two thirds full */
    uint32_t n_slots, n_used;
};

void vocab_fini(struct vocab *v);
/* Room for n tokens of text_bytes together (their 0 bytes included): only saves time. */
void vocab_reserve(struct vocab *v, size_t n, size_t text_bytes);
/* Adds a token; *is_new tells whether its text was new. ERR_LIMIT for an id over the limit. The token becomes the
 * text of the id even where the id had one. */
bool vocab_add(struct vocab *v, const char *token, size_t n, int32_t id, bool *is_new,
               struct err *e) MUST_CHECK;
/* Gives an id another text, under which it is not found. */
bool vocab_set_text(struct vocab *v, int32_t id, const char *text, size_t n, struct err *e) MUST_CHECK;
int32_t vocab_find(const struct vocab *v, const char *token, size_t n); /* -1 when absent */
/* The same in steps, for many tokens at once: each asks for the memory that the next one needs. */
uint32_t vocab_hash(const char *token, size_t n);
void vocab_prefetch_slot(const struct vocab *v, uint32_t hash);
void vocab_prefetch_text(const struct vocab *v, uint32_t hash);
int32_t vocab_find_hashed(const struct vocab *v, const char *token, size_t n, uint32_t hash);
const char *vocab_text(const struct vocab *v, int32_t id); /* NULL when absent */

struct merge_slot {
    int32_t left, right; /* left < 0: free */
    uint32_t rank;
    int32_t id; /* of the merged token */
};

struct merges {
    struct merge_slot *slots; /* open addressing, power of two, at most two thirds full */
    uint32_t n_slots, n_used;
};

void merges_fini(struct merges *m);
/* Room for n: only saves time. */
void merges_reserve(struct merges *m, size_t n);
void merges_prefetch(const struct merges *m, int32_t left, int32_t right);
/* A pair that is there already takes the new rank, as in the library. */
void merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id);
const struct merge_slot *merges_find(const struct merges *m, int32_t left,
                                     int32_t right); /* NULL when absent */

/* --- byte-level alphabet (tokenizer_vocab.c) ------------------------------------------------------------------ */

/* The code point that stands for a byte: printable Latin-1 is itself, the rest follows from U+0100 on. */
uint32_t byte_level_char(uint8_t byte);
int byte_level_byte(uint32_t cp); /* -1 when cp is not in the alphabet */

/* --- words of well-known patterns (tokenizer_words.c) ---------------------------------------------------------- */

struct word_rules; /* constant */
/* The rules of exactly this pattern, or NULL. */
const struct word_rules *word_rules_find(const char *pattern);
/* The end of the match at `from` (< n); such a pattern matches everywhere, so the next one starts there. text is
 * well-formed UTF-8. */
size_t word_rules_end(const struct word_rules *r, const char *text, size_t n, size_t from);

/* --- regular expressions (tokenizer_regex.c) ------------------------------------------------------------------ */

struct regex;
/* Compiles a pattern of the library's dialect; what would mean something else in PCRE2 is ERR_UNSUPPORTED. */
bool regex_new(struct regex **out, const char *pattern, struct err *e) MUST_CHECK;
/* The same without the scanners of well-known patterns. */
bool regex_new_compiled(struct regex **out, const char *pattern, struct err *e) MUST_CHECK;
/* A pattern that matches the text itself, which must not be empty. */
bool regex_new_literal(struct regex **out, const char *text, struct err *e) MUST_CHECK;
/* The patterns of pre-tokenizers that have no pattern in the file. */
enum regex_builtin { REGEX_WHITE, REGEX_PUNCTUATION, REGEX_WORD_OR_OTHER };
bool regex_new_builtin(struct regex **out, enum regex_builtin which, struct err *e) MUST_CHECK;
void regex_free(struct regex *r); /* accepts NULL */
/* Not NULL for a pattern that matches everywhere: then word_rules_end does what regex_find does, faster. */
const struct word_rules *regex_word_rules(const struct regex *r);

/* Of one thread. It holds the budget of a whole text: so many steps a byte, a step being a part of a pattern that is tried
 * or a byte that is walked over in trying. A text that takes more is ERR_LIMIT, whatever the pattern. */
struct regex_scratch;
struct regex_scratch *regex_scratch_new(size_t bytes);            /* of the text that is to come */
void regex_scratch_expect(struct regex_scratch *s, size_t bytes); /* more text is to come */
void regex_scratch_free(struct regex_scratch *s);                 /* accepts NULL */
/* Looks for the first match at or after `from`; text must be well-formed UTF-8. An empty match at a place where
 * `not_empty_at` stands does not count (pass SIZE_MAX for none). */
bool regex_find(const struct regex *r, struct regex_scratch *s, const char *text, size_t n, size_t from,
                size_t not_empty_at, bool *found, size_t *begin, size_t *end, struct err *e) MUST_CHECK;

/* --- added tokens (tokenizer_added.c) --------------------------------------------------------------------------- */

struct added_token {
    char *text; /* as it is matched: normalised where the token asks for it */
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip;
    bool is_passed_over; /* found, and its text goes the way of all text */
};

/* Sorted bytewise: a range of it is a node of a trie. */
struct added_set {
    struct added_token *tokens;
    size_t n, capacity;
    uint32_t first[257]; /* tokens that start with byte b are first[b] .. first[b + 1] - 1 */
    int only_first;      /* the byte that all tokens start with, or -1 */
};

void added_set_push(struct added_set *s, struct added_token token); /* takes token.text */
void added_set_finish(struct added_set *s); /* sorts; drops the later of two equal texts */
void added_set_fini(struct added_set *s);

/* Walks over text: each call gives the next part, either plain text (token NULL) or a token. */
struct added_walk {
    const struct added_set *set;
    const char *text;
    size_t n;
    size_t scan; /* where the search goes on */
    size_t done; /* everything before was given out */
    bool has_match;
    size_t match_begin, match_end;
    const struct added_token *match;
};
void added_walk_init(struct added_walk *w, const struct added_set *set, const char *text, size_t n);
bool added_walk_next(struct added_walk *w, struct str *part, const struct added_token **token);

/* --- normalizers (tokenizer_normalize.c) ------------------------------------------------------------------------ */

enum normalizer_kind {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_REPLACE,         /* every `from` by `to` */
    NORMALIZE_REPLACE_MATCHES, /* every match of `regex` by `to` */
    NORMALIZE_PREPEND,         /* `to`, unless the text is empty */
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP /* white space, on the left, on the right */
};
struct normalizer {
    enum normalizer_kind kind;
    char *from, *to; /* from is not empty */
    struct regex *regex;
    bool left, right;
};
void normalizer_fini(struct normalizer *step);

/* Appends a normal form of text, which must be well-formed. nfc_is_stable: tells quickly that NFC(text) is text (may
 * say no though it is). */
bool nfc_is_stable(const char *text, size_t n);
void normal_form_append(struct buf *out, enum normalizer_kind form, const char *text, size_t n);
/* Runs all steps: *out is text itself or lies in one of the two buffers. regex: for patterns among the steps. */
bool normalize(const struct normalizer *steps, int n_steps, struct regex_scratch *regex, struct str text,
               struct buf scratch[2], struct str *out, struct err *e) MUST_CHECK;
/* Appends text with every `from` replaced. */
void replace_append(struct buf *out, const char *text, size_t n, const char *from, const char *to);

/* --- pre-tokenizers (tokenizer_pretokenize.c) -------------------------------------------------------------------- */

enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_PREVIOUS,
    SPLIT_MERGED_NEXT
};
enum splitter_prefix {
    PREFIX_NEVER,
    PREFIX_ALWAYS, /* to every piece that does not start with it */
    PREFIX_FIRST   /* only to the piece at the start of the text */
};
struct splitter {
    struct regex *regex; /* NULL: nothing is split */
    enum split_behavior behavior;
    bool invert;
    /* before splitting: blanks become `blank` (NULL: they stay), then a prefix is put in front */
    char *blank;
    enum splitter_prefix prefix_when;
    char prefix[8];
};
void splitter_fini(struct splitter *step);

typedef bool (*word_fn)(void *ctx, const char *word, size_t n, struct err *e);
/* Gives each word of text, in order. is_start: text is the start of all text. changed: scratch for pieces that are
 * changed, one for each step. */
bool pretokenize(const struct splitter *steps, int n_steps, struct regex_scratch *scratch,
                 struct buf *changed, const char *text, size_t n, bool is_start, word_fn fn, void *ctx,
                 struct err *e) MUST_CHECK;

/* --- BPE (tokenizer_bpe.c) ------------------------------------------------------------------------------------------ */

struct bpe_model {
    struct vocab vocab; /* tokens of the model and added tokens */
    struct merges merges;
    bool is_byte_level; /* symbols are bytes; else characters */
    bool ignore_merges; /* a word that is a token is taken whole */
    bool byte_fallback; /* an unknown character becomes <0xNN> tokens */
    bool fuse_unk;
    int32_t unk;                 /* -1: unknown symbols are dropped */
    int32_t byte_symbol[256];    /* byte level: token of a byte, or -1 */
    int32_t ascii_symbol[128];   /* not byte level: token of a character, or -1 */
    int32_t *bmp_symbols;        /* [65536], the same up to U+FFFF; NULL when byte level */
    int32_t n_ids;               /* of the model alone: added tokens are not found as words or characters */
    int32_t fallback_token[256]; /* <0xNN>, or -1 */
    uint64_t *joints;            /* NULL: unknown; see bpe_index_joints */
};
#define BPE_JOINT_BITS 20
/* Notes which characters the merges bring together, last of the left part and first of the right one: between two
 * others no token ever reaches, and a text may be cut there. Does nothing for a model where that is not so. */
void bpe_index_joints(struct bpe_model *m);

struct bpe_symbol {
    int32_t id;
    int32_t previous, next; /* -1: none */
};

struct bpe_cache_entry; /* ids of a short word met before */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbols_capacity;
    uint64_t *heap; /* rank << 32 | position */
    size_t n_heap, heap_capacity;
    struct buf word;               /* the word in the byte-level alphabet */
    struct bpe_cache_entry *cache; /* NULL: no cache */
    uint32_t cache_mask;
};
/* text_bytes: how much is to be encoded; long texts get a cache of words (2 MB at most). */
void bpe_scratch_init(struct bpe_scratch *s, size_t text_bytes);
void bpe_scratch_fini(struct bpe_scratch *s);
/* n < 2^31. Appends the ids of one word, which may be a whole text. */
void bpe_encode_word(const struct bpe_model *m, struct bpe_scratch *s, const char *word, size_t n,
                     struct ids *out);

/* --- decoder (tokenizer_decode.c) --------------------------------------------------------------------------------- */

enum decoder_kind {
    DECODE_JOIN,       /* no decoder: tokens with blanks between */
    DECODE_BYTE_LEVEL, /* bytes of all tokens, then broken UTF-8 replaced */
    DECODE_CHAIN       /* the steps below, in this order */
};
#define DECODER_MAX_STRIP 1000
/* Takes away up to n_start of a character at the start and up to n_stop at the end. */
struct decoder_strip {
    char content[8]; /* one character; empty: none */
    int n_start, n_stop;
};
struct decoder {
    enum decoder_kind kind;
    char *blank;                                         /* stands for blanks (NULL: none does) ... */
    bool drops_first;                                    /* ... but in the first token for nothing */
    struct normalizer replacements[TOKENIZER_MAX_STEPS]; /* in each token */
    int n_replacements;
    struct decoder_strip token_strip; /* of each token */
    bool byte_fallback;               /* <0xNN> tokens are bytes */
    bool is_fused;                    /* what follows sees one text */
    struct decoder_strip text_strip;
    bool clean_up; /* blanks before punctuation go, as transformers' clean_up_tokenization does */
};

struct tokenizer {
    struct bpe_model model;
    struct normalizer normalizers[TOKENIZER_MAX_STEPS];
    int n_normalizers;
    struct splitter splitters[TOKENIZER_MAX_STEPS];
    int n_splitters;
    struct added_set added_raw, added_normalized;
    uint8_t *is_special;       /* [model.vocab.n_ids] */
    struct ids prefix, suffix; /* what the post-processor adds */
    /* While it is read: what tokenizer_config.json decides. */
    bool has_prefix_space, prefix_space; /* of ByteLevel */
    bool has_own_parts;                  /* of the class, in the place of the file's */
    bool splits_special;                 /* special tokens are not found in texts */
    struct decoder decoder;
};

/* --- encoding (tokenizer_encode.c) ------------------------------------------------------------------------------ */

/* What one call needs. */
struct encoder {
    const struct tokenizer *t;
    struct ids *out;
    struct regex_scratch *regex;
    struct bpe_scratch bpe;
    struct buf normal[2];
    struct buf changed[TOKENIZER_MAX_STEPS];
};
/* bytes: of the text that is to come. */
void encoder_init(struct encoder *c, const struct tokenizer *t, size_t bytes, struct ids *out);
void encoder_fini(struct encoder *c);
/* A piece of well-formed text between added tokens that match raw text. is_start: the text starts with it;
 * with_tokens: added tokens that match normalised text count. */
bool encoder_piece(struct encoder *c, struct str piece, bool is_start, bool with_tokens,
                   struct err *e) MUST_CHECK;

/* --- classes of transformers (tokenizer_class.c) ------------------------------------------------------------------- */

#define TOKENIZER_N_NAMES 7 /* bos, eos, unk, sep, pad, cls, mask */

/* What a class makes of add_prefix_space. Those that build no part of their own keep what tokenizer.json says. */
enum prefix_class {
    PREFIX_OF_FILE,
    PREFIX_OF_BYTES,      /* builds a ByteLevel pre-tokenizer by the flag */
    PREFIX_OF_BLANKS,     /* builds Metaspace and its decoder by it */
    PREFIX_OF_CODE_BLANKS /* Metaspace alone */
};
struct tokenizer_class {
    const char *name; /* NULL: any other */
    enum prefix_class prefix;
    const char *names[TOKENIZER_N_NAMES]; /* tokens where no file says anything */
};
/* declared: tokenizer_class, NULL where none is; model_type: of config.json, or NULL. */
const struct tokenizer_class *tokenizer_class_find(const char *declared, const char *model_type);
/* The pre-tokenizer and the decoder of a class of blanks, as members of an object; heap. */
char *tokenizer_class_parts(const struct tokenizer_class *class, bool adds_prefix, bool is_legacy);

/* --- what lies beside a tokenizer.json (tokenizer_config.c) --------------------------------------------------------- */

struct added_entry {
    const char *text; /* of the tree that it was read from */
    int64_t id;       /* as the file says, which decides nothing but the order */
    bool single_word, lstrip, rstrip, normalized, special;
    bool older;    /* of added_tokens.json: counts only before what tokenizer.json says of larger ids */
    bool only_new; /* a name's, or an extra one: counts only where no listed token has this text ... */
    bool marks;    /* ... but makes one that has it special */
    bool of_class; /* no file has it: the class fills it in */
};
/* Reads a token: its text, or an object with content and flags. special, and normalized as its opposite, are what holds
 * when the object does not say. */
bool added_entry_read(struct added_entry *out, const cJSON *item, bool special, const char *where,
                      const char *key, struct err *e) MUST_CHECK;

struct tokenizer_config {
    cJSON *config, *map, *added,
        *model; /* the trees of the files (model: config.json); NULL where there is none */
    const struct tokenizer_class *class;
    char *own_parts; /* JSON: what the class builds unless the tokenizer is one on bytes; NULL: nothing */
    struct added_entry *entries; /* in the order in which they are added */
    size_t n, capacity;
    bool clean_up;
    bool has_prefix_space, prefix_space, splits_special;
};
/* folder: that of the tokenizer.json. Finish it in any case. */
bool tokenizer_config_read(struct tokenizer_config *c, const char *folder, struct err *e) MUST_CHECK;
/* The same from trees that the caller has put in: NULL, or what tokenizer_config_object makes of a text. */
bool tokenizer_config_object(cJSON **out, struct str text, const char *where, struct err *e) MUST_CHECK;
bool tokenizer_config_take(struct tokenizer_config *c, const char *where, struct err *e) MUST_CHECK;
void tokenizer_config_fini(struct tokenizer_config *c);

/* --- added tokens of both (tokenizer_tokens.c) ----------------------------------------------------------------------- */

/* list: added_tokens of tokenizer.json; config may be NULL. Needs the normalizers and the model's vocabulary. */
bool tokenizer_add_tokens(struct tokenizer *t, const cJSON *list, const struct tokenizer_config *config,
                          const char *where, struct err *e) MUST_CHECK;

/* --- reading a tokenizer.json (tokenizer_scan.c, tokenizer_load.c) ------------------------------------------------ */

/* Finds model.vocab and model.merges (p NULL when absent or of another type) and appends the rest of the text, with
 * empty ones in their places. */
void tokenizer_scan(struct str json, struct str *vocab, struct str *merges, struct buf *rest);
bool tokenizer_read_vocab(struct bpe_model *m, struct str text, const char *where, struct err *e) MUST_CHECK;
bool tokenizer_read_merges(struct bpe_model *m, struct str text, const char *where, struct err *e) MUST_CHECK;
/* Fills an empty tokenizer; config: what lies beside the file, or NULL. On failure what was filled is for
 * tokenizer_free. */
bool tokenizer_load(struct tokenizer *t, const cJSON *root, struct str vocab, struct str merges,
                    const struct tokenizer_config *config, const char *where, struct err *e) MUST_CHECK;

#endif
