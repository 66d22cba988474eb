/* Tensors of the library from and to safetensors files. */
#ifndef MILKIT_CLI_TENSOR_FILE_H
#define MILKIT_CLI_TENSOR_FILE_H

#include "base/err.h"
#include "milkit.h"

/* A file's tensors, as long as it is open. */
struct tensor_file;
bool tensor_file_open(struct tensor_file **out, const char *path, struct err *e) MUST_CHECK;
void tensor_file_close(struct tensor_file *f); /* accepts NULL */
size_t tensor_file_count(const struct tensor_file *f);
/* In the file's own type where the library has it, else as float32. */
const char *tensor_file_name(const struct tensor_file *f, size_t i);
const mk_tensor *tensor_file_tensor(const struct tensor_file *f, size_t i);

/* "F16"; of an MK_ type. */
const char *tensor_type_name(int32_t type);

/* A file being put together; tensors are dense, and stay the caller's until it is written. */
struct tensor_writer;
struct tensor_writer *tensor_writer_new(void);
void tensor_writer_add(struct tensor_writer *w, const char *name, const mk_tensor *t);
/* path "-": stdout. replace: a file that is there, else ERR_IO. */
bool tensor_writer_write(struct tensor_writer *w, const char *path, bool replace, struct err *e) MUST_CHECK;
void tensor_writer_free(struct tensor_writer *w); /* accepts NULL */

#endif
