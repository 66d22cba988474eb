/* milkit check: what layers leave and states, as lines and as tables. */
#include <math.h>
#include "cli/check_report.h"

void check_report_worst(const struct check_layers_found *l, struct buf *b)
{
    const struct check_state *state;
    int64_t layer;
    char name[64];
    if (!check_layers_worst(l, &layer, &state))
        return;
    check_layer_name(l, layer, name, sizeof name);
    buf_printf(b, "layers: lowest mean cosine %.8f behind %s", check_layer_cosine(&l->layers[layer + 1]),
               name);
    if (state)
        buf_printf(b, "; states: lowest %.8f, %s of layer %lld", state->cosine, check_state_name(state->kind),
                   (long long)state->layer);
    buf_putc(b, '\n');
}

static void put_layer_line(const struct check_layers_found *l, int64_t i, struct buf *b)
{
    const struct check_layer *t = &l->layers[i + 1];
    char name[64];
    check_layer_name(l, i, name, sizeof name);
    buf_printf(b, "%-22s ", name);
    if (t->n == 0) {
        buf_puts(b, t->n_not_finite ? "not finite\n" : "the package does not show it\n");
        return;
    }
    buf_printf(b, "%.8f  %.8f  ", t->min_cosine, t->sum_cosine / (double)t->n);
    if (t->n_added)
        buf_printf(b, "%11.8f", t->min_added);
    else
        buf_printf(b, "%11s", "-");
    buf_printf(b, "  %9.2e", t->max_error);
    if (t->n_not_finite)
        buf_printf(b, "  not finite at %lld positions", (long long)t->n_not_finite);
    buf_putc(b, '\n');
}

void check_report_layers(const struct check_layers_found *l, struct buf *b)
{
    buf_puts(b, "                       lowest      mean        lowest of    largest\n"
                "residual stream        cosine      cosine      what it adds error\n");
    for (int64_t i = -1; i <= l->n_layers; i++)
        put_layer_line(l, i, b);
    buf_puts(b, "\nstate                          layer  what     cosine      error\n");
    for (int i = 0; i < l->n_states; i++) {
        const struct check_state *s = &l->states[i];
        buf_printf(b, "%-30s %5lld  %-7s", s->name, (long long)s->layer, check_state_name(s->kind));
        if (s->is_finite)
            buf_printf(b, "  %.8f  %9.2e\n", s->cosine, s->error);
        else
            buf_puts(b, "  not finite\n");
    }
    buf_putc(b, '\n');
}
