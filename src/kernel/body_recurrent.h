/* The gated delta rule over the sixteen lanes of lanes_*.h: one text for every vector level. Lanes are columns of the
 * state, so every sum runs along its rows in order and no lane meets another. A block of columns stays in the first
 * cache while all tokens pass: updating the state for one token and summing for the next is one walk over it. */

/* Columns walked together: enough independent sums to hide the latency of a fused multiply-add. */
#define DELTA_BLOCK 2

static ALWAYS_INLINE vf delta_load(const float *x, int64_t n)
{
    return n >= 16 ? v_load(x) : v_load_part(x, n);
}

static ALWAYS_INLINE void delta_store(float *y, vf a, int64_t n)
{
    if (n >= 16)
        v_store(y, a);
    else
        v_store_part(y, a, n);
}

static ALWAYS_INLINE float delta_dot(const float *a, const float *b, int64_t n)
{
    vf acc = v_set1(0.0f);
    EACH_SIXTEEN(n, acc = v_fma(v_load(a + i), v_load(b + i), acc),
                 acc = v_fma(v_load_part(a + i, n_tail), v_load_part(b + i, n_tail), acc));
    return v_tree(acc);
}

/* n_columns[j]: 16 or fewer (the last); the state's columns are x[.][16 j ..]. */
static ALWAYS_INLINE void delta_block(const struct gated_delta *p, int64_t column, const int64_t *n_columns,
                                      int n_block)
{
    vf m[DELTA_BLOCK], s[DELTA_BLOCK], delta[DELTA_BLOCK];
    float *state = p->state + column;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const float *k = p->k + t * p->k_stride, *q = p->q + t * p->q_stride;
        if (t == 0) {
            for (int j = 0; j < n_block; j++)
                m[j] = s[j] = v_set1(0.0f);
            for (int64_t r = 0; r < p->d_k; r++) {
                vf kr = v_set1(k[r]), qr = v_set1(q[r]);
                for (int j = 0; j < n_block; j++) {
                    vf x = delta_load(state + r * p->state_stride + 16 * j, n_columns[j]);
                    m[j] = v_fma(kr, x, m[j]);
                    s[j] = v_fma(qr, x, s[j]);
                }
            }
        }
        vf decay = v_exp(v_set1(p->g[t * p->g_stride])), dot = v_set1(delta_dot(q, k, p->d_k));
        vf beta = v_set1(p->beta[t * p->beta_stride]);
        for (int j = 0; j < n_block; j++) {
            vf v = delta_load(p->v + t * p->v_stride + column + 16 * j, n_columns[j]);
            vf memory = v_mul(v_mul(m[j], decay), v_set1(p->inverse_d_k));
            delta[j] = v_mul(v_sub(v, memory), beta);
            vf y = v_mul(v_fma(delta[j], dot, v_mul(s[j], decay)), v_set1(p->scale));
            delta_store(p->y + t * p->y_stride + column + 16 * j, y, n_columns[j]);
            m[j] = s[j] = v_set1(0.0f);
        }
        bool more = t + 1 < p->n_tokens;
        const float *k_next = more ? k + p->k_stride : k, *q_next = more ? q + p->q_stride : q;
        for (int64_t r = 0; r < p->d_k; r++) {
            vf kr = v_set1(k[r]), kn = v_set1(k_next[r]), qn = v_set1(q_next[r]);
            for (int j = 0; j < n_block; j++) {
                float *at = state + r * p->state_stride + 16 * j;
                vf x = v_fma(kr, delta[j], v_mul(delta_load(at, n_columns[j]), decay));
                delta_store(at, x, n_columns[j]);
                m[j] = v_fma(kn, x, m[j]);
                s[j] = v_fma(qn, x, s[j]);
            }
        }
    }
}

static void ISA(k_gated_delta)(const struct gated_delta *p, int64_t begin, int64_t end)
{
    int64_t column = begin;
    static const int64_t full[DELTA_BLOCK] = {16, 16};
    for (; column + 16 * DELTA_BLOCK <= end; column += 16 * DELTA_BLOCK)
        delta_block(p, column, full, DELTA_BLOCK);
    for (; column < end; column += 16) {
        int64_t n = end - column < 16 ? end - column : 16;
        delta_block(p, column, &n, 1);
    }
}
