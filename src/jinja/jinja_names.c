/* Which names a frame hides at its begin: Jinja decides statically where a name lives.
 *
 * A frame is the template, a macro's or loop's body, or another body with a scope of its own. A name that a frame
 * assigns without having read it before, and that no frame around knows, is undefined from the frame's begin on, even
 * where a variable of the rendering has that name; inner frames see it that way too. Assigned in an "if" only, it
 * starts as what is outside. Everything else is found at run time by walking the scopes outwards.
 */
#include "jinja/jinja_internal.h"

enum load { LOAD_NONE, LOAD_OUTSIDE, LOAD_PARAMETER, LOAD_UNDEFINED };

struct symbol {
    const struct text *name; /* NULL: free slot */
    enum load load;
    bool is_stored;
};

struct symbols { /* of a frame, or of a frame as a branch of an "if" leaves it */
    const struct symbols *parent;
    struct symbol *slots; /* [n_slots], open addressing, at most half full */
    size_t n_slots, n_used;
};

static void *scratch_alloc(struct jinja *j, size_t n, size_t bytes)
{
    struct arena *kept = j->arena;
    j->arena = j->scratch;
    void *p = jinja_alloc(j, n, bytes);
    j->arena = kept;
    return p;
}

static struct symbol *find_slot(const struct symbols *s, const struct text *name)
{
    size_t mask = s->n_slots - 1, at = ((uintptr_t)name >> 4) * 0x9e3779b97f4a7c15u >> 20 & mask;
    while (s->slots[at].name && s->slots[at].name != name)
        at = (at + 1) & mask;
    return &s->slots[at];
}

static struct symbol *find_symbol(const struct symbols *s, const struct text *name)
{
    struct symbol *slot = s->n_slots > 0 ? find_slot(s, name) : NULL;
    return slot && slot->name ? slot : NULL;
}

static bool is_known_outside(const struct symbols *s, const struct text *name)
{
    for (s = s->parent; s; s = s->parent)
        if (find_symbol(s, name))
            return true;
    return false;
}

static struct symbol *put_symbol(struct jinja *j, struct symbols *s, const struct text *name)
{
    if (s->n_slots <= s->n_used * 2) {
        struct symbols grown = {.n_slots = s->n_slots ? s->n_slots * 2 : 16};
        grown.slots = scratch_alloc(j, grown.n_slots, sizeof *grown.slots);
        for (size_t i = 0; i < s->n_slots; i++)
            if (s->slots[i].name)
                *find_slot(&grown, s->slots[i].name) = s->slots[i];
        s->slots = grown.slots;
        s->n_slots = grown.n_slots;
    }
    struct symbol *slot = find_slot(s, name);
    if (!slot->name) {
        slot->name = name;
        s->n_used++;
    }
    return slot;
}

static void load_name(struct jinja *j, struct symbols *s, const struct text *name)
{
    if (!find_symbol(s, name) && !is_known_outside(s, name))
        put_symbol(j, s, name)->load = LOAD_OUTSIDE;
}

static void store_name(struct jinja *j, struct symbols *s, const struct text *name, bool is_parameter)
{
    struct symbol *symbol = put_symbol(j, s, name);
    symbol->is_stored = true;
    if (is_parameter)
        symbol->load = LOAD_PARAMETER;
    else if (symbol->load == LOAD_NONE)
        symbol->load = is_known_outside(s, name) ? LOAD_OUTSIDE : LOAD_UNDEFINED;
}

/* --- walking over a frame's own code --- */

static void visit(struct jinja *j, struct symbols *s, const struct node *n);

static void visit_list(struct jinja *j, struct symbols *s, const struct node_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        visit(j, s, l->p[i]);
}

static void visit_target(struct jinja *j, struct symbols *s, const struct node *n, bool is_parameter)
{
    if (n->kind == NODE_NAME)
        store_name(j, s, n->name, is_parameter);
    else if (n->kind == NODE_NAMESPACE_TARGET)
        load_name(j, s, n->a->name);
    else
        for (size_t i = 0; i < n->list.n; i++)
            visit_target(j, s, n->list.p[i], is_parameter);
}

static void visit_arguments(struct jinja *j, struct symbols *s, const struct argument_nodes *a)
{
    if (!a)
        return;
    visit_list(j, s, &a->positional);
    visit_list(j, s, &a->named);
    visit(j, s, a->more_positional);
    visit(j, s, a->more_named);
}

static struct symbols branch_symbols(struct jinja *j, const struct symbols *s, const struct node_list *body)
{
    struct symbols branch = *s;
    if (s->n_slots > 0) {
        branch.slots = scratch_alloc(j, s->n_slots, sizeof *branch.slots);
        memcpy(branch.slots, s->slots, s->n_slots * sizeof *branch.slots);
    }
    visit_list(j, &branch, body);
    return branch;
}

/* What one branch stores may be unset behind the "if", and is then what it is outside. */
static void merge_branch(struct jinja *j, struct symbols *s, const struct symbols *branch)
{
    for (size_t i = 0; i < branch->n_slots; i++) {
        const struct symbol *from = &branch->slots[i];
        if (!from->name)
            continue;
        struct symbol *to = put_symbol(j, s, from->name);
        if (to->load == LOAD_NONE)
            to->load = from->load;
        if (from->is_stored && !to->is_stored) {
            to->is_stored = true;
            to->load = LOAD_OUTSIDE;
        }
    }
}

static void visit_if(struct jinja *j, struct symbols *s, const struct node *n)
{
    /* all branches start from what was before the first; tests of later ones are read in between, as in Jinja */
    struct symbols before = *s;
    visit_list(j, &before, &n->list);
    for (size_t i = 0; i < n->list.n; i++) {
        struct symbols branch = branch_symbols(j, &before, &n->branches[i]);
        merge_branch(j, s, &branch);
    }
    struct symbols branch = branch_symbols(j, &before, &n->other);
    merge_branch(j, s, &branch);
}

static void visit(struct jinja *j, struct symbols *s, const struct node *n)
{
    if (!n)
        return;
    switch (n->kind) {
    case NODE_NAME:
        load_name(j, s, n->name);
        break;
    case NODE_FOR:
        visit(j, s, n->b);
        break;
    case NODE_IF:
        visit_if(j, s, n);
        break;
    case NODE_SET:
        visit(j, s, n->b);
        visit_target(j, s, n->a, false);
        break;
    case NODE_SET_BLOCK:
        visit_target(j, s, n->a, false);
        break;
    case NODE_MACRO:
        store_name(j, s, n->name, false);
        break;
    case NODE_CALL_BLOCK:
    case NODE_FILTER_BLOCK:
        visit(j, s, n->a);
        break;
    case NODE_WITH:
        for (size_t i = 1; i < n->list.n; i += 2)
            visit(j, s, n->list.p[i]);
        break;
    case NODE_SCOPE:
        break;
    default:
        visit(j, s, n->a);
        visit(j, s, n->b);
        visit(j, s, n->c);
        visit_list(j, s, &n->list);
        visit_arguments(j, s, n->arguments);
        break;
    }
}

/* --- frames --- */

static void find_frames(struct jinja *j, const struct symbols *s, const struct node_list *l);

/* body was visited: collects what it hides, and goes on to the frames inside. */
static void end_frame(struct jinja *j, const struct symbols *s, const struct node_list *body,
                      struct name_list *hidden)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].name && s->slots[i].load == LOAD_UNDEFINED;
    if (n > 0) {
        hidden->p = jinja_alloc(j, n, sizeof *hidden->p);
        for (size_t i = 0; i < s->n_slots; i++)
            if (s->slots[i].name && s->slots[i].load == LOAD_UNDEFINED)
                hidden->p[hidden->n++] = s->slots[i].name;
    }
    find_frames(j, s, body);
}

static void frame(struct jinja *j, const struct symbols *parent, const struct node_list *body,
                  struct name_list *hidden)
{
    struct symbols s = {.parent = parent};
    visit_list(j, &s, body);
    end_frame(j, &s, body, hidden);
}

static void loop_frames(struct jinja *j, const struct symbols *parent, struct node *n)
{
    struct symbols s = {.parent = parent};
    visit_target(j, &s, n->a, true);
    visit_list(j, &s, &n->body);
    end_frame(j, &s, &n->body, &n->hidden);
    frame(j, parent, &n->other, &n->hidden_other);
}

static void macro_frame(struct jinja *j, const struct symbols *parent, struct macro_definition *m)
{
    struct symbols s = {.parent = parent};
    for (size_t i = 0; i < m->n_parameters; i++)
        store_name(j, &s, m->parameters[i], true);
    visit_list(j, &s, &m->defaults);
    visit_list(j, &s, &m->body);
    end_frame(j, &s, &m->body, &m->hidden);
}

static void with_frame(struct jinja *j, const struct symbols *parent, struct node *n)
{
    struct symbols s = {.parent = parent};
    for (size_t i = 0; i < n->list.n; i += 2)
        visit_target(j, &s, n->list.p[i], true);
    visit_list(j, &s, &n->body);
    end_frame(j, &s, &n->body, &n->hidden);
}

static void find_frames(struct jinja *j, const struct symbols *s, const struct node_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct node *n = l->p[i];
        switch (n->kind) {
        case NODE_IF:
            for (size_t k = 0; k < n->list.n; k++)
                find_frames(j, s, &n->branches[k]);
            find_frames(j, s, &n->other);
            break;
        case NODE_FOR:
            loop_frames(j, s, n);
            break;
        case NODE_MACRO:
        case NODE_CALL_BLOCK:
            macro_frame(j, s, n->macro);
            break;
        case NODE_WITH:
            with_frame(j, s, n);
            break;
        case NODE_SCOPE: /* a block knows nothing of the frames around it */
            frame(j, n->name ? NULL : s, &n->body, &n->hidden);
            break;
        case NODE_SET_BLOCK:
        case NODE_FILTER_BLOCK:
            frame(j, s, &n->body, &n->hidden);
            break;
        default:
            break;
        }
    }
}

void find_hidden_names(struct jinja *j, struct jinja_template *t)
{
    frame(j, NULL, &t->body, &t->hidden);
}
