/* The patterns: which ones there are, and the walks that look for them. */
#include "engine/match.h"

/* By the op from which a pattern is looked for. Those that build on others come in a second walk. */
static const struct {
    enum mil_op_id root;
    pattern_fn find;
    bool is_late;
} patterns[] = {
    {MIL_OP_LAYER_NORM, pattern_rms_norm, false}, {MIL_OP_CONCAT, pattern_rope, false},
    {MIL_OP_SOFTMAX, pattern_attention, false},   {MIL_OP_ADD, pattern_touch, false},
    {MIL_OP_SLICE_UPDATE, pattern_delta, false},  {MIL_OP_WRITE_STATE, pattern_window, false},
    {MIL_OP_TANH, pattern_silu, false},           {MIL_OP_SILU, pattern_silu, false},
    {MIL_OP_CONV, pattern_experts, true},
};

void patterns_find(struct compiler *c)
{
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < c->g.n_ops; i++)
            for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++)
                if (patterns[k].is_late == (late == 1) && c->g.ops[i]->info &&
                    c->g.ops[i]->info->id == patterns[k].root && !c->g.nodes[i].absorbed &&
                    !c->g.nodes[i].fused)
                    patterns[k].find(c, i);
}
