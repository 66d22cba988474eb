/* meta.yaml, writing: ANEMLL's nesting, the order of keys of the package format, and YAML that 1.1 and 1.2
 * readers take alike. */
#include "format/meta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "format/yaml.h"

#define INFO "  "
#define PARAMETER "    "

/* ---- scalars ---- */

/* The next code point of s, or -1 for a byte that is no UTF-8; *n is how many bytes it takes. */
static long decode_utf8(const char *s, int *n)
{
    const unsigned char *p = (const unsigned char *)s;
    *n = 1;
    if (p[0] < 0x80)
        return p[0];
    int more = p[0] >= 0xf0 && p[0] < 0xf5   ? 3
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 2
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 1
                                             : 0;
    if (!more)
        return -1;
    long c = p[0] & (0x3f >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < (more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return -1;
    *n = more + 1;
    return c;
}

static bool is_printable(long c)
{
    return (c >= 0x20 && c < 0x7f) || (c >= 0xa0 && c < 0xfeff && c != 0x2028 && c != 0x2029) ||
           (c > 0xfeff && c < 0xfffe) || c >= 0x10000;
}

static void put_quoted(struct buf *b, const char *s)
{
    int n;
    buf_putc(b, '"');
    for (; *s; s += n) {
        long c = decode_utf8(s, &n);
        if (c == '"' || c == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, (char)c);
        } else if (c == '\n') {
            buf_puts(b, "\\n");
        } else if (c < 0) {
            buf_puts(b, "\\uFFFD");
        } else if (!is_printable(c)) {
            buf_printf(b, c > 0xffff ? "\\U%08lX" : "\\u%04lX", (unsigned long)c);
        } else {
            buf_append(b, s, (size_t)n);
        }
    }
    buf_putc(b, '"');
}

/* Whether some reader takes the plain text for a number or a date. Three numbers with dots, a version, are
 * text. */
static bool looks_like_number(const char *s)
{
    if (!strchr("0123456789+-.", s[0]))
        return false;
    if (s[strspn(s, "0123456789+-._:eExX")])
        return strncasecmp(s, "0x", 2) == 0;
    size_t dots = 0, others = 0;
    for (const char *p = s; *p; p++) {
        dots += *p == '.';
        others += !strchr("0123456789.", *p);
    }
    return dots < 2 || others > 0;
}

static bool is_plain_text(const char *s)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    size_t n = strlen(s);
    if (n == 0 || s[0] == '-' || s[0] == ' ' || s[n - 1] == ' ' || looks_like_number(s))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(s, words[i]) == 0)
            return false;
    return s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _./+()-")] == '\0';
}

/* in_list: within [] or {}, where a comma separates. */
static void put_text(struct buf *b, const char *s, bool in_list)
{
    bool is_plain = is_plain_text(s);
    if (!is_plain && !in_list && strchr(s, ',')) {
        /* "int4,32" */
        size_t at = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789,_");
        is_plain = s[at] == '\0' && !strchr("0123456789,_", s[0]);
    }
    if (is_plain)
        buf_puts(b, s);
    else
        put_quoted(b, s);
}

/* ---- entries ---- */

static void put_string(struct buf *b, const char *indent, const char *key, const char *value)
{
    if (!value)
        return;
    buf_printf(b, "%s%s: ", indent, key);
    put_text(b, value, false);
    buf_putc(b, '\n');
}

static void put_int(struct buf *b, const char *key, int64_t value)
{
    if (value > 0)
        buf_printf(b, PARAMETER "%s: %lld\n", key, (long long)value);
}

static void put_number(struct buf *b, const char *key, double value)
{
    if (value == 0)
        return;
    buf_printf(b, PARAMETER "%s: ", key);
    yaml_put_number(b, value);
    buf_putc(b, '\n');
}

static void put_flag(struct buf *b, const char *key, bool value)
{
    if (value)
        buf_printf(b, PARAMETER "%s: true\n", key);
}

static void put_ints(struct buf *b, const int64_t *values, int n)
{
    buf_putc(b, '[');
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%lld", i ? ", " : "", (long long)values[i]);
    buf_puts(b, "]\n");
}

static void put_lut(struct buf *b, const char *key, int bits, int per_channel)
{
    if (bits == META_NONE)
        buf_printf(b, PARAMETER "%s: none\n", key);
    else
        buf_printf(b, PARAMETER "%s: %d\n" PARAMETER "%s_per_channel: %d\n", key, bits, key, per_channel);
}

/* A block scalar where the text allows it: printable lines, the first not starting with a space. */
static void put_description(struct buf *b, const char *text)
{
    if (!text)
        return;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    bool is_block = n > 0 && text[0] != ' ' && text[0] != '\n';
    int length;
    for (size_t i = 0; i < n && is_block; i += (size_t)length) {
        long c = decode_utf8(text + i, &length);
        is_block = c == '\n' || is_printable(c);
    }
    if (!is_block) {
        buf_puts(b, INFO "description: ");
        put_quoted(b, text);
        buf_putc(b, '\n');
        return;
    }
    buf_puts(b, INFO "description: |\n");
    for (const char *line = text, *end = text + n; line < end;) {
        size_t line_bytes = strcspn(line, "\n");
        if (line_bytes > 0) {
            buf_puts(b, PARAMETER);
            buf_append(b, line, line_bytes);
        }
        buf_putc(b, '\n');
        line += line_bytes + 1;
    }
}

static void put_sampling(struct buf *b, const struct meta *m)
{
    if (!m->sampling.is_present)
        return;
    buf_puts(b, PARAMETER "recommended_sampling: ");
    sampling_put_yaml(&m->sampling, b);
    buf_putc(b, '\n');
}

static void put_moe(struct buf *b, const struct meta *m)
{
    if (m->moe_experts <= 0)
        return;
    buf_printf(b, PARAMETER "moe: {experts: %d", m->moe_experts);
    if (m->moe_experts_per_token > 0)
        buf_printf(b, ", experts_per_token: %d", m->moe_experts_per_token);
    if (m->moe_evaluation) {
        buf_puts(b, ", evaluation: ");
        put_text(b, m->moe_evaluation, true);
    }
    buf_puts(b, "}\n");
}

static void put_states(struct buf *b, const struct meta *m)
{
    if (m->n_states == 0)
        return;
    buf_puts(b, PARAMETER "states:\n");
    for (int i = 0; i < m->n_states; i++) {
        const struct meta_state *s = &m->states[i];
        put_string(b, PARAMETER "  - ", "name", s->name);
        buf_puts(b, PARAMETER "    shape: ");
        put_ints(b, s->shape, s->rank);
        put_string(b, PARAMETER "    ", "dtype", s->dtype);
        buf_puts(b, PARAMETER "    layers: [");
        for (int k = 0; k < s->n_layers; k++)
            buf_printf(b, "%s%d", k ? ", " : "", s->layers[k]);
        buf_puts(b, "]\n");
    }
}

static void put_extensions(struct buf *b, const struct meta *m)
{
    put_flag(b, "recurrent_state", m->recurrent_state);
    put_flag(b, "prefill_full_batches_only", m->prefill_full_batches_only);
    put_int(b, "gdn_chunk_size", m->gdn_chunk_size);
    put_moe(b, m);
    put_int(b, "local_attention_window", m->local_attention_window);
    put_int(b, "local_cache_length", m->local_cache_length);
    put_number(b, "final_logit_softcap", m->final_logit_softcap);
    put_number(b, "residual_scale", m->residual_scale);
    put_int(b, "per_layer_inputs", m->per_layer_inputs);
    if (m->n_kv_shared_layers > 0) {
        buf_puts(b, PARAMETER "kv_shared_layers: {");
        for (int i = 0; i < m->n_kv_shared_layers; i++)
            buf_printf(b, "%s%d: %d", i ? ", " : "", m->kv_shared_layers[i].key,
                       m->kv_shared_layers[i].value);
        buf_puts(b, "}\n");
    }
    if (m->n_layer_types > 0) {
        buf_puts(b, PARAMETER "layer_types: [");
        for (int i = 0; i < m->n_layer_types; i++) {
            buf_puts(b, i ? ", " : "");
            put_text(b, m->layer_types[i], true);
        }
        buf_puts(b, "]\n");
    }
    put_states(b, m);
}

void meta_write(const struct meta *m, struct buf *out)
{
    struct buf *b = out;
    buf_puts(b, "model_info:\n");
    put_string(b, INFO, "name", m->name);
    put_string(b, INFO, "version", m->version);
    put_description(b, m->description);
    put_string(b, INFO, "license", m->license);
    put_string(b, INFO, "author", m->author);
    put_string(b, INFO, "framework", m->framework);
    put_string(b, INFO, "language", m->language);
    put_string(b, INFO, "architecture", m->architecture);
    put_string(b, INFO, "model_type", m->model_type);
    buf_puts(b, INFO "parameters:\n");
    put_int(b, "context_length", m->context_length);
    put_int(b, "batch_size", m->batch_size);
    put_lut(b, "lut_embeddings", m->lut_embeddings, m->lut_embeddings_per_channel);
    put_lut(b, "lut_ffn", m->lut_ffn, m->lut_ffn_per_channel);
    if (m->lut_ffn_mixed != 0.0)
        buf_printf(b, PARAMETER "lut_ffn_mixed: %.2f\n", m->lut_ffn_mixed);
    put_lut(b, "lut_lmhead", m->lut_lmhead, m->lut_lmhead_per_channel);
    put_string(b, PARAMETER, "quant_embeddings", m->quant_embeddings);
    put_string(b, PARAMETER, "quant_ffn", m->quant_ffn);
    put_string(b, PARAMETER, "quant_lmhead", m->quant_lmhead);
    put_int(b, "num_chunks", m->num_chunks);
    put_string(b, PARAMETER, "model_prefix", m->model_prefix);
    put_string(b, PARAMETER, "embeddings", m->embeddings);
    put_string(b, PARAMETER, "lm_head", m->lm_head);
    put_string(b, PARAMETER, "ffn", m->ffn);
    put_string(b, PARAMETER, "pf", m->pf);
    put_string(b, PARAMETER, "monolithic_model", m->monolithic_model);
    put_int(b, "split_lm_head", m->split_lm_head);
    put_flag(b, "argmax_in_model", m->argmax_in_model);
    put_int(b, "vocab_size", m->vocab_size);
    if (m->n_lm_head_chunk_sizes > 0) {
        buf_puts(b, PARAMETER "lm_head_chunk_sizes: ");
        put_ints(b, m->lm_head_chunk_sizes, m->n_lm_head_chunk_sizes);
    }
    put_flag(b, "split_rotate", m->split_rotate);
    put_int(b, "sliding_window", m->sliding_window);
    put_flag(b, "single_cache", m->single_cache);
    put_flag(b, "update_mask_prefill", m->update_mask_prefill);
    put_flag(b, "prefill_dynamic_slice", m->prefill_dynamic_slice);
    put_flag(b, "prefill_last_token_output", m->prefill_last_token_output);
    put_int(b, "hidden_size", m->hidden_size);
    put_int(b, "num_layers", m->num_layers);
    put_sampling(b, m);
    put_extensions(b, m);
    if (m->lut_method) {
        buf_puts(b, "\n# lut_method: ");
        put_text(b, m->lut_method, false);
        buf_putc(b, '\n');
    }
}
