/* Layer by layer over several texts: the residual streams of all of them are kept, everything else is made again for each
 * layer and text. */
#include <stdlib.h>
#include <string.h>
#include "reference/texts.h"

struct reference_inputs {
    struct reference_texts texts;
    int64_t layer;
    float *stream, *next; /* [n, hidden_size]: before the next layer, and what it left when it was run last */
};

/* Text i of rows [n, hidden_size]. */
static float *rows_of(const struct reference_inputs *p, float *rows, int64_t i)
{
    return rows + i * p->texts.n_text * p->texts.reference->hidden_size;
}

static size_t row_bytes(const struct reference_inputs *p, int64_t i)
{
    return (size_t)(reference_text_length(&p->texts, i) * p->texts.reference->hidden_size) * sizeof(float);
}

bool reference_inputs_new(struct reference_inputs **out, struct reference *r, const int32_t *tokens, size_t n,
                          size_t n_text, struct err *e)
{
    struct reference_inputs *p = xcalloc(1, sizeof *p);
    bool ok = false;
    *out = NULL;
    if (!reference_texts_open(&p->texts, r, tokens, n, n_text, e) ||
        !reference_alloc(&p->stream, p->texts.n, r->hidden_size, 1, e) ||
        !reference_alloc(&p->next, p->texts.n, r->hidden_size, 1, e))
        goto done;
    for (int64_t i = 0; i < reference_text_count(&p->texts); i++)
        memcpy(rows_of(p, p->stream, i), reference_text_begin(&p->texts, i)->stream, row_bytes(p, i));
    *out = p;
    p = NULL;
    ok = true;
done:
    reference_inputs_free(p);
    return ok;
}

void reference_inputs_free(struct reference_inputs *p)
{
    if (!p)
        return;
    reference_texts_free(&p->texts);
    mem_free(p->stream);
    mem_free(p->next);
    free(p);
}

/* The session, before a layer of text i. */
static struct reference_session *begin_text(struct reference_inputs *p, int64_t i)
{
    struct reference_session *s = reference_text_begin(&p->texts, i);
    memcpy(s->stream, rows_of(p, p->stream, i), row_bytes(p, i));
    s->input = (struct reference_input){.text = i};
    return s;
}

bool reference_inputs_run(struct reference_inputs *p, const struct reference_replacement *replacement,
                          reference_input_fn show, void *context, struct err *e)
{
    const struct reference *r = p->texts.reference;
    const struct reference_family *family = r->parts->family;
    if (p->layer >= r->n_layers)
        return err_set(e, ERR_BUG, "inputs of %lld layers were asked for, and more", (long long)r->n_layers);
    for (int64_t i = 0; i < reference_text_count(&p->texts); i++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        struct reference_session *s = begin_text(p, i);
        int64_t n = reference_text_length(&p->texts, i);
        if (family->layer_reset)
            family->layer_reset(s, p->layer);
        s->show_input = show;
        s->show_context = context;
        s->replacement = replacement;
        family->layer(s, p->layer, n);
        s->show_input = NULL;
        s->replacement = NULL;
        s->is_stopped = false;
        memcpy(rows_of(p, p->next, i), s->stream, row_bytes(p, i));
    }
    return true;
}

void reference_inputs_go_on(struct reference_inputs *p)
{
    float *stream = p->stream;
    p->stream = p->next;
    p->next = stream;
    p->layer++;
}

bool reference_inputs_finish(struct reference_inputs *p, reference_input_fn show, void *context,
                             struct err *e)
{
    const struct reference *r = p->texts.reference;
    const struct st_tensor *head = r->parts->ends.head;
    for (int64_t i = 0; i < reference_text_count(&p->texts); i++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        struct reference_session *s = begin_text(p, i);
        r->parts->family->finish(s, reference_text_length(&p->texts, i));
        s->show_input = show;
        s->show_context = context;
        reference_show_input(s, head, s->hidden, reference_text_length(&p->texts, i));
        s->show_input = NULL;
        s->is_stopped = false;
    }
    return true;
}
