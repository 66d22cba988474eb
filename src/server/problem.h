/* What a client is told when a request can't be answered, apart from the API in whose form it is told. */
#ifndef MILKIT_SERVER_PROBLEM_H
#define MILKIT_SERVER_PROBLEM_H

#include "base/buf.h"
#include "base/err.h"
#include "milkit.h"

struct problem {
    int status;                    /* of HTTP; 0: there is none */
    const char *type;              /* constants: "invalid_request_error", .. */
    const char *code;              /* NULL: none */
    int retry_after_s;             /* 0: trying again does not help */
    long long n_prompt, n_context; /* of a prompt that is too long; else 0 */
    char param[160];               /* the path of a field, or "" */
    char message[1024];
};

/* All return false. */
bool problem_set(struct problem *p, int status, const char *type, const char *code, const char *param,
                 const char *format, ...) PRINTF_LIKE(6, 7);
/* Status 400, code "invalid_value". */
bool problem_value(struct problem *p, const char *param, const char *format, ...) PRINTF_LIKE(3, 4);
/* Status 400 with another code. */
bool problem_bad(struct problem *p, const char *code, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5);
/* Something that the library said; *from is freed. Status 500 where the server is at fault. */
bool problem_take(struct problem *p, const char *param, mk_error *from);
bool problem_model(struct problem *p, const char *model);

/* {"error": {..}}, OpenAI's. */
void problem_put_openai(struct buf *out, const struct problem *p);
/* {"type": "error", ..} */
void problem_put_anthropic(struct buf *out, const struct problem *p, const char *request_id);
/* {"error": "text"} */
void problem_put_ollama(struct buf *out, const struct problem *p);

#endif
