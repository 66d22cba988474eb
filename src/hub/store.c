/* The folder of kept packages: names, digests, what lies there. */
#include "hub/store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "format/json.h"
#include "format/mlmodelc.h"
#include "hub/hub_internal.h"

#define SOURCE_FILE "source.json"
#define PACKAGE_FOLDER "package"
#define SOURCE_BYTES_MAX 65536
#define DEPTH_MAX 16

char *store_folder(void)
{
    const char *v;
    if ((v = hub_variable("MILKIT_CACHE")))
        return xstrdup(v);
    if ((v = hub_variable("XDG_CACHE_HOME")))
        return path_join(v, "milkit");
    if ((v = hub_variable("HOME")))
        return path_join(v, ".cache/milkit");
    return xstrdup(".cache/milkit");
}

/* ---- digests ---- */

static void put_file(struct buf *b, const char *path, const char *name)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
        buf_printf(b, "%s %lld %lld.%09ld\n", name, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec);
}

/* What tells one checkpoint from another without reading its weights. */
static bool put_identity(struct buf *b, const char *path, struct err *e)
{
    char real[PATH_MAX];
    struct path_list names;
    if (!realpath(path, real))
        return err_set_errno(e, "%s", path);
    buf_printf(b, "%s\n", real);
    put_file(b, path, "");
    if (!path_is_folder(path))
        return true;
    if (!path_list_read(&names, path, e))
        return false;
    for (size_t i = 0; i < names.n; i++) {
        char *file = path_join(path, names.names[i]);
        put_file(b, file, names.names[i]);
        free(file);
    }
    path_list_free(&names);
    return true;
}

/* The last part of a name or path, as far as it can be part of a file's name. */
static char *plain_name(const char *source)
{
    char *base = path_base(source);
    for (char *p = base; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *p) ||
            (p == base && *p == '.'))
            *p = '_';
    if (strlen(base) > 80)
        base[80] = '\0';
    return base;
}

bool store_find(char **package, bool *is_there, const char *path, const char *source, const char *settings,
                struct err *e)
{
    struct buf identity;
    uint8_t digest[32];
    char hex[17];
    buf_init(&identity, (size_t)16 << 20);
    bool ok = put_identity(&identity, path, e);
    buf_printf(&identity, "%s\n", settings);
    sha256(digest, identity.p ? identity.p : "", identity.n);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    char *folder = store_folder(), *name = plain_name(source);
    *package = xasprintf("%s/%s-%s/%s", folder, name, hex, PACKAGE_FOLDER);
    *is_there = ok && path_is_folder(*package);
    if (!ok) {
        free(*package);
        *package = NULL;
    }
    free(name);
    free(folder);
    buf_fini(&identity);
    return ok;
}

bool store_note_use(const char *package, const char *source, const char *settings, struct err *e)
{
    char *folder = path_folder(package), *path = path_join(folder, SOURCE_FILE);
    struct buf b;
    buf_init(&b, SOURCE_BYTES_MAX);
    buf_puts(&b, "{");
    json_put_key(&b, "source");
    json_put_string(&b, source, strlen(source));
    json_put_key(&b, "settings");
    json_put_string(&b, settings, strlen(settings));
    buf_printf(&b, ", \"used\": %lld}\n", (long long)time(NULL));
    bool ok = b.failed ? err_set(e, ERR_LIMIT, "%s: too long", path) : file_write(path, b.p, b.n, e);
    buf_fini(&b);
    free(path);
    free(folder);
    return ok;
}

/* ---- listing ---- */

/* Bytes that the files below a folder take; links are not followed. */
static int64_t tree_bytes(const char *path, int depth)
{
    struct stat st;
    int64_t sum = 0;
    if (lstat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return (int64_t)st.st_blocks * 512;
    struct path_list names;
    if (depth > DEPTH_MAX || !path_list_read(&names, path, NULL))
        return 0;
    for (size_t i = 0; i < names.n; i++) {
        char *inner = path_join(path, names.names[i]);
        sum += tree_bytes(inner, depth + 1);
        free(inner);
    }
    path_list_free(&names);
    return sum;
}

/* An entry of the folder; false for what is none of ours. */
static bool read_entry(struct store_entry *out, const char *folder, const char *name)
{
    char *own = path_join(folder, name), *path = path_join(own, SOURCE_FILE);
    const char *source = NULL, *settings = "";
    int64_t used_s = 0;
    cJSON *root = NULL;
    bool ok = path_exists(path) && json_read_file(&root, path, SOURCE_BYTES_MAX, NULL) &&
              json_get_string(root, "source", &source, path, NULL) &&
              json_get_string(root, "settings", &settings, path, NULL) &&
              json_get_int(root, "used", &used_s, path, NULL) && source != NULL;
    if (ok)
        *out = (struct store_entry){.name = xstrdup(name),
                                    .package = path_join(own, PACKAGE_FOLDER),
                                    .source = xstrdup(source),
                                    .settings = xstrdup(settings),
                                    .bytes = tree_bytes(own, 0),
                                    .used_s = used_s};
    cJSON_Delete(root);
    free(path);
    free(own);
    return ok;
}

static int compare_use(const void *a, const void *b)
{
    const struct store_entry *x = a, *y = b;
    if (x->used_s != y->used_s)
        return x->used_s < y->used_s ? 1 : -1;
    return strcmp(x->name, y->name);
}

bool store_read(struct store_list *out, struct err *e)
{
    char *folder = store_folder();
    struct path_list names = {0};
    *out = (struct store_list){0};
    bool ok = !path_exists(folder) || path_list_read(&names, folder, e);
    out->entries = xcalloc(names.n + 1, sizeof *out->entries);
    for (size_t i = 0; ok && i < names.n; i++)
        out->n += read_entry(&out->entries[out->n], folder, names.names[i]);
    qsort(out->entries, out->n, sizeof *out->entries, compare_use);
    path_list_free(&names);
    free(folder);
    return ok;
}

void store_list_free(struct store_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->entries[i].name);
        free(l->entries[i].package);
        free(l->entries[i].source);
        free(l->entries[i].settings);
    }
    free(l->entries);
    *l = (struct store_list){0};
}

bool store_remove(const struct store_entry *entry, struct err *e)
{
    char *folder = path_folder(entry->package);
    bool ok = path_remove_tree(folder, e);
    free(folder);
    return ok;
}
