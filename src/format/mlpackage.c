/* The folder of a source package: what kind of model a path is, Manifest.json read and written. */
#include "format/mlpackage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/json.h"
#include "format/mlmodelc.h"

#define MANIFEST_MAX_BYTES ((size_t)1 << 20)

static bool has_file(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    bool there = path_exists(path) && !path_is_folder(path);
    free(path);
    return there;
}

/* A program's text begins with its version; what a protobuf begins with can't be read as that. */
static bool is_program_text(const char *path)
{
    static const char start[] = "program(";
    char head[sizeof start - 1];
    struct stat st;
    /* opening a pipe would wait for its other end */
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    bool is = f && fread(head, 1, sizeof head, f) == sizeof head && memcmp(head, start, sizeof head) == 0;
    if (f)
        fclose(f);
    return is;
}

enum model_path_kind model_path_kind(const char *path)
{
    if (!path_exists(path))
        return MODEL_PATH_NONE;
    if (path_is_folder(path)) {
        if (has_file(path, "Manifest.json"))
            return MODEL_PATH_MLPACKAGE;
        if (has_file(path, "coremldata.bin") || has_file(path, "model.mil"))
            return MODEL_PATH_MLMODELC;
        return MODEL_PATH_NONE;
    }
    return is_program_text(path) || has_suffix(path, ".mil") ? MODEL_PATH_MIL : MODEL_PATH_MLMODEL;
}

/* Three numbers, not above 1.0.0, which is the only version there is. */
static bool version_is_known(const char *version)
{
    int digits = 0, dots = 0;
    for (const char *p = version; *p; p++) {
        if (*p == '.' && digits > 0) {
            dots++;
            digits = 0;
        } else if (*p >= '0' && *p <= '9' && digits < 9) {
            digits++;
        } else {
            return false;
        }
    }
    if (dots != 2 || digits == 0)
        return false;
    long major = strtol(version, NULL, 10);
    const char *rest = strchr(version, '.');
    return major == 0 || (major == 1 && strspn(rest, ".0") == strlen(rest));
}

static bool manifest_root(const cJSON *manifest, const char **root_path, const char *where, struct err *e)
{
    const char *version = NULL, *root = NULL;
    const cJSON *entries, *entry;

    if (!cJSON_IsObject(manifest))
        return err_set(e, ERR_FORMAT, "%s: expected an object", where);
    if (!json_get_string(manifest, "fileFormatVersion", &version, where, e) ||
        !json_get_string(manifest, "rootModelIdentifier", &root, where, e))
        return false;
    if (!version || !version_is_known(version))
        return err_set(e, ERR_FORMAT, "%s: fileFormatVersion %.40s, expected 1.0.0", where,
                       version ? version : "is missing");
    if (!root)
        return err_set(e, ERR_FORMAT, "%s: rootModelIdentifier is missing", where);
    entries = json_get(manifest, "itemInfoEntries");
    if (!cJSON_IsObject(entries))
        return err_set(e, ERR_FORMAT, "%s: itemInfoEntries is missing", where);
    entry = json_get(entries, root);
    if (!cJSON_IsObject(entry))
        return err_set(e, ERR_FORMAT, "%s: no entry for the root model %.60s", where, root);
    if (!json_get_string(entry, "path", root_path, where, e))
        return false;
    if (!*root_path || !path_is_inside(*root_path))
        return err_set(e, ERR_FORMAT, "%s: path of the root model: %.200s, expected one inside the package",
                       where, *root_path ? *root_path : "missing");
    return true;
}

bool mlpackage_locate(const char *path, char **model_file, char **root, struct err *e)
{
    char *manifest_path = path_join(path, "Manifest.json"), *data = path_join(path, "Data"), *file = NULL;
    const char *root_path = NULL;
    cJSON *manifest = NULL;
    bool ok = false;

    *model_file = NULL;
    *root = NULL;
    if (!path_exists(manifest_path)) {
        err_set(e, ERR_FORMAT, "%s: not a model package: it has no Manifest.json", path);
        goto done;
    }
    if (!json_read_file(&manifest, manifest_path, MANIFEST_MAX_BYTES, e) ||
        !manifest_root(manifest, &root_path, manifest_path, e))
        goto done;
    file = path_join(data, root_path);
    if (!path_exists(file) || path_is_folder(file)) {
        err_set(e, ERR_FORMAT, "%s: the package's model file %s is not there: an incomplete copy?", path,
                file);
        goto done;
    }
    *model_file = file;
    *root = path_folder(file);
    file = NULL;
    ok = true;
done:
    cJSON_Delete(manifest);
    free(manifest_path);
    free(data);
    free(file);
    return ok;
}

/* A version 8 UUID: the first bits of the hash of the item's path and the seed. */
static void uuid_make(char dst[37], const char *item, const void *seed, size_t seed_bytes)
{
    static const char hex[] = "0123456789ABCDEF";
    struct buf b;
    uint8_t digest[32], inner[32];
    char *p = dst;

    sha256(inner, seed, seed_bytes);
    buf_init(&b, 4096);
    buf_puts(&b, item);
    buf_putc(&b, '\0');
    buf_append(&b, inner, sizeof inner);
    sha256(digest, b.p, b.n);
    buf_fini(&b);
    digest[6] = (uint8_t)((digest[6] & 0x0f) | 0x80);
    digest[8] = (uint8_t)((digest[8] & 0x3f) | 0x80);
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *p++ = '-';
        *p++ = hex[digest[i] >> 4];
        *p++ = hex[digest[i] & 15];
    }
    *p = '\0';
}

void mlpackage_manifest(struct buf *out, bool has_weights, const void *seed, size_t seed_bytes)
{
    static const struct {
        const char *name, *description, *path;
    } items[2] = {
        {"model.mlmodel", "CoreML Model Specification", "com.apple.CoreML/model.mlmodel"},
        {"weights", "CoreML Model Weights", "com.apple.CoreML/weights"},
    };
    char uuid[2][37];
    int n = has_weights ? 2 : 1, order[2] = {0, 1};

    for (int i = 0; i < n; i++)
        uuid_make(uuid[i], items[i].path, seed, seed_bytes);
    if (n == 2 && strcmp(uuid[0], uuid[1]) > 0) {
        order[0] = 1;
        order[1] = 0;
    }
    buf_puts(out, "{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n");
    for (int i = 0; i < n; i++) {
        int k = order[i];
        buf_printf(out,
                   "        \"%s\": {\n"
                   "            \"author\": \"com.apple.CoreML\",\n"
                   "            \"description\": \"%s\",\n"
                   "            \"name\": \"%s\",\n"
                   "            \"path\": \"%s\"\n"
                   "        }%s\n",
                   uuid[k], items[k].description, items[k].name, items[k].path, i + 1 < n ? "," : "");
    }
    buf_printf(out, "    },\n    \"rootModelIdentifier\": \"%s\"\n}\n", uuid[0]);
}
