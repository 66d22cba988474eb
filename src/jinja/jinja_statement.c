/* Statements: output, assignments, loops, blocks; and the entry points of a rendering. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "format/json.h"
#include "jinja/jinja_internal.h"

static void at_node(struct jinja *j, const struct node *n)
{
    j->line = n->line;
    j->column = n->column;
}

/* --- assignment --- */

void assign_target(struct jinja *j, const struct node *target, struct value v)
{
    if (target->kind == NODE_NAME) {
        scope_put(j, j->scope, target->name, v);
        return;
    }
    if (target->kind == NODE_NAMESPACE_TARGET) {
        struct value space = eval_node(j, target->a);
        at_node(j, target);
        if (space.type != VALUE_NAMESPACE)
            jinja_type_error(j, "cannot assign attribute on non-namespace object");
        dict_put(j, space.dict, text_value(target->name), v);
        return;
    }
    struct iteration it;
    struct value item;
    at_node(j, target);
    if (!value_is_iterable(v))
        jinja_type_error(j, "cannot unpack non-iterable %s object", value_type_name(v));
    iterate_begin(j, &it, v);
    size_t n = 0;
    struct value *items = jinja_alloc(j, target->list.n, sizeof *items);
    for (; n < target->list.n && iterate_next(j, &it, &item); n++)
        items[n] = item;
    if (n < target->list.n)
        jinja_type_error(j, "not enough values to unpack (expected %zu, got %zu)", target->list.n, n);
    if (iterate_next(j, &it, &item))
        jinja_type_error(j, "too many values to unpack (expected %zu)", target->list.n);
    frame_enter(j);
    for (size_t i = 0; i < n; i++)
        assign_target(j, target->list.p[i], items[i]);
    frame_leave(j);
}

/* --- loops --- */

struct loop {
    const struct node *node;
    struct scope *parent;
    struct value iterable;
    struct iteration it;
    struct scope *condition_scope;
    struct list *rest; /* what is left, when the length was asked for though nothing knew it */
    size_t rest_at;
    int64_t index0, length; /* length -1: not known yet */
    int depth0;
    struct value before, current, after; /* after: looked at early; MISSING when not */
    struct list *changed;
};

static bool loop_fetch(struct jinja *j, struct loop *l, struct value *out)
{
    if (l->rest) {
        if (l->rest_at >= l->rest->n)
            return false;
        *out = l->rest->items[l->rest_at++];
        return true;
    }
    while (iterate_next(j, &l->it, out)) {
        if (!l->node->c)
            return true;
        struct scope *scope = j->scope;
        int line = j->line, column = j->column;
        j->scope = l->condition_scope;
        assign_target(j, l->node->a, *out);
        bool is_wanted = value_is_true(j, eval_node(j, l->node->c));
        j->scope = scope;
        j->line = line;
        j->column = column;
        if (is_wanted)
            return true;
    }
    return false;
}

static bool loop_peek(struct jinja *j, struct loop *l)
{
    struct value item;
    if (l->after.type == VALUE_MISSING && loop_fetch(j, l, &item))
        l->after = item;
    return l->after.type != VALUE_MISSING;
}

size_t loop_length(struct jinja *j, struct loop *l)
{
    if (l->length < 0) {
        struct list *rest = list_new(j, 0);
        struct value item;
        while (loop_fetch(j, l, &item))
            list_push(j, rest, item);
        l->rest = rest;
        l->rest_at = 0;
        l->length = (int64_t)rest->n + l->index0 + 1 + (l->after.type != VALUE_MISSING);
    }
    return (size_t)l->length;
}

void loop_print(struct jinja *j, struct builder *b, struct loop *l)
{
    char line[80];
    int64_t length = (int64_t)loop_length(j, l);
    snprintf(line, sizeof line, "<LoopContext %lld/%lld>", (long long)l->index0 + 1, (long long)length);
    builder_puts(j, b, line);
}

static struct value loop_cycle(struct jinja *j, struct value self, const struct call_args *a)
{
    if (a->n == 0)
        jinja_type_error(j, "no items for cycling given");
    return a->positional[self.loop->index0 % (int64_t)a->n];
}

static struct value loop_changed(struct jinja *j, struct value self, const struct call_args *a)
{
    struct list *now = list_new(j, a->n);
    for (size_t i = 0; i < a->n; i++)
        list_push(j, now, a->positional[i]);
    struct list *before = self.loop->changed;
    bool is_same = before && value_equal(j, value_tuple(before), value_tuple(now));
    self.loop->changed = now;
    return value_bool(!is_same);
}

struct value loop_attribute(struct jinja *j, struct loop *l, const struct text *name)
{
    static const struct builtin cycle = {"cycle", loop_cycle}, changed = {"changed", loop_changed};
    struct value self = {.type = VALUE_LOOP, .loop = l};
    if (text_is(name, "index0"))
        return value_int(l->index0);
    if (text_is(name, "index"))
        return value_int(l->index0 + 1);
    if (text_is(name, "first"))
        return value_bool(l->index0 == 0);
    if (text_is(name, "last"))
        return value_bool(!loop_peek(j, l));
    if (text_is(name, "length"))
        return value_int((int64_t)loop_length(j, l));
    if (text_is(name, "revindex"))
        return value_int((int64_t)loop_length(j, l) - l->index0);
    if (text_is(name, "revindex0"))
        return value_int((int64_t)loop_length(j, l) - l->index0 - 1);
    if (text_is(name, "depth"))
        return value_int(l->depth0 + 1);
    if (text_is(name, "depth0"))
        return value_int(l->depth0);
    if (text_is(name, "previtem"))
        return l->index0 == 0 ? value_undefined_hint(j, "there is no previous item") : l->before;
    if (text_is(name, "nextitem"))
        return loop_peek(j, l) ? l->after : value_undefined_hint(j, "there is no next item");
    if (text_is(name, "cycle"))
        return function_value(j, &cycle, self);
    if (text_is(name, "changed"))
        return function_value(j, &changed, self);
    return (struct value){0};
}

static void loop_advance(struct loop *l, struct value item)
{
    l->index0++;
    l->before = l->current;
    l->current = item;
    l->after = (struct value){0};
}

/* j->scope is the scope around the loop. */
static void run_loop(struct jinja *j, const struct node *n, struct value items, int depth0)
{
    const struct text *loop_name = table_get(j->t->names, "loop");
    struct loop *l = JINJA_NEW(j, struct loop);
    struct scope *outer = j->scope, *body = NULL;
    l->node = n;
    l->parent = outer;
    l->iterable = items;
    l->index0 = -1;
    l->depth0 = depth0;
    l->length = n->c ? -1 : value_length(items);
    l->condition_scope = n->c ? scope_new(j, outer) : NULL;
    iterate_begin(j, &l->it, items);
    bool any = false;
    for (;;) {
        struct value item = l->after;
        if (item.type == VALUE_MISSING && !loop_fetch(j, l, &item))
            break;
        loop_advance(l, item);
        if (!body || body->is_captured)
            body = scope_new(j, outer);
        body->n = 0;
        scope_hide(j, body, &n->hidden);
        j->scope = body;
        if (loop_name)
            scope_put(j, body, loop_name, (struct value){.type = VALUE_LOOP, .loop = l});
        assign_target(j, n->a, item);
        enum flow flow = exec_list(j, &n->body);
        j->scope = outer;
        if (flow == FLOW_BREAK)
            break;
        any |= flow == FLOW_ON; /* an iteration that was left early does not keep "else" away, as in Jinja */
    }
    if (!any && n->other.n > 0) {
        j->scope = scope_new(j, outer);
        scope_hide(j, j->scope, &n->hidden_other);
        (void)exec_list(j, &n->other);
        j->scope = outer;
    }
}

struct value loop_call(struct jinja *j, struct loop *l, struct value items)
{
    if (!l->node->is_recursive)
        jinja_type_error(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (++j->n_calls > JINJA_MAX_CALLS)
        jinja_fail(j, ERR_LIMIT, "macros and recursive loops nested more than %d deep", JINJA_MAX_CALLS);
    struct scope *scope = j->scope;
    struct builder *out = j->out;
    j->scope = l->parent;
    j->out = builder_begin(j);
    run_loop(j, l->node, items, l->depth0 + 1);
    struct value v = builder_finish(j, j->out);
    j->out = out;
    j->scope = scope;
    j->n_calls--;
    return v;
}

/* --- the other statements --- */

static enum flow exec_if(struct jinja *j, const struct node *n)
{
    for (size_t i = 0; i < n->list.n; i++)
        if (value_is_true(j, eval_node(j, n->list.p[i])))
            return exec_list(j, &n->branches[i]);
    return exec_list(j, &n->other);
}

/* Runs the body in a scope of its own and returns what it printed. */
static struct value capture(struct jinja *j, const struct node *n, enum flow *flow)
{
    struct builder *out = j->out;
    struct scope *scope = j->scope;
    j->scope = scope_new(j, scope);
    scope_hide(j, j->scope, &n->hidden);
    j->out = builder_begin(j);
    *flow = exec_list(j, &n->body);
    struct value v = builder_finish(j, j->out);
    j->out = out;
    j->scope = scope;
    return v;
}

/* The filters of {% filter a|b %} and {% set x | a | b %}, innermost first. */
static struct value filter_chain(struct jinja *j, const struct node *n, struct value v)
{
    if (!n)
        return v;
    frame_enter(j);
    v = filter_chain(j, n->a, v);
    frame_leave(j);
    return eval_filter(j, n, v);
}

static struct value macro_value(struct jinja *j, const struct node *n)
{
    struct macro *m = JINJA_NEW(j, struct macro);
    m->definition = n->macro;
    m->scope = j->scope;
    scope_capture(j->scope);
    return (struct value){.type = VALUE_MACRO, .macro = m};
}

static enum flow exec_with(struct jinja *j, const struct node *n)
{
    struct scope *outer = j->scope, *inner = scope_new(j, outer);
    scope_hide(j, inner, &n->hidden);
    for (size_t i = 0; i + 1 < n->list.n; i += 2) {
        struct value v = eval_node(j, n->list.p[i + 1]);
        j->scope = inner;
        assign_target(j, n->list.p[i], v);
        j->scope = outer;
    }
    j->scope = inner;
    enum flow flow = exec_list(j, &n->body);
    j->scope = outer;
    return flow;
}

static enum flow exec_scope(struct jinja *j, const struct node *n)
{
    struct scope *outer = j->scope;
    j->scope = scope_new(j, n->name ? j->top_level : outer); /* a named block sees no loop around it */
    scope_hide(j, j->scope, &n->hidden);
    (void)exec_list(j, &n->body);
    j->scope = outer;
    return FLOW_ON;
}

static void exec_output(struct jinja *j, const struct node *n)
{
    for (size_t i = 0; i < n->list.n; i++) {
        struct value v = eval_node(j, n->list.p[i]);
        at_node(j, n);
        builder_put_value(j, j->out, v);
    }
}

static enum flow exec(struct jinja *j, const struct node *n)
{
    struct value v;
    enum flow flow = FLOW_ON;
    at_node(j, n);
    switch (n->kind) {
    case NODE_TEXT:
        builder_put_text(j, j->out, n->constant.text);
        break;
    case NODE_OUTPUT:
        exec_output(j, n);
        break;
    case NODE_FOR:
        v = eval_node(j, n->b);
        at_node(j, n);
        run_loop(j, n, v, 0);
        break;
    case NODE_IF:
        return exec_if(j, n);
    case NODE_SET:
        v = eval_node(j, n->b);
        assign_target(j, n->a, v);
        break;
    case NODE_SET_BLOCK:
        v = capture(j, n, &flow);
        if (flow == FLOW_ON)
            assign_target(j, n->a, filter_chain(j, n->b, v));
        break;
    case NODE_MACRO:
        scope_put(j, j->scope, n->name, macro_value(j, n));
        break;
    case NODE_CALL_BLOCK: {
        struct value caller = macro_value(j, n);
        v = eval_call(j, n->a, &caller);
        builder_put_value(j, j->out, v);
        break;
    }
    case NODE_FILTER_BLOCK:
        v = capture(j, n, &flow);
        if (flow == FLOW_ON)
            builder_put_value(j, j->out, filter_chain(j, n->a, v));
        break;
    case NODE_WITH:
        return exec_with(j, n);
    case NODE_SCOPE:
        return exec_scope(j, n);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jinja_fail(j, ERR_BUG, "an expression where a statement should be");
    }
    return flow;
}

enum flow exec_list(struct jinja *j, const struct node_list *l)
{
    enum flow flow = FLOW_ON;
    frame_enter(j);
    for (size_t i = 0; i < l->n && flow == FLOW_ON; i++) {
        jinja_charge(j, 1);
        flow = exec(j, l->p[i]);
    }
    frame_leave(j);
    return flow;
}

/* --- a run --- */

static void put_variable(struct jinja *j, const struct text *name, struct value v)
{
    char key[256];
    if (name->n >= sizeof key)
        return;
    memcpy(key, name->p, name->n);
    key[name->n] = '\0';
    const struct text *interned = strlen(key) == name->n ? table_get(j->t->names, key) : NULL;
    if (interned) /* else the template never asks for it */
        scope_put(j, j->root, interned, v);
}

/* See decode_path of struct jinja_variable. Depth is bounded by the path. */
static void decode_at(struct jinja *j, struct value *v, const char *path, bool is_user)
{
    size_t n = strcspn(path, ".");
    if (n == 0) {
        cJSON *tree = NULL;
        size_t at = 0;
        if (v->type != VALUE_STRING)
            return;
        while (at < v->text->n && strchr(" \t\r\n", v->text->p[at]))
            at++;
        if (at == v->text->n || v->text->p[at] != '{' || !json_parse(&tree, v->text->p, v->text->n, "", NULL))
            return; /* not an object: the template sees the string */
        cJSON_Delete(tree);
        *v = json_to_value(j, (struct str){v->text->p, v->text->n}, is_user, "arguments");
        return;
    }
    const char *rest = path + n + (path[n] == '.');
    jinja_charge(j, 1);
    if (path[0] == '*' && v->type == VALUE_LIST) {
        for (size_t i = 0; i < v->list->n; i++)
            decode_at(j, &v->list->items[i], rest, is_user);
    } else if (v->type == VALUE_DICT) {
        struct value *member = dict_find_text(j, v->dict, text_wrap(j, path, n, false).text);
        if (member)
            decode_at(j, member, rest, is_user);
    }
}

static void define_variables(struct jinja *j, const struct jinja_variable *variables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct jinja_variable *x = &variables[i];
        struct value v = json_to_value(j, x->json, x->is_user, x->name ? x->name : "options");
        if (x->decode_path)
            decode_at(j, &v, x->decode_path, x->is_user);
        if (x->name) {
            put_variable(j, text_wrap(j, x->name, strlen(x->name), false).text, v);
            continue;
        }
        if (v.type != VALUE_DICT)
            jinja_fail(j, ERR_FORMAT, "options: expected an object, found '%s'", value_type_name(v));
        for (size_t k = 0; k < v.dict->n; k++)
            put_variable(j, v.dict->entries[k].key.text, v.dict->entries[k].value);
    }
}

static void take_output(struct jinja *j, struct jinja_output *out)
{
    const struct builder *b = j->out;
    out->bytes = b->n;
    out->text = xmalloc(b->n + 1);
    if (b->n > 0)
        memcpy(out->text, b->p, b->n);
    out->text[b->n] = '\0';
    out->parts = xcalloc(b->n_marks, sizeof *out->parts);
    out->n_parts = b->n_marks;
    for (size_t i = 0; i < b->n_marks; i++)
        out->parts[i] =
            (struct jinja_part){i ? b->marks[i - 1].end : 0, b->marks[i].end, b->marks[i].is_user};
}

bool jinja_render(const struct jinja_template *t, const struct jinja_variable *variables, size_t n,
                  const struct jinja_options *options, struct jinja_output *out, struct err *e)
{
    static const struct jinja_options none;
    const struct jinja_options *o = options ? options : &none;
    *out = (struct jinja_output){0};
    struct jinja *j = xcalloc(1, sizeof *j);
    j->e = e;
    j->where = t->where;
    j->t = t;
    j->now = o->now;
    j->steps_left = o->max_steps > 0 ? o->max_steps : JINJA_MAX_STEPS;
    j->max_output_bytes = o->max_output_bytes ? o->max_output_bytes : JINJA_MAX_OUTPUT_BYTES;
    if (j->max_output_bytes > UINT32_MAX / 2)
        j->max_output_bytes = UINT32_MAX / 2; /* strings have 32-bit lengths */
    j->max_builder_bytes = o->max_arena_bytes ? o->max_arena_bytes : JINJA_MAX_ARENA_BYTES;
    j->arena = arena_new(j->max_builder_bytes);
    if (getrandom(&j->seed, sizeof j->seed, GRND_NONBLOCK) != (ssize_t)sizeof j->seed)
        j->seed = (uint64_t)(uintptr_t)j;
    bool ok = setjmp(j->leave) == 0;
    if (ok) {
        j->scope = j->root = scope_new(j, NULL);
        define_globals(j);
        define_variables(j, variables, n);
        j->scope = j->top_level = scope_new(j, j->root);
        scope_hide(j, j->scope, &t->hidden);
        j->out = builder_begin(j);
        (void)exec_list(j, &t->body);
        take_output(j, out);
    }
    out->raised = j->raised;
    jinja_free_builders(j);
    arena_free(j->arena);
    free(j);
    return ok;
}

void jinja_output_free(struct jinja_output *o)
{
    free(o->text);
    free(o->parts);
    free(o->raised);
    *o = (struct jinja_output){0};
}
