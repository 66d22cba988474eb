/* PNG files as the library's pixels. libpng is loaded when the first is read or written. */
#ifndef MILKIT_CLI_PNG_FILE_H
#define MILKIT_CLI_PNG_FILE_H

#include "base/err.h"
#include "milkit.h"

/* Does the name say that it is one? */
bool png_file_named(const char *path);
/* Bytes [height, width, 3], or [height, width] for MK_GRAY; t->data is the caller's to free with mem_free. Transparent pixels lie on black. A
 * coloured picture is not taken for a gray one (ERR_FORMAT): how to mix its colours is not ours to say. */
bool png_file_read(mk_tensor *t, const char *path, int32_t color, struct err *e) MUST_CHECK;
/* pixels: as mk_result_pixels gives them, MK_U8. */
bool png_file_write(const char *path, const mk_tensor *pixels, bool replace, struct err *e) MUST_CHECK;

#endif
