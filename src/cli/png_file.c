#include "cli/png_file.h"
#include <dlfcn.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/mem.h"

/* A picture that is larger says something else than a model takes. */
#define PNG_BYTES_MAX ((size_t)1 << 28)

/* The calls that are used, by name. */
#define PNG_LIBRARY(do)                                                                                      \
    do                                                                                                       \
    (png_image_begin_read_from_memory) do(png_image_finish_read) do(png_image_write_to_memory) do(           \
        png_image_free)

struct png_library {
#define PNG_MEMBER(name) __typeof__(&name) name;
    PNG_LIBRARY(PNG_MEMBER)
#undef PNG_MEMBER
};

static bool find(void *library, const char *name, void *pointer, struct err *e)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return err_set(e, ERR_UNSUPPORTED, "pictures need %s, which the installed libpng does not have",
                       name);
    memcpy(pointer, &symbol, sizeof symbol);
    return true;
}

static bool load(struct png_library *l, struct err *e)
{
    static const char *const name = "libpng16.so.16";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    bool ok = library != NULL;
    if (!ok)
        return err_set(e, ERR_UNSUPPORTED, "pictures need libpng (%s), which is not installed", name);
#define PNG_FIND(name) ok = ok && find(library, #name, &l->name, e);
    PNG_LIBRARY(PNG_FIND)
#undef PNG_FIND
    return ok;
}

bool png_file_named(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    return n > 4 && strcmp(path + n - 4, ".png") == 0;
}

bool png_file_read(mk_tensor *t, const char *path, int32_t color, struct err *e)
{
    struct png_library l;
    png_image image = {.version = PNG_IMAGE_VERSION};
    png_color black = {0, 0, 0};
    bool is_gray = color == MK_GRAY || color == MK_GRAY_F16;
    char *data = NULL;
    size_t n;
    *t = (mk_tensor){
        .size = sizeof *t, .type = MK_U8, .rank = is_gray ? 2 : 3, .dims = {0, 0, is_gray ? 0 : 3}};
    bool ok = load(&l, e) && file_read(&data, &n, path, PNG_BYTES_MAX, e);
    if (!ok)
        return false;
    if (!l.png_image_begin_read_from_memory(&image, data, n))
        ok = err_set(e, ERR_FORMAT, "%s: %s", path, image.message);
    if (ok && is_gray && image.format & PNG_FORMAT_FLAG_COLOR)
        ok = err_set(e, ERR_FORMAT, "%s: expected a gray picture, found a coloured one", path);
    image.format = is_gray ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    if (ok && PNG_IMAGE_SIZE(image) > PNG_BYTES_MAX)
        ok = err_set(e, ERR_LIMIT, "%s: a picture of %u x %u", path, image.width, image.height);
    ok = ok && (t->data = mem_try_alloc(PNG_IMAGE_SIZE(image), e));
    if (ok && !l.png_image_finish_read(&image, &black, t->data, 0, NULL))
        ok = err_set(e, ERR_FORMAT, "%s: %s", path, image.message);
    t->dims[0] = image.height;
    t->dims[1] = image.width;
    l.png_image_free(&image);
    free(data);
    if (!ok) {
        mem_free(t->data);
        t->data = NULL;
    }
    return ok;
}

bool png_file_write(const char *path, const mk_tensor *pixels, bool replace, struct err *e)
{
    struct png_library l;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)pixels->dims[1],
                       .height = (png_uint_32)pixels->dims[0],
                       .format = pixels->rank == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t n = 0;
    void *data = NULL;
    struct out_file *out = NULL;
    bool ok = load(&l, e);
    if (!ok)
        return false;
    if (pixels->type != MK_U8)
        ok = err_set(e, ERR_UNSUPPORTED, "%s: a picture of fp16 numbers has no PNG form", path);
    if (ok && !l.png_image_write_to_memory(&image, NULL, &n, 0, pixels->data, 0, NULL))
        ok = err_set(e, ERR_UNSUPPORTED, "%s: %s", path, image.message);
    ok = ok && (data = mem_try_alloc(n, e));
    if (ok && !l.png_image_write_to_memory(&image, data, &n, 0, pixels->data, 0, NULL))
        ok = err_set(e, ERR_UNSUPPORTED, "%s: %s", path, image.message);
    ok = ok && out_file_open(&out, path, replace, e) && out_file_write(out, data, n, e) &&
         out_file_commit(out, e);
    if (!ok)
        out_file_abort(out);
    l.png_image_free(&image);
    mem_free(data);
    return ok;
}
