/* Checkpoints by name: org/name in the local Hugging Face cache, and their download into it.
 *
 * The cache is the one that other programs share (docs/hub.md): what they have downloaded is found here, and what is
 * downloaded here is found by them. Nothing outside it is written, whatever names a server sends.
 */
#ifndef MILKIT_HUB_HUB_H
#define MILKIT_HUB_HUB_H

#include "base/file.h"
#include "base/log.h"

/* Can this be the name of a checkpoint: "org/name", "org/name@revision" (a branch, a tag or a commit), each with
 * ":TAG" behind it for the GGUF files whose names hold TAG, and no file or folder of this name is there? */
bool hub_is_name(const char *name);

/* Does HF_HUB_OFFLINE keep everybody from the network? */
bool hub_is_offline(void);

/* What exists as a path is that path. Else a name becomes the snapshot's folder in the cache, with ":TAG" the (first) GGUF
 * file in it: the revision is main when not given, the cache HF_HUB_CACHE, else HF_HOME/hub, else
 * XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Other texts are returned as they are, for the
 * caller to find nothing there. *out is heap. ERR_IO when the name is not in the cache, with the place looked in. */
bool hub_resolve(char **out, const char *name, struct err *e) MUST_CHECK;

/* What a download is going to be, for whoever must agree to it. */
struct hub_plan {
    const char *name;   /* "org/name" */
    const char *commit; /* 40 hexadecimal digits */
    const char *cache;  /* the model's folder in the cache */
    int n_files, n_missing;
    int64_t bytes, missing_bytes; /* of all files; of what is not there yet */
};

struct hub_pull_options {
    /* A glob (fnmatch) over the names of files: these and no others. NULL: what a checkpoint needs, that is configuration,
     * tokenizer, templates and safetensors, or the one GGUF file of a repository without safetensors. */
    const char *files;
    int n_transfers; /* at once; 0: 4 */
    /* Does an incomplete snapshot that an earlier run left count as missing? False: the server is asked in any case, for
     * what the revision is now. */
    bool only_if_incomplete;
    /* Asked once, before the weights come, where something is missing; false ends the pull with ERR_CANCELLED.
     * NULL: go on. */
    bool (*confirm)(void *context, const struct hub_plan *plan);
    void *context;
    struct log *log; /* messages, progress, the wish to stop */
};

/* Downloads a checkpoint, or what is missing of it; *out as by hub_resolve (heap). The variables HF_ENDPOINT, HF_TOKEN,
 * HF_TOKEN_PATH, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT (seconds without a byte) and curl's own for proxies are
 * obeyed. An interrupted download goes on where it ended. Every file has the size and the checksum that the hub lists, or is
 * not in the snapshot. No message holds a token or the query of an address.
 * ERR_USAGE: name is not one; ERR_IO: network, server, disk; ERR_UNSUPPORTED: the repository has no weights that can be read;
 * ERR_MISMATCH: other bytes than listed, twice; ERR_FORMAT: the server's answers make no sense. */
bool hub_pull(char **out, const char *name, const struct hub_pull_options *o, struct err *e) MUST_CHECK;

#endif
