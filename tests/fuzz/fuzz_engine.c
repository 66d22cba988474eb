// Any program that is sound may be planned and run, in every precision, on any numbers: results or one error with a reason,
// within the limits that were asked for.
// links: engine
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "engine/engine.h"
#include "mil/text.h"
#include "mil/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

#define TEXT_MAX 400000
#define SHAPES_MAX 16
#define N_THREADS 2
/* Small enough for thousands of programs a second, large enough that every step is met. */
static const struct engine_limits limits = {.memory = (uint64_t)64 << 20, .work = (uint64_t)1 << 24};

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void check_error(const struct err *e)
{
    if (e->code == ERR_NONE || e->code == ERR_BUG || e->msg[0] == '\0') {
        fprintf(stderr, "an error without a reason: %s\n", e->msg);
        abort();
    }
}

/* Round 0: small numbers, so that indices are inside and results finite; then whatever 32 bits can say. */
static void fill_input(const struct mil_port *port, void *to, int round, uint64_t *random)
{
    static const int32_t odd_ints[] = {INT32_MIN, INT32_MAX, -1, -40};
    static const float odd_floats[] = {-INFINITY, NAN, 1e38f, -0.0f};
    for (int64_t i = 0; i < port->n_elems; i++) {
        uint32_t v = next_random(random);
        if (port->is_int)
            ((int32_t *)to)[i] = round == 0   ? (int32_t)(v % 3)
                                 : v % 8 == 0 ? odd_ints[v / 8 % 4]
                                              : (int32_t)(v % 200);
        else
            ((float *)to)[i] = round == 0    ? (float)(v % 1000) / 500 - 1
                               : v % 16 == 0 ? odd_floats[v / 16 % 4]
                                             : (float)(int32_t)v;
    }
}

/* Every number of the outputs is looked at: a sanitizer sees what lies outside. */
static void look_at_outputs(struct engine_run *r, const struct engine_plan *p)
{
    static volatile float sink;
    for (int i = 0; i < engine_plan_outputs(p); i++) {
        const struct mil_port *port = engine_plan_output(p, i);
        engine_round_output(r, i);
        const float *values = engine_output(r, i);
        for (int64_t k = 0; k < port->n_elems; k++)
            sink = values[k];
    }
    (void)sink;
}

static void run_plan(const struct engine_plan *p, struct pool *pool, unsigned seed)
{
    struct engine_state *states = engine_state_new();
    struct engine_run *r = NULL;
    struct err e = {0};
    if (!engine_state_add(states, p, &e) || !engine_run_new(&r, p, N_THREADS, &e)) {
        check_error(&e);
        engine_state_free(states);
        return;
    }
    for (int round = 0; round < 2; round++) {
        uint64_t random = (uint64_t)seed * 2654435761u + (unsigned)round;
        for (int i = 0; i < engine_plan_inputs(p); i++)
            fill_input(engine_plan_input(p, i), engine_input(r, i), round, &random);
        e = (struct err){0};
        if (engine_execute(r, states, pool, &e))
            look_at_outputs(r, p);
        else
            check_error(&e);
    }
    engine_run_free(r);
    engine_state_free(states);
}

/* What the program leaves open becomes n. */
static int open_shapes(const struct mil_function *f, int64_t n, struct mil_input_shape *shapes)
{
    int n_shapes = 0;
    for (int i = 0; i < f->n_inputs && n_shapes < SHAPES_MAX; i++) {
        const struct mil_type *t = f->inputs[i]->type;
        bool is_open = false;
        if (t->kind != MIL_TYPE_TENSOR || t->rank < 0 || t->rank > MIL_RANK_MAX)
            continue;
        struct mil_input_shape *s = &shapes[n_shapes];
        *s = (struct mil_input_shape){.input = f->inputs[i]->name, .rank = t->rank};
        for (int k = 0; k < t->rank; k++) {
            is_open = is_open || t->dims[k] < 0;
            s->dims[k] = t->dims[k] < 0 ? n : t->dims[k];
        }
        n_shapes += is_open;
    }
    return n_shapes;
}

static void run_function(const struct mil_model *m, const struct mil_function *f, int64_t n,
                         struct pool *pool, unsigned seed)
{
    struct mil_input_shape shapes[SHAPES_MAX];
    int n_shapes = open_shapes(f, n, shapes);
    for (int precision = 0; precision < 3; precision++) {
        struct engine_options o = {.precision = (enum engine_precision)precision, .limits = limits};
        struct engine_plan *p = NULL;
        struct err e = {0};
        if (engine_plan_new(&p, m, f->name, shapes, n_shapes, &o, &e))
            run_plan(p, pool, seed);
        else
            check_error(&e);
        engine_plan_free(p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pool *pool;
    struct err e = {0};
    unsigned seed = 0;
    if (!pool && !pool_new(&pool, N_THREADS, &e))
        abort();
    if (size > TEXT_MAX)
        return 0;
    for (size_t i = 0; i < size; i++)
        seed = seed * 31 + data[i];
    struct mil_model *m = mil_model_new(0);
    m->path = arena_strdup(m->arena, "fuzz");
    m->root = arena_strdup(m->arena, MILKIT_TEST_DATA);
    if (mil_text_read(m, (const char *)data, size, "fuzz", &e) && mil_model_map_weights(m, &e) &&
        mil_verify(m, &e))
        for (int i = 0; i < m->program->n_functions; i++)
            run_function(m, m->program->functions[i], i % 2 ? 7 : 1 + 6 * (int)(seed % 2), pool, seed);
    mil_model_close(m);
    return 0;
}

/* ---- mutation: what stands in a program is replaced by what could stand there ---- */

enum token_kind { TOKEN_NAME, TOKEN_NUMBER };

struct token {
    size_t at, n;
    enum token_kind kind;
};

struct edit {
    uint8_t *data;
    size_t size, max;
    struct token *tokens;
    size_t n_tokens;
    uint64_t random;
};

static uint32_t below(struct edit *t, size_t n)
{
    return next_random(&t->random) % (uint32_t)n;
}

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static void find_tokens(struct edit *t)
{
    t->n_tokens = 0;
    for (size_t i = 0, end; i < t->size; i = end) {
        uint8_t c = t->data[i];
        end = i + 1;
        if (!is_letter(c) && !is_digit(c))
            continue;
        while (end < t->size && (is_letter(t->data[end]) || is_digit(t->data[end]) || t->data[end] == '.'))
            end++;
        t->tokens[t->n_tokens++] = (struct token){i, end - i, is_letter(c) ? TOKEN_NAME : TOKEN_NUMBER};
    }
}

/* A token of the kind, somewhere; false when none was met. */
static bool pick(struct edit *t, enum token_kind kind, struct token *out)
{
    for (int tries = 0; tries < 100; tries++) {
        *out = t->tokens[below(t, t->n_tokens)];
        if (out->kind == kind)
            return true;
    }
    return false;
}

/* text may lie in t->data. */
static void replace(struct edit *t, size_t at, size_t old, const void *text, size_t n)
{
    if (t->size - old + n > t->max)
        return;
    uint8_t *copy = malloc(n + 1);
    if (!copy)
        return;
    memcpy(copy, text, n);
    memmove(t->data + at + n, t->data + at + old, t->size - at - old);
    memcpy(t->data + at, copy, n);
    t->size = t->size - old + n;
    free(copy);
}

/* One number, or all (or half) of its kind: a shape stands in many places. */
static void change_number(struct edit *t)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "5",
                                          "7",
                                          "8",
                                          "16",
                                          "-1",
                                          "-2",
                                          "-3",
                                          "31",
                                          "32",
                                          "33",
                                          "64",
                                          "65",
                                          "127",
                                          "255",
                                          "256",
                                          "1000",
                                          "65536",
                                          "?",
                                          "513",
                                          "2147483647",
                                          "-2147483648",
                                          "4294967296",
                                          "1099511627776",
                                          "9223372036854775807"};
    struct token x;
    if (!pick(t, TOKEN_NUMBER, &x))
        return;
    const char *by = numbers[below(t, below(t, 2) ? 18 : sizeof numbers / sizeof *numbers)];
    unsigned mode = below(t, 4);
    if (mode < 2) {
        replace(t, x.at, x.n, by, strlen(by));
        return;
    }
    char old[64];
    if (x.n >= sizeof old)
        return;
    memcpy(old, t->data + x.at, x.n);
    for (size_t i = t->n_tokens; i-- > 0;) {
        const struct token *k = &t->tokens[i];
        if (k->kind == TOKEN_NUMBER && k->n == x.n && memcmp(t->data + k->at, old, x.n) == 0 &&
            (mode == 2 || below(t, 2)))
            replace(t, k->at, k->n, by, strlen(by));
    }
}

static void change_name(struct edit *t)
{
    static const char *const words[] = {
        "fp16", "fp32",  "int32", "bool", "uint8",  "int8",       "uint4",    "int16",   "string",
        "true", "false", "valid", "same", "custom", "same_lower", "constant", "reflect",
#define MIL_OP(id, name, ...) name,
#include "mil/ops.def"
#undef MIL_OP
    };
    struct token x, y;
    if (!pick(t, TOKEN_NAME, &x))
        return;
    if (below(t, 2)) {
        const char *by = words[below(t, sizeof words / sizeof *words)];
        replace(t, x.at, x.n, by, strlen(by));
    } else if (pick(t, TOKEN_NAME, &y)) {
        replace(t, x.at, x.n, t->data + y.at, y.n);
    }
}

static void find_line(const struct edit *t, size_t at, size_t *begin, size_t *end)
{
    for (*begin = at; *begin > 0 && t->data[*begin - 1] != '\n'; (*begin)--)
        ;
    for (*end = at; *end < t->size && t->data[*end] != '\n'; (*end)++)
        ;
    *end += *end < t->size;
}

/* A line goes, or stands elsewhere too. */
static void change_line(struct edit *t)
{
    size_t begin, end, to, to_end;
    find_line(t, t->tokens[below(t, t->n_tokens)].at, &begin, &end);
    find_line(t, t->tokens[below(t, t->n_tokens)].at, &to, &to_end);
    if (below(t, 3) == 0)
        replace(t, begin, end - begin, "", 0);
    else
        replace(t, to, 0, t->data + begin, end - begin);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    struct edit t = {.data = data, .size = size, .max = max, .random = seed * 0x9e3779b97f4a7c15u + 1};
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    if (size < 10 || below(&t, 20) == 0)
        return LLVMFuzzerMutate(data, size, max);
#endif
    t.tokens = malloc(sizeof *t.tokens * (max + 1));
    for (unsigned i = 0, n = 1 + below(&t, 3); t.tokens && i < n; i++) {
        find_tokens(&t);
        if (t.n_tokens < 4)
            break;
        switch (below(&t, 9)) {
        case 0:
        case 1:
        case 2:
        case 3:
            change_number(&t);
            break;
        case 4:
        case 5:
            change_name(&t);
            break;
        default:
            change_line(&t);
            break;
        }
    }
    free(t.tokens);
    return t.size;
}
