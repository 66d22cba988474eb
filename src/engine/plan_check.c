/* What holds of every plan, whatever the program was: operands lie inside their storages, are written before they are
 * read and live as long as they are looked at; nothing is written to constants and inputs; storages that live together
 * have memory apart; states and inputs are those of the plan. Run after each compilation in the builds that check
 * invariants. */
#include <stdlib.h>
#include "engine/plan.h"

struct checker {
    const struct engine_plan *p;
    bool *is_written; /* [n_storages]: by a step before */
    int step;         /* that is looked at; n_steps: the function's results */
    struct err *e;
};

static bool broken(const struct checker *k, const char *what, int storage)
{
    const struct step *s = k->step < k->p->n_steps ? &k->p->steps[k->step] : NULL;
    return err_set(k->e, ERR_BUG, "function %s: step %d (%s): storage %d: %s", k->p->function, k->step,
                   s && s->name ? s->name : "results", storage, what);
}

static size_t repr_bytes(enum repr repr)
{
    return repr == REPR_F16 ? 2 : 4;
}

/* Every element of the value lies inside its storage. */
static bool is_inside(const struct value *v, const struct storage *s)
{
    int64_t first = v->offset, last = v->offset;
    for (int i = 0; i < v->rank; i++) {
        int64_t reach;
        if (v->dims[i] == 0)
            return true;
        if (__builtin_mul_overflow(v->dims[i] - 1, v->strides[i], &reach) ||
            __builtin_add_overflow(reach < 0 ? first : last, reach, reach < 0 ? &first : &last))
            return false;
    }
    return first >= 0 && last < s->n_elems;
}

static bool check_value(const struct checker *k, const struct value *v)
{
    if (v->storage < 0 || v->storage >= k->p->n_storages)
        return broken(k, "is not one of the plan", v->storage);
    const struct storage *s = &k->p->storages[v->storage];
    if (v->rank < 0 || v->rank > MIL_RANK_MAX)
        return broken(k, "an operand of impossible rank", v->storage);
    for (int i = 0; i < v->rank; i++)
        if (v->dims[i] < 0)
            return broken(k, "an operand with a negative dimension", v->storage);
    if (v->repr != s->repr)
        return broken(k, "an operand of another representation", v->storage);
    if (!is_inside(v, s))
        return broken(k, "an operand reaches outside", v->storage);
    if (s->kind == STORAGE_ARENA && (s->first_step < 0 || k->step < s->first_step || k->step > s->last_step))
        return broken(k, "is looked at outside its life", v->storage);
    return s->kind != STORAGE_STATE || k->p->states[s->index].is_used ||
           broken(k, "of a state that is not marked as used", v->storage);
}

static bool check_read(const struct checker *k, const struct value *v)
{
    return check_value(k, v) &&
           (k->p->storages[v->storage].kind != STORAGE_ARENA || value_elems(v) == 0 ||
            k->is_written[v->storage] || broken(k, "is read before it is written", v->storage));
}

static bool check_written(const struct checker *k, const struct value *v)
{
    if (!check_value(k, v))
        return false;
    enum storage_kind kind = k->p->storages[v->storage].kind;
    k->is_written[v->storage] = true;
    return kind == STORAGE_ARENA || kind == STORAGE_STATE ||
           broken(k, "a constant or an input is written", v->storage);
}

static bool check_step(const struct checker *k)
{
    const struct step *s = &k->p->steps[k->step];
    if (!s->run || !s->name)
        return broken(k, "a step without a function or a name", -1);
    if (s->n_in < 0 || s->n_in > STEP_OPERANDS || s->n_out < 0 || s->n_out > STEP_OPERANDS || s->n_more < 0 ||
        (s->n_more > 0 && !s->more))
        return broken(k, "a step with an impossible number of operands", -1);
    if (s->scratch_bytes > k->p->scratch_bytes)
        return broken(k, "a step needs more scratch memory than the plan has", -1);
    for (int i = 0; i < s->n_in; i++)
        if (!check_read(k, &s->in[i]))
            return false;
    for (int i = 0; i < s->n_out; i++)
        if (!check_written(k, &s->out[i]))
            return false;
    for (int i = 0; i < s->n_more; i++)
        if (!(s->more_written ? check_written(k, &s->more[i]) : check_read(k, &s->more[i])))
            return false;
    return true;
}

static bool check_storage(const struct checker *k, int i)
{
    const struct storage *s = &k->p->storages[i];
    const struct engine_plan *p = k->p;
    switch (s->kind) {
    case STORAGE_ARENA:
        return s->first_step < 0 ||
               (s->offset <= p->arena_bytes &&
                (size_t)s->n_elems * repr_bytes(s->repr) <= p->arena_bytes - s->offset) ||
               broken(k, "reaches outside the arena", i);
    case STORAGE_CONST:
        return s->data || s->n_elems == 0 || broken(k, "a constant without data", i);
    case STORAGE_STATE:
        return (s->index >= 0 && s->index < p->n_states && p->states[s->index].n_elems == s->n_elems &&
                p->states[s->index].repr == s->repr) ||
               broken(k, "is not the state that it names", i);
    case STORAGE_INPUT:
        return (s->index >= 0 && s->index < p->n_inputs && p->inputs[s->index].n_elems == s->n_elems) ||
               broken(k, "is not the input that it names", i);
    }
    return broken(k, "of an unknown kind", i);
}

static int by_first(const void *a, const void *b, void *context)
{
    const struct engine_plan *p = context;
    int x = p->storages[*(const int *)a].first_step, y = p->storages[*(const int *)b].first_step;
    return x != y ? (x < y ? -1 : 1) : 0;
}

/* By the begin of life, each against those that still live. */
static bool check_apart(struct checker *k, int *order, int n, int *alive)
{
    const struct storage *all = k->p->storages;
    int n_alive = 0;
    qsort_r(order, (size_t)n, sizeof *order, by_first, (void *)(uintptr_t)k->p);
    for (int i = 0; i < n; i++) {
        const struct storage *s = &all[order[i]];
        size_t end = s->offset + (size_t)s->n_elems * repr_bytes(s->repr);
        int kept = 0;
        for (int j = 0; j < n_alive; j++) {
            const struct storage *other = &all[alive[j]];
            if (other->last_step < s->first_step)
                continue;
            alive[kept++] = alive[j];
            if (s->offset < other->offset + (size_t)other->n_elems * repr_bytes(other->repr) &&
                other->offset < end) {
                k->step = s->first_step;
                return broken(k, "shares memory with another that lives", order[i]);
            }
        }
        n_alive = kept;
        alive[n_alive++] = order[i];
    }
    return true;
}

bool plan_check(const struct engine_plan *p, struct err *e)
{
    size_t n_storages = (size_t)p->n_storages + 1;
    struct checker k = {.p = p, .is_written = xcalloc(n_storages, sizeof(bool)), .e = e};
    int *order = xcalloc(n_storages, sizeof *order), *alive = xcalloc(n_storages, sizeof *alive), n = 0;
    bool ok = true;
    k.step = p->n_steps;
    for (int i = 0; ok && i < p->n_storages; i++) {
        ok = check_storage(&k, i);
        if (p->storages[i].kind == STORAGE_ARENA && p->storages[i].first_step >= 0)
            order[n++] = i;
    }
    for (k.step = 0; ok && k.step < p->n_steps; k.step++)
        ok = check_step(&k);
    for (int i = 0; ok && i < p->n_outputs; i++) {
        const struct value *v = &p->out_values[i];
        ok = check_read(&k, v) && ((p->storages[v->storage].kind == STORAGE_ARENA && is_dense(v) &&
                                    value_elems(v) == p->outputs[i].n_elems) ||
                                   broken(&k, "a result that is not a dense value of the arena", v->storage));
    }
    ok = ok && check_apart(&k, order, n, alive);
    free(k.is_written);
    free(order);
    free(alive);
    return ok;
}
