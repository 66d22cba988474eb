/* From logits to events: penalties and biases of the request, the sampler, text, stop strings, the parts of an answer. */
#include "server/generation.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "server/stop_filter.h"
#include "server/token_records.h"

#define TEXT_BYTES_MAX ((size_t)1 << 28)

struct generation {
    struct job *job;
    int choice;
    const mk_package *package;
    mk_sampler *sampler;
    mk_decoder *decoder; /* NULL: the package has no tokenizer, and tokens have no text */
    mk_parser *parser;   /* NULL: the text is content */
    struct stop_filter stops;
    struct token_records records;
    float *logits;    /* [vocab_size] as the request changes them; NULL: it does not */
    int32_t *counts;  /* [vocab_size] how often a token was generated; NULL: no penalties */
    int32_t *history; /* [n_history] prompt and generated */
    size_t n_history, capacity;
    long long n_done, n_reasoning;
    int n_calls;
    const struct vocabulary_bytes *vocabulary; /* with a grammar, or probabilities */
    const struct grammar_vocabulary *sorted;
    struct grammar_state *grammar; /* NULL: any text */
    bool *allowed;                 /* [vocab_size] with a grammar */
    bool is_bound;                 /* the grammar holds */
    struct buf tail;               /* of the text before it does */
    int stop;                      /* index of the string that was found, -1 */
    struct buf released;           /* text that is not part of a stop string */
    struct event *event;           /* being filled, or NULL */
    double prompt_seconds, begun;
};

/* ---- events ---- */

static void flush_event(struct generation *g)
{
    struct event *e = g->event;
    if (!e)
        return;
    g->event = NULL;
    e->choice = g->choice;
    e->n_done = g->n_done;
    e->seconds = clock_seconds() - g->begun;
    token_records_take(&g->records, e);
    job_put(g->job, e);
}

static void add_text(struct generation *g, enum event_part part, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (g->event && (g->event->kind != EVENT_TOKEN || (g->event->part != part && g->event->n > 0)))
        flush_event(g);
    if (!g->event) {
        g->event = xcalloc(1, sizeof *g->event);
        g->event->kind = EVENT_TOKEN;
    }
    struct event *e = g->event;
    e->part = part;
    e->text = xrealloc(e->text, e->n + n + 1);
    memcpy(e->text + e->n, text, n);
    e->n += n;
    e->text[e->n] = '\0';
    if (part == PART_REASONING)
        g->n_reasoning = g->n_done;
}

static void add_call(struct generation *g, const char *name, const char *arguments, size_t n)
{
    struct event *e = xcalloc(1, sizeof *e);
    flush_event(g);
    e->kind = EVENT_CALL;
    e->text = strndup(arguments, n);
    e->n = n;
    e->name = xstrdup(name);
    g->event = e;
    flush_event(g);
    g->n_calls++;
}

static void on_part(void *context, int32_t part, const char *text, size_t n, const char *name)
{
    struct generation *g = context;
    int most = g->job->o.n_calls_max;
    if (most > 0 && g->n_calls >= most)
        return;
    if (part != MK_PART_TOOL_CALL) {
        add_text(g, part == MK_PART_REASONING ? PART_REASONING : PART_CONTENT, text, n);
    } else if (g->job->o.takes_calls) {
        add_call(g, name, text, n);
    } else { /* nobody asked for calls: it is what the model said */
        add_text(g, PART_CONTENT, name, strlen(name));
        add_text(g, PART_CONTENT, text, n);
    }
}

/* Does the text reach the place behind which the grammar holds? */
static void look_for_begin(struct generation *g)
{
    const char *mark = g->job->o.grammar_after;
    if (!g->grammar || g->is_bound || !mark)
        return;
    size_t n = strlen(mark);
    buf_append(&g->tail, g->released.p, g->released.n);
    g->is_bound = g->tail.n >= n && memmem(g->tail.p, g->tail.n, mark, n) != NULL;
    if (g->tail.n > n) {
        memmove(g->tail.p, g->tail.p + g->tail.n - n, n);
        g->tail.n = n;
    }
}

/* Hands on what the filter let through. */
static void pass_released(struct generation *g)
{
    look_for_begin(g);
    token_records_release(&g->records, g->released.n);
    if (g->parser && g->released.n > 0)
        mk_parser_push(g->parser, g->released.p, g->released.n);
    else if (!g->parser)
        add_text(g, PART_CONTENT, g->released.p, g->released.n);
    buf_clear(&g->released);
}

static void end(struct generation *g, enum end_reason reason)
{
    const char *text;
    size_t n;
    if (g->stop < 0) {
        if (g->decoder && mk_decoder_finish(g->decoder, &text, &n, NULL) == MK_OK && n > 0) {
            token_records_text(&g->records, n);
            g->stop = stop_filter_push(&g->stops, text, n, &g->released);
        }
        if (g->stop < 0)
            g->stop = stop_filter_finish(&g->stops, &g->released);
        pass_released(g);
    }
    if (g->stop >= 0)
        reason = END_WORD;
    if (g->parser)
        mk_parser_finish(g->parser);
    if (!g->event) {
        g->event = xcalloc(1, sizeof *g->event);
        g->event->kind = EVENT_TOKEN;
    }
    token_records_finish(&g->records, g->stop >= 0);
    flush_event(g);
    struct event *e = xcalloc(1, sizeof *e);
    e->kind = EVENT_END;
    e->choice = g->choice;
    e->reason = g->n_calls > 0 && (reason == END_STOP || reason == END_WORD) ? END_CALLS : reason;
    e->stop = g->stop >= 0 ? xstrdup(g->job->o.stops[g->stop]) : NULL;
    e->n_prompt = (long long)g->job->o.n_prompt;
    e->n_done = g->n_done;
    e->n_reasoning = g->n_reasoning;
    e->prompt_seconds = g->prompt_seconds;
    e->seconds = clock_seconds() - g->begun;
    job_put(g->job, e);
}

void generation_fail(struct generation *g, mk_error *error)
{
    struct event *e = xcalloc(1, sizeof *e);
    e->kind = EVENT_FAILED;
    e->choice = g->choice;
    /* The request was checked before: what fails now is not its fault. */
    problem_set(&e->problem, 500, "server_error", NULL, NULL, "%s",
                error ? mk_error_message(error) : "the grammar allows none of the model's tokens here");
    mk_error_free(error);
    job_put(g->job, e);
}

/* ---- the life of a choice ---- */

static mk_status open_all(struct generation *g, mk_error **error)
{
    const struct job_options *o = &g->job->o;
    const mk_tokenizer *t = mk_package_tokenizer(g->package);
    struct buf settings;
    buf_init(&settings, 65536);
    size_t n = strlen(o->sampling);
    buf_append(&settings, o->sampling, n - 1);
    buf_printf(&settings, "%s\"seed\": \"%llu\"}", n > 2 ? ", " : "",
               (unsigned long long)((o->seed + (unsigned)g->choice) & INT64_MAX));
    mk_status status = mk_sampler_new(&g->sampler, g->package, settings.p, error);
    buf_fini(&settings);
    if (status == MK_OK && mk_tokenizer_size(t) > 0)
        status = mk_decoder_new(&g->decoder, t, o->keeps_special ? MK_SPECIAL : 0, error);
    if (status == MK_OK && o->is_chat)
        status = mk_parser_new(&g->parser, t, o->prompt_text, o->tools, on_part, g, error);
    return status;
}

struct generation *generation_new(struct job *j, int choice, const mk_package *p,
                                  const struct vocabulary_bytes *v, const struct grammar_vocabulary *sorted)
{
    struct generation *g = xcalloc(1, sizeof *g);
    const struct job_options *o = &j->o;
    mk_error *error = NULL;
    g->job = job_keep(j);
    g->choice = choice;
    g->package = p;
    g->stop = -1;
    g->vocabulary = v;
    g->sorted = sorted;
    g->is_bound = o->grammar && !o->grammar_after;
    buf_init(&g->tail, TEXT_BYTES_MAX);
    stop_filter_init(&g->stops, o->stops, o->n_stops);
    token_records_init(&g->records, v, o->n_top, o->wants_tokens);
    buf_init(&g->released, TEXT_BYTES_MAX);
    g->capacity = g->n_history = o->n_prompt;
    g->history = xcalloc(o->n_prompt + 1, sizeof *g->history);
    memcpy(g->history, o->prompt, o->n_prompt * sizeof *g->history);
    if (o->n_bias > 0 || o->presence_penalty != 0 || o->frequency_penalty != 0)
        g->logits = xcalloc((size_t)mk_package_vocab_size(p), sizeof *g->logits);
    if (o->presence_penalty != 0 || o->frequency_penalty != 0)
        g->counts = xcalloc((size_t)mk_package_vocab_size(p), sizeof *g->counts);
    if (o->grammar) {
        g->grammar = grammar_state_new(o->grammar);
        g->allowed = xcalloc((size_t)mk_package_vocab_size(p), sizeof *g->allowed);
    }
    g->begun = clock_seconds();
    if (open_all(g, &error) == MK_OK)
        return g;
    generation_fail(g, error);
    generation_free(g);
    return NULL;
}

void generation_free(struct generation *g)
{
    if (!g)
        return;
    mk_sampler_free(g->sampler);
    mk_decoder_free(g->decoder);
    mk_parser_free(g->parser);
    stop_filter_fini(&g->stops);
    token_records_fini(&g->records);
    buf_fini(&g->released);
    event_free(g->event);
    grammar_state_free(g->grammar);
    free(g->allowed);
    buf_fini(&g->tail);
    free(g->logits);
    free(g->counts);
    free(g->history);
    job_release(g->job);
    free(g);
}

long long generation_count(const struct generation *g)
{
    return g->n_done;
}

void generation_begin(struct generation *g, size_t reused, double prompt_seconds, double wait_seconds)
{
    struct event *e = xcalloc(1, sizeof *e);
    g->prompt_seconds = prompt_seconds;
    g->begun = clock_seconds();
    e->kind = EVENT_BEGIN;
    e->choice = g->choice;
    e->n_prompt = (long long)g->job->o.n_prompt;
    e->n_reused = (long long)reused;
    e->prompt_seconds = prompt_seconds;
    e->wait_seconds = wait_seconds;
    job_put(g->job, e);
}

/* Penalties count what was generated, not the prompt. */
static const float *change_logits(struct generation *g, const float *logits)
{
    const struct job_options *o = &g->job->o;
    size_t n_vocabulary = (size_t)mk_package_vocab_size(g->package);
    if (!g->logits)
        return logits;
    memcpy(g->logits, logits, n_vocabulary * sizeof *logits);
    for (size_t i = o->n_prompt; g->counts && i < g->n_history; i++) {
        int32_t id = g->history[i], count = g->counts[id];
        if (count > 0) { /* each token once: what was seen is negative until the end */
            g->logits[id] -= (float)(o->frequency_penalty * count + o->presence_penalty);
            g->counts[id] = -count;
        }
    }
    for (size_t i = o->n_prompt; g->counts && i < g->n_history; i++)
        g->counts[g->history[i]] = abs(g->counts[g->history[i]]);
    for (size_t i = 0; i < o->n_bias; i++)
        g->logits[o->bias[i].id] += o->bias[i].value;
    return g->logits;
}

static mk_status pick(struct generation *g, const float *logits, int32_t *id, mk_error **error)
{
    return mk_sampler_pick(g->sampler, logits, (size_t)mk_package_vocab_size(g->package), g->history,
                           g->n_history, id, error);
}

static bool is_end(const struct generation *g, int32_t id)
{
    return mk_package_is_end(g->package, id);
}

static bool is_allowed(struct generation *g, int32_t id)
{
    struct str bytes = vocabulary_bytes_of(g->vocabulary, id);
    if (is_end(g, id))
        return grammar_can_end(g->grammar);
    return bytes.n > 0 && grammar_accepts(g->grammar, bytes.p, bytes.n);
}

/* Chooses again among what the grammar allows. -1 as *id: nothing, and the text may end here. */
static mk_status pick_allowed(struct generation *g, const float *logits, int32_t *id, mk_error **error)
{
    int32_t n = mk_package_vocab_size(g->package);
    size_t n_allowed = grammar_mask(g->grammar, g->sorted, g->allowed);
    bool can_end = grammar_can_end(g->grammar);
    if (!g->logits)
        g->logits = xcalloc((size_t)n, sizeof *g->logits);
    if (logits != g->logits)
        memcpy(g->logits, logits, (size_t)n * sizeof *logits);
    for (int32_t i = 0; i < n; i++) {
        bool is_last = is_end(g, i);
        n_allowed += is_last && can_end && !g->allowed[i];
        n_allowed -= is_last && !can_end && g->allowed[i];
        if (is_last ? !can_end : !g->allowed[i])
            g->logits[i] = -INFINITY;
    }
    if (n_allowed == 0) {
        *id = -1;
        return can_end ? MK_OK : MK_OUTSIDE;
    }
    return pick(g, g->logits, id, error);
}

static bool is_stop_name(const struct generation *g, int32_t id)
{
    char name[256];
    size_t n;
    if (g->job->o.n_stops == 0 ||
        mk_token_bytes(mk_package_tokenizer(g->package), id, 0, name, sizeof name, &n, NULL) != MK_OK ||
        n > 0 ||
        mk_token_bytes(mk_package_tokenizer(g->package), id, MK_SPECIAL, name, sizeof name, &n, NULL) !=
            MK_OK)
        return false;
    for (size_t i = 0; i < g->job->o.n_stops; i++)
        if (n > 0 && strlen(g->job->o.stops[i]) == n && memcmp(g->job->o.stops[i], name, n) == 0)
            return true;
    return false;
}

/* The text that comes of a token, through the filter. False: the choice has failed. */
static bool take_text(struct generation *g, int32_t id)
{
    const char *text;
    size_t n;
    mk_error *error = NULL;
    if (!g->decoder) { /* tokens are told of at once */
        token_records_text(&g->records, 1);
        token_records_release(&g->records, 1);
        return true;
    }
    if (mk_decoder_add(g->decoder, id, &text, &n, &error) != MK_OK) {
        generation_fail(g, error);
        return false;
    }
    token_records_text(&g->records, n);
    g->stop = stop_filter_push(&g->stops, text, n, &g->released);
    pass_released(g);
    return true;
}

bool generation_step(struct generation *g, const float *logits, int32_t *id)
{
    const struct job_options *o = &g->job->o;
    mk_error *error = NULL;
    if (o->max_tokens == 0) {
        end(g, END_LENGTH);
        return false;
    }
    const float *changed = change_logits(g, logits);
    mk_status status = pick(g, changed, id, &error);
    if (status == MK_OK && g->is_bound && !is_allowed(g, *id))
        status = pick_allowed(g, changed, id, &error);
    if (status != MK_OK) {
        generation_fail(g, error);
        return false;
    }
    if (*id < 0 || (is_end(g, *id) && (!o->ignores_end || g->is_bound)) ||
        (!o->keeps_special && is_stop_name(g, *id))) {
        end(g, END_STOP);
        return false;
    }
    if (g->is_bound) {
        struct str bytes = vocabulary_bytes_of(g->vocabulary, *id);
        (void)grammar_advance(g->grammar, bytes.p, bytes.n);
    }
    g->history = mem_grow(g->history, g->n_history, &g->capacity, sizeof *g->history);
    g->history[g->n_history++] = *id;
    g->n_done++;
    if (g->counts)
        g->counts[*id]++;
    token_records_add(&g->records, *id, logits);
    if (!take_text(g, *id))
        return false;
    if (g->event || token_records_are_ready(&g->records)) {
        if (!g->event) {
            g->event = xcalloc(1, sizeof *g->event);
            g->event->kind = EVENT_TOKEN;
        }
        flush_event(g);
    }
    if (g->stop >= 0)
        end(g, END_WORD);
    else if (o->n_calls_max > 0 && g->n_calls >= o->n_calls_max)
        end(g, END_CALLS);
    else if (o->max_tokens > 0 && g->n_done >= o->max_tokens)
        end(g, END_LENGTH);
    else
        return true;
    return false;
}

void generation_end_context(struct generation *g)
{
    end(g, END_CONTEXT);
}
