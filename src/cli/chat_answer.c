/* What milkit chat shows of an answer: its pieces on stdout, what is strange about it in the log, its numbers. */
#include "cli/chat.h"

/* An empty line alone would leave the user to guess. */
static void tell_empty(const struct chat *chat, const mk_chat_event *event)
{
    if (event->has_reasoning && chat->printer.shows_thinking)
        return;
    log_info(&chat->cli->log, "the answer is %s (%lld tokens, stopped: %s)%s",
             event->has_reasoning ? "thinking alone" : "empty", (long long)event->n_generated,
             mk_end_name(event->end),
             event->has_reasoning ? ", which is not shown; --show-think shows it" : "");
}

bool chat_on_event(void *context, const mk_chat_event *event)
{
    struct chat *chat = context;
    struct answer_printer *p = &chat->printer;
    long long n_context = (long long)mk_package_context_length(chat->package);
    switch (event->kind) {
    case MK_CHAT_DROPPED:
        log_warn(
            &chat->cli->log,
            "the context of %lld tokens is full: the oldest messages (%zu) are dropped, the %zu tokens that "
            "are left are computed again",
            n_context, event->n_dropped, event->n_tokens);
        break;
    case MK_CHAT_BEGIN:
        client_call_end(&chat->call); /* the progress line of the prompt */
        answer_printer_begin(p);
        break;
    case MK_CHAT_END:
        answer_printer_end(p);
        if (event->is_empty && !event->has_failed)
            tell_empty(chat, event);
        if (event->end == MK_END_CONTEXT && !event->has_failed)
            log_warn(&chat->cli->log, "the context of %lld tokens is full: the answer ends here", n_context);
        break;
    default:
        answer_printer_put(p, event);
        break;
    }
    return !p->failed;
}

mk_chat_stats chat_stats(const struct chat *chat)
{
    mk_chat_stats s = {.size = sizeof s};
    (void)mk_chat_get_stats(chat->chat, &s, NULL); /* fails for a wrong size alone */
    return s;
}

void chat_put_stats(const struct chat *chat, const mk_chat_stats *s, struct buf *out)
{
    const mk_chat_counts *c = &s->last;
    int64_t n = c->n_prompt - c->n_reused;
    buf_printf(out, "prompt: %lld tokens, %lld reused, %lld evaluated, %.1f tokens/s; ",
               (long long)c->n_prompt, (long long)c->n_reused, (long long)n,
               (double)n / (c->prompt_seconds > 0 ? c->prompt_seconds : 1e-9));
    buf_printf(out, "answer: %lld tokens, %.1f tokens/s; context: %lld of %lld; stopped: %s",
               (long long)c->n_generated,
               (double)c->n_generated / (c->answer_seconds > 0 ? c->answer_seconds : 1e-9),
               (long long)(c->n_prompt + c->n_generated), (long long)mk_package_context_length(chat->package),
               mk_end_name(s->last_end));
}
