/* Messages as text: names of roles, and what a message has besides its content. */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "chat/conversation.h"
#include "format/json.h"

void conversation_put_member(struct buf *out, const char *key, const char *text, size_t n)
{
    buf_printf(out, ", \"%s\": ", key);
    json_put_string(out, text, n);
}

const char *conversation_role_name(enum message_role role)
{
    static const char *const names[] = {"user", "assistant", "tool"};
    return names[role];
}

void conversation_put_more(const struct message *m, struct buf *out)
{
    if (m->calls) {
        buf_puts(out, ", \"tool_calls\": ");
        buf_puts(out, m->calls);
    }
    if (m->name)
        conversation_put_member(out, "name", m->name, strlen(m->name));
    if (m->call_id)
        conversation_put_member(out, "tool_call_id", m->call_id, strlen(m->call_id));
}
