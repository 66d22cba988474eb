/* What a checkpoint is, when it isn't the plain numbers of a language model: told by config.json, by the names of
 * tensors and by the files beside them. */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "format/checkpoint.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_BYTES_MAX ((size_t)16 << 20)
#define NAMES_SHOWN 3

/* ---- adapters ---- */

/* The base model that an adapter names, heap; NULL when it names none. */
static char *read_base_model(const char *path)
{
    cJSON *config = NULL;
    const char *name = NULL;
    char *copy = NULL;
    if (json_read_file(&config, path, ADAPTER_BYTES_MAX, NULL) &&
        json_get_string(config, "base_model_name_or_path", &name, path, NULL) && name)
        copy = xasprintf("%.200s", name);
    cJSON_Delete(config);
    return copy;
}

bool checkpoint_check_folder(const char *folder, struct err *e)
{
    static const char what[] = "a checkpoint folder";
    if (!folder_check(folder, what, NULL, e))
        return false;
    char *adapter = path_join(folder, ADAPTER_CONFIG), *config = path_join(folder, "config.json");
    bool ok = !path_exists(adapter) || path_exists(config);
    if (!ok) {
        char *base = read_base_model(adapter);
        err_set(e, ERR_UNSUPPORTED,
                "%s: an adapter (" ADAPTER_CONFIG
                " and no config.json)%s%s; merge it into its base model and convert the merged checkpoint",
                folder, base ? " of " : "", base ? base : "");
        free(base);
    }
    ok = ok && folder_check(folder, what, "config.json", e);
    free(adapter);
    free(config);
    return ok;
}

/* ---- layouts ---- */

/* Parts of names by which a layout is told, the telling ones first. */
static const struct {
    const char *part, *what;
    bool is_adapter;
} layouts[] = {
    {".lora_", "LoRA", true},
    {".base_layer.", "PEFT", true},
    {".modules_to_save.", "PEFT", true},
    {".hada_w1", "LoHa", true},
    {".lokr_w1", "LoKr", true},
    {".ia3_l", "IA3", true},
    {".g_idx", "GPTQ", false},
    {".qweight", "AWQ or GPTQ", false},
    {".quant_state.", "bitsandbytes (4 bits)", false},
    {".weight.absmax", "bitsandbytes (4 bits)", false},
    {".weight_format", "bitsandbytes (8 bits)", false},
    {".SCB", "bitsandbytes (8 bits)", false},
    {".weight_packed", "compressed-tensors", false},
    {".weight_scale_2", "ModelOpt", false},
    {"_proj_blocks", "MXFP4", false},
    {".switch_mlp.", "MLX", false},
    {".biases", "MLX", false},
};

static bool check_names(const struct checkpoint_names *n, struct err *e)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const char *file, *name = checkpoint_find_part(n, layouts[i].part, &file);
        if (name && layouts[i].is_adapter)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: tensor %.200s: an adapter (%s) that is not merged; merge it into its base "
                           "model and convert the merged checkpoint",
                           file, name, layouts[i].what);
        if (name)
            return err_set(
                e, ERR_UNSUPPORTED,
                "%s: tensor %.200s: the layout of %s; milkit converts the checkpoint from which it "
                "was made (BF16, F16 or F32), or FP8 with scales",
                file, name, layouts[i].what);
    }
    return true;
}

/* Block sizes of an FP8 checkpoint: [128, 128], which is what published ones have, or none: a scale for a tensor, an
 * expert or a row, which the shape of the scales tells. */
static bool has_readable_blocks(const cJSON *quantization)
{
    const cJSON *block = json_get(quantization, "weight_block_size");
    if (!block || cJSON_IsNull(block))
        return true;
    if (!cJSON_IsArray(block) || cJSON_GetArraySize(block) != 2)
        return false;
    for (const cJSON *size = block->child; size; size = size->next) {
        if (!cJSON_IsNumber(size) || size->valuedouble != ST_SCALE_BLOCK)
            return false;
    }
    return true;
}

/* A checkpoint that another tool quantized holds packed integers where numbers are expected; FP8 with scales is read
 * as the numbers that it means. */
static bool check_quantization(const cJSON *config, const char *where, struct err *e)
{
    const cJSON *quantization = json_get(config, "quantization_config"),
                *mlx = json_get(config, "quantization");
    const char *method = cJSON_IsObject(mlx) ? "MLX" : "unknown";
    if (!quantization || cJSON_IsNull(quantization))
        quantization = mlx;
    if (!quantization || cJSON_IsNull(quantization))
        return true;
    if (!json_get_string(quantization, "quant_method", &method, where, e))
        return false;
    if (strcmp(method, "fp8") == 0 && has_readable_blocks(quantization))
        return true;
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s: quantization_config: the checkpoint is quantized (%.64s); milkit converts the "
        "unquantized one (BF16, F16 or F32), or FP8 with scales of blocks of %d x %d, rows or tensors",
        where, method, ST_SCALE_BLOCK, ST_SCALE_BLOCK);
}

/* ---- kinds ---- */

enum kind { KIND_LANGUAGE, KIND_EMBEDDING, KIND_CLASSIFIER };

static enum kind kind_of(const cJSON *config, const char **architecture)
{
    static const char *const classifiers[] = {"ForSequenceClassification", "ForTokenClassification",
                                              "ForQuestionAnswering", "ForMultipleChoice", "RewardModel"};
    const cJSON *first = cJSON_GetArrayItem(json_get(config, "architectures"), 0);
    *architecture = cJSON_IsString(first) ? first->valuestring : "";
    for (size_t i = 0; i < sizeof classifiers / sizeof classifiers[0]; i++) {
        if (has_suffix(*architecture, classifiers[i]))
            return KIND_CLASSIFIER;
    }
    return has_suffix(*architecture, "Model") ? KIND_EMBEDDING : KIND_LANGUAGE;
}

/* A head that gives labels gives no tokens, even where the table of embeddings could stand in for one. */
static bool check_kind(const struct checkpoint_names *n, const cJSON *config, const char *where,
                       struct err *e)
{
    const char *architecture;
    if (kind_of(config, &architecture) != KIND_CLASSIFIER || checkpoint_has(n, "lm_head.weight"))
        return true;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: key architectures: \"%.100s\" is a classifier, and there is no head of tokens "
                   "(lm_head.weight); milkit converts language models",
                   where, architecture);
}

bool checkpoint_check_layout(const struct checkpoint_names *n, const cJSON *config, const char *where,
                             struct err *e)
{
    return check_quantization(config, where, e) && check_names(n, e) && check_kind(n, config, where, e);
}

/* ---- what is said ---- */

static void say_kind(const cJSON *config, const char *folder, struct log *log)
{
    const char *architecture;
    enum kind kind = kind_of(config, &architecture);
    if (kind == KIND_CLASSIFIER)
        log_warn(log, "%s: a classifier (%.100s); its scores are not converted, only the language model",
                 folder, architecture);
    else if (kind == KIND_EMBEDDING || folder_has(folder, "modules.json") ||
             folder_has(folder, "config_sentence_transformers.json"))
        log_warn(
            log,
            "%s: an embedding or base model%s%.100s%s: trained for its hidden states; the tokens that the "
            "package predicts mean little",
            folder, kind == KIND_EMBEDDING ? " (" : "", kind == KIND_EMBEDDING ? architecture : "",
            kind == KIND_EMBEDDING ? ")" : "");
}

void checkpoint_say(const struct safetensors *s, const cJSON *config, const char *folder, struct log *log)
{
    if (s->has_unread_index)
        log_warn(log, "%s: read; the index of shards beside it is not", s->path);
    if (s->n_absent > 0) {
        struct buf names;
        buf_init(&names, 1 << 12);
        for (int i = 0; i < s->n_absent && i < NAMES_SHOWN; i++)
            buf_printf(&names, "%s%.100s", i ? ", " : "", s->absent[i].name);
        if (s->n_absent > NAMES_SHOWN)
            buf_puts(&names, ", ...");
        log_warn(log, "%s: of what it lists, %d tensor%s not there, and not needed: %s", s->path, s->n_absent,
                 s->n_absent == 1 ? " is" : "s are", names.p);
        buf_fini(&names);
    }
    if (folder_has(folder, ADAPTER_CONFIG))
        log_warn(log, "%s: " ADAPTER_CONFIG " beside config.json: the adapter is not applied", folder);
    say_kind(config, folder, log);
}
