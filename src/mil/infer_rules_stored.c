/* Result rules of stored weights. */
#include "mil/infer_rules.h"

bool infer_rule_GATHER_ALONG(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_GATHER_ND(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_EINSUM(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONV_TRANSPOSE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_POOL(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_REDUCE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_REDUCE_ARG(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_ATTENTION(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_PAD(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_ONE_HOT(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_TOPK(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_ARGSORT(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_RANGE_1D(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_FILL(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_FILL_LIKE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_SHAPE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_NON_ZERO(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_FLATTEN2D(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_DEPTH_TO_SPACE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_SPACE_TO_DEPTH(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_PIXEL_SHUFFLE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_PIXEL_UNSHUFFLE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_SLIDING_WINDOWS(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_AFFINE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_LUT(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_SPARSE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_CAST(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_BLOCK(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_LUT_SPARSE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_CONSTEXPR_BLOCK_SPARSE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}

bool infer_rule_UPSAMPLE(struct infer *in)
{
    return infer_rule_DECLARED(in);
}
