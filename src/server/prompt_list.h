/* "prompt" in all its forms: a text, ids, a mix of both, or an array of such. */
#ifndef MILKIT_SERVER_PROMPT_LIST_H
#define MILKIT_SERVER_PROMPT_LIST_H

#include "server/ask.h"

/* How many prompts the request has; 0 with a problem. */
int prompt_list_count(const struct fields *f);
/* Sets the ask's prompt to the i-th. */
bool prompt_list_set(struct ask *a, const struct fields *f, int i) MUST_CHECK;
/* ids of a text or of an array that mixes texts and ids, on the heap. flags: MK_SPECIAL, of the first text. */
bool prompt_list_tokens(struct ask *a, const struct fields *f, const char *key, const cJSON *item,
                        uint32_t flags, int32_t **ids, size_t *n) MUST_CHECK;

#endif
