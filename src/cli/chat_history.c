/* The history file: an entry a line, with \n and \\ for line breaks and backslashes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/terminal.h"
#include "cli/chat.h"

#define HISTORY_BYTES_MAX ((size_t)1 << 20)
#define ENTRY_BYTES_MAX ((size_t)64 << 10)

char *chat_history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/')
        return xasprintf("%s/milkit/history", state);
    return home && home[0] == '/' ? xasprintf("%s/.local/state/milkit/history", home) : NULL;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, p, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        p += written;
        n -= (size_t)written;
    }
    return true;
}

/* Of a file that has grown too large the newer half stays. */
static bool shorten(const char *path, int fd, size_t bytes)
{
    char *text = NULL;
    size_t n = 0;
    if (bytes < HISTORY_BYTES_MAX)
        return true;
    bool ok = file_read(&text, &n, path, 4 * HISTORY_BYTES_MAX, NULL);
    const char *half = ok ? memchr(text + n / 2, '\n', n - n / 2) : NULL;
    ok = ftruncate(fd, 0) == 0 && (!half || write_all(fd, half + 1, n - (size_t)(half + 1 - text)));
    free(text);
    return ok;
}

static bool append(const char *path, const struct buf *line)
{
    char *folder = path_folder(path);
    struct stat st;
    bool ok = folder_make(folder, NULL);
    int fd = ok ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fchmod(fd, 0600) == 0 &&
         shorten(path, fd, (size_t)st.st_size) && write_all(fd, line->p, line->n);
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    free(folder);
    return ok;
}

void chat_history_add(struct chat *chat, const char *text, size_t bytes)
{
    struct buf line;
    if (!chat->history || bytes == 0 || bytes > ENTRY_BYTES_MAX)
        return;
    buf_init(&line, 2 * ENTRY_BYTES_MAX + 2);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n')
            buf_puts(&line, "\\n");
        else if (text[i] == '\\')
            buf_puts(&line, "\\\\");
        else
            buf_putc(&line, text[i]);
    }
    buf_putc(&line, '\n');
    errno = 0;
    if (!append(chat->history, &line)) {
        log_warn(&chat->cli->log, "%s: the history is not kept%s%s", chat->history, errno ? ": " : "",
                 errno ? strerror(errno) : "");
        free(chat->history);
        chat->history = NULL;
    }
    buf_fini(&line);
}

void chat_history_recall(struct chat *chat)
{
    char *text = NULL;
    size_t bytes = 0;
    struct buf entry;
    if (!chat->history || !chat->editor ||
        !file_read(&text, &bytes, chat->history, 4 * HISTORY_BYTES_MAX, NULL))
        return;
    buf_init(&entry, 4 * HISTORY_BYTES_MAX);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n') {
            line_editor_remember(chat->editor, entry.p ? entry.p : "", entry.n);
            buf_clear(&entry);
        } else if (text[i] == '\\' && i + 1 < bytes && text[i + 1] != '\n') {
            buf_putc(&entry, text[++i] == 'n' ? '\n' : text[i]);
        } else {
            buf_putc(&entry, text[i]);
        }
    }
    buf_fini(&entry);
    free(text);
}

bool chat_history_show(const struct chat *chat, int64_t n, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!chat->history)
        return err_set(e, ERR_USAGE, "no history is kept");
    if (!path_exists(chat->history))
        return true;
    if (!file_read(&text, &bytes, chat->history, 4 * HISTORY_BYTES_MAX, e))
        return false;
    size_t begin = bytes;
    while (begin > 0 && (n > 0 || text[begin - 1] != '\n')) {
        begin--;
        if (begin > 0 && text[begin - 1] == '\n')
            n--;
    }
    struct buf shown;
    buf_init(&shown, SIZE_MAX / 2);
    terminal_append(&shown, text + begin, bytes - begin);
    fwrite(shown.p ? shown.p : "", 1, shown.n, stderr);
    buf_fini(&shown);
    free(text);
    return true;
}
