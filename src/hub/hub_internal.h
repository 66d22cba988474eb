/* What the files of this folder share: names and places, the list of files, libraries, transfers. */
#ifndef MILKIT_HUB_HUB_INTERNAL_H
#define MILKIT_HUB_HUB_INTERNAL_H

/* The checks of curl_easy_setopt's arguments belong to the function, not to a pointer to it. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <openssl/evp.h>
#include "hub/hub.h"

#define HUB_CONFIG "config.json"
#define HUB_INDEX "model.safetensors.index.json"
#define HUB_INDEX_BYTES_MAX ((size_t)64 << 20)

/* ---- names and places (cache.c) ---- */

struct hub_name {
    char *organization, *model; /* heap, as all here */
    char *revision;             /* "main" where none was given */
    char *tag;                  /* behind ':', or NULL */
    char *folder;               /* models--org--name in the cache */
};
/* False where the text is not such a name. */
bool hub_name_parse(struct hub_name *out, const char *text);
void hub_name_free(struct hub_name *n);
/* A variable of the environment that is set and not empty, else NULL. */
const char *hub_variable(const char *name);
/* May a file of a repository have this name, as a path below a snapshot: relative, no part that leads elsewhere or that a
 * terminal obeys? */
bool hub_is_file_name(const char *name);
/* 40 (SHA-1) or 64 (SHA-256) lower case hexadecimal digits. */
bool hub_is_hex(const char *s, size_t n);
/* The snapshot of the name's revision, heap; NULL: not in the cache. */
char *hub_snapshot(const struct hub_name *n);
/* Does base (of a path) end with ".gguf" and hold tag, in letters of any case? */
bool hub_is_tagged(const char *file, const char *tag);
/* What the user means by the name: the snapshot; with a tag, or where it holds nothing but GGUF files, the (first) such
 * file. Heap; NULL: no file of the tag. */
char *hub_entry(const char *snapshot, const char *tag);
/* Has the snapshot a configuration and all weights that it speaks of? */
bool hub_is_complete(const char *snapshot, const char *tag);

/* ---- what a repository holds (listing.c) ---- */

struct hub_file {
    const char *path; /* "model.safetensors"; checked by hub_is_file_name */
    const char *
        digest; /* hexadecimal: SHA-256 of the bytes (is_large), else SHA-1 as git makes it of a blob; names the
                           file among the cache's blobs */
    int64_t bytes;
    bool is_large;
    bool is_wanted;
};
struct hub_listing {
    struct arena *arena; /* owns what follows */
    const char *commit;
    struct hub_file *files; /* [n_files] */
    int n_files;
};
/* Reads the hub's answer about a revision. where: for messages. */
bool hub_listing_read(struct hub_listing *out, const char *text, size_t bytes, const char *where,
                      struct err *e) MUST_CHECK;
void hub_listing_free(struct hub_listing *l);
struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path);
/* Marks what a checkpoint needs beside its weights; *index: the index of the shards where there is one, else NULL. */
void hub_want_settings(struct hub_listing *l, struct hub_file **index);
/* Marks the weights. index: the text of the shards' index, NULL where there is none. */
bool hub_want_weights(struct hub_listing *l, const char *index, size_t index_bytes, const char *name,
                      struct err *e) MUST_CHECK;
/* Marks the GGUF files of a tag, or those that a glob takes, and nothing else. */
bool hub_want_tagged(struct hub_listing *l, const char *tag, const char *name, struct err *e) MUST_CHECK;
bool hub_want_glob(struct hub_listing *l, const char *glob, const char *name, struct err *e) MUST_CHECK;

/* ---- libraries (libraries.c) ---- */

/* libcurl and libcrypto, loaded when a download begins: they and what they bring would double the time in which a program
 * starts that never downloads anything. */
struct hub_libraries {
    void *curl, *crypto; /* handles of dlopen */
#define HUB_CURL(F)                                                                                          \
    F(curl_global_init)                                                                                      \
    F(curl_easy_init)                                                                                        \
    F(curl_easy_setopt)                                                                                      \
    F(curl_easy_getinfo)                                                                                     \
    F(curl_easy_strerror)                                                                                    \
    F(curl_easy_cleanup)                                                                                     \
    F(curl_slist_append)                                                                                     \
    F(curl_slist_free_all)                                                                                   \
    F(curl_multi_init)                                                                                       \
    F(curl_multi_add_handle)                                                                                 \
    F(curl_multi_remove_handle)                                                                              \
    F(curl_multi_perform)                                                                                    \
    F(curl_multi_poll)                                                                                       \
    F(curl_multi_info_read)                                                                                  \
    F(curl_multi_cleanup)
#define HUB_CRYPTO(F)                                                                                        \
    F(EVP_MD_CTX_new)                                                                                        \
    F(EVP_MD_CTX_free)                                                                                       \
    F(EVP_sha1)                                                                                              \
    F(EVP_sha256)                                                                                            \
    F(EVP_DigestInit_ex)                                                                                     \
    F(EVP_DigestUpdate)                                                                                      \
    F(EVP_DigestFinal_ex)
#define HUB_POINTER(name) __typeof__(name) *name;
    HUB_CURL(HUB_POINTER)
    HUB_CRYPTO(HUB_POINTER)
#undef HUB_POINTER
};
bool hub_libraries_load(struct hub_libraries *l, struct err *e) MUST_CHECK;

/* ---- transfers (transfer.c) ---- */

struct hub_server {
    struct hub_libraries libraries;
    const char *endpoint; /* "https://huggingface.co", without a slash at the end */
    const char *token;    /* NULL: none, or not over this connection */
    char *token_text;     /* heap: a token from a file */
    char *endpoint_text;  /* heap */
    long stall_s;         /* seconds without a byte after which a connection is given up */
    struct log *log;
};

/* One address to one file, or into memory. */
struct hub_transfer {
    char *url;          /* heap */
    const char *what;   /* "config.json", for messages */
    const char *part;   /* path of the file that grows; what is there already is kept. NULL: into text */
    const char *digest; /* as of hub_file; NULL: not checked */
    int64_t bytes;      /* of the whole; -1: unknown */
    bool is_large;
    struct buf text;
};
/* Runs transfers, at most n_at_once at a time; ends at the first that fails for good. progress may be NULL; its count is of
 * bytes, first_bytes of them done before. Frees nothing. */
bool hub_transfer_all(const struct hub_server *s, struct hub_transfer *t, int n, int n_at_once,
                      struct progress *progress, int64_t first_bytes, struct err *e) MUST_CHECK;

#endif
