/* Norm weights: gains, or gains minus one. Nothing in a file says which, and both are fine numbers, so a wrong reading
 * gives a package that runs and talks nonsense. The numbers tell: trained gains are positive and around 1, gains minus
 * one have both signs and are around 0. Families hand over the norms in front of attention and MLP of all layers; those of
 * heads and the final one stray too far to tell. */
#include "arch/family.h"
#include <string.h>

/* Between 0 and 1, and as far from 1 on the other side: there the 1 was added twice. */
#define AROUND_ONE_MIN 0.5
#define AROUND_ONE_MAX 1.5
#define NEGATIVE_MAX 0.05 /* share of negative numbers among gains */

static bool are_gains(const struct st_spread *s)
{
    return s->median > AROUND_ONE_MIN && s->negative <= NEGATIVE_MAX;
}

/* Behind what is noted already. */
static void add_note(struct arch_model *m, const char *note)
{
    m->note = m->note ? arena_printf(m->arena, "%s; %s", m->note, note) : note;
}

bool arch_check_gains(struct arch_model *m, const char *what, const struct st_tensor *const *norms, int64_t n,
                      struct err *e)
{
    struct st_spread s;
    if (!st_spread(norms, n, &s, e))
        return false;
    /* Gains of all sizes are taken; only what has both signs around 0 looks like something else. */
    if (n > 0 && s.median <= AROUND_ONE_MIN / 2 && s.negative > 5 * NEGATIVE_MAX)
        add_note(m, arena_printf(
                        m->arena,
                        "%s: %s are around 0 (median %.2f, %.0f %% negative) and are taken as gains, as %s "
                        "stores them; a file with gains minus one would give nonsense",
                        m->tensors->path, what, s.median, 100 * s.negative, m->family->name));
    return true;
}

bool arch_check_layer_norms(struct arch_model *m, const struct st_tensor *const *first, size_t layer_bytes,
                            struct err *e)
{
    const struct st_tensor **norms = ARENA_ARRAY(m->arena, const struct st_tensor *, 2 * m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        const struct st_tensor *const *tensors =
            (const struct st_tensor *const *)((const char *)first + (size_t)i * layer_bytes);
        norms[2 * i] = tensors[DECODER_INPUT_NORM];
        norms[2 * i + 1] = tensors[DECODER_MLP_NORM];
    }
    return arch_check_gains(m, "the layers' norm weights", norms, 2 * m->n_layers, e);
}

bool arch_read_centred(struct arch_model *m, const struct st_tensor *const *norms, int64_t n,
                       bool is_mlx_layout, bool *holds_one, struct err *e)
{
    const char *format = safetensors_metadata(m->tensors, "format");
    bool is_mlx = is_mlx_layout || (format && strcmp(format, "mlx") == 0);
    struct st_spread s;
    if (!st_spread(norms, n, &s, e))
        return false;
    *holds_one = are_gains(&s);
    if (*holds_one && s.median < AROUND_ONE_MAX && is_mlx) {
        add_note(m, arena_printf(
                        m->arena,
                        "%s: written for MLX: norm weights hold the 1 already (median %.2f) and are taken as "
                        "they are",
                        m->tensors->path, s.median));
        return true;
    }
    if (*holds_one)
        return err_set(
            e, ERR_FORMAT,
            "%s: the layers' norm weights are around %.2f, where %s stores them minus one, around 0; %s; "
            "convert the published checkpoint",
            m->tensors->path, s.median, m->family->name,
            is_mlx ? "MLX adds the 1, but here it was added twice"
                   : "files for MLX hold the 1, but this one does not say that it is one");
    return !is_mlx_layout || err_set(e, ERR_FORMAT,
                                     "%s: conv1d has MLX's layout, but the layers' norm weights are around "
                                     "%.2f, where MLX has 1 added "
                                     "to them; convert the published checkpoint",
                                     m->tensors->path, s.median);
}
