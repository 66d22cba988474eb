/* Description against program: names, element types and shapes of inputs, outputs and states.
 *
 * The description is what callers bind by; a difference would otherwise show up as a wrong answer or a
 * refused call long after loading. Classifiers are the exception that must pass: their outputs are made by an
 * op that compiled models no longer hold.
 */
#include <stdio.h>
#include <string.h>
#include "mil/infer.h"
#include "mil/verify.h"

struct checker {
    const struct mil_function *f;
    struct err *e;
};

#define fail(v, ...) mil_verify_fail((v)->f, (v)->e, __VA_ARGS__)

bool mil_verify_fail(const struct mil_function *f, struct err *e, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "function %s: %s", f->name, text);
}

static const struct mil_feature *find_feature(const struct mil_feature *features, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (features[i].name && strcmp(features[i].name, name) == 0)
            return &features[i];
    }
    return NULL;
}

static bool shape_fits(const struct mil_type *t, int rank, const int64_t *shape)
{
    /* A scalar is described as one element. */
    if (t->rank == 0)
        return rank == 0 || (rank == 1 && shape[0] == 1);
    if (rank != t->rank)
        return false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || (t->dims[i] >= 0 && t->dims[i] != shape[i]))
            return false;
    }
    return true;
}

static bool has_open_rank(const struct mil_type *t)
{
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] == MIL_DIM_VARIADIC)
            return true;
    }
    return false;
}

static bool check_dtype(struct checker *c, const char *what, const struct mil_feature *feature,
                        const struct mil_type *t)
{
    if (feature->dtype != MIL_DTYPE_NONE && feature->dtype != t->dtype)
        return fail(c, "%s '%s' is described as %s, the program has %s", what, feature->name,
                    mil_dtype_name(feature->dtype), mil_dtype_name(t->dtype));
    return true;
}

static bool check_shapes(struct checker *c, const char *what, const struct mil_feature *feature,
                         const struct mil_type *t)
{
    char text[160];
    if (has_open_rank(t))
        return true;
    mil_type_text(text, sizeof text, t);
    /* The shape of an output is optional. */
    if (feature->rank > 0 && !shape_fits(t, feature->rank, feature->shape)) {
        struct mil_type shape = {.dtype = feature->dtype, .rank = feature->rank, .dims = feature->shape};
        char described[160];
        mil_type_text(described, sizeof described, &shape);
        return fail(c, "%s '%s' is described as %s, the program has %s", what, feature->name, described,
                    text);
    }
    for (int i = 0; i < feature->n_enumerated; i++) {
        if (!shape_fits(t, feature->enumerated_ranks[i], feature->enumerated[i]))
            return fail(c, "%s '%s': enumerated shape %d does not fit %s", what, feature->name, i, text);
    }
    if (feature->n_ranges > 0 && feature->n_ranges != t->rank)
        return fail(c, "%s '%s' has %d ranges, the program has %s", what, feature->name, feature->n_ranges,
                    text);
    for (int i = 0; i < feature->n_ranges; i++) {
        struct mil_range r = feature->ranges[i];
        bool is_inside =
            r.lower >= 0 && (r.upper < 0 || r.lower <= r.upper) &&
            (t->dims[i] < 0 || (t->dims[i] >= r.lower && (r.upper < 0 || t->dims[i] <= r.upper)));
        if (!is_inside)
            return fail(c, "%s '%s': range %lld to %lld of axis %d does not fit %s", what, feature->name,
                        (long long)r.lower, (long long)r.upper, i, text);
    }
    return true;
}

static bool check_feature(struct checker *c, const char *what, const struct mil_feature *feature,
                          const struct mil_type *type)
{
    const struct mil_type *t = mil_type_tensor(type);
    bool is_state = type->kind == MIL_TYPE_STATE;
    if (is_state != (feature->kind == MIL_FEATURE_STATE))
        return fail(c, "'%s' is %s in the program, but not in the description", feature->name,
                    is_state ? "a state" : "no state");
    /* Images, dictionaries and numbers have no tensor description to compare with. */
    if (feature->kind != MIL_FEATURE_ARRAY && feature->kind != MIL_FEATURE_STATE)
        return true;
    if (!t || t->kind != MIL_TYPE_TENSOR)
        return fail(c, "%s '%s' is described as an array, the program has none", what, feature->name);
    return check_dtype(c, what, feature, t) && check_shapes(c, what, feature, t);
}

/* Every described feature is a function input. */
static bool check_described_inputs(struct checker *c, const char *what, const struct mil_feature *features,
                                   int n)
{
    for (int i = 0; i < n; i++) {
        const struct mil_var *v = NULL;
        if (!features[i].name || find_feature(features, i, features[i].name))
            return fail(c, "%s %d has no name, or the name of another one", what, i);
        for (int k = 0; k < c->f->n_inputs && !v; k++) {
            if (strcmp(c->f->inputs[k]->name, features[i].name) == 0)
                v = c->f->inputs[k];
        }
        if (!v)
            return fail(c, "the description has the %s '%s', the program has not", what, features[i].name);
        if (!check_feature(c, what, &features[i], v->type))
            return false;
    }
    return true;
}

static bool check_inputs(struct checker *c, const struct mil_function_description *d)
{
    for (int i = 0; i < c->f->n_inputs; i++) {
        const struct mil_var *v = c->f->inputs[i];
        bool is_state = v->type->kind == MIL_TYPE_STATE;
        if (!find_feature(is_state ? d->states : d->inputs, is_state ? d->n_states : d->n_inputs, v->name))
            return fail(c, "the program has the %s '%s', the description has not",
                        is_state ? "state" : "input", v->name);
    }
    return check_described_inputs(c, "input", d->inputs, d->n_inputs) &&
           check_described_inputs(c, "state", d->states, d->n_states);
}

static bool check_outputs(struct checker *c, const struct mil_function_description *d)
{
    const struct mil_block *b = c->f->block;
    if (d->predicted_feature_name && d->predicted_feature_name[0])
        return true;
    for (int i = 0; i < b->n_outputs; i++) {
        const struct mil_feature *feature = find_feature(d->outputs, d->n_outputs, b->outputs[i]->name);
        if (!feature)
            return fail(c, "the program has the output '%s', the description has not", b->outputs[i]->name);
        if (!check_feature(c, "output", feature, b->outputs[i]->type))
            return false;
    }
    for (int i = 0; i < d->n_outputs; i++) {
        bool found = false;
        for (int k = 0; k < b->n_outputs && !found; k++)
            found = d->outputs[i].name && strcmp(b->outputs[k]->name, d->outputs[i].name) == 0;
        if (!found)
            return fail(c, "the description has the output '%s', the program has not",
                        d->outputs[i].name ? d->outputs[i].name : "");
    }
    return true;
}

bool mil_verify_description(const struct mil_model *m, struct err *e)
{
    const struct mil_description *d = &m->description;
    if (d->n_functions == 0)
        return true;
    if (!mil_function_find(m, mil_default_function_name(m)))
        return err_set(e, ERR_FORMAT, "the default function '%s' is not in the program",
                       mil_default_function_name(m));
    for (int i = 0; i < d->n_functions; i++) {
        const char *name = d->functions[i].name ? d->functions[i].name : mil_default_function_name(m);
        struct checker c = {mil_function_find(m, name), e};
        if (!c.f)
            return err_set(e, ERR_FORMAT, "the description has the function '%s', the program has not", name);
        if (!check_inputs(&c, &d->functions[i]) || !check_outputs(&c, &d->functions[i]))
            return false;
    }
    for (int i = 0; d->has_functions && i < m->program->n_functions; i++) {
        if (!mil_function_description_find(m, m->program->functions[i]->name))
            return err_set(e, ERR_FORMAT, "the program has the function '%s', the description has not",
                           m->program->functions[i]->name);
    }
    return true;
}
