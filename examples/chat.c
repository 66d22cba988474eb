/* Talks with a package, a line at a time: chat PACKAGE [SYSTEM MESSAGE] < lines */
#include <milkit.h>
#include <stdio.h>
#include <string.h>

static bool show(void *context, const mk_chat_event *event)
{
    bool *thinks = (bool *)context;
    switch (event->kind) {
    case MK_CHAT_REASONING:
        *thinks = true;
        break;
    case MK_CHAT_CONTENT:
        if (*thinks)
            fputs("(thought about it) ", stdout);
        *thinks = false;
        fwrite(event->text, 1, event->n, stdout);
        break;
    case MK_CHAT_TOOL_CALL:
        printf("[%s %.*s]", event->name, (int)event->n, event->text);
        break;
    case MK_CHAT_END:
        printf("\n[%s: %lld tokens, %lld of the prompt's %lld known]\n", mk_end_name(event->end),
               (long long)event->n_generated, (long long)event->n_reused, (long long)event->n_prompt);
        break;
    }
    return fflush(stdout) == 0; /* false would stop the answer */
}

int main(int argc, char **argv)
{
    mk_library *library = NULL;
    mk_package *package = NULL;
    mk_chat *chat = NULL;
    mk_error *e = NULL;
    char line[4096];
    bool thinks = false;
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: chat PACKAGE [SYSTEM MESSAGE]\n");
        return MK_USAGE;
    }
    if (mk_library_open(&library, NULL, &e) || mk_package_open(&package, library, argv[1], NULL, &e) ||
        mk_chat_new(&chat, package, "{\"max_tokens\": 40, \"sampling\": {\"seed\": 7}}", &e)) {
        fprintf(stderr, "chat: %s\n", mk_error_message(e));
    } else {
        mk_chat_set_system(chat, argc == 3 ? argv[2] : NULL);
        while (!e && fgets(line, sizeof line, stdin))
            if (mk_chat_say(chat, line, strcspn(line, "\n"), show, &thinks, NULL, &e))
                fprintf(stderr, "chat: %s\n", mk_error_message(e));
    }
    mk_chat_free(chat);
    mk_package_close(package);
    mk_library_close(library);
    int status = (int)mk_error_status(e);
    mk_error_free(e);
    return status;
}
