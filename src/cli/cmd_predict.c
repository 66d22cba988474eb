/* milkit predict: one call (or several) of a function of a single model; tensors in and out as safetensors files, images as PNG files. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/client.h"
#include "cli/png_file.h"
#include "cli/predict_print.h"
#include "cli/tensor_file.h"

#define SYNOPSIS "MODEL [--in X.safetensors | --random] [OPTIONS]"
#define INPUTS_MAX 4096

struct predict {
    const char *path, *function, *in, *out, *state_in, *state_out, *precision, *emulation, *backend,
        *compute_units;
    bool random, json, force, plan, is_stdout; /* is_stdout: -o - */
    int64_t seed, repeat, n_threads;
    mk_library *library;
    mk_model *model;
    mk_function *f;
    mk_state *state;
    mk_result *result;
    struct cli_words images;  /* NAME=FILE */
    struct tensor_file *file; /* of --in */
    size_t n;
    const char *names[INPUTS_MAX];
    mk_tensor inputs[INPUTS_MAX];
    void *own[INPUTS_MAX]; /* data that was made here */
    double *seconds;       /* [repeat] */
};

static bool read_inputs(struct predict *p, struct err *e)
{
    if (!tensor_file_open(&p->file, p->in, e))
        return false;
    if (tensor_file_count(p->file) > INPUTS_MAX)
        return err_set(e, ERR_FORMAT, "%s: expected at most %d tensors, found %zu", p->in, INPUTS_MAX,
                       tensor_file_count(p->file));
    for (; p->n < tensor_file_count(p->file); p->n++) {
        p->names[p->n] = tensor_file_name(p->file, p->n);
        p->inputs[p->n] = *tensor_file_tensor(p->file, p->n);
    }
    return true;
}

/* The picture at path for input `name` of length n; n 0: for the one input that is an image. */
static bool read_image(struct predict *p, const char *name, size_t n, const char *path, struct err *e)
{
    mk_port found = {0};
    int n_images = 0;
    for (size_t i = 0; i < mk_function_ports(p->f, MK_INPUTS); i++) {
        mk_port port = {.size = sizeof port};
        mk_error *error = NULL;
        if (!client_take(mk_function_port(p->f, MK_INPUTS, i, &port, &error), &error, e))
            return false;
        if (port.color == 0 || (n > 0 && !(strlen(port.name) == n && strncmp(port.name, name, n) == 0)))
            continue;
        found = port;
        n_images++;
    }
    if (n_images != 1 && n > 0)
        return err_set(e, ERR_USAGE, "%s: the function has no image %.*s", path, (int)n, name);
    if (n_images != 1)
        return err_set(e, ERR_USAGE, "%s: expected a function with one image among its inputs, found %d",
                       path, n_images);
    if (p->n == INPUTS_MAX)
        return err_set(e, ERR_FORMAT, "expected at most %d inputs", INPUTS_MAX);
    if (!png_file_read(&p->inputs[p->n], path, found.color, e))
        return false;
    p->names[p->n] = found.name;
    p->own[p->n] = p->inputs[p->n].data;
    p->n++;
    return true;
}

static bool read_images(struct predict *p, struct err *e)
{
    for (int i = 0; i < p->images.n; i++) {
        const char *word = p->images.words[i], *equals = strchr(word, '=');
        if (!equals || equals == word)
            return err_set(e, ERR_USAGE, "--image %s: expected NAME=FILE", word);
        if (!read_image(p, word, (size_t)(equals - word), equals + 1, e))
            return false;
    }
    return true;
}

/* splitmix64 (Steele, Lea and Flood 2014) */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Default shapes; floats in [-1, 1), integers and bools 0 or 1. */
static bool make_inputs(struct predict *p, struct err *e)
{
    uint64_t state = (uint64_t)p->seed;
    size_t n = mk_function_ports(p->f, MK_INPUTS);
    if (n > INPUTS_MAX)
        return err_set(e, ERR_LIMIT, "%zu inputs, the most is %d", n, INPUTS_MAX);
    for (; p->n < n; p->n++) {
        mk_port port = {.size = sizeof port};
        mk_error *error = NULL;
        size_t elems = 1;
        if (!client_take(mk_function_port(p->f, MK_INPUTS, p->n, &port, &error), &error, e))
            return false;
        mk_tensor *t = &p->inputs[p->n];
        *t = (mk_tensor){.size = sizeof *t, .type = MK_F32, .rank = port.rank};
        for (int i = 0; i < port.rank; i++) {
            if (port.dims[i] < 0)
                return err_set(e, ERR_UNSUPPORTED, "input %s has no default shape for --random", port.name);
            t->dims[i] = port.dims[i];
            if (!size_mul(elems, (size_t)port.dims[i], &elems))
                return err_set(e, ERR_LIMIT, "input %s: too many elements", port.name);
        }
        size_t bytes;
        if (!size_mul(elems, sizeof(float), &bytes) || !(p->own[p->n] = mem_try_alloc(bytes, e)))
            return e->code ? false : err_set(e, ERR_LIMIT, "input %s: too many elements", port.name);
        bool is_float = port.type == MK_F32 || port.type == MK_F16 || port.type == MK_F64;
        float *data = p->own[p->n];
        for (size_t i = 0; i < elems; i++) {
            uint64_t r = next_random(&state);
            data[i] = is_float ? (float)(int32_t)(r >> 40) * 0x1p-23f - 1.0f : (float)(r & 1);
        }
        t->data = data;
        p->names[p->n] = port.name;
    }
    return true;
}

static bool load_state(struct predict *p, struct err *e)
{
    struct tensor_file *f = NULL;
    bool ok = tensor_file_open(&f, p->state_in, e);
    for (size_t i = 0; ok && i < tensor_file_count(f); i++) {
        mk_error *error = NULL;
        ok = client_take(mk_state_write(p->state, tensor_file_name(f, i), tensor_file_tensor(f, i), &error),
                         &error, e);
    }
    tensor_file_close(f);
    return ok || err_wrap(e, "%s", p->state_in);
}

static bool save_state(struct predict *p, struct err *e)
{
    size_t n = mk_function_ports(p->f, MK_STATES);
    void **data = xcalloc(n + 1, sizeof *data);
    struct tensor_writer *w = tensor_writer_new();
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        mk_port port = {.size = sizeof port};
        mk_tensor t = {.size = sizeof t};
        mk_error *error = NULL;
        size_t elems = 1;
        ok = client_take(mk_function_port(p->f, MK_STATES, i, &port, &error), &error, e) &&
             client_take(mk_state_read(p->state, port.name, &t, &error), &error, e);
        for (int k = 0; ok && k < t.rank; k++)
            elems *= (size_t)t.dims[k];
        t.type = MK_F16;
        ok = ok && (data[i] = t.data = mem_try_alloc(elems * 2, e)) &&
             client_take(mk_state_read(p->state, port.name, &t, &error), &error, e);
        if (ok)
            tensor_writer_add(w, port.name, &t);
    }
    ok = ok && tensor_writer_write(w, p->state_out, p->force, e);
    tensor_writer_free(w);
    for (size_t i = 0; i < n; i++)
        mem_free(data[i]);
    free(data);
    return ok;
}

/* The one output that is an image. */
static bool save_image(const struct predict *p, struct err *e)
{
    mk_tensor image = {0};
    int n_images = 0;
    for (size_t i = 0; i < mk_result_count(p->result); i++) {
        mk_tensor t = {.size = sizeof t};
        if (mk_result_pixels(p->result, i, &t, NULL) == MK_OK && n_images++ == 0)
            image = t;
    }
    if (n_images != 1)
        return err_set(e, ERR_USAGE, "%s: expected a function with one image among its outputs, found %d",
                       p->out, n_images);
    return png_file_write(p->out, &image, p->force, e);
}

/* Labels are not tensors: they are printed alone. */
static bool save_result(const struct predict *p, struct err *e)
{
    if (png_file_named(p->out))
        return save_image(p, e);
    struct tensor_writer *w = tensor_writer_new();
    bool ok = true;
    for (size_t i = 0; ok && i < mk_result_count(p->result); i++) {
        const char *name;
        mk_tensor t = {.size = sizeof t};
        mk_error *error = NULL;
        ok = client_take(mk_result_get(p->result, i, &name, &t, &error), &error, e);
        if (ok && t.type != MK_TEXT && t.type != MK_I64)
            tensor_writer_add(w, name, &t);
    }
    ok = ok && tensor_writer_write(w, p->out, p->force, e);
    tensor_writer_free(w);
    return ok;
}

static bool predict(struct cli *c, struct predict *p, struct err *e)
{
    mk_model_options model = {.size = sizeof model};
    mk_error *error = NULL;
    int precision;
    if (!package_precision_number(p->precision, &precision, e) ||
        !package_backend_check(p->backend, p->compute_units, e))
        return false;
    model.precision = precision;
    model.emulation = p->emulation;
    model.backend = p->backend;
    model.compute_units = p->compute_units;
    if (!client_open(c, p->n_threads, &p->library, e) ||
        !client_take(mk_model_open(&p->model, p->library, p->path, &model, &error), &error, e) ||
        !client_take(mk_function_open(&p->f, p->model, p->function, &error), &error, e))
        return false;
    bool has_state = mk_function_ports(p->f, MK_STATES) > 0;
    if (!has_state && (p->state_in || p->state_out))
        return err_set(e, ERR_USAGE, "%s: the function has no state", p->path);
    if (has_state && !client_take(mk_state_new(&p->state, p->f, &error), &error, e))
        return false;
    if (p->state_in && !load_state(p, e))
        return false;
    bool is_image = png_file_named(p->in);
    if (p->random  ? !make_inputs(p, e)
        : is_image ? !read_image(p, NULL, 0, p->in, e)
                   : p->in && !read_inputs(p, e))
        return false;
    if (!read_images(p, e))
        return false;
    p->seconds = xcalloc((size_t)p->repeat, sizeof *p->seconds);
    for (int64_t i = 0; i < p->repeat; i++) {
        struct client_call x;
        if (log_cancelled(&c->log, e))
            return false;
        mk_result_free(p->result);
        double start = clock_seconds();
        mk_status status = mk_predict(p->f, p->names, p->inputs, p->n, p->state,
                                      client_call_begin(&x, c, NULL, false), &p->result, &error);
        if (!client_take(status, &error, e))
            return false;
        p->seconds[i] = clock_seconds() - start;
    }
    if ((p->out && !save_result(p, e)) || (p->state_out && !save_state(p, e)))
        return false;
    if (!p->is_stdout)
        predict_print(p->result, p->seconds, (size_t)p->repeat, p->json);
    return p->is_stdout || cli_flush(e);
}

/* What `milkit plan` says of the function. */
static int show_plan(struct cli *c, const struct predict *p)
{
    char command[] = "plan", json[] = "--json", *argv[10] = {command, (char *)(uintptr_t)p->path};
    int n = 2;
    const char *const with[][2] = {{"--function", p->function}, {"--precision", p->precision}};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        if (!with[i][1])
            continue;
        argv[n++] = (char *)(uintptr_t)with[i][0];
        argv[n++] = (char *)(uintptr_t)with[i][1];
    }
    if (p->json)
        argv[n++] = json;
    return cmd_plan(c, n, argv);
}

int cmd_predict(struct cli *c, int argc, char **argv)
{
    struct predict *p = xcalloc(1, sizeof *p);
    struct err e = {0};
    int n_positional = 0, status = 0;
    bool help = false;
    p->repeat = 1;
    const struct cli_option options[] = {
        {"--function", CLI_STRING, &p->function, "NAME", "the function to call (the model's default)"},
        {"-i,--in,--input", CLI_STRING, &p->in, "FILE",
         "inputs, a safetensors file with their names; or a PNG file for the one image"},
        {"--image", CLI_WORDS, &p->images, "NAME=FILE", "a PNG file for the input NAME (again for others)"},
        {"-o,--out,--output", CLI_STRING, &p->out, "FILE",
         "outputs, the same way (- is stdout; PNG: the one image)"},
        {"--state-in", CLI_STRING, &p->state_in, "FILE", "states before the call (zeros)"},
        {"--state-out", CLI_STRING, &p->state_out, "FILE", "states after it"},
        {"--force", CLI_FLAG, &p->force, NULL, "replace existing files"},
        {"--random", CLI_FLAG, &p->random, NULL, "random inputs of the default shapes"},
        {"-s,--seed", CLI_INT, &p->seed, "N", "of --random (0)"},
        {"-r,--repeat", CLI_INT, &p->repeat, "N", "calls, timed (1); states go from call to call"},
        COMPUTING_OPTION_ROWS(*p),
        {"-t,-j,--threads", CLI_INT, &p->n_threads, "N", "threads (all processors)"},
        {"--json", CLI_FLAG, &p->json, NULL, "outputs and times as JSON"},
        {"--plan", CLI_FLAG, &p->plan, NULL,
         "the steps that the engine makes of the function, instead of a call"},
    };
    bool ok = cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), &p->path, 1,
                        &n_positional, SYNOPSIS, &help, &e);
    p->is_stdout = p->out && strcmp(p->out, "-") == 0;
    if (ok && !help) {
        if (n_positional != 1)
            ok = err_set(&e, ERR_USAGE, "expected a model: a .mlpackage, .mlmodelc or .mlmodel");
        else if ((p->in || p->images.n > 0) && p->random)
            ok = err_set(&e, ERR_USAGE, "--in and --random: expected one of them");
        else if (p->repeat < 1 || p->repeat > 1000000)
            ok = err_set(&e, ERR_USAGE, "--repeat: expected 1 to 1000000, found %lld", (long long)p->repeat);
        else if (p->n_threads < 0 || p->n_threads > 1024)
            ok = err_set(&e, ERR_USAGE, "--threads: expected 1 to 1024, found %lld", (long long)p->n_threads);
        else if (p->is_stdout && p->json)
            ok = err_set(&e, ERR_USAGE, "-o - and --json: both go to stdout");
        else if (p->is_stdout && isatty(STDOUT_FILENO) == 1)
            ok = err_set(&e, ERR_USAGE, "-o -: stdout is a terminal; expected a file or a pipe");
        else if (p->plan)
            status = show_plan(c, p);
        else
            ok = cli_check_output("--out", p->out, true, p->force, &e) &&
                 cli_check_output("--state-out", p->state_out, false, p->force, &e) && predict(c, p, &e);
    }
    mk_result_free(p->result);
    mk_state_free(p->state);
    mk_function_close(p->f);
    mk_model_close(p->model);
    mk_library_close(p->library);
    tensor_file_close(p->file);
    for (size_t i = 0; i < INPUTS_MAX; i++)
        mem_free(p->own[i]);
    free(p->seconds);
    free(p);
    return ok ? status : cli_fail(c, &e, NULL);
}
