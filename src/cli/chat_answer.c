/* What milkit chat shows of an answer: its pieces on stdout, what is strange about it in the log, its numbers. */
#include "cli/chat.h"

/* An empty line alone would leave the user to guess. */
static void tell_empty(const struct chat *chat, bool has_thinking)
{
    const struct turn_stats *s = &chat->conversation.last;
    if (has_thinking && chat->printer.shows_thinking)
        return;
    log_info(&chat->cli->log, "the answer is %s (%lld tokens, stopped: %s)%s",
             has_thinking ? "thinking alone" : "empty", (long long)s->n_generated, generate_end_name(s->end),
             has_thinking ? ", which is not shown; --show-think shows it" : "");
}

bool chat_on_event(void *context, const struct conversation_event *event, struct err *e)
{
    struct chat *chat = context;
    struct answer_printer *p = &chat->printer;
    long long n_context = (long long)chat->conversation.model->context_length;
    switch (event->kind) {
    case CONVERSATION_DROPPED:
        log_warn(
            &chat->cli->log,
            "the context of %lld tokens is full: the oldest messages (%zu) are dropped, the %zu tokens that "
            "are left are computed again",
            n_context, event->n_dropped, event->n_tokens);
        break;
    case CONVERSATION_BEGINS:
        answer_printer_begin(p);
        break;
    case CONVERSATION_PIECE:
        answer_printer_put(p, event->piece);
        break;
    case CONVERSATION_ENDS:
        answer_printer_end(p);
        break;
    case CONVERSATION_EMPTY:
        tell_empty(chat, event->has_thinking);
        break;
    case CONVERSATION_FULL:
        log_warn(&chat->cli->log, "the context of %lld tokens is full: the answer ends here", n_context);
        break;
    }
    if (p->failed)
        *e = p->problem;
    return !p->failed;
}

void chat_put_stats(const struct conversation *c, struct buf *out)
{
    const struct turn_stats *s = &c->last;
    int64_t n = s->n_prompt - s->n_reused;
    buf_printf(out, "prompt: %lld tokens, %lld reused, %lld evaluated, %.1f tokens/s; ",
               (long long)s->n_prompt, (long long)s->n_reused, (long long)n,
               (double)n / (s->prompt_seconds > 0 ? s->prompt_seconds : 1e-9));
    buf_printf(out, "answer: %lld tokens, %.1f tokens/s; context: %lld of %lld; stopped: %s",
               (long long)s->n_generated,
               (double)s->n_generated / (s->answer_seconds > 0 ? s->answer_seconds : 1e-9),
               (long long)(s->n_prompt + s->n_generated), (long long)c->model->context_length,
               generate_end_name(s->end));
}
