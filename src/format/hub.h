/* Checkpoints by name: org/name in the local Hugging Face cache. Nothing is downloaded. */
#ifndef MILKIT_FORMAT_HUB_H
#define MILKIT_FORMAT_HUB_H

#include "base/file.h"

/* What exists as a path is that path. Else "org/name" or "org/name@revision" (a branch, a tag or a commit; main
 * when not given) becomes the snapshot's folder in the cache: HF_HUB_CACHE, else HF_HOME/hub, else
 * XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Other texts are returned as they are, for the
 * caller to find nothing there. *out is heap. ERR_IO when the name is not in the cache, with the place looked in. */
bool hub_resolve(char **out, const char *name, struct err *e) MUST_CHECK;

#endif
