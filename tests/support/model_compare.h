/* Compares two models member by member and says where they first differ. For round trips: the order of ops,
 * inputs and outputs counts, that of map entries (functions, arguments, attributes) does not, as readers sort
 * them. */
#ifndef MILKIT_TESTS_MODEL_COMPARE_H
#define MILKIT_TESTS_MODEL_COMPARE_H

#include <stdio.h>
#include <string.h>
#include "mil/mil.h"

#define COMPARE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "models differ: ");                                                              \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, " (%s)\n", #condition);                                                          \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

static inline bool text_equal(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static inline bool value_equal(const struct mil_value *a, const struct mil_value *b, const char *where)
{
    COMPARE(a->kind == b->kind, "%s", where);
    COMPARE(mil_type_equal(a->type, b->type), "%s", where);
    COMPARE(a->n_elems == b->n_elems, "%s", where);
    COMPARE(a->bytes == b->bytes, "%s", where);
    COMPARE(a->n_items == b->n_items, "%s", where);
    switch (a->kind) {
    case MIL_VALUE_TENSOR:
        for (int64_t i = 0; a->strings && i < a->n_elems; i++) {
            COMPARE(a->strings[i].n == b->strings[i].n, "%s", where);
            COMPARE(memcmp(a->strings[i].p, b->strings[i].p, a->strings[i].n) == 0, "%s", where);
        }
        COMPARE(a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0, "%s", where);
        break;
    case MIL_VALUE_ITEMS:
        for (int i = 0; i < a->n_items; i++)
            if (!value_equal(a->items[i], b->items[i], where))
                return false;
        break;
    default:
        COMPARE(text_equal(a->file, b->file), "%s", where);
        COMPARE(a->offset == b->offset, "%s", where);
        break;
    }
    return true;
}

static inline bool attributes_equal(const struct mil_named_value *a, int n_a, const struct mil_named_value *b,
                                    int n_b, const char *where)
{
    COMPARE(n_a == n_b, "%s: attributes", where);
    for (int i = 0; i < n_a; i++) {
        COMPARE(text_equal(a[i].name, b[i].name), "%s: attribute %s", where, a[i].name);
        if (!value_equal(a[i].value, b[i].value, where))
            return false;
    }
    return true;
}

static inline bool vars_equal(struct mil_var *const *a, int n_a, struct mil_var *const *b, int n_b,
                              const char *where)
{
    COMPARE(n_a == n_b, "%s: number of variables", where);
    for (int i = 0; i < n_a; i++) {
        COMPARE(text_equal(a[i]->name, b[i]->name), "%s: %s", where, a[i]->name);
        COMPARE(a[i]->id == b[i]->id, "%s: %s", where, a[i]->name);
        COMPARE(mil_type_equal(a[i]->type, b[i]->type), "%s: %s", where, a[i]->name);
    }
    return true;
}

static inline bool block_equal(const struct mil_block *a, const struct mil_block *b, const char *where);

static inline bool op_equal(const struct mil_op *a, const struct mil_op *b, const char *where)
{
    COMPARE(text_equal(a->type, b->type), "%s: op %s", where, a->type);
    COMPARE(a->n_args == b->n_args, "%s: op %s", where, a->type);
    for (int i = 0; i < a->n_args; i++) {
        COMPARE(text_equal(a->args[i].name, b->args[i].name), "%s: op %s", where, a->type);
        COMPARE(a->args[i].n == b->args[i].n, "%s: op %s", where, a->type);
        for (int j = 0; j < a->args[i].n; j++) {
            const struct mil_binding *x = &a->args[i].bindings[j], *y = &b->args[i].bindings[j];
            COMPARE(!x->var == !y->var && !x->value == !y->value, "%s: op %s", where, a->type);
            if (x->var)
                COMPARE(x->var->id == y->var->id, "%s: op %s argument %s", where, a->type, a->args[i].name);
            else if (!value_equal(x->value, y->value, a->args[i].name))
                return false;
        }
    }
    COMPARE(a->n_blocks == b->n_blocks, "%s: op %s", where, a->type);
    for (int i = 0; i < a->n_blocks; i++)
        if (!block_equal(a->blocks[i], b->blocks[i], a->type))
            return false;
    return vars_equal(a->outputs, a->n_outputs, b->outputs, b->n_outputs, where) &&
           attributes_equal(a->attributes, a->n_attributes, b->attributes, b->n_attributes, where);
}

static inline bool block_equal(const struct mil_block *a, const struct mil_block *b, const char *where)
{
    COMPARE(a->n_ops == b->n_ops, "%s", where);
    for (int i = 0; i < a->n_ops; i++)
        if (!op_equal(a->ops[i], b->ops[i], where))
            return false;
    return vars_equal(a->inputs, a->n_inputs, b->inputs, b->n_inputs, where) &&
           vars_equal(a->outputs, a->n_outputs, b->outputs, b->n_outputs, where) &&
           attributes_equal(a->attributes, a->n_attributes, b->attributes, b->n_attributes, where);
}

static inline bool program_equal(const struct mil_program *a, const struct mil_program *b)
{
    COMPARE(a->version == b->version, "program");
    COMPARE(text_equal(a->doc, b->doc), "program");
    COMPARE(a->n_functions == b->n_functions, "program");
    for (int i = 0; i < a->n_functions; i++) {
        const struct mil_function *f = a->functions[i], *g = b->functions[i];
        COMPARE(text_equal(f->name, g->name), "function %s", f->name);
        COMPARE(text_equal(f->opset, g->opset), "function %s", f->name);
        COMPARE(f->n_vars == g->n_vars, "function %s", f->name);
        if (!vars_equal(f->inputs, f->n_inputs, g->inputs, g->n_inputs, f->name) ||
            !attributes_equal(f->attributes, f->n_attributes, g->attributes, g->n_attributes, f->name) ||
            !block_equal(f->block, g->block, f->name))
            return false;
    }
    return attributes_equal(a->attributes, a->n_attributes, b->attributes, b->n_attributes, "program");
}

static inline bool features_equal(const struct mil_feature *a, int n_a, const struct mil_feature *b, int n_b,
                                  const char *where)
{
    COMPARE(n_a == n_b, "%s", where);
    for (int i = 0; i < n_a; i++) {
        const struct mil_feature *x = &a[i], *y = &b[i];
        COMPARE(text_equal(x->name, y->name) && text_equal(x->short_description, y->short_description), "%s",
                x->name);
        COMPARE(x->kind == y->kind && x->is_optional == y->is_optional && x->dtype == y->dtype, "%s",
                x->name);
        COMPARE(x->rank == y->rank && x->n_enumerated == y->n_enumerated && x->n_ranges == y->n_ranges, "%s",
                x->name);
        COMPARE(x->dict_key_is_int64 == y->dict_key_is_int64, "%s", x->name);
        for (int j = 0; j < x->rank; j++)
            COMPARE(x->shape[j] == y->shape[j], "%s", x->name);
        for (int j = 0; j < x->n_ranges; j++)
            COMPARE(x->ranges[j].lower == y->ranges[j].lower && x->ranges[j].upper == y->ranges[j].upper,
                    "%s", x->name);
        for (int j = 0; j < x->n_enumerated; j++) {
            COMPARE(x->enumerated_ranks[j] == y->enumerated_ranks[j], "%s", x->name);
            for (int k = 0; k < x->enumerated_ranks[j]; k++)
                COMPARE(x->enumerated[j][k] == y->enumerated[j][k], "%s", x->name);
        }
    }
    return true;
}

static inline bool description_equal(const struct mil_description *a, const struct mil_description *b)
{
    COMPARE(a->has_functions == b->has_functions && a->n_functions == b->n_functions, "description");
    COMPARE(text_equal(a->default_function_name, b->default_function_name), "description");
    for (int i = 0; i < a->n_functions; i++) {
        const struct mil_function_description *f = &a->functions[i], *g = &b->functions[i];
        COMPARE(text_equal(f->name, g->name), "description");
        COMPARE(text_equal(f->predicted_feature_name, g->predicted_feature_name), "description");
        COMPARE(text_equal(f->predicted_probabilities_name, g->predicted_probabilities_name), "description");
        if (!features_equal(f->inputs, f->n_inputs, g->inputs, g->n_inputs, "inputs") ||
            !features_equal(f->outputs, f->n_outputs, g->outputs, g->n_outputs, "outputs") ||
            !features_equal(f->states, f->n_states, g->states, g->n_states, "states"))
            return false;
    }
    COMPARE(text_equal(a->short_description, b->short_description) && text_equal(a->version, b->version),
            "metadata");
    COMPARE(text_equal(a->author, b->author) && text_equal(a->license, b->license), "metadata");
    COMPARE(a->n_user_defined == b->n_user_defined, "metadata");
    for (int i = 0; i < a->n_user_defined; i++)
        COMPARE(text_equal(a->user_defined[i].key, b->user_defined[i].key) &&
                    text_equal(a->user_defined[i].value, b->user_defined[i].value),
                "metadata");
    return true;
}

static inline bool model_equal(const struct mil_model *a, const struct mil_model *b)
{
    COMPARE(a->specification_version == b->specification_version, "model");
    COMPARE(a->is_updatable == b->is_updatable, "model");
    return description_equal(&a->description, &b->description) && program_equal(a->program, b->program);
}

#undef COMPARE
#endif
