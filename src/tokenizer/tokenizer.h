/* Tokenizer of a Hugging Face tokenizer.json: text <-> ids, equal to the tokenizers library id for id.
 *
 * BPE on bytes or characters, with the normalizers, pre-tokenizers, decoders and post-processors that its files use
 * (docs/tokenizer.md lists them) and added tokens. An unknown part (model type, normalizer,
 * pre-tokenizer, decoder, post-processor) is ERR_UNSUPPORTED naming the part. Time is linear in the text
 * (n log n inside one word). Immutable after opening, so one tokenizer may serve several threads; each encode
 * call has its own scratch.
 */
#ifndef MILKIT_TOKENIZER_TOKENIZER_H
#define MILKIT_TOKENIZER_TOKENIZER_H

#include "base/buf.h"

struct tokenizer;

/* path: a tokenizer.json, or a folder that holds one. The files beside it
 * (tokenizer_config.json, else special_tokens_map.json and added_tokens.json) may declare more added tokens, other flags,
 * a blank in front and clean-up; they act as in transformers (docs/tokenizer.md). */
bool tokenizer_open(struct tokenizer **out, const char *path, struct err *e) MUST_CHECK;
bool tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, const char *where,
                     struct err *e) MUST_CHECK;
void tokenizer_free(struct tokenizer *t); /* accepts NULL */
/* Whether decoding takes blanks before punctuation away, as transformers' clean_up_tokenization does. */
void tokenizer_set_clean_up(struct tokenizer *t, bool clean_up);

struct ids {
    int32_t *p; /* heap, [n] */
    size_t n, capacity;
};
void ids_push(struct ids *l, int32_t id);
void ids_free(struct ids *l);

/* Appends the ids of text (UTF-8; invalid bytes are read as U+FFFD as Python's decode(errors="replace") does).
 * special: whether the post-processor adds its tokens (bos). */
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, bool special,
                      struct ids *out, struct err *e) MUST_CHECK;
/* Parts cover the text without gaps; in plain ones (users' text) no added token is found. Without the
 * post-processor's tokens. Text must be UTF-8. */
struct tokenizer_part {
    size_t begin, end;
    bool is_plain;
};
bool tokenizer_encode_parts(const struct tokenizer *t, const char *text, size_t bytes,
                            const struct tokenizer_part *parts, size_t n, struct ids *out,
                            struct err *e) MUST_CHECK;
/* Appends the text of ids, as the library's decode does (U+FFFD for broken UTF-8). skip_special drops special
 * tokens. Unknown ids are skipped as the library does. */
bool tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *e) MUST_CHECK;

/* Appends the bytes that a token stands for behind others: not always whole characters. Nothing for an unknown id, and with
 * skip_special for a special token. */
bool tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool skip_special, struct buf *out,
                           struct err *e) MUST_CHECK;

int32_t tokenizer_vocab_size(const struct tokenizer *t); /* largest id + 1, added tokens included */
/* -1 when the token is unknown */
int32_t tokenizer_id(const struct tokenizer *t, const char *token);
/* The token as it stands in the vocabulary (byte-level alphabet), NULL for an unknown id. */
const char *tokenizer_token(const struct tokenizer *t, int32_t id);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* Streaming: give ids one at a time, get whole UTF-8 characters only; everything given out, put together, plus the
 * rest from stream_flush, equals tokenizer_decode of all ids. */
struct token_stream;
struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special);
void token_stream_free(struct token_stream *s);
bool token_stream_push(struct token_stream *s, int32_t id, struct buf *out, struct err *e) MUST_CHECK;
bool token_stream_flush(struct token_stream *s, struct buf *out, struct err *e) MUST_CHECK;

#endif
