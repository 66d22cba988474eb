/* Shared by the files that read safetensors; internal to format. */
#ifndef MILKIT_FORMAT_SAFETENSORS_INTERNAL_H
#define MILKIT_FORMAT_SAFETENSORS_INTERNAL_H

#include "format/gguf_model.h"
#include "format/safetensors.h"

struct st_metadata {
    const char *key, *value;
    const struct st_metadata *next;
};

/* What a name stands for. */
struct st_name {
    int i_tensor;    /* -1: nothing that can be read */
    const char *why; /* it can't be read; NULL where it can */
};

/* What callers see comes first; the rest is what keeps it alive. */
struct st_open_set {
    struct safetensors s;
    struct arena *arena;
    struct table *by_name; /* struct st_name */
    struct map_file **maps;
    int n_maps;
    size_t capacity; /* of s.tensors */
    const struct st_metadata *metadata, **metadata_end;
    struct gguf *gguf; /* NULL: no GGUF file */
    struct gguf_model *gguf_model;
};

/* Adds the tensors of a file, all or none. */
bool st_add_path(struct st_open_set *set, const char *path, struct err *e) MUST_CHECK;

/* safetensors_index.c: adds the shards of an index; what can't be read is noted in s.absent. */
bool st_open_index(struct st_open_set *set, const char *index, struct err *e) MUST_CHECK;
/* The file of a checkpoint folder to open, a heap string, or NULL. *has_index: model.safetensors is it, and there
 * is an index beside it. */
char *st_find_in_folder(const char *folder, bool *has_index, struct err *e);

/* A tensor that a GGUF file holds otherwise than a checkpoint: in blocks, with rows in another order, or with 1 added. */
struct st_packed {
    const struct gguf_block_type *type;
    int64_t columns;
    int64_t permuted_dim; /* size of the heads whose rows are reordered; 0: none are */
    bool is_shifted;
};
/* n elements from `begin` on, exact as the file means them. */
void st_load_packed(const struct st_tensor *t, int64_t begin, int64_t n, float *dst);
/* Adds the tensors of a GGUF file by the names that they have in a checkpoint. */
bool st_add_gguf(struct st_open_set *set, const char *path, struct err *e) MUST_CHECK;
/* Gives the tensors from `first` on their names in the set. */
void st_add_names(struct st_open_set *set, int first);
struct st_tensor *st_next_slot(struct st_open_set *set);

/* Finds the scales of F8_E4M3 tensors among the others. */
void st_link_scales(struct safetensors *s);
/* n elements from `begin` on of an F8_E4M3 tensor with scales, as doubles, exact. */
void st_load_f8(const struct st_tensor *t, int64_t begin, int64_t n, double *dst);

#endif
