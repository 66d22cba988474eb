/* Inputs of a layer's matrices as the reference shows them. */
#include "measure/inputs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "quant/guide.h"

/* Matrices whose names are alike but for numbers: those of a layer's experts. */
struct input_class {
    char *name;
    int stage;
    bool is_scattered; /* matrices of later stages are shown between */
};

/* ---- stages ---- */

static char *class_name(const char *tensor)
{
    char *name = xstrdup(tensor), *to = name;
    for (const char *from = tensor; *from; from++)
        if (*from < '0' || *from > '9')
            *to++ = *from;
    *to = '\0';
    return name;
}

/* The class of a tensor; a new one has no stage. */
static int find_class(struct inputs *s, const char *tensor)
{
    char *name = class_name(tensor);
    for (int i = 0; i < s->n_classes; i++)
        if (strcmp(s->classes[i].name, name) == 0) {
            free(name);
            return i;
        }
    s->classes = mem_grow(s->classes, (size_t)s->n_classes, &s->classes_capacity, sizeof *s->classes);
    s->classes[s->n_classes] = (struct input_class){.name = name, .stage = -1};
    return s->n_classes++;
}

/* ---- what is known ---- */

int inputs_find(const struct inputs *s, const char *tensor, int64_t at)
{
    for (int i = 0; i < s->n_matrices; i++) {
        const struct input_matrix *m = &s->matrices[i];
        if (at >= m->first && at - m->first < m->rows * m->columns && strcmp(m->tensor, tensor) == 0)
            return i;
    }
    return -1;
}

static struct input_matrix *find_matrix(struct inputs *s, const struct reference_input *in)
{
    int i = inputs_find(s, in->tensor, in->first);
    return i >= 0 ? &s->matrices[i] : NULL;
}

static bool is_last(const struct inputs *s, const struct reference_input *in)
{
    return s->last_input >= 0 && s->last_n == in->n && s->last_expert == in->expert &&
           s->last_columns == in->columns &&
           memcmp(s->last, in->x, (size_t)(in->n * in->columns) * sizeof *in->x) == 0;
}

static void remember(struct inputs *s, const struct reference_input *in, int input)
{
    size_t bytes = (size_t)(in->n * in->columns) * sizeof *in->x;
    s->last = xrealloc(s->last, bytes + 1);
    memcpy(s->last, in->x, bytes);
    s->last_n = in->n;
    s->last_columns = in->columns;
    s->last_expert = in->expert;
    s->last_input = input;
}

/* A matrix that was not shown before: it has the input of the one just before when the rows are the same. */
static struct input_matrix *add_matrix(struct inputs *s, const struct reference_input *in, int i_class)
{
    struct input_class *c = &s->classes[i_class];
    bool is_shared = is_last(s, in);
    int i = is_shared ? s->last_input : s->n;
    if (!is_shared) {
        s->list = mem_grow(s->list, (size_t)s->n, &s->capacity, sizeof *s->list);
        c->stage = c->stage >= 0 ? c->stage : s->n_stages++;
        s->list[s->n++] =
            (struct input){.n = in->columns, .stage = c->stage, .is_comparable = in->expert == 0};
        s->list[i].squares = xcalloc((size_t)in->columns, sizeof(double));
    }
    c->stage = s->list[i].stage;
    s->matrices = mem_grow(s->matrices, (size_t)s->n_matrices, &s->matrices_capacity, sizeof *s->matrices);
    struct input_matrix *m = &s->matrices[s->n_matrices++];
    *m = (struct input_matrix){.tensor = xstrdup(in->tensor),
                               .first = in->first,
                               .rows = in->rows,
                               .columns = in->columns,
                               .input = i,
                               .is_owner = !is_shared};
    return m;
}

/* ---- sums ---- */

static void add_squares(struct input *input, const struct reference_input *in)
{
    input->n_rows += in->n;
    for (int64_t t = 0; t < in->n; t++)
        for (int64_t i = 0; i < in->columns; i++) {
            double x = (double)in->x[t * in->columns + i];
            input->squares[i] += x * x;
        }
}

/* Sums for the input, if there is room. */
static bool has_room(struct inputs *s, struct input *input, bool has_cross)
{
    uint64_t bytes = (uint64_t)(input->n * input->n) * sizeof *input->sum * (has_cross ? 2 : 1);
    if (input->sum)
        return true;
    if (s->bytes > 0 && s->bytes + bytes > s->bytes_max) {
        s->was_short = true;
        return false;
    }
    input->sum = mem_try_alloc((size_t)(input->n * input->n) * sizeof *input->sum, &s->error);
    if (input->sum && has_cross)
        input->cross = mem_try_alloc((size_t)(input->n * input->n) * sizeof *input->cross, &s->error);
    s->bytes += bytes;
    return input->sum && (!has_cross || input->cross);
}

static void keep_rows(struct inputs *s, struct input *input, const struct reference_input *in)
{
    size_t row = (size_t)in->columns * sizeof *in->x;
    if (!input->is_comparable)
        return;
    if (input->n_kept + in->n > input->capacity_rows) {
        int64_t capacity = 2 * input->capacity_rows > input->n_kept + in->n ? 2 * input->capacity_rows
                                                                            : input->n_kept + in->n;
        float *rows = mem_try_alloc((size_t)capacity * row, &s->error);
        if (!rows)
            return;
        if (input->n_kept > 0)
            memcpy(rows, input->rows, (size_t)input->n_kept * row);
        mem_free(input->rows);
        input->rows = rows;
        input->capacity_rows = capacity;
    }
    memcpy(input->rows + input->n_kept * in->columns, in->x, (size_t)in->n * row);
    input->n_kept += in->n;
}

static void compare(struct inputs *s, struct input *input, const struct reference_input *in)
{
    bool is_comparable = input->is_comparable && input->n_compared + in->n <= input->n_kept;
    if (!has_room(s, input, is_comparable))
        return;
    quant_gram_add(input->sum, in->x, in->x, in->n, in->columns, s->pool);
    if (!input->cross)
        return;
    float *difference = input->rows + input->n_compared * in->columns;
    float *room = xmalloc((size_t)(in->n * in->columns) * sizeof *room);
    for (int64_t i = 0; i < in->n * in->columns; i++)
        room[i] = difference[i] - in->x[i];
    quant_gram_add(input->cross, room, in->x, in->n, in->columns, s->pool);
    free(room);
    input->n_compared += in->n;
}

static void take(struct inputs *s, struct input *input, const struct reference_input *in)
{
    if (s->n_runs == 1)
        add_squares(input, in);
    if (s->task == INPUTS_KEEP)
        keep_rows(s, input, in);
    if (s->task == INPUTS_SUM && has_room(s, input, false))
        quant_gram_add(input->sum, in->x, in->x, in->n, in->columns, s->pool);
    if (s->task == INPUTS_COMPARE)
        compare(s, input, in);
}

bool inputs_show(void *context, const struct reference_input *in)
{
    struct inputs *s = context;
    if (s->task == INPUTS_NOTHING)
        return true;
    int i_class = find_class(s, in->tensor);
    struct input_matrix *m = find_matrix(s, in);
    if (s->error.code || in->n == 0)
        return !s->error.code;
    if (!m)
        m = add_matrix(s, in, i_class);
    struct input *input = &s->list[m->input];
    if (s->task != INPUTS_COMPARE) {
        if (s->last_class >= 0 && s->last_text == in->text && s->classes[s->last_class].stage > input->stage)
            s->classes[i_class].is_scattered = true;
        remember(s, in, m->input);
        s->last_class = i_class;
        s->last_text = in->text;
    }
    bool is_asked_for = s->task != INPUTS_COMPARE || input->stage == s->stage;
    if (m->is_owner && is_asked_for && !input->is_done)
        take(s, input, in);
    if (s->task != INPUTS_COMPARE || input->stage <= s->stage)
        return !s->error.code;
    for (int i = 0; i < s->n_classes; i++)
        if (s->classes[i].stage == s->stage && s->classes[i].is_scattered)
            return true;
    return false;
}

/* ---- runs ---- */

void inputs_drop(struct input *input)
{
    mem_free(input->sum);
    mem_free(input->cross);
    mem_free(input->rows);
    input->sum = input->cross = NULL;
    input->rows = NULL;
    input->n_kept = input->capacity_rows = 0;
}

void inputs_start(struct inputs *s, enum input_task task, int stage)
{
    s->task = task;
    s->stage = stage;
    s->was_short = false;
    s->bytes = 0;
    s->last_input = s->last_class = -1;
    s->n_runs++;
    for (int i = 0; i < s->n; i++)
        s->list[i].n_compared = 0;
}

void inputs_begin(struct inputs *s)
{
    for (int i = 0; i < s->n; i++) {
        inputs_drop(&s->list[i]);
        free(s->list[i].squares);
    }
    for (int i = 0; i < s->n_matrices; i++)
        free(s->matrices[i].tensor);
    for (int i = 0; i < s->n_classes; i++)
        free(s->classes[i].name);
    s->n = s->n_matrices = s->n_classes = s->n_stages = s->n_runs = 0;
    s->last_input = s->last_class = -1;
}

void inputs_fini(struct inputs *s)
{
    inputs_begin(s);
    free(s->list);
    free(s->matrices);
    free(s->classes);
    free(s->last);
    *s = (struct inputs){0};
}
