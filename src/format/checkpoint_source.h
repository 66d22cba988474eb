/* Where a checkpoint comes from: a folder, or a GGUF file, which becomes a folder for as long as it is used.
 *
 * Everything that reads checkpoints reads folders. For a GGUF file a temporary one is made with what a checkpoint has beside
 * its weights (config.json, tokenizer.json, tokenizer_config.json, generation_config.json, chat templates), rebuilt from
 * the file's settings, and a link to the file, by which safetensors_open finds the tensors. It lies in TMPDIR, holds
 * some megabytes, and is gone when the source is closed.
 */
#ifndef MILKIT_FORMAT_CHECKPOINT_SOURCE_H
#define MILKIT_FORMAT_CHECKPOINT_SOURCE_H

#include "base/log.h"
#include "format/json.h"

struct checkpoint_source {
    const char *path;   /* as it was given, for messages */
    const char *folder; /* to read; path itself for a folder */
    bool is_gguf;
    /* Of a GGUF file whose matrices are packed in fewer than 16 bits: what it holds, "Q4_K 27, F32 109"; NULL else. */
    const char *packed_types;
    double packed_bits; /* of a number of its matrices, in the mean */
    int n_notes;        /* sentences about what the file does not say and was taken from known models */
    const char *const *notes;
};

/* path: a checkpoint folder, a GGUF file (the first one of several), or a folder with one GGUF file and no config.json.
 * overrides: a JSON file whose keys replace those of the config.json of a GGUF file, NULL: none. */
bool checkpoint_source_open(struct checkpoint_source **out, const char *path, const char *overrides,
                            struct err *e) MUST_CHECK;
void checkpoint_source_close(struct checkpoint_source *s); /* accepts NULL */
/* In a message: the temporary folder by the path that was given. Returns false. */
bool checkpoint_source_fail(const struct checkpoint_source *s, struct err *e);
/* Says the notes, once for a command. */
void checkpoint_source_say(const struct checkpoint_source *s, struct log *log);

#endif
