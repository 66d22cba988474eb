/* What every command shares: option tables, error messages, reading ids and text, the last flush of stdout.
 */
#include "cli/cli.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/id_list.h"
#include "base/terminal.h"
#include "cli/frame.h"
#include "cli/habits.h"
#include "format/checkpoint_source.h"
#include "format/gguf.h"
#include "format/json.h"
#include "hub/hub.h"

/* ---- options ---- */

static const struct cli_option *option_find(const struct cli_option *options, int n_options, const char *s,
                                            size_t n)
{
    for (int i = 0; i < n_options; i++) {
        if (cli_names_have(options[i].names, s, n))
            return &options[i];
    }
    return NULL;
}

/* The long name nearest to what was typed, NULL when none is near: at most three letters apart, and less than half. */
static const char *option_nearest(const struct cli_option *options, int n_options, const char *typed,
                                  char dst[64])
{
    int best = 4;
    const char *result = NULL;
    for (int i = 0; i < n_options; i++) {
        if (!options[i].help)
            continue;
        for (const char *p = options[i].names; *p;) {
            size_t length = strcspn(p, ",");
            char name[64];
            if (length > 2 && length < sizeof name) {
                memcpy(name, p, length);
                name[length] = '\0';
                int distance = cli_word_distance(typed, name);
                if (distance < best && 2 * (size_t)distance < length - 2) {
                    best = distance;
                    memcpy(dst, name, length + 1);
                    result = dst;
                }
            }
            p += length;
            p += *p == ',';
        }
    }
    return result;
}

static bool option_set(const struct cli_option *o, const char *name, size_t n_name, const char *text,
                       struct err *e)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->value = true;
        return true;
    case CLI_STRING:
    case CLI_TEXT:
        *(const char **)o->value = text;
        return true;
    case CLI_WORDS: {
        struct cli_words *w = o->value;
        if (w->n == CLI_WORDS_MAX)
            return err_set(e, ERR_USAGE, "%.*s: more than %d of them", (int)n_name, name, CLI_WORDS_MAX);
        w->words[w->n++] = text;
        return true;
    }
    case CLI_CONSTANT:
        *(const char **)o->value = o->arg;
        return true;
    case CLI_INT: {
        long long v = strtoll(text, &end, 10);
        if (end == text || *end)
            return err_set(e, ERR_USAGE, "%.*s: expected a whole number, found '%s'", (int)n_name, name,
                           text);
        if (errno == ERANGE)
            return err_set(e, ERR_USAGE, "%.*s: expected a whole number from %lld to %lld, found '%s'",
                           (int)n_name, name, LLONG_MIN, LLONG_MAX, text);
        *(int64_t *)o->value = v;
        return true;
    }
    case CLI_DOUBLE: {
        double v = strtod(text, &end);
        if (end == text || *end)
            return err_set(e, ERR_USAGE, "%.*s: expected a number, found '%s'", (int)n_name, name, text);
        *(double *)o->value = v;
        return true;
    }
    }
    return err_set(e, ERR_BUG, "option %s has an unknown kind", o->names);
}

static void print_option(const struct cli_option *o)
{
    /* "-o,--output,--out": help shows the short one and the first long one. */
    char left[80] = "";
    size_t n = 0;
    for (const char *p = o->names; *p;) {
        size_t length = strcspn(p, ",");
        n += (size_t)snprintf(left + n, sizeof left - n, "%s%.*s", n ? ", " : "", (int)length, p);
        if ((length > 2 && p[1] == '-') || n >= sizeof left)
            break;
        p += length;
        p += *p == ',';
    }
    if (o->arg && n < sizeof left)
        snprintf(left + n, sizeof left - n, " %s", o->arg);
    if (strlen(left) > 26)
        printf("  %s\n  %-26s %s\n", left, "", o->help);
    else
        printf("  %-26s %s\n", left, o->help);
}

/* For shells that complete words and for the manual: the options that help shows, one a line, with tabs between names, value and
 * sentence; the synopsis comes first, with an empty name. */
static void list_options(const struct cli_option *options, int n_options, const char *synopsis)
{
    static const struct cli_option common[] = {{"-q,--quiet", CLI_FLAG, NULL, NULL, "errors only"},
                                               {"-v,--verbose", CLI_FLAG, NULL, NULL, "say more"},
                                               {"-h,--help", CLI_FLAG, NULL, NULL, "show the options"}};
    printf("\t%s\t\n", synopsis);
    for (int i = 0; i < n_options; i++)
        if (options[i].help)
            printf("%s\t%s\t%s\n", options[i].names,
                   options[i].kind != CLI_CONSTANT && options[i].arg ? options[i].arg : "", options[i].help);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        printf("%s\t\t%s\n", common[i].names, common[i].help);
}

static void print_options(const struct cli *c, const struct cli_option *options, int n_options,
                          const char *synopsis)
{
    if (c->lists_options) {
        list_options(options, n_options, synopsis);
        return;
    }
    printf("usage: %s %s %s\n\n", c->program, c->command, synopsis);
    for (int i = 0; i < n_options; i++) {
        if (options[i].help)
            print_option(&options[i]);
    }
    printf("  %-26s %s\n", "-q", "errors only");
    printf("  %-26s %s\n", "-v, --debug", "say more");
    printf("  %-26s %s\n", "-h, --help", "this text");
}

/* -q, -v, --debug, -h, --help: true when it was one of them. */
static bool common_option(struct cli *c, const char *a, bool *help)
{
    if (strcmp(a, "-q") == 0 || strcmp(a, "--quiet") == 0)
        c->log.level = LOG_QUIET;
    else if (strcmp(a, "-v") == 0 || strcmp(a, "--verbose") == 0 || strcmp(a, "--debug") == 0)
        c->log.level = LOG_DEBUG;
    else if (strcmp(a, "-h") == 0 || strcmp(a, "--help") == 0)
        *help = true;
    else if (strcmp(a, "--list-options") == 0)
        *help = c->lists_options = true;
    else
        return false;
    return true;
}

static bool takes_value(const struct cli_option *o)
{
    return o->kind != CLI_FLAG && o->kind != CLI_CONSTANT;
}

/* "-n5", "-pText": a short option with its value in one word; *text is the value. A number must look like one, so that
 * "-ngl" is not -n. */
static const struct cli_option *option_find_joined(const struct cli_option *options, int n_options,
                                                   const char *a, const char **text)
{
    const struct cli_option *o = a[1] != '-' ? option_find(options, n_options, a, 2) : NULL;
    bool is_number = a[1] != '\0' && strchr("+-.0123456789", a[2]) != NULL;
    if (!o || !a[2] || !takes_value(o) ||
        (o->kind != CLI_STRING && o->kind != CLI_TEXT && o->kind != CLI_WORDS && !is_number))
        return NULL;
    *text = a + 2;
    return o;
}

/* An option of another tool that was left out. */
struct note {
    const char *name;
    size_t n_name;
    const char *why;
};

/* An option of another tool: a note for later, when -q is known, or an error with a hint. *used: whether the next argument
 * belongs to it. */
static bool follow_habit(const struct cli *c, const struct cli_habit *h, const char *a, size_t n_name,
                         const char *next, struct note *note, bool *used, struct err *e)
{
    bool has_text = a[n_name] == '=';
    *used = false;
    if (h->kind == CLI_HABIT_REFUSED)
        return err_set(e, ERR_USAGE, "%.*s is not an option of milkit %s: %s", (int)n_name, a, c->command,
                       h->text);
    if (has_text && h->value == CLI_HABIT_NONE)
        return err_set(e, ERR_USAGE, "%.*s takes no value", (int)n_name, a);
    if (!has_text && h->value == CLI_HABIT_VALUE) {
        if (!next)
            return err_set(e, ERR_USAGE, "%s needs a value", a);
        *used = true;
    }
    if (!has_text && h->value == CLI_HABIT_SWITCH)
        *used = next && cli_habit_is_switch_value(next);
    *note = (struct note){a, n_name, h->text};
    return true;
}

static bool unknown_option(const struct cli_option *options, int n_options, const char *a, struct err *e)
{
    char name[64], nearest[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(a, "="), a);
    const char *found = option_nearest(options, n_options, name, nearest);
    return found ? err_set(e, ERR_USAGE, "unknown option '%s'; did you mean '%s'?", a, found)
                 : err_set(e, ERR_USAGE, "unknown option '%s'", a);
}

/* A word more than the command takes: other programs have prompts, files and folders in such places. */
static bool unexpected_word(const struct cli *c, const char *a, struct err *e)
{
    const char *hint = cli_habit_word(c->command);
    return hint ? err_set(e, ERR_USAGE, "unexpected argument '%s'; %s", a, hint)
                : err_set(e, ERR_USAGE, "unexpected argument '%s'", a);
}

/* notes [argc] */
static bool parse_words(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
                        const char **positional, int n_max, int *n_positional, struct note *notes,
                        int *n_notes, bool *help, struct err *e)
{
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (only_positional || a[0] != '-' || a[1] == '\0') {
            if (*n_positional == n_max)
                return unexpected_word(c, a, e);
            positional[(*n_positional)++] = a;
            continue;
        }
        if (strcmp(a, "--") == 0) {
            only_positional = true;
            continue;
        }
        size_t n_name = strcspn(a, "=");
        const struct cli_option *o = option_find(options, n_options, a, n_name);
        const char *text = o && a[n_name] == '=' ? a + n_name + 1 : NULL;
        if (!o) {
            const struct cli_habit *habit = cli_habit_find(c->command, a, n_name);
            bool used;
            if (habit) {
                if (!follow_habit(c, habit, a, n_name, i + 1 < argc ? argv[i + 1] : NULL, &notes[*n_notes],
                                  &used, e))
                    return false;
                ++*n_notes;
                i += used;
                continue;
            }
            if (common_option(c, a, help)) {
                if (*help)
                    return true;
                continue;
            }
            o = option_find_joined(options, n_options, a, &text);
            n_name = 2;
        }
        if (!o)
            return unknown_option(options, n_options, a, e);
        if (!takes_value(o) && text)
            return err_set(e, ERR_USAGE, "%.*s takes no value", (int)n_name, a);
        if (takes_value(o) && !text) {
            if (i + 1 == argc)
                return err_set(e, ERR_USAGE, "%s needs a value (%s)", a, o->arg ? o->arg : "VALUE");
            text = argv[++i];
        }
        if (!option_set(o, a, n_name, text, e))
            return false;
    }
    return true;
}

static bool is_stdin(const char *text)
{
    return text && (strcmp(text, "-") == 0 || strcmp(text, "@-") == 0);
}

bool cli_parse(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
               const char **positional, int n_max, int *n_positional, const char *synopsis, bool *help,
               struct err *e)
{
    struct note *notes = xcalloc((size_t)argc + 1, sizeof *notes);
    int n_notes = 0;
    *help = false;
    *n_positional = 0;
    bool ok = parse_words(c, argc, argv, options, n_options, positional, n_max, n_positional, notes, &n_notes,
                          help, e);
    if (ok && *help)
        print_options(c, options, n_options, synopsis);
    for (int i = 0; ok && !*help && i < n_options; i++)
        if (options[i].kind == CLI_TEXT && is_stdin(*(const char **)options[i].value))
            cli_say_waiting(c, "text");
    for (int i = 0; ok && !*help && i < n_notes; i++)
        log_info(&c->log, "%.*s is ignored: %s", (int)notes[i].n_name, notes[i].name, notes[i].why);
    free(notes);
    return ok;
}

/* ---- messages ---- */

int cli_fail(const struct cli *c, const struct err *e, const char *hint)
{
    const char *why = strstr(e->msg, "interrupted");
    fflush(stdout);
    if (e->code == ERR_CLOSED) /* whoever read stdout has seen enough: not a fault of anyone */
        return err_exit_status(e->code);
    if (e->code == ERR_CANCELLED)
        /* without where it happened, but with what was kept */
        fprintf(stderr, "%s: %s%s\n", c->program, why ? why : "interrupted", cli_hint_text(e->hint));
    else
        fprintf(stderr, "%s: error: %s%s\n", c->program, e->msg[0] ? e->msg : "failed",
                cli_hint_text(e->hint));
    if (hint)
        fprintf(stderr, "%s: %s\n", c->program, hint);
    else if (e->code == ERR_USAGE && c->command)
        fprintf(stderr, "%s: %s help %s shows the options\n", c->program, c->program, c->command);
    return err_exit_status(e->code ? e->code : ERR_FAILED);
}

/* The other end of a pipe or socket is closed. Asked of the system, for the errno of a write inside printf is lost. */
static bool reader_is_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

bool cli_flush(struct err *e)
{
    errno = 0;
    bool failed = fflush(stdout) != 0;
    if (!failed && !ferror(stdout))
        return true;
    if (!failed && reader_is_gone())
        return err_set(e, ERR_CLOSED, "stdout: closed by its reader");
    return failed ? err_set_errno(e, "stdout: can't write") : err_set(e, ERR_IO, "stdout: a write failed");
}

static void put_filtered(const char *text, size_t n, void (*filter)(struct buf *, const char *, size_t))
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    filter(&b, text, n);
    (void)fwrite(b.p ? b.p : "", 1, b.n, stdout);
    buf_fini(&b);
}

void cli_put_text(const char *text, size_t n)
{
    if (isatty(STDOUT_FILENO) == 1)
        put_filtered(text, n, terminal_append);
    else
        (void)fwrite(text, 1, n, stdout);
}

void cli_put_json(const char *json, size_t n)
{
    put_filtered(json, n, json_append_printable);
}

/* ---- inputs ---- */

bool cli_keep_path(struct cli *c, const char **path, char *found, struct err *e)
{
    if (c->n_resolved == (int)(sizeof c->resolved / sizeof c->resolved[0])) {
        free(found);
        return err_set(e, ERR_BUG, "%s: more names than a command has", *path);
    }
    *path = c->resolved[c->n_resolved++] = found;
    return true;
}

bool cli_resolve(struct cli *c, const char **path, struct err *e)
{
    char *found;
    if (!*path)
        return true;
    return hub_resolve(&found, *path, e) && cli_keep_path(c, path, found, e);
}

bool cli_source(struct cli *c, const char **path, struct err *e)
{
    if (!gguf_is_file(*path))
        return true;
    if (!checkpoint_source_open(&c->source, *path, NULL, e))
        return false;
    *path = c->source->folder;
    return true;
}

bool cli_tokenizer_folder(char **out, const char *path, const char *member, struct err *e)
{
    static const char what[] = "a package, a checkpoint or a folder with a tokenizer";
    struct stat st;
    bool is_file = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    char *folder = is_file ? path_folder(path) : xstrdup(path);
    bool ok = folder_check(folder, what, is_file ? NULL : member, e);
    char *inner = is_file && member ? path_join(folder, member) : NULL;
    if (ok && inner && !path_exists(inner))
        ok = err_set(e, ERR_FORMAT, "%s: expected %s, found a file without %s beside it", path, what, member);
    free(inner);
    if (!ok) {
        free(folder);
        folder = NULL;
    }
    *out = folder;
    return ok;
}

static bool stream_read(FILE *f, const char *where, char **text, size_t *bytes, size_t max_bytes,
                        struct err *e)
{
    struct buf b;
    char part[16384];
    bool ok = false;
    buf_init(&b, max_bytes);
    for (;;) {
        size_t n = fread(part, 1, sizeof part, f);
        buf_append(&b, part, n);
        if (b.failed) {
            err_set(e, ERR_LIMIT, "%s: longer than the limit of %zu bytes", where, max_bytes);
            goto out;
        }
        if (n < sizeof part)
            break;
    }
    if (ferror(f)) {
        if (errno == EINTR)
            err_set(e, ERR_CANCELLED, "interrupted");
        else
            err_set_errno(e, "%s: can't read", where);
        goto out;
    }
    *text = buf_take(&b, bytes);
    ok = true;
out:
    buf_fini(&b);
    return ok;
}

bool cli_check_output(const char *option, const char *path, bool is_stream, bool force, struct err *e)
{
    if (!path)
        return true;
    if (strcmp(path, "-") != 0)
        return path_check_output(path, force, e);
    return is_stream ||
           err_set(e, ERR_USAGE, "%s -: this does not go to stdout; expected a name (./- is one, too)",
                   option);
}

void cli_say_waiting(struct cli *c, const char *what)
{
    if (isatty(STDIN_FILENO) == 1)
        log_info(&c->log, "waiting for %s on stdin; Ctrl-D ends it", what);
}

bool cli_read_text(const char *path, char **text, size_t *bytes, size_t max_bytes, struct err *e)
{
    struct stat st;
    if (strcmp(path, "-") == 0)
        return stream_read(stdin, "stdin", text, bytes, max_bytes, e);
    /* The shell's <(command) is a pipe, /dev/stdin may be a terminal. */
    if (stat(path, &st) != 0 || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
        return file_read(text, bytes, path, max_bytes, e);
    FILE *f = fopen(path, "rbe");
    if (!f && errno == EINTR)
        return err_set(e, ERR_CANCELLED, "interrupted");
    if (!f)
        return err_set_errno(e, "%s: can't open", path);
    bool ok = stream_read(f, path, text, bytes, max_bytes, e);
    fclose(f);
    return ok;
}

bool cli_read_ids(const char *text, int32_t **ids, size_t *n, struct err *e)
{
    char *file_text = NULL;
    size_t bytes = 0;
    *ids = NULL;
    *n = 0;
    if (text[0] != '@')
        return id_list_read(text, "token ids", ERR_USAGE, ids, n, e);
    bool ok = cli_read_text(text + 1, &file_text, &bytes, ID_LIST_BYTES_MAX, e) &&
              id_list_read(file_text, text + 1, ERR_FORMAT, ids, n, e);
    free(file_text);
    return ok;
}

bool cli_read_vocabulary_ids(const char *text, int64_t vocab_size, int32_t **ids, size_t *n, struct err *e)
{
    if (!cli_read_ids(text, ids, n, e))
        return false;
    if (id_list_check(*ids, *n, vocab_size, e))
        return true;
    if (text[0] == '@') {
        err_wrap(e, "%s", text + 1);
        e->code = ERR_FORMAT;
    }
    free(*ids);
    *ids = NULL;
    return false;
}
