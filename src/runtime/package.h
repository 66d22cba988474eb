/* A package folder as it lies on disk: meta.yaml, the files of its parts in either form, tokenizer, stop ids,
 * sampling defaults. Reads our packages, ANEMLL's and old ones (missing keys, alias names, either extension).
 */
#ifndef MILKIT_RUNTIME_PACKAGE_H
#define MILKIT_RUNTIME_PACKAGE_H

#include "base/file.h"
#include "format/meta.h"
#include "tokenizer/tokenizer.h"

struct package {
    char *path; /* the folder */
    struct meta *meta;
    char *embeddings, *lm_head; /* paths that exist; NULL in a monolithic package */
    int n_chunks;
    char **chunks;      /* one in a monolithic package: the model from ids to logits */
    char **more_chunks; /* the second files of chunks whose functions are in two; NULL entries: in one */
    bool is_monolithic;
    /* Of meta.yaml, else of generation_config.json. Bad words that are a stop id alone are left out. */
    struct recommended_sampling sampling;
    int n_warnings;
    char **warnings; /* a sentence each about what is wrong in these files and does not matter to running */
    int n_eos;
    int32_t *eos; /* stop ids: of generation_config.json, config.json and the tokenizer's files */
};

/* path: the folder, or its meta.yaml. A checkpoint, a single model or anything else: an error that says what
 * it is. */
bool package_open(struct package **out, const char *path, struct err *e) MUST_CHECK;
void package_close(struct package *p); /* accepts NULL */
/* The tokenizer of the package; ERR_FORMAT when it has none (packages without text). */
bool package_tokenizer(const struct package *p, struct tokenizer **out, struct err *e) MUST_CHECK;
/* Adds the id of the tokenizer's own eos_token (tokenizer_config.json, special_tokens_map.json) to the stop ids. */
void package_add_tokenizer_eos(struct package *p, const struct tokenizer *t);
/* How the models are stored: "mlmodelc", "mlpackage" or "mixed". */
const char *package_form(const struct package *p);
/* How many parts lie there in the other form, too (.mlpackage for .mlmodelc and back). */
int package_count_other_form(const struct package *p);
/* Takes the other form of these parts. */
void package_take_other_form(struct package *p);
bool package_is_eos(const struct package *p, int32_t id);

#endif
