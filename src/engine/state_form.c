/* How the states of a package are held: as float32 (recurrent ones) or as declared. One decision for all functions and
 * files that share a state (engine.h says by what), from one walk over each function. */
#include <stdlib.h>
#include <string.h>
#include "engine/compiler.h"

/* What some function does with a state. */
enum {
    FORM_PLACED = 1,   /* rows are written at a position that is not known before the run */
    FORM_WINDOW = 2,   /* a part of it, as it is, is joined with other values */
    FORM_PRODUCT = 4,  /* a part of it, as it is, is an operand of a product */
    FORM_COMPUTED = 8, /* a part of it is an operand of arithmetic */
};

struct engine_state_forms {
    struct arena *arena;
    struct table *flags; /* by the name of the state: unsigned */
};

struct engine_state_forms *engine_state_forms_new(void)
{
    struct engine_state_forms *s = xcalloc(1, sizeof *s);
    s->arena = arena_new(0);
    s->flags = table_new();
    return s;
}

void engine_state_forms_free(struct engine_state_forms *s)
{
    if (!s)
        return;
    table_free(s->flags);
    arena_free(s->arena);
    free(s);
}

static unsigned *flags_of(struct engine_state_forms *s, const char *name)
{
    unsigned *flags = table_get(s->flags, name);
    if (flags)
        return flags;
    flags = ARENA_NEW(s->arena, unsigned);
    (void)table_put(s->flags, name, flags); /* it was not there */
    return flags;
}

/* What is known of a variable in the walk. */
struct seen {
    unsigned *part; /* flags of the state that it is a part of, as it is; NULL: none */
    bool is_known;  /* before the run */
    bool is_placed; /* has rows at a position that is not known */
};

struct walk {
    struct engine_state_forms *forms;
    struct seen *seen; /* [n_vars] */
};

static const struct seen *argument(const struct walk *w, const struct mil_op *op, const char *name)
{
    static const struct seen constant = {.is_known = true};
    const struct mil_var *v = mil_arg_var(op, name);
    return v ? &w->seen[v->id] : &constant;
}

static bool is_zero(const struct mil_op *op, const char *name)
{
    double d;
    return mil_value_float(mil_arg_value(op, name), &d) && d == 0;
}

/* What the op does with parts of states that it takes. A product with 0 is the look at one element by which a program
 * touches a state that it does not use. */
static unsigned use_of(const struct mil_op *op)
{
    switch (op->info ? op->info->id : MIL_OP_NONE) {
    case MIL_OP_CONCAT:
    case MIL_OP_STACK:
        return FORM_WINDOW;
    case MIL_OP_MATMUL:
    case MIL_OP_LINEAR:
    case MIL_OP_CONV:
    case MIL_OP_EINSUM:
    case MIL_OP_SCALED_DOT_PRODUCT_ATTENTION:
        return FORM_PRODUCT;
    case MIL_OP_SELECT:
    case MIL_OP_SLICE_UPDATE:
    case MIL_OP_WRITE_STATE:
    case MIL_OP_GATHER:
    case MIL_OP_GATHER_ALONG_AXIS:
        return 0;
    case MIL_OP_MUL:
        return is_zero(op, "x") || is_zero(op, "y") ? 0 : FORM_COMPUTED;
    default:
        return FORM_COMPUTED;
    }
}

static void walk_op(struct walk *w, const struct mil_op *op)
{
    struct seen result = {.is_known = true};
    bool is_view = op_is_view(op), is_read = mil_op_is(op, "read_state");
    const struct mil_var *state = mil_arg_var(op, "input");
    for (int k = 0; k < op->n_args; k++)
        for (int i = 0; i < op->args[k].n; i++) {
            const struct mil_var *v = op->args[k].bindings[i].var;
            const struct seen *s = v ? &w->seen[v->id] : NULL;
            if (!s)
                continue;
            if (s->part && !is_view && !is_read)
                *s->part |= use_of(op);
            result.is_known = result.is_known && s->is_known;
        }
    switch (op->info ? op->info->id : MIL_OP_NONE) {
    case MIL_OP_READ_STATE:
        if (state && state->type->kind == MIL_TYPE_STATE)
            result.part = flags_of(w->forms, state->name);
        result.is_known = false;
        break;
    case MIL_OP_SLICE_UPDATE:
        result.is_placed = !argument(w, op, "begin")->is_known || argument(w, op, "x")->is_placed ||
                           argument(w, op, "update")->is_placed;
        break;
    case MIL_OP_SELECT:
        result.is_placed = argument(w, op, "a")->is_placed || argument(w, op, "b")->is_placed;
        break;
    case MIL_OP_WRITE_STATE:
        if (state && state->type->kind == MIL_TYPE_STATE && argument(w, op, "data")->is_placed)
            *flags_of(w->forms, state->name) |= FORM_PLACED;
        break;
    default:
        if (!is_view)
            break;
        result.is_placed = argument(w, op, "x")->is_placed;
        result.part = argument(w, op, "x")->part;
        break;
    }
    for (int i = 0; i < op->n_outputs; i++)
        w->seen[op->outputs[i]->id] = result;
}

void engine_state_forms_add(struct engine_state_forms *s, const struct mil_model *m)
{
    for (int i = 0; m->program && i < m->program->n_functions; i++) {
        const struct mil_function *f = m->program->functions[i];
        struct arena *a = arena_new(0);
        struct walk w = {.forms = s, .seen = ARENA_ARRAY(a, struct seen, f->n_vars + 1)};
        for (int k = 0; k < f->block->n_ops; k++)
            walk_op(&w, f->block->ops[k]);
        arena_free(a);
    }
}

bool engine_state_is_recurrent(const struct engine_state_forms *s, const char *name)
{
    const unsigned *flags = table_get(s->flags, name);
    if (!flags || (*flags & FORM_PLACED))
        return false;
    bool is_cache = (*flags & FORM_WINDOW) && (*flags & FORM_PRODUCT);
    return !is_cache && (*flags & (FORM_WINDOW | FORM_COMPUTED)) != 0;
}
