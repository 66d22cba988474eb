/* A plan's steps for programs, as engine_plan_print has them for people. */
#include <string.h>
#include "engine/plan.h"
#include "format/json.h"

static void put_values(struct buf *out, const char *key, const struct value *values, int n)
{
    static const char *const names[] = {"f32", "i32", "f16"};
    json_put_key(out, key);
    buf_putc(out, '[');
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s{\"type\": \"%s\", \"shape\": [", i ? ", " : "", names[values[i].repr]);
        for (int k = 0; k < values[i].rank; k++)
            buf_printf(out, "%s%lld", k ? ", " : "", (long long)values[i].dims[k]);
        buf_puts(out, "]}");
    }
    buf_putc(out, ']');
}

static void put_text(struct buf *out, const char *key, const char *text)
{
    json_put_key(out, key);
    json_put_string(out, text, strlen(text));
}

void engine_plan_put_json(const struct engine_plan *p, const struct engine_run *measured, struct buf *out)
{
    double total = 0;
    if (measured && measured->n_measured > 0)
        for (int i = 0; i < p->n_steps; i++)
            total += measured->step_seconds[i];
    put_text(out, "function", p->function);
    buf_printf(out, ", \"weight_bytes\": %llu, \"workspace_bytes\": %llu, \"states\": %d, \"steps\": [",
               (unsigned long long)p->weight_bytes, (unsigned long long)p->arena_bytes, p->n_states);
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        buf_puts(out, i ? ",\n  {" : "\n  {");
        put_text(out, "kernel", s->name);
        put_text(out, "variable", s->label ? s->label : "");
        buf_printf(out, ", \"weight_bytes\": %llu", (unsigned long long)s->weight_bytes);
        put_values(out, "inputs", s->in, s->n_in);
        put_values(out, "outputs", s->out, s->n_out);
        if (total > 0) {
            json_put_key(out, "share");
            json_put_double(out, measured->step_seconds[i] / total);
        }
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}
