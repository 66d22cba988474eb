/* A check as JSON: positions, their summary, limits, layers and states, speed, the verdict. */
#include "measure/check_json.h"
#include <math.h>
#include <string.h>
#include "base/json_text.h"

#define REPORT_BYTES_MAX ((size_t)1 << 30)

/* ---- speed ---- */

static void put_json_rate(struct buf *out, const char *what, int64_t n, const struct check_rate *r)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"per_second", r->median}, {"per_second_slowest", r->slowest}, {"per_second_fastest", r->fastest}};
    buf_printf(out, ", \"%s_tokens\": %lld", what, (long long)n);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        buf_printf(out, ", \"%s_tokens_%s\": ", what, numbers[i].key);
        json_put_double(out, n > 0 ? numbers[i].value : NAN);
    }
}

static void put_json_bench(const struct check_bench *b, struct buf *out)
{
    buf_printf(out, "\"bench\": {\"runs\": %lld", (long long)b->n_runs);
    put_json_rate(out, "prefill", b->n_prefill, &b->prefill);
    put_json_rate(out, "decode", b->n_decode, &b->decode);
    buf_puts(out, "},\n ");
}

/* ---- layers and states ---- */

static void put_member(struct buf *b, const char *key, double v)
{
    buf_printf(b, ", \"%s\": ", key);
    json_put_double(b, v);
}

static void put_layers(const struct check_layers_found *l, struct buf *b)
{
    buf_puts(b, "\"layers\": [");
    for (int64_t i = -1; i <= l->n_layers; i++) {
        const struct check_layer *t = &l->layers[i + 1];
        const char *type = i < 0 ? "embeddings" : i == l->n_layers ? "final norm" : l->types[i];
        buf_printf(b, "%s{\"layer\": %lld, \"type\": ", i < 0 ? "\n  " : ",\n  ", (long long)i);
        json_put_string(b, type, strlen(type));
        buf_printf(b, ", \"rows\": %lld, \"not_finite\": %lld", (long long)(t->n + t->n_not_finite),
                   (long long)t->n_not_finite);
        put_member(b, "min_cosine", t->n ? t->min_cosine : NAN);
        put_member(b, "mean_cosine", check_layer_cosine(t));
        put_member(b, "min_added_cosine", t->n_added ? t->min_added : NAN);
        put_member(b, "mean_added_cosine", check_layer_added(t));
        put_member(b, "added_gain", check_layer_gain(t));
        put_member(b, "max_relative_error", t->n ? t->max_error : NAN);
        buf_putc(b, '}');
    }
    buf_puts(b, "],\n \"states\": [");
    for (int i = 0; i < l->n_states; i++) {
        const struct check_state *s = &l->states[i];
        buf_puts(b, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
        json_put_string(b, s->name, strlen(s->name));
        buf_printf(b, ", \"layer\": %lld, \"what\": \"%s\"", (long long)s->layer, check_state_name(s->kind));
        put_member(b, "cosine", s->is_finite ? s->cosine : NAN);
        put_member(b, "gain", s->is_finite ? s->gain : NAN);
        put_member(b, "relative_error", s->is_finite ? s->error : NAN);
        buf_putc(b, '}');
    }
    buf_puts(b, "],\n ");
}

/* ---- what was compared ---- */

/* What was generated. Only with a tokenizer. */
static bool put_generated(struct buf *b, const struct check_json *o, struct err *e)
{
    const struct check *k = o->check;
    struct buf text;
    buf_init(&text, REPORT_BYTES_MAX);
    bool ok = tokenizer_decode(o->tokenizer, k->ids.p + k->n_prompt, k->ids.n - k->n_prompt, false, &text, e);
    buf_puts(b, "\"text\": ");
    json_put_string(b, text.p ? text.p : "", text.n);
    buf_puts(b, ", ");
    buf_fini(&text);
    return ok;
}

static void put_number(struct buf *b, const char *key, double v)
{
    buf_printf(b, "\"%s\": ", key);
    json_put_double(b, v);
}

static void put_bool(struct buf *b, const char *key, bool v)
{
    buf_printf(b, "\"%s\": %s", key, v ? "true" : "false");
}

/* One key after the other with the separators of one object. */
#define PUT_NUMBER(b, key, v) (put_number(b, key, v), buf_puts(b, ", "))

static void put_json_position(struct buf *b, const struct check_position *p, double margin)
{
    buf_printf(b, "{\"position\": %lld, \"token\": %d, \"reference_top\": %d, \"package_top\": ",
               (long long)p->position, p->token, p->d.reference_top);
    if (p->d.other_finite)
        buf_printf(b, "%d, ", p->d.other_top);
    else
        buf_puts(b, "null, ");
    PUT_NUMBER(b, "margin", p->d.margin);
    PUT_NUMBER(b, "cosine", p->d.cosine);
    PUT_NUMBER(b, "kl", p->d.kl);
    PUT_NUMBER(b, "max_abs_difference", p->d.max_difference);
    put_bool(b, "top1_agrees", p->d.other_finite && p->d.other_top == p->d.reference_top);
    buf_puts(b, ", ");
    put_bool(b, "top1_counted", p->d.margin > margin);
    buf_putc(b, '}');
}

static void put_json_ids(struct buf *b, const char *key, const int32_t *ids, size_t n)
{
    buf_printf(b, "\"%s\": ", key);
    json_put_ids(b, ids, n);
    buf_puts(b, ", ");
}

static void put_json_summary(struct buf *b, const struct check *k, const struct check_summary *s)
{
    bool none = s->n_not_finite == k->n_positions;
    buf_printf(b, "{\"positions\": %lld, \"not_finite\": %lld, ", (long long)k->n_positions,
               (long long)s->n_not_finite);
    PUT_NUMBER(b, "min_cosine", s->min_cosine);
    PUT_NUMBER(b, "mean_cosine", s->mean_cosine);
    PUT_NUMBER(b, "mean_kl", s->mean_kl);
    PUT_NUMBER(b, "max_kl", none ? NAN : s->max_kl);
    PUT_NUMBER(b, "max_abs_difference", none ? NAN : s->max_difference);
    buf_printf(b, "\"top1_counted\": %lld, \"top1_agreed\": %lld, ", (long long)s->n_counted,
               (long long)s->n_agreed);
    put_number(b, "top1_agreement", s->n_counted ? (double)s->n_agreed / (double)s->n_counted : NAN);
    buf_putc(b, '}');
}

static void put_json_limits(struct buf *b, const struct check_limits *l)
{
    buf_puts(b, "\"limits\": {\"of\": ");
    json_put_string(b, l->what, strlen(l->what));
    buf_puts(b, ", ");
    PUT_NUMBER(b, "min_cosine", l->min_cosine);
    PUT_NUMBER(b, "min_layer_cosine", l->min_layer_cosine);
    PUT_NUMBER(b, "min_added_cosine", l->min_added_cosine);
    PUT_NUMBER(b, "min_gain", l->min_gain);
    PUT_NUMBER(b, "max_gain", l->max_gain);
    PUT_NUMBER(b, "max_mean_kl", l->max_mean_kl);
    PUT_NUMBER(b, "max_abs_difference", l->max_difference);
    PUT_NUMBER(b, "min_top1_agreement", l->min_top1);
    put_number(b, "top1_margin", l->margin);
    buf_puts(b, "},\n ");
}

/* Everything that needs a reference. */
static bool put_json_compared(struct buf *b, const struct check_json *o, struct err *e)
{
    const struct check *k = o->check;
    const struct check_side *side = &k->sides[0];
    put_json_ids(b, "generated", k->ids.p + k->n_prompt, k->ids.n - k->n_prompt);
    if (o->tokenizer && !put_generated(b, o, e))
        return false;
    buf_puts(b, "\n \"positions\": [\n  ");
    for (int64_t i = 0; i < k->n_positions; i++) {
        buf_puts(b, i ? ",\n  " : "");
        put_json_position(b, &side->positions[i], k->limits.margin);
    }
    buf_puts(b, "],\n \"summary\": ");
    put_json_summary(b, k, &side->summary);
    if (k->n_sides > 1) {
        buf_printf(b, ",\n \"other_form\": {\"form\": \"%s\", \"same_bits\": %lld, \"summary\": ",
                   k->sides[1].form, (long long)k->n_same);
        put_json_summary(b, k, &k->sides[1].summary);
        buf_putc(b, '}');
    }
    buf_puts(b, ",\n \"range\": {");
    PUT_NUMBER(b, "largest", k->range.largest);
    buf_puts(b, "\"function\": ");
    json_put_string(b, k->range.function, strlen(k->range.function));
    buf_puts(b, ", \"variable\": ");
    json_put_string(b, k->range.variable, strlen(k->range.variable));
    buf_printf(b, ", \"beyond_fp16\": %lld},\n ", (long long)k->range.n_beyond);
    put_json_limits(b, &k->limits);
    if (o->with_layers)
        put_layers(check_layers_found(k->layers), b);
    return true;
}

bool check_put_json(struct buf *b, const struct check_json *o, enum check_verdict v, const struct buf *why,
                    struct err *e)
{
    const struct check *k = o->check;
    const struct model *m = k->model;
    buf_puts(b, "{\"schema\": 1, \"package\": ");
    json_put_string(b, m->package->path, strlen(m->package->path));
    if (k->reference) {
        buf_puts(b, ", \"checkpoint\": ");
        json_put_string(b, o->checkpoint, strlen(o->checkpoint));
    }
    buf_printf(b, ", \"form\": \"%s\", \"prompt_tokens\": %zu, \"prefill_calls\": %lld,\n ",
               package_form(m->package), k->n_prompt,
               (long long)(m->has_prefill ? (int64_t)k->n_prompt / m->batch_size : 0));
    put_json_ids(b, "prompt", k->ids.p, k->n_prompt);
    if (k->reference && !put_json_compared(b, o, e))
        return false;
    if (o->bench)
        put_json_bench(o->bench, b);
    buf_puts(b, "\"failures\": [");
    const char *line = why->n ? why->p : "";
    for (bool is_first = true; *line; is_first = false) {
        size_t n = strcspn(line, "\n");
        buf_puts(b, is_first ? "" : ", ");
        json_put_string(b, line, n);
        line += n + (line[n] == '\n');
    }
    buf_printf(b, "], \"verdict\": \"%s\"}\n", v == CHECK_FAIL ? "fail" : v == CHECK_PASS ? "pass" : "none");
    return true;
}
