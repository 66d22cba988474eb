/* A checkpoint where a package is expected: converted once, kept, and found again (hub/store.h). */
#include <stdlib.h>
#include <string.h>
#include "cli/client.h"
#include "format/contract.h"
#include "format/gguf_model.h"
#include "format/json.h"
#include "hub/store.h"

/* Layers of 6 bits: on the tests' tiny models the perplexity stays within 0.5 % of fp16's (SmolLM2-135M: 2.8 %), at less than half the bytes to
 * read for a token; 4 bits cost small models much more (docs/quantization.md). The head of 8: its 6 bits cost more than those
 * of all layers. */
#define KEPT_WIDTHS "\"lut-ffn\": \"6,8\", \"lut-head\": \"8,8\""
/* A cache takes memory and, on a device, time by its length, used or not: 4096 positions are some pages of talk, where models go
 * up to 131072. */
#define KEPT_CONTEXT 4096
#define CONFIG_BYTES_MAX ((size_t)64 << 20)

bool client_is_checkpoint(const char *path)
{
    if (!path_is_folder(path))
        return path_exists(path) && has_suffix(path, ".gguf");
    return folder_has(path, "config.json") && !folder_has(path, FILE_META);
}

/* What a GGUF file says of itself; 0: nothing that can be read, which the conversion then says. */
static int64_t gguf_positions(const char *path)
{
    struct gguf *file = NULL;
    struct gguf_model *m = NULL;
    int64_t positions = 0;
    if (gguf_open(&file, path, NULL) && gguf_model_open(&m, file, NULL))
        positions = m->positions;
    gguf_model_close(m);
    gguf_close(file);
    return positions;
}

/* Positions of the caches: what the model was made for, but not more than KEPT_CONTEXT. */
static int64_t choose_context(const char *path)
{
    char *config = path_join(path, "config.json");
    int64_t positions = path_is_folder(path) ? 0 : gguf_positions(path);
    cJSON *root = NULL;
    if (path_is_folder(path) && json_read_file(&root, config, CONFIG_BYTES_MAX, NULL)) {
        const cJSON *text = json_get(root, "text_config");
        if (!json_get_int(text ? text : root, "max_position_embeddings", &positions, config, NULL))
            positions = 0;
        cJSON_Delete(root);
    }
    free(config);
    return positions > 0 && positions < KEPT_CONTEXT ? positions : KEPT_CONTEXT;
}

static bool convert(struct cli *c, mk_library *library, const char *path, const char *package,
                    const char *settings, struct err *e)
{
    struct client_call call;
    mk_error *error = NULL;
    char *folder = path_folder(package);
    bool ok = folder_make(folder, e);
    if (ok) {
        const mk_call *x = client_call_begin(&call, c, NULL, true);
        mk_status status = mk_convert(library, path, package, settings, x, NULL, &error);
        client_call_end(&call);
        ok = client_take(status, &error, e);
    }
    free(folder);
    return ok;
}

bool client_keep_package(struct cli *c, mk_library *library, const char *source, const char **path,
                         struct err *e)
{
    char *package = NULL;
    char *settings = xasprintf("{\"context\": %lld, %s, \"format\": \"mlmodelc\"}",
                               (long long)choose_context(*path), KEPT_WIDTHS);
    bool is_there = false, ok = store_find(&package, &is_there, *path, source, settings, e);
    if (ok && !is_there) {
        log_info(
            &c->log,
            "%s is a checkpoint: converting it once, layers with 6 bits, head with 8 (%s; milkit list shows "
            "what is kept, milkit convert chooses otherwise)",
            source, package);
        ok = convert(c, library, *path, package, settings, e);
    }
    ok = ok && store_note_use(package, source, settings, e);
    free(settings);
    if (ok)
        return cli_keep_path(c, path, package, e);
    free(package);
    return false;
}
