/* Checkpoint folders as people have them: what the tensors of the text model are called, layouts that hold something
 * else than numbers of a language model, and the files that belong to the text.
 *
 * Names. Wrappers put their own in front ("model.language_model.", "base_model.model.", "_orig_mod.") or leave
 * "model." away. Callers always ask for the plain names, "model.embed_tokens.weight", "model.layers.0...." and
 * "lm_head.weight"; what stands in front in the files is found by looking at them.
 */
#ifndef MILKIT_FORMAT_CHECKPOINT_H
#define MILKIT_FORMAT_CHECKPOINT_H

#include "base/log.h"
#include "format/json.h"
#include "format/safetensors.h"

struct checkpoint_names;
/* s must outlive it. Never fails: a checkpoint without a text model, or with two, misses every tensor. */
struct checkpoint_names *checkpoint_names_new(const struct safetensors *s);
void checkpoint_names_free(struct checkpoint_names *n); /* accepts NULL */
/* By plain name; NULL when there is nothing that can be read. */
const struct st_tensor *checkpoint_find(const struct checkpoint_names *n, const char *name);
/* Is it there, or lost with a file that can't be read? A tensor that may be left out must not be taken as left out
 * in the second case. */
bool checkpoint_has(const struct checkpoint_names *n, const char *name);
/* ERR_FORMAT: "FILE: tensor NAME is missing (expected shape ...)" with the reason, the files that are not there, or
 * what was found instead. rank -1: without a shape. */
bool checkpoint_missing(const struct checkpoint_names *n, const char *name, int rank, const int64_t *shape,
                        struct err *e);
/* The tensor of this plain name, which must have this shape and numbers that can be read (BF16, F16, F32, F64, or F8_E4M3
 * with scales). NULL with a message that names file, tensor, expected and found. */
const struct st_tensor *checkpoint_require(const struct checkpoint_names *n, const char *name, int rank,
                                           const int64_t *shape, struct err *e) MUST_CHECK;
/* The name of the first tensor of the text model or its head whose name holds `part`, and the file that holds it (the
 * index where that can't be read); NULL for none. */
const char *checkpoint_find_part(const struct checkpoint_names *n, const char *part, const char **file);

/* ---- checkpoint_files.c ---- */

#define CHECKPOINT_TOKENIZER "tokenizer.json"
#define CHECKPOINT_TOKENIZER_CONFIG "tokenizer_config.json"
#define CHECKPOINT_SPECIAL_TOKENS "special_tokens_map.json"
#define CHECKPOINT_ADDED_TOKENS "added_tokens.json"
#define CHECKPOINT_GENERATION "generation_config.json"
#define CHECKPOINT_TEMPLATE "chat_template.jinja"
#define CHECKPOINT_TEMPLATE_JSON "chat_template.json"
#define CHECKPOINT_TEMPLATES "additional_chat_templates" /* NAME.jinja */
#define CHECKPOINT_TEMPLATE_SUFFIX ".jinja"
#define CHECKPOINT_GGUF "source.gguf" /* a link to the GGUF file that a folder was made from */

enum checkpoint_file_kind {
    CHECKPOINT_COPIED,
    CHECKPOINT_SETTINGS,       /* JSON that text depends on: a damaged one is an error */
    CHECKPOINT_TEMPLATE_FOLDER /* of files that end with CHECKPOINT_TEMPLATE_SUFFIX */
};
struct checkpoint_file {
    const char *name;
    enum checkpoint_file_kind kind;
};
/* All files but config.json and the weights that a package has when the checkpoint has them; ends with a NULL name. */
extern const struct checkpoint_file checkpoint_files[];

/* ---- checkpoint_layout.c ---- */

/* The folder of a checkpoint, with its config.json (folder_check); ERR_UNSUPPORTED for one with nothing but an adapter. */
bool checkpoint_check_folder(const char *folder, struct err *e) MUST_CHECK;
/* ERR_UNSUPPORTED, with the layout's name, for what holds no plain numbers of a language model: an adapter that is not
 * merged, the layouts of quantizers (all but F8_E4M3 with scales), a classifier without a head of tokens. config:
 * config.json, where: its path for messages. */
bool checkpoint_check_layout(const struct checkpoint_names *n, const cJSON *config, const char *where,
                             struct err *e) MUST_CHECK;
/* Says what is true and may surprise: an index that is not read, files or tensors that are not there and not needed,
 * an embedding model or classifier, an adapter that is not applied. */
void checkpoint_say(const struct safetensors *s, const cJSON *config, const char *folder, struct log *log);

#endif
