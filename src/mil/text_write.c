/* The text form printed, in Apple's order and spelling: the same program always gives the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/ops.h"
#include "mil/text.h"
#include "mil/text_writer_internal.h"

/* ---- things in the order of their names ---- */

static int compare_first_string(const void *a, const void *b)
{
    const char *const *const *pa = a, *const *const *pb = b;

    return strcmp(**pa, **pb);
}

/* Pointers to [n] objects of `size` bytes that begin with their name, in the order of the names. NULL for
 * none. */
static const void **sorted_by_name(const void *first, int n, size_t size)
{
    if (n == 0)
        return NULL;
    const void **p = xmalloc(sizeof *p * (size_t)n);
    for (int i = 0; i < n; i++)
        p[i] = (const char *)first + size * (size_t)i;
    qsort(p, (size_t)n, sizeof *p, compare_first_string);
    return p;
}

/* The same for an array of pointers to such objects. */
static const void **sorted_pointers(const void *first, int n)
{
    if (n == 0)
        return NULL;
    const void **p = xmalloc(sizeof *p * (size_t)n);
    memcpy(p, first, sizeof *p * (size_t)n);
    qsort(p, (size_t)n, sizeof *p, compare_first_string);
    return p;
}

_Static_assert(offsetof(struct mil_var, name) == 0 && offsetof(struct mil_arg, name) == 0 &&
                   offsetof(struct mil_named_value, name) == 0 && offsetof(struct mil_function, name) == 0,
               "sorting by name looks at the first member");

static bool put_attribute_list(struct text_writer *w, const struct mil_named_value *attributes, int n)
{
    const void **sorted = sorted_by_name(attributes, n, sizeof *attributes);
    bool ok = true;

    for (int i = 0; i < n && ok; i++) {
        const struct mil_named_value *a = sorted[i];
        buf_puts(w->out, i > 0 ? ", " : "");
        ok = text_put_name(w, a->name);
        buf_puts(w->out, " = ");
        ok = ok && text_put_value(w, a->value);
    }
    free(sorted);
    return ok;
}

/* ---- buildInfo ---- */

struct text_entry {
    struct str key, value;
};

static int compare_entries(const void *a, const void *b)
{
    const struct text_entry *x = a, *y = b;
    size_t n = x->key.n < y->key.n ? x->key.n : y->key.n;
    int c = memcmp(x->key.p, y->key.p, n);

    return c ? c : (x->key.n > y->key.n) - (x->key.n < y->key.n);
}

static bool value_is_string(const struct mil_value *v)
{
    return v && v->kind == MIL_VALUE_TENSOR && v->type && v->type->kind == MIL_TYPE_TENSOR &&
           v->type->dtype == MIL_STRING && v->n_elems == 1 && v->strings;
}

static bool str_equals(struct str s, const char *word)
{
    return strlen(word) == s.n && memcmp(s.p, word, s.n) == 0;
}

/* buildInfo of the program with the compiler's two versions, sorted by key. */
static bool put_build_info(struct text_writer *w, const struct mil_value *v,
                           const struct mil_text_options *options)
{
    static const char component_key[] = "coremlc-component-MIL", version_key[] = "coremlc-version";
    int n_old = v && v->kind == MIL_VALUE_ITEMS ? v->n_items / 2 : 0, n = 0;
    struct text_entry *entries = xcalloc((size_t)n_old + 2, sizeof *entries);
    bool ok = true;

    for (int i = 0; i < n_old && ok; i++) {
        if (!value_is_string(v->items[2 * i]) || !value_is_string(v->items[2 * i + 1])) {
            ok = err_set(w->e, ERR_FORMAT, "buildInfo: expected names and strings");
            break;
        }
        entries[n].key = v->items[2 * i]->strings[0];
        entries[n].value = v->items[2 * i + 1]->strings[0];
        if ((str_equals(entries[n].key, component_key) && options->coremlc_component) ||
            (str_equals(entries[n].key, version_key) && options->coremlc_version))
            continue;
        n++;
    }
    if (options->coremlc_component)
        entries[n++] = (struct text_entry){{component_key, sizeof component_key - 1},
                                           {options->coremlc_component, strlen(options->coremlc_component)}};
    if (options->coremlc_version)
        entries[n++] = (struct text_entry){{version_key, sizeof version_key - 1},
                                           {options->coremlc_version, strlen(options->coremlc_version)}};
    qsort(entries, (size_t)n, sizeof *entries, compare_entries);
    buf_puts(w->out, "buildInfo = dict<");
    text_put_scalar(w, MIL_STRING);
    buf_puts(w->out, ", ");
    text_put_scalar(w, MIL_STRING);
    buf_puts(w->out, ">({");
    for (int i = 0; i < n && ok; i++) {
        buf_puts(w->out, i > 0 ? ", {" : "{");
        text_put_string(w->out, entries[i].key.p, entries[i].key.n);
        buf_puts(w->out, ", ");
        text_put_string(w->out, entries[i].value.p, entries[i].value.n);
        buf_putc(w->out, '}');
    }
    buf_puts(w->out, "})");
    free(entries);
    return ok;
}

static bool put_program_attributes(struct text_writer *w, const struct mil_program *p,
                                   const struct mil_text_options *options)
{
    bool with_versions = options && (options->coremlc_component || options->coremlc_version);
    bool ok = true;
    int n = 0;

    if (!with_versions) {
        if (p->n_attributes == 0)
            return true;
        buf_putc(w->out, '[');
        ok = put_attribute_list(w, p->attributes, p->n_attributes);
        buf_puts(w->out, "]\n");
        return ok;
    }
    struct mil_named_value *all = xcalloc((size_t)p->n_attributes + 1, sizeof *all);
    all[n++].name = "buildInfo";
    for (int i = 0; i < p->n_attributes; i++) {
        if (strcmp(p->attributes[i].name, "buildInfo") == 0)
            all[0].value = p->attributes[i].value;
        else
            all[n++] = p->attributes[i];
    }
    const void **sorted = sorted_by_name(all, n, sizeof *all);
    buf_putc(w->out, '[');
    for (int i = 0; i < n && ok; i++) {
        const struct mil_named_value *a = sorted[i];
        buf_puts(w->out, i > 0 ? ", " : "");
        if (a == &all[0])
            ok = put_build_info(w, a->value, options);
        else
            ok = put_attribute_list(w, a, 1);
    }
    buf_puts(w->out, "]\n");
    free(sorted);
    free(all);
    return ok;
}

/* ---- FlexibleShapeInformation ---- */

static bool feature_is_flexible(const struct mil_feature *f)
{
    return f->kind == MIL_FEATURE_ARRAY && (f->n_ranges > 0 || f->n_enumerated > 0);
}

static void put_shape(struct buf *out, const int64_t *shape, int rank)
{
    buf_putc(out, '[');
    for (int i = 0; i < rank; i++) {
        buf_puts(out, i > 0 ? ", " : "");
        text_put_signed(out, shape[i]);
    }
    buf_putc(out, ']');
}

static void put_key(struct buf *out, const char *name, bool first)
{
    buf_puts(out, first ? "{" : ", {");
    text_put_string(out, name, strlen(name));
    buf_puts(out, ", ");
}

static void put_ranges(struct buf *out, const void **inputs, int n)
{
    for (int i = 0; i < n; i++) {
        const struct mil_feature *f = inputs[i];
        put_key(out, f->name, i == 0);
        buf_putc(out, '[');
        for (int a = 0; a < f->n_ranges; a++) {
            int64_t range[2] = {f->ranges[a].lower, f->ranges[a].upper};
            buf_puts(out, a > 0 ? ", " : "");
            put_shape(out, range, 2);
        }
        buf_puts(out, "]}");
    }
}

struct enumerated_entry {
    uint32_t key;
    int index;
};

static int compare_enumerated(const void *a, const void *b)
{
    const struct enumerated_entry *x = a, *y = b;

    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->index > y->index) - (x->index < y->index);
}

/* Entry i combines the i-th shape of every input. Apple's keys are hashes of an unknown kind that nobody
 * looks up: any unique ones do; these follow from the shapes, so that output is reproducible. */
static bool put_enumerated(struct text_writer *w, const void **inputs, int n)
{
    const struct mil_feature *first = inputs[0];
    int n_shapes = first->n_enumerated;
    struct enumerated_entry *entries;

    for (int i = 1; i < n; i++)
        if (((const struct mil_feature *)inputs[i])->n_enumerated != n_shapes)
            return err_set(w->e, ERR_UNSUPPORTED,
                           "inputs %s and %s have different numbers of enumerated shapes", first->name,
                           ((const struct mil_feature *)inputs[i])->name);
    entries = xcalloc((size_t)n_shapes, sizeof *entries);
    for (int s = 0; s < n_shapes; s++) {
        uint32_t hash = 2166136261u;
        for (int i = 0; i < n; i++) {
            const struct mil_feature *f = inputs[i];
            for (int a = 0; a < f->enumerated_ranks[s]; a++)
                for (int b = 0; b < 8; b++)
                    hash = (hash ^ (uint32_t)(f->enumerated[s][a] >> (8 * b) & 0xff)) * 16777619u;
            hash = (hash ^ 0xff) * 16777619u;
        }
        entries[s] = (struct enumerated_entry){hash, s};
    }
    qsort(entries, (size_t)n_shapes, sizeof *entries, compare_enumerated);
    for (int s = 1; s < n_shapes; s++)
        if (entries[s].key <= entries[s - 1].key)
            entries[s].key = entries[s - 1].key + 1;
    for (int s = 0; s < n_shapes; s++) {
        char key[16];
        snprintf(key, sizeof key, "%08x", entries[s].key);
        put_key(w->out, key, s == 0);
        buf_putc(w->out, '{');
        for (int i = 0; i < n; i++) {
            const struct mil_feature *f = inputs[i];
            put_key(w->out, f->name, i == 0);
            put_shape(w->out, f->enumerated[entries[s].index], f->enumerated_ranks[entries[s].index]);
            buf_putc(w->out, '}');
        }
        buf_puts(w->out, "}}");
    }
    free(entries);
    return true;
}

static bool put_flexible_shapes(struct text_writer *w, const struct mil_function_description *d)
{
    const struct mil_feature **flexible = xcalloc((size_t)d->n_inputs + 1, sizeof *flexible);
    const char *s = w->bare_scalars ? "string" : "tensor<string, []>";
    const void **inputs = NULL;
    int n = 0, n_ranges = 0;
    bool ok = true;

    for (int i = 0; i < d->n_inputs; i++) {
        if (feature_is_flexible(&d->inputs[i])) {
            flexible[n++] = &d->inputs[i];
            n_ranges += d->inputs[i].n_ranges > 0;
        }
    }
    if (n == 0)
        goto done;
    if (n_ranges > 0 && n_ranges < n) {
        ok = err_set(w->e, ERR_UNSUPPORTED, "inputs with ranges together with inputs with enumerated shapes");
        goto done;
    }
    inputs = sorted_pointers(flexible, n);
    buf_printf(w->out, "FlexibleShapeInformation = tuple<tuple<%s, dict<%s, tensor<int32, [?]>>>, tuple<%s, ",
               s, s, s);
    if (n_ranges)
        buf_printf(w->out, "dict<%s, list<tensor<int32, [2]>, ?>>", s);
    else
        buf_printf(w->out, "dict<%s, dict<%s, tensor<int32, [?]>>>", s, s);
    buf_puts(w->out, ">>(((\"DefaultShapes\", {");
    for (int i = 0; i < n; i++) {
        const struct mil_feature *f = inputs[i];
        put_key(w->out, f->name, i == 0);
        put_shape(w->out, f->shape, f->rank);
        buf_putc(w->out, '}');
    }
    buf_printf(w->out, "}), (\"%s\", {", n_ranges ? "RangeDims" : "EnumeratedShapes");
    if (n_ranges)
        put_ranges(w->out, inputs, n);
    else
        ok = put_enumerated(w, inputs, n);
    buf_puts(w->out, "})))");
done:
    free(inputs);
    free(flexible);
    return ok;
}

static bool put_function_attributes(struct text_writer *w, const struct mil_model *m,
                                    const struct mil_function *f, const struct mil_text_options *options)
{
    const struct mil_function_description *d = NULL;
    bool flexible = false;

    if (options && options->add_flexible_shapes)
        d = mil_function_description_find(m, f->name);
    for (int i = 0; d && i < d->n_inputs; i++)
        flexible = flexible || feature_is_flexible(&d->inputs[i]);
    for (int i = 0; i < f->n_attributes; i++)
        flexible = flexible && strcmp(f->attributes[i].name, "FlexibleShapeInformation") != 0;
    if (f->n_attributes == 0 && !flexible)
        return true;
    buf_puts(w->out, " [");
    if (flexible && !put_flexible_shapes(w, d))
        return false;
    if (f->n_attributes > 0) {
        buf_puts(w->out, flexible ? ", " : "");
        if (!put_attribute_list(w, f->attributes, f->n_attributes))
            return false;
    }
    buf_putc(w->out, ']');
    return true;
}

/* ---- statements, functions, programs ---- */

static bool put_argument(struct text_writer *w, const struct mil_arg *arg)
{
    if (!text_put_name(w, arg->name))
        return false;
    if (arg->n < 1)
        return err_set(w->e, ERR_UNSUPPORTED, "argument %s without operands has no text form", arg->name);
    buf_puts(w->out, arg->n > 1 ? " = (" : " = ");
    for (int i = 0; i < arg->n; i++) {
        const struct mil_binding *b = &arg->bindings[i];
        buf_puts(w->out, i > 0 ? ", " : "");
        if (!(b->var ? text_put_name(w, b->var->name) : text_put_value(w, b->value)))
            return false;
    }
    buf_puts(w->out, arg->n > 1 ? ")" : "");
    return true;
}

static bool put_arguments(struct text_writer *w, const struct mil_op *op)
{
    const void **args = sorted_by_name(op->args, op->n_args, sizeof *op->args);
    bool ok = true;

    buf_putc(w->out, '(');
    for (int i = 0; i < op->n_args && ok; i++) {
        buf_puts(w->out, i > 0 ? ", " : "");
        ok = put_argument(w, args[i]);
    }
    buf_putc(w->out, ')');
    free(args);
    return ok;
}

static bool put_op(struct text_writer *w, const struct mil_op *op)
{
    if (op->n_blocks > 0)
        return err_set(w->e, ERR_UNSUPPORTED, "a nested block has no known text form");
    buf_puts(w->out, "            ");
    for (int i = 0; i < op->n_outputs; i++) {
        buf_puts(w->out, i > 0 ? ", " : "");
        if (!text_put_type(w, op->outputs[i]->type))
            return false;
        buf_putc(w->out, ' ');
        if (!text_put_name(w, op->outputs[i]->name))
            return false;
    }
    buf_puts(w->out, op->n_outputs > 0 ? " = " : "");
    if (!text_put_name(w, op->type) || !put_arguments(w, op))
        return false;
    if (op->n_attributes > 0) {
        buf_putc(w->out, '[');
        if (!put_attribute_list(w, op->attributes, op->n_attributes))
            return false;
        buf_putc(w->out, ']');
    }
    buf_puts(w->out, ";\n");
    return true;
}

static bool put_opset(struct text_writer *w, const char *opset)
{
    static const char prefix[] = "CoreML";
    int n = opset ? mil_opset_number(opset) : 0;

    if (n > 0 && strncmp(opset, prefix, sizeof prefix - 1) == 0) {
        buf_printf(w->out, "ios%d", n);
        return true;
    }
    return text_put_name(w, opset);
}

static bool put_function(struct text_writer *w, const struct mil_model *m, const struct mil_function *f,
                         const struct mil_text_options *options)
{
    const void **inputs = sorted_pointers(f->inputs, f->n_inputs);
    bool ok;

    buf_puts(w->out, "    func ");
    ok = text_put_name(w, f->name);
    buf_putc(w->out, '<');
    ok = ok && put_opset(w, f->opset);
    buf_puts(w->out, ">(");
    for (int i = 0; i < f->n_inputs && ok; i++) {
        const struct mil_var *v = inputs[i];
        buf_puts(w->out, i > 0 ? ", " : "");
        ok = text_put_type(w, v->type);
        buf_putc(w->out, ' ');
        ok = ok && text_put_name(w, v->name);
    }
    buf_putc(w->out, ')');
    ok = ok && put_function_attributes(w, m, f, options);
    buf_puts(w->out, " {\n");
    for (int i = 0; f->block && i < f->block->n_ops && ok && !w->out->failed; i++) {
        const struct mil_op *op = f->block->ops[i];
        ok = put_op(w, op);
        if (!ok)
            err_wrap(w->e, "%s \"%.200s\"", op->type, op->n_outputs ? op->outputs[0]->name : "");
    }
    buf_puts(w->out, "        } -> (");
    for (int i = 0; f->block && i < f->block->n_outputs && ok; i++) {
        buf_puts(w->out, i > 0 ? ", " : "");
        ok = text_put_name(w, f->block->outputs[i]->name);
    }
    buf_puts(w->out, ");\n");
    free(inputs);
    return ok || err_wrap(w->e, "function %s", f->name);
}

bool mil_text_write(const struct mil_model *m, const struct mil_text_options *options, struct buf *out,
                    struct err *e)
{
    struct text_writer w = {.out = out, .e = e, .bare_scalars = m->specification_version >= 9};
    const struct mil_program *p = m->program;
    const void **functions;
    bool ok;

    if (!p)
        return err_set(e, ERR_BUG, "a model without a program");
    functions = sorted_pointers(p->functions, p->n_functions);
    buf_puts(out, w.bare_scalars ? "program(1.3)\n" : "program(1.0)\n");
    ok = put_program_attributes(&w, p, options);
    buf_puts(out, "{\n");
    for (int i = 0; i < p->n_functions && ok; i++)
        ok = put_function(&w, m, functions[i], options);
    buf_putc(out, '}');
    free(functions);
    if (ok && out->failed)
        ok = err_set(e, ERR_LIMIT, "the text form of the model is longer than %zu bytes", out->max_bytes);
    return ok;
}
