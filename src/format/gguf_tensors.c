/* The tensors of a GGUF file as those of a checkpoint: by its names, heads of q and k in its order of rows, norms without the
 * 1 that Gemma's writer adds, one matrix an expert. Nothing is converted here: reading does it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "format/checkpoint.h"
#include "format/safetensors_internal.h"

#define PATH_BYTES 4096

/* ---- reading ---- */

/* The row of the file that holds row `row` of the checkpoint: the two halves of a head lie in turns there. */
static int64_t row_in_file(int64_t row, int64_t head_dim)
{
    int64_t head = row / head_dim, inside = row % head_dim, half = head_dim / 2;
    return head * head_dim + 2 * (inside % half) + inside / half;
}

void st_load_packed(const struct st_tensor *t, int64_t begin, int64_t n, float *dst)
{
    const struct st_packed *p = t->packed;
    if (p->permuted_dim == 0)
        gguf_expand(p->type, t->data, begin, n, dst);
    for (int64_t done = 0; p->permuted_dim > 0 && done < n;) {
        int64_t row = (begin + done) / p->columns, column = (begin + done) % p->columns;
        int64_t run = p->columns - column < n - done ? p->columns - column : n - done;
        gguf_expand(p->type, t->data, row_in_file(row, p->permuted_dim) * p->columns + column, run,
                    dst + done);
        done += run;
    }
    for (int64_t i = 0; p->is_shifted && i < n; i++)
        dst[i] -= 1.0f;
}

/* ---- adding ---- */

static enum st_dtype plain_dtype(uint32_t type)
{
    return type == GGUF_TYPE_F32    ? ST_F32
           : type == GGUF_TYPE_F16  ? ST_F16
           : type == GGUF_TYPE_BF16 ? ST_BF16
                                    : ST_PACKED;
}

/* Matrix i of n that the tensor packs along its last axis. */
static void add_tensor(struct st_open_set *set, const struct gguf_tensor *g, const char *name,
                       const struct gguf_role *role, int64_t i, int64_t n)
{
    struct st_tensor *t = st_next_slot(set);
    const struct gguf_block_type *type = gguf_block_type(g->type);
    int rank = g->rank;
    while (rank > 1 && g->ne[rank - 1] == 1)
        rank--;
    rank -= n > 1;
    t->name = arena_strdup(set->arena, name);
    t->file = g->file;
    t->dtype = !type->expand ? ST_UNKNOWN : plain_dtype(g->type);
    t->dtype_name = type->name;
    t->rank = rank;
    for (int axis = 0; axis < rank; axis++)
        t->shape[axis] = g->ne[rank - 1 - axis];
    t->n_elems = g->n_elems / n;
    t->bytes = g->bytes / (size_t)n;
    t->data = g->data + (size_t)i * t->bytes;
    if (t->dtype == ST_PACKED || (type->expand && (role->permuted_dim > 0 || role->is_shifted))) {
        struct st_packed *p = ARENA_NEW(set->arena, struct st_packed);
        *p = (struct st_packed){.type = type,
                                .columns = rank > 1 ? t->shape[rank - 1] : 1,
                                .permuted_dim = role->permuted_dim,
                                .is_shifted = role->is_shifted};
        t->packed = p;
        t->dtype = ST_PACKED;
    }
    set->s.n_tensors++;
}

static void add_role(struct st_open_set *set, const struct gguf_tensor *g)
{
    struct gguf_role role;
    char name[160];
    bool is_known = gguf_model_role(set->gguf_model, g, &role);
    if (!is_known)
        role = (struct gguf_role){0};
    int64_t n = role.is_experts ? set->gguf_model->n_experts : 1;
    for (int64_t i = 0; i < n; i++) {
        if (role.is_experts)
            gguf_expert_name(name, role.name, i);
        add_tensor(set, g, !is_known ? g->name : role.is_experts ? name : role.name, &role, i, n);
    }
}

bool st_add_gguf(struct st_open_set *set, const char *path, struct err *e)
{
    char target[PATH_BYTES];
    int first = set->s.n_tensors;
    /* A link of a folder that was made for one file: followed here, so that the other files of a model in several are
     * looked for beside the file, and messages name it. */
    ssize_t n = has_suffix(path, "/" CHECKPOINT_GGUF) ? readlink(path, target, sizeof target - 1) : -1;
    if (n > 0) {
        target[n] = '\0';
        path = target;
    }
    if (!gguf_open(&set->gguf, path, e) || !gguf_model_open(&set->gguf_model, set->gguf, e))
        return false;
    for (int i = 0; i < set->gguf->n_tensors; i++)
        add_role(set, &set->gguf->tensors[i]);
    st_add_names(set, first);
    return true;
}
