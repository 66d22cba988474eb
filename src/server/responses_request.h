/* Requests of OpenAI's /v1/responses as chat requests. */
#ifndef MILKIT_SERVER_RESPONSES_REQUEST_H
#define MILKIT_SERVER_RESPONSES_REQUEST_H

#include "format/json.h"
#include "server/problem.h"

/* NULL: *p says why not. Freed by the caller. */
cJSON *responses_request_convert(const cJSON *root, struct problem *p);
/* The members of an answer that repeat the request, as JSON, each behind a comma. */
void responses_request_put(struct buf *out, const cJSON *root);

#endif
