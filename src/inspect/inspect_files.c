/* Files of tensors, tokenizers and meta.yaml. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "format/blob.h"
#include "format/meta.h"
#include "format/safetensors.h"
#include "inspect/inspect_internal.h"
#include "tokenizer/tokenizer.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

cJSON *inspect_dims(const int64_t *dims, int rank)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < rank; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)dims[i]));
    return list;
}

void inspect_count(cJSON *o, const char *list, const char *name, int64_t bytes)
{
    cJSON *all = cJSON_GetObjectItemCaseSensitive(o, list);
    cJSON *one, *count, *sum;

    if (!all)
        all = cJSON_AddObjectToObject(o, list);
    one = cJSON_GetObjectItemCaseSensitive(all, name);
    if (!one) {
        one = cJSON_AddObjectToObject(all, name);
        cJSON_AddNumberToObject(one, "count", 0);
        cJSON_AddNumberToObject(one, "bytes", 0);
    }
    count = cJSON_GetObjectItemCaseSensitive(one, "count");
    sum = cJSON_GetObjectItemCaseSensitive(one, "bytes");
    cJSON_SetNumberValue(count, count->valuedouble + 1);
    cJSON_SetNumberValue(sum, sum->valuedouble + (double)bytes);
}

/* config.json beside the tensors, when there is one: what the checkpoint says it is. */
static bool add_config(cJSON *o, const char *folder, struct err *e)
{
    char *path = path_join(folder, "config.json");
    const cJSON *architectures;
    const char *model_type = NULL;
    cJSON *config = NULL;
    bool ok = true;

    if (path_exists(path)) {
        ok = json_read_file(&config, path, CONFIG_BYTES_MAX, e) &&
             json_get_string(config, "model_type", &model_type, path, e);
        if (ok && model_type)
            cJSON_AddStringToObject(o, "model_type", model_type);
        architectures = ok ? json_get(config, "architectures") : NULL;
        if (cJSON_IsArray(architectures))
            cJSON_AddItemToObject(o, "architectures", cJSON_Duplicate(architectures, true));
    }
    cJSON_Delete(config);
    free(path);
    return ok;
}

/* What an index lists and can't be read. */
static void add_absent(cJSON *o, const struct safetensors *s)
{
    cJSON *list = s->n_absent > 0 ? cJSON_AddArrayToObject(o, "absent") : NULL;
    for (int i = 0; i < s->n_absent; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", s->absent[i].name);
        cJSON_AddStringToObject(one, "file", s->absent[i].file);
        cJSON_AddItemToArray(list, one);
    }
}

bool inspect_checkpoint(cJSON *o, const char *path, struct err *e)
{
    struct safetensors *s = NULL;
    double elements = 0;
    bool is_folder = path_is_folder(path);

    cJSON_AddStringToObject(o, "kind", is_folder ? "checkpoint" : "safetensors");
    if (is_folder && !add_config(o, path, e))
        return false;
    if (!safetensors_open(&s, path, e))
        return false;
    cJSON *list = cJSON_AddArrayToObject(o, "tensors");
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        cJSON *one = cJSON_CreateObject();
        char *file = path_base(t->file);
        cJSON_AddStringToObject(one, "name", t->name);
        cJSON_AddStringToObject(one, "dtype", t->dtype_name);
        cJSON_AddItemToObject(one, "shape", inspect_dims(t->shape, t->rank));
        cJSON_AddNumberToObject(one, "bytes", (double)t->bytes);
        cJSON_AddStringToObject(one, "file", file);
        cJSON_AddItemToArray(list, one);
        inspect_count(o, "dtypes", t->dtype_name, (int64_t)t->bytes);
        elements += (double)t->n_elems;
        free(file);
    }
    add_absent(o, s);
    cJSON *totals = cJSON_AddObjectToObject(o, "totals");
    cJSON_AddNumberToObject(totals, "tensors", s->n_tensors);
    cJSON_AddNumberToObject(totals, "elements", elements);
    cJSON_AddNumberToObject(totals, "bytes", (double)s->total_bytes);
    safetensors_close(s);
    return true;
}

bool inspect_weight_file(cJSON *o, const char *path, struct err *e)
{
    struct blob_file *b = NULL;
    struct blob_record r = {0};
    double bytes = 0;
    int n = 0;
    bool found = true, ok = true;

    cJSON_AddStringToObject(o, "kind", "weight file");
    if (!blob_open(&b, path, e))
        return false;
    cJSON *list = cJSON_AddArrayToObject(o, "records");
    while ((ok = blob_next(b, r.offset, &r, &found, e)) && found) {
        cJSON *one = cJSON_CreateObject();
        const char *type = blob_type_name(r.type) ? blob_type_name(r.type) : "unknown";
        int bits = blob_type_bits(r.type);
        cJSON_AddNumberToObject(one, "offset", (double)r.offset);
        cJSON_AddStringToObject(one, "dtype", type);
        if (bits > 0)
            cJSON_AddNumberToObject(one, "elements",
                                    floor(((double)r.bytes * 8 - (double)r.padding_bits) / bits));
        cJSON_AddNumberToObject(one, "bytes", (double)r.bytes);
        cJSON_AddItemToArray(list, one);
        inspect_count(o, "dtypes", type, (int64_t)r.bytes);
        bytes += (double)r.bytes;
        n++;
    }
    cJSON *totals = cJSON_AddObjectToObject(o, "totals");
    cJSON_AddNumberToObject(totals, "records", n);
    cJSON_AddNumberToObject(totals, "count_in_header", b->count);
    cJSON_AddNumberToObject(totals, "bytes", bytes);
    blob_close(b);
    return ok;
}

bool inspect_tokenizer(cJSON *o, const char *path, struct err *e)
{
    struct tokenizer *t = NULL;
    int32_t size;
    int n_tokens = 0;

    cJSON_AddStringToObject(o, "kind", "tokenizer");
    if (!tokenizer_open(&t, path, e))
        return false;
    size = tokenizer_vocab_size(t);
    cJSON_AddNumberToObject(o, "vocab_size", size);
    cJSON *list = cJSON_CreateArray();
    for (int32_t id = 0; id < size; id++) {
        const char *token = tokenizer_token(t, id);
        n_tokens += token != NULL;
        if (!token || !tokenizer_is_special(t, id))
            continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "id", id);
        cJSON_AddStringToObject(one, "token", token);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddNumberToObject(o, "tokens", n_tokens);
    cJSON_AddItemToObject(o, "special_tokens", list);
    tokenizer_free(t);
    return true;
}

/* ---- meta.yaml ---- */

static void add_string(cJSON *o, const char *key, const char *value)
{
    if (value)
        cJSON_AddStringToObject(o, key, value);
}

static void add_positive(cJSON *o, const char *key, int64_t value)
{
    if (value > 0)
        cJSON_AddNumberToObject(o, key, (double)value);
}

static void add_lut(cJSON *o, const char *key, int bits)
{
    if (bits == META_NONE)
        cJSON_AddNullToObject(o, key);
    else
        cJSON_AddNumberToObject(o, key, bits);
}

static void add_states(cJSON *o, const struct meta *m)
{
    cJSON *list = m->n_states > 0 ? cJSON_AddArrayToObject(o, "states") : NULL;

    for (int i = 0; i < m->n_states; i++) {
        const struct meta_state *s = &m->states[i];
        cJSON *one = cJSON_CreateObject(), *layers = cJSON_CreateArray();
        add_string(one, "name", s->name);
        add_string(one, "dtype", s->dtype);
        cJSON_AddItemToObject(one, "shape", inspect_dims(s->shape, s->rank));
        for (int k = 0; k < s->n_layers; k++)
            cJSON_AddItemToArray(layers, cJSON_CreateNumber(s->layers[k]));
        cJSON_AddItemToObject(one, "layers", layers);
        cJSON_AddItemToArray(list, one);
    }
}

bool inspect_meta(cJSON *o, const char *path, struct err *e)
{
    struct meta *m = NULL;

    cJSON_AddStringToObject(o, "kind", "meta");
    if (!meta_read(&m, path, e))
        return false;
    add_string(o, "name", m->name);
    add_string(o, "version", m->version);
    add_string(o, "architecture", m->architecture);
    add_string(o, "model_type", m->model_type);
    cJSON_AddNumberToObject(o, "context_length", (double)m->context_length);
    cJSON_AddNumberToObject(o, "batch_size", (double)m->batch_size);
    cJSON_AddNumberToObject(o, "num_chunks", m->num_chunks);
    cJSON_AddNumberToObject(o, "split_lm_head", m->split_lm_head);
    add_positive(o, "vocab_size", m->vocab_size);
    add_positive(o, "hidden_size", m->hidden_size);
    add_positive(o, "num_layers", m->num_layers);
    add_lut(o, "lut_embeddings", m->lut_embeddings);
    add_lut(o, "lut_ffn", m->lut_ffn);
    if (m->lut_ffn_mixed > 0)
        cJSON_AddNumberToObject(o, "lut_ffn_mixed", m->lut_ffn_mixed);
    add_lut(o, "lut_lmhead", m->lut_lmhead);
    add_string(o, "quant_embeddings", m->quant_embeddings);
    add_string(o, "quant_ffn", m->quant_ffn);
    add_string(o, "quant_lmhead", m->quant_lmhead);
    add_string(o, "model_prefix", m->model_prefix);
    add_string(o, "embeddings", m->embeddings);
    add_string(o, "lm_head", m->lm_head);
    add_string(o, "ffn", m->ffn);
    add_string(o, "pf", m->pf);
    add_string(o, "monolithic_model", m->monolithic_model);
    cJSON_AddBoolToObject(o, "argmax_in_model", m->argmax_in_model);
    cJSON_AddBoolToObject(o, "prefill_last_token_output", m->prefill_last_token_output);
    cJSON_AddBoolToObject(o, "prefill_full_batches_only", m->prefill_full_batches_only);
    cJSON_AddBoolToObject(o, "recurrent_state", m->recurrent_state);
    add_positive(o, "gdn_chunk_size", m->gdn_chunk_size);
    add_positive(o, "moe_experts", m->moe_experts);
    add_positive(o, "moe_experts_per_token", m->moe_experts_per_token);
    add_positive(o, "local_attention_window", m->local_attention_window);
    add_positive(o, "local_cache_length", m->local_cache_length);
    if (m->residual_scale > 0)
        cJSON_AddNumberToObject(o, "residual_scale", m->residual_scale);
    add_states(o, m);
    if (m->n_unknown_keys > 0)
        cJSON_AddItemToObject(
            o, "unknown_keys",
            cJSON_CreateStringArray((const char *const *)m->unknown_keys, m->n_unknown_keys));
    if (m->n_warnings > 0)
        cJSON_AddItemToObject(o, "warnings",
                              cJSON_CreateStringArray((const char *const *)m->warnings, m->n_warnings));
    meta_free(m);
    return true;
}
