/* Inference against other tools' declarations: in every package at hand each op's result type must follow
 * from its operands, and be the declared one. */
#include <dirent.h>
#include "support.h"
#include "mil/infer.h"

/* Ops of these rules declare what only a run can know, or nothing is inferred for them. */
static bool may_stay_open(const struct mil_op *op)
{
    return !op->info || op->info->rule == MIL_RULE_DECLARED || op->info->rule == MIL_RULE_RNN ||
           op->info->id == MIL_OP_SELECT; /* its declarations are not to be trusted, see mil_infer_function */
}

static int check_function(const struct mil_function *f, const char *path)
{
    char declared[160], found[160];
    struct err e = {0};
    struct arena *a = arena_new(0);
    const struct mil_type **types = ARENA_ARRAY(a, const struct mil_type *, f->n_vars + 1);
    int n_open = 0;
    if (!mil_infer_function(f, NULL, types, NULL, a, &e)) {
        print_error("%s: %s\n", path, e.msg);
        n_open++;
    }
    for (int i = 0; i < f->block->n_ops && n_open == 0; i++) {
        const struct mil_op *op = f->block->ops[i];
        const struct mil_type **out = ARENA_ARRAY(a, const struct mil_type *, op->n_outputs + 1);
        ASSERT_OK(mil_infer_op(op, types, NULL, out, a, e));
        for (int k = 0; k < op->n_outputs && !may_stay_open(op); k++) {
            if (out[k] && mil_type_equal(out[k], op->outputs[k]->type))
                continue;
            /* A size that only a run knows may be declared all the same. */
            bool has_unknown =
                out[k] && mil_type_agrees(op->outputs[k]->type, out[k]) && mil_type_elems(out[k]) < 0;
            if (has_unknown)
                continue;
            mil_type_text(declared, sizeof declared, op->outputs[k]->type);
            mil_type_text(found, sizeof found, out[k]);
            print_error("%s: op %s '%s': declared %s, inferred %s\n", path, op->type, op->outputs[k]->name,
                        declared, found);
            n_open++;
        }
    }
    arena_free(a);
    return n_open;
}

struct tally {
    int n_models, n_bad;
};

static void check_model(const char *path, struct tally *t)
{
    struct mil_model *m = NULL;
    struct err e = {0};
    if (!mil_model_open(&m, path, MIL_OPEN_NO_WEIGHTS | MIL_OPEN_NO_VERIFY, &e)) {
        print_error("%s: %s\n", path, e.msg);
        t->n_bad++;
        return;
    }
    for (int i = 0; i < m->program->n_functions; i++)
        t->n_bad += check_function(m->program->functions[i], path);
    if (!mil_verify(m, &e)) {
        print_error("%s: %s\n", path, e.msg);
        t->n_bad++;
    }
    t->n_models++;
    mil_model_close(m);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void walk(const char *folder, struct tally *t)
{
    char path[1024];
    DIR *d = opendir(folder);
    struct dirent *entry;
    struct stat st;
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "refuse") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (ends_with(path, ".mlpackage") || ends_with(path, ".mlmodelc") || ends_with(path, ".mlmodel"))
            check_model(path, t);
        else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            walk(path, t);
    }
    closedir(d);
}

static void test_peer_packages(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    struct tally t = {0};
    walk(MILKIT_SHARED "/peer-packages", &t);
    assert_int_equal(t.n_bad, 0);
    assert_true(t.n_models > 300);
}

static void test_corpus(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    struct tally t = {0};
    walk(MILKIT_SHARED "/corpus", &t);
    assert_int_equal(t.n_bad, 0);
    assert_true(t.n_models > 20);
}

/* Models whose sizes come from the shapes of a call (shape, gather, sub ... into slices and ranges): once the
 * inputs have shapes, so has everything else. */
static void test_call_shapes_reach_everything(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const names[] = {"stateful-fp16", "stateful-int4-block32",
                                        "stateful-lut4-group16-scale"};
    static const int64_t calls[][2] = {{12, 12}, {1, 13}, {5, 20}}; /* tokens of the call, end position */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1024];
        struct mil_model *m = NULL;
        snprintf(path, sizeof path, "%s/peer-packages/apple-style/%s/StatefulLM.mlpackage", MILKIT_SHARED,
                 names[i]);
        ASSERT_OK(mil_model_open(&m, path, MIL_OPEN_NO_WEIGHTS, e));
        const struct mil_function *f = m->program->functions[0];
        for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
            struct arena *a = arena_new(0);
            const struct mil_type **types = ARENA_ARRAY(a, const struct mil_type *, f->n_vars);
            const struct mil_type **inputs = ARENA_ARRAY(a, const struct mil_type *, f->n_inputs);
            for (int j = 0; j < f->n_inputs; j++) {
                const struct mil_type *t = f->inputs[j]->type;
                const int64_t ids[2] = {1, calls[k][0]}, mask[4] = {1, 1, calls[k][0], calls[k][1]};
                if (strcmp(f->inputs[j]->name, "inputIds") == 0)
                    inputs[j] = mil_type_new_tensor(a, t->dtype, 2, ids);
                else if (strcmp(f->inputs[j]->name, "causalMask") == 0)
                    inputs[j] = mil_type_new_tensor(a, t->dtype, 4, mask);
            }
            ASSERT_OK(mil_infer_function(f, inputs, types, NULL, a, e));
            for (int j = 0; j < f->block->n_ops; j++) {
                for (int o = 0; o < f->block->ops[j]->n_outputs; o++) {
                    const struct mil_var *v = f->block->ops[j]->outputs[o];
                    char text[160];
                    mil_type_text(text, sizeof text, types[v->id]);
                    if (mil_type_elems(types[v->id]) < 0)
                        fail_msg("%s: %s '%s' is %s", names[i], f->block->ops[j]->type, v->name, text);
                }
            }
            arena_free(a);
        }
        mil_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_packages),
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_call_shapes_reach_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
