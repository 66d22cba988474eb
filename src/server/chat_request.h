/* A chat request, from OpenAI's form to a job: what the chat APIs share. The others bring their requests into this form first. */
#ifndef MILKIT_SERVER_CHAT_REQUEST_H
#define MILKIT_SERVER_CHAT_REQUEST_H

#include "server/server_internal.h"

/* body: the text of root. The ask is begun, whatever comes out, and the caller ends it. */
bool chat_request_read(struct server *s, const cJSON *root, struct str body, struct ask *a,
                       struct problem *p) MUST_CHECK;
/* The same of a body that was made of another interface's. */
bool chat_request_read_made(struct server *s, const cJSON *root, struct ask *a, struct problem *p) MUST_CHECK;

#endif
