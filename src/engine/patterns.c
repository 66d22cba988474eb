/* The patterns: which ones there are, and the walks that look for them. */
#include "engine/match.h"

enum when { EARLY, LATE };

static const struct {
    enum mil_op_id root;
    pattern_fn find;
    enum when when;
} patterns[] = {
#define PATTERN(name, root, when) {MIL_OP_##root, pattern_##name, when},
#include "engine/patterns.def"
#undef PATTERN
};

void patterns_find(struct compiler *c)
{
    for (int when = EARLY; when <= LATE; when++)
        for (int i = 0; i < c->g.n_ops; i++)
            for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++)
                if ((int)patterns[k].when == when && c->g.ops[i]->info &&
                    c->g.ops[i]->info->id == patterns[k].root && !c->g.nodes[i].absorbed &&
                    !c->g.nodes[i].fused)
                    patterns[k].find(c, i);
}
