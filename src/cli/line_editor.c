/* libedit behind a small door: signals, pasted text and text that is given back are handled here.
 *
 * Signals are blocked but for the moments when the editor waits for a byte, so none is missed between a look at the flag
 * and the wait. libedit's own handlers stay off: they would send what they caught to the whole process group.
 */
#include "cli/line_editor.h"
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define HISTORY_LINES 2000
/* What a terminal sends before and behind a pasted text, once asked to. */
#define PASTE_BEGINS L"\033[200~"
#define PASTE_ENDS L"\033[201~"
#define PASTE_MARKS_ON "\033[?2004h"
#define PASTE_MARKS_OFF "\033[?2004l"

struct line_editor {
    const struct log *log;
    FILE *out; /* stderr's terminal, buffered */
    EditLine *edit;
    HistoryW *history;
    const char *prompt;
    wchar_t *offered;     /* heap; NULL: none */
    const wchar_t *queue; /* read before the terminal */
    mbstate_t decoding;
    enum line_result end; /* why a read came to nothing */
    int problem;          /* errno of LINE_FAILED */
    struct sigaction old_resized, old_continued;
    sigset_t signals; /* as they were outside of a read */
};

/* Heap string. What is not a character is left out. */
static wchar_t *decode(const char *text, size_t bytes)
{
    wchar_t *out = xmalloc((bytes + 1) * sizeof *out);
    mbstate_t state = {0};
    size_t n = 0;
    for (size_t at = 0; at < bytes;) {
        size_t k = mbrtowc(&out[n], text + at, bytes - at, &state);
        if (k == 0 || k > bytes - at) { /* NUL, or no character */
            memset(&state, 0, sizeof state);
            at++;
            continue;
        }
        at += k;
        n++;
    }
    out[n] = L'\0';
    return out;
}

static void encode(struct buf *out, const wchar_t *text, size_t n)
{
    mbstate_t state = {0};
    char bytes[MB_LEN_MAX];
    for (size_t i = 0; i < n; i++) {
        size_t k = wcrtomb(bytes, text[i], &state);
        if (k != (size_t)-1)
            buf_append(out, bytes, k);
    }
}

static struct line_editor *editor_of(EditLine *edit)
{
    struct line_editor *l = NULL;
    el_get(edit, EL_CLIENTDATA, &l);
    return l;
}

/* --- characters --- */

static int stop_reading(struct line_editor *l, enum line_result end)
{
    l->problem = errno;
    l->end = end;
    return end == LINE_END ? 0 : -1;
}

/* The window has another size, or the program was stopped and the shell has set the terminal up for itself. */
static void take_terminal_back(EditLine *edit)
{
    el_set(edit, EL_PREP_TERM, 0);
    el_set(edit, EL_PREP_TERM, 1);
    el_resize(edit);
    el_set(edit, EL_REFRESH);
}

/* One byte at a time: what comes behind the line's end is somebody else's. */
static int read_character(EditLine *edit, wchar_t *character)
{
    struct line_editor *l = editor_of(edit);
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    if (*l->queue) {
        *character = *l->queue++;
        return 1;
    }
    for (;;) {
        char byte;
        if (log_cancelled(l->log, NULL))
            return stop_reading(l, LINE_INTERRUPTED);
        if (ppoll(&wait, 1, NULL, &l->signals) < 0) {
            if (errno != EINTR)
                return stop_reading(l, LINE_FAILED);
            if (!log_cancelled(l->log, NULL))
                take_terminal_back(edit);
            continue;
        }
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stop_reading(l, n == 0 ? LINE_END : LINE_FAILED);
        size_t k = mbrtowc(character, &byte, 1, &l->decoding);
        if (k == 1 || k == 0)
            return 1;
        if (k == (size_t)-1)
            memset(&l->decoding, 0, sizeof l->decoding);
    }
}

/* --- what keys do --- */

static void insert(EditLine *edit, const wchar_t *text)
{
    if (text[0])
        el_winsertstr(edit, text);
}

/* Line ends of a paste may be \r, \n or both; of other control characters only tabs are text. */
static void clean(wchar_t *text)
{
    wchar_t *to = text;
    for (const wchar_t *from = text; *from; from++) {
        if (*from == L'\r')
            *to++ = L'\n';
        else if (*from == L'\n' && from > text && from[-1] == L'\r')
            continue;
        else if ((*from >= L' ' && *from != 0x7f) || *from == L'\n' || *from == L'\t')
            *to++ = *from;
    }
    *to = L'\0';
}

/* Reads until the mark behind a paste, or to the end of the input. */
static wchar_t *read_paste(EditLine *edit, bool *is_whole)
{
    static const wchar_t mark[] = PASTE_ENDS;
    const size_t n_mark = sizeof mark / sizeof *mark - 1;
    size_t n = 0, capacity = 4096;
    wchar_t *text = xmalloc(capacity * sizeof *text), c;
    *is_whole = false;
    while (!*is_whole && read_character(edit, &c) == 1) {
        if (c == L'\0')
            continue;
        if (n + 1 == capacity) {
            capacity *= 2;
            text = xrealloc(text, capacity * sizeof *text);
        }
        text[n++] = c;
        *is_whole = n >= n_mark && wmemcmp(text + n - n_mark, mark, n_mark) == 0;
    }
    text[*is_whole ? n - n_mark : n] = L'\0';
    return text;
}

static unsigned char key_paste(EditLine *edit, int key)
{
    struct line_editor *l = editor_of(edit);
    bool is_whole = true;
    (void)key;
    wchar_t *text = l->offered ? l->offered : read_paste(edit, &is_whole);
    l->offered = NULL;
    clean(text);
    insert(edit, text);
    free(text);
    return is_whole ? CC_REFRESH : CC_EOF;
}

/* Completes the name of a file behind a command. */
static unsigned char key_tab(EditLine *edit, int key)
{
    const LineInfoW *line = el_wline(edit);
    size_t n = (size_t)(line->cursor - line->buffer);
    if (n > 0 && line->buffer[0] == L'/' && wmemchr(line->buffer, L' ', n))
        return _el_fn_complete(edit, key);
    insert(edit, L"\t");
    return CC_REFRESH;
}

static unsigned char key_line_break(EditLine *edit, int key)
{
    (void)key;
    insert(edit, L"\n");
    return CC_REFRESH;
}

static char *prompt_text(EditLine *edit)
{
    return (char *)(uintptr_t)editor_of(edit)->prompt; /* libedit only reads it */
}

static void set_keys(EditLine *edit)
{
    el_set(edit, EL_EDITOR, "emacs");
    /* wide, because the other call loses copies of its texts */
    el_wset(edit, EL_ADDFN, L"milkit-paste", L"inserts a pasted text", key_paste);
    el_wset(edit, EL_ADDFN, L"milkit-line-break", L"inserts a line break", key_line_break);
    el_wset(edit, EL_ADDFN, L"milkit-tab", L"completes a file name behind a command", key_tab);
    el_set(edit, EL_BIND, "\\e[200~", "milkit-paste", NULL);
    el_set(edit, EL_BIND, "^I", "milkit-tab", NULL);
    el_set(edit, EL_BIND, "\\e^M", "milkit-line-break", NULL);
    el_set(edit, EL_BIND, "\\e^J", "milkit-line-break", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(edit, EL_BIND, "^S", "em-inc-search-next", NULL);
    /* Home, End, Delete and Ctrl with arrows, as most terminals send them */
    el_set(edit, EL_BIND, "\\e[1~", "ed-move-to-beg", NULL);
    el_set(edit, EL_BIND, "\\e[4~", "ed-move-to-end", NULL);
    el_set(edit, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
    el_set(edit, EL_BIND, "\\e[1;5C", "em-next-word", NULL);
    el_set(edit, EL_BIND, "\\e[1;5D", "ed-prev-word", NULL);
    (void)el_source(edit, NULL); /* the user's own keys, ~/.editrc, come last */
}

/* --- life --- */

static bool takes_utf8(void)
{
    if (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0)
        return true;
    return setlocale(LC_CTYPE, "C.UTF-8") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static void on_terminal_signal(int signal_number)
{
    (void)signal_number; /* it is enough that the wait ends */
}

static void set_signals(struct line_editor *l)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_terminal_signal;
    sigaction(SIGWINCH, &action, &l->old_resized);
    sigaction(SIGCONT, &action, &l->old_continued);
}

struct line_editor *line_editor_open(const struct log *log)
{
    const char *term = getenv("TERM");
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1 || !term || !term[0] ||
        strcmp(term, "dumb") == 0 || !takes_utf8())
        return NULL;
    int fd = dup(STDERR_FILENO);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct line_editor *l = xcalloc(1, sizeof *l);
    l->log = log;
    l->out = out;
    l->queue = L"";
    l->prompt = "";
    l->edit = el_init_fd("milkit", stdin, out, out, STDIN_FILENO, fd, fd);
    l->history = history_winit();
    set_signals(l);
    if (!l->edit || !l->history) {
        line_editor_close(l);
        return NULL;
    }
    HistEventW event;
    history_w(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history_w(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_PROMPT, prompt_text);
    el_wset(l->edit, EL_HIST, history_w, l->history);
    set_keys(l->edit);
    el_wset(l->edit, EL_GETCFN, read_character);
    return l;
}

void line_editor_close(struct line_editor *l)
{
    if (!l)
        return;
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_wend(l->history);
    sigaction(SIGWINCH, &l->old_resized, NULL);
    sigaction(SIGCONT, &l->old_continued, NULL);
    fclose(l->out);
    free(l->offered);
    free(l);
}

void line_editor_remember(struct line_editor *l, const char *text, size_t bytes)
{
    HistEventW event;
    wchar_t *wide = decode(text, bytes);
    if (wide[0])
        history_w(l->history, &event, H_ENTER, wide);
    free(wide);
}

void line_editor_offer(struct line_editor *l, const char *text, size_t bytes)
{
    free(l->offered);
    l->offered = decode(text, bytes);
}

static void show(struct line_editor *l, const char *sequence)
{
    fputs(sequence, l->out);
    fflush(l->out);
}

enum line_result line_editor_read(struct line_editor *l, const char *prompt, struct buf *out, struct err *e)
{
    sigset_t blocked;
    int n = 0;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGWINCH);
    sigaddset(&blocked, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &blocked, &l->signals);
    l->prompt = prompt;
    l->end = LINE_END;
    l->queue = l->offered ? PASTE_BEGINS : L"";
    memset(&l->decoding, 0, sizeof l->decoding);
    show(l, PASTE_MARKS_ON);
    const wchar_t *line = el_wgets(l->edit, &n);
    show(l, PASTE_MARKS_OFF);
    pthread_sigmask(SIG_SETMASK, &l->signals, NULL);
    if (line && n > 0) {
        /* the key that ended it, and a line end that came with a paste */
        for (int i = 0; i < 2 && n > 0 && line[n - 1] == L'\n'; i++)
            n--;
        encode(out, line, (size_t)n);
        return LINE_READ;
    }
    if (l->end == LINE_INTERRUPTED) {
        const LineInfoW *unfinished = el_wline(l->edit);
        (void)log_cancelled(l->log, e);
        encode(out, unfinished->buffer, (size_t)(unfinished->lastchar - unfinished->buffer));
    } else if (l->end == LINE_FAILED) {
        errno = l->problem;
        err_set_errno(e, "stdin: can't read");
    }
    return l->end;
}
