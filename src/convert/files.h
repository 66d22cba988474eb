/* The files of a package beside its models: settings, tokenizer, meta.yaml. Internal to convert. */
#ifndef MILKIT_CONVERT_FILES_H
#define MILKIT_CONVERT_FILES_H

#include "convert/convert.h"

/* config.json of the source with tokenizer_class, and checkpoint_files. */
bool convert_copy_files(const struct convert_options *o, const char *folder, bool *has_tokenizer,
                        struct err *e) MUST_CHECK;
uint64_t convert_copied_bytes(const char *checkpoint); /* of checkpoint_files, about */
bool convert_write_meta(const struct convert_options *o, const struct arch_model *m, const char *prefix,
                        const char *folder, struct err *e) MUST_CHECK;
/* Names of the parts' files without extension, heap. */
char *convert_embeddings_name(const char *prefix, const struct quant_spec *s);
char *convert_chunk_name(const char *prefix, const struct quant_spec *s, int i_chunk, int n_chunks);
char *convert_head_name(const char *prefix, const struct quant_spec *s);

#endif
