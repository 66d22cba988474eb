# milkit chat at a terminal, which tmux plays: three turns, /regen, Ctrl-C in mid answer, /save and /load, thinking dimmed,
# editing, recall, search, pasted texts, and that nothing typed is lost.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
if ! command -v tmux >/dev/null; then
    echo "SKIPPED: tmux is not installed, so nothing was tried at a terminal"
    exit 77
fi
make_package "$tiny" tiny -c 2048 -b 64
export LC_ALL=C.UTF-8 XDG_STATE_HOME=$SCRATCH/state HOME=$SCRATCH
unset NO_COLOR TMUX
# a server for each chat: one that is being killed would take the next chat with it
n_servers=0
t() {
    tmux -S "$SCRATCH/tmux$n_servers" -f /dev/null "$@"
}
trap 't kill-server 2>/dev/null' EXIT

# start OPTIONS...: a chat on a new terminal; its status is printed when it ends
start() {
    n_servers=$((n_servers + 1))
    t new-session -d -x 120 -y 200 \
        "env TERM=xterm-256color LC_ALL=C.UTF-8 '$MILKIT' chat tiny --greedy $*; echo \"status \$?\"; sleep 600" ||
        {
            [ $n_servers -gt 1 ] && echo "FAILED: tmux does not start again" && exit 1
            echo "SKIPPED: tmux does not start here, so nothing was tried at a terminal"
            exit 77
        }
}
screen() {
    t capture-pane -p -J -S - "$@" | sed -e 's/ *$//'
}
# wait_for PATTERN [COUNT]: until so many lines match, for a minute
wait_for() {
    for _ in $(seq 600); do
        [ "$(screen | grep -c -- "$1")" -ge "${2:-1}" ] && return
        sleep 0.1
    done
    fail "waited for '$1' in vain: $(screen | sed '/^$/d')"
}
type_line() {
    t send-keys -l -- "$1"
    t send-keys Enter
}

start -n 40 --chat-template "'$DATA/chat/keep.jinja'"
wait_for '^>$'
type_line 'But, beloved'
wait_for 'stopped:' 1
type_line 'And it came'
wait_for 'stopped:' 2
type_line '/stats'
wait_for '^2 turns'
type_line '/regen'
wait_for 'stopped:' 4
type_line 'Go \'
wait_for '^\.$'
type_line 'on'
wait_for 'stopped:' 5
type_line '/save saved.json'
wait_for 'messages saved'
type_line '/set max-tokens -1'
wait_for '^max-tokens is -1'
type_line '/load saved.json'
wait_for 'messages loaded'
wait_for '^>$'
screen | sed -e '/^$/d' -e 's/[0-9.]* tokens\/s/RATE tokens\/s/g' -e 's/in [0-9.]* s/in TIME s/g' >session.txt
if [ "${KEEP_SESSION:-}" ]; then
    cp session.txt "$KEEP_SESSION"
fi
diff "$DATA/chat/session.txt" session.txt >difference.txt || fail "the session: $(cat difference.txt)"
# the second turn's prompt holds all tokens of the first turn, and only the rest was computed
first=$(sed -n 's/.*context: \([0-9]*\) of.*/\1/p' session.txt | sed -n 1p)
second=$(sed -n 's/.* \([0-9]*\) reused.*/\1/p' session.txt | sed -n 2p)
[ "$first" -gt 0 ] && [ "$first" = "$second" ] || fail "turn 2: $second of $first tokens reused"

# ---- Ctrl-C stops an answer, and the chat goes on; two leave ----
t kill-server
start --ignore-eos -n -1
wait_for '^>$'
type_line 'But, beloved'
wait_for 'LORD'
t send-keys C-c
wait_for 'stopped: interrupted'
wait_for 'Ctrl-C again leaves'
type_line '/set max-tokens 5'
wait_for '^max-tokens is 5'
type_line 'And it came'
wait_for 'stopped: length'
t send-keys C-c
wait_for 'Ctrl-C again leaves' 2
t send-keys C-c
wait_for '^status 130$'
grep -q '^/set max-tokens 5$' state/milkit/history || fail "history: $(cat state/milkit/history)"
grep -q '^Go \\non$' state/milkit/history || fail "history of several lines: $(cat state/milkit/history)"
[ "$(stat -c %a state/milkit/history)" = 600 ] || fail "history: mode $(stat -c %a state/milkit/history)"

# ---- Ctrl-D leaves; thinking is dimmed; --no-history keeps none ----
t kill-server
before=$(cat state/milkit/history)
start -n 60 --no-history
wait_for '^>$'
type_line 'But, beloved'
wait_for 'stopped:' 1
type_line 'And it came'
wait_for 'stopped:' 2
dim=$(printf '\033[2m')
screen -e | grep -qF "${dim}The words" || fail "thinking is not dimmed: $(screen -e | cat -v | sed '/^$/d')"
t send-keys C-d
wait_for '^status 0$'
t kill-server
export NO_COLOR=1
start -n 60 --no-history
wait_for '^>$'
type_line 'But, beloved'
wait_for 'stopped:' 1
type_line 'And it came'
wait_for 'stopped:' 2
grep -qF '</think>' <(screen) || fail "NO_COLOR: thinking is not set apart: $(screen)"
screen -e | grep -qF "$dim" && fail "NO_COLOR: something is dimmed"
unset NO_COLOR
[ "$(cat state/milkit/history)" = "$before" ] || fail "--no-history: $(cat state/milkit/history)"
t kill-server

# ---- a command that fails returns to the prompt, and what is no command comes back to be edited ----
start -n 3
wait_for '^>$'
type_line 'And it came'
wait_for 'stopped:'
for command in '/load missing.json' '/read missing.txt' '/save saved.json/x.json' '/load tiny' '/save tiny'; do
    type_line "$command"
    wait_for 'error:.*' $((${n_errors:=0} + 1))
    n_errors=$((n_errors + 1))
done
echo 'mine' >mine.json
for answer in n '' C-c C-d; do
    type_line '/save mine.json'
    wait_for 'Replace it' $((${n_asked:=0} + 1))
    n_asked=$((n_asked + 1))
    case $answer in
    C-*) t send-keys "$answer" ;;
    *) type_line "$answer" ;;
    esac
    wait_for '^>$'
    [ "$(cat mine.json)" = mine ] || fail "/save has replaced a file: $(cat mine.json)"
done
type_line '/save mine.json'
wait_for 'Replace it' 5
type_line 'y'
wait_for 'messages saved' 1
grep -qF 'And it came' mine.json || fail "/save after a yes: $(cat mine.json)"
type_line '/save --force mine.json'
wait_for 'messages saved' 2
type_line '/clear the table'
wait_for '/clear takes nothing behind it'
wait_for '^> /clear the table$' 2
t send-keys Home
t send-keys /
t send-keys Enter
wait_for 'stopped:' 2
type_line '/exeunt omnes'
wait_for 'no command /exeunt'
t send-keys C-u
type_line '/save --force mine.json'
wait_for '^4 messages saved'
grep -qF '"content": "/clear the table"' mine.json || fail "the text is not kept: $(cat mine.json)"
grep -qF 'exeunt' mine.json && fail "what is no command was said: $(cat mine.json)"

# ---- editing, recall and search; characters of several bytes ----
type_line '/system Zwölf Boxkämpfer 拳击手 🥊'
wait_for 'message is set' 1
type_line '/system lost'
wait_for 'message is set' 2
t send-keys C-r
t send-keys -l 'Box'
t send-keys Enter
wait_for 'message is set' 3
type_line '/system'
wait_for '^Zwölf Boxkämpfer 拳击手 🥊$'
t send-keys Up Up
t send-keys C-e
t send-keys -l ' abd'
t send-keys Left c Right BSpace
t send-keys Enter
wait_for 'message is set' 4
type_line '/system'
wait_for '^Zwölf Boxkämpfer 拳击手 🥊 abc$'
t send-keys -l '/system first'
t send-keys M-Enter
t send-keys -l 'second'
t send-keys Enter
wait_for 'message is set' 5
type_line '/save --force mine.json'
wait_for '^4 messages saved' 2
grep -qF '"content": "first\nsecond"' mine.json || fail "Alt-Enter: $(cat mine.json)"
t send-keys -l '/load mine.j'
t send-keys Tab Enter
wait_for '^4 messages loaded'
t send-keys -l 'sword \'
t send-keys Enter
wait_for '^\.$'
t send-keys C-c
wait_for 'dropped; Up' 1
t send-keys Up
t send-keys C-a
t send-keys -l '/system '
t send-keys Enter
wait_for 'message is set' 6
# Ctrl-C at a half written line: nothing is said, and the line can be recalled
t send-keys -l '/system half written'
wait_for '/system half written$'
t send-keys C-c
wait_for 'dropped; Up' 2
t send-keys -l 'another half'
wait_for 'another half$'
t send-keys C-c
wait_for 'dropped; Up' 3
t send-keys Up
t send-keys Up Enter
wait_for 'message is set' 7
t send-keys C-d
wait_for '^status 0$'
t kill-server

# ---- recall from the history file ----
start -n 3
wait_for '^>$'
t send-keys Up Up Up Up Up Enter
wait_for '^second$'
wait_for 'message is set'
t send-keys C-d
wait_for '^status 0$'
t kill-server

# ---- long lines and pasted texts; a window of another size ----
start -n 3 --no-history
wait_for '^>$'
awk 'BEGIN { printf "/system "; for (i = 0; i < 15000; i++) printf "%05d ", i; print "end" }' >long.txt
t load-buffer long.txt
t paste-buffer
wait_for 'message is set' 1
type_line '/save long.json'
wait_for 'messages saved' 1
grep -qF "$(sed 's/^.system //' long.txt)" long.json || fail "a line of $(wc -c <long.txt) bytes: $(wc -c long.json)"
# the same as a paste in several lines; marks make it one message
awk 'BEGIN { printf "/system "; for (i = 0; i < 15000; i++) printf "%05d%s", i, i % 10 == 9 ? "\n" : "\t"; print "end" }' >long.txt
t load-buffer long.txt
t paste-buffer -p
t resize-window -x 90 -y 150
t send-keys Enter
wait_for 'message is set' 2
type_line '/save paste.json'
wait_for 'messages saved' 2
tr '\n' '|' <long.txt | sed -e 's/^.system //' -e 's/|end|$/|end"}/' -e 's/|/\\n/g' -e 's/\t/\\t/g' >expected.txt
grep -qFf expected.txt paste.json || fail "a paste of $(wc -c <long.txt) bytes: $(head -c 200 paste.json)"
t kill-server

# ---- Ctrl-C before an answer begins: the message comes back; a terminal that can't edit ----
make_package "$tiny" slow -c 8192 -b 1
n_servers=$((n_servers + 1))
t new-session -d -x 120 -y 200 "env TERM=xterm-256color MILKIT_CPU=scalar '$MILKIT' chat slow -t 1 --greedy -n 3 --no-history; echo \"status \$?\"; sleep 600"
wait_for '^>$'
awk 'BEGIN { for (i = 0; i < 1200; i++) printf "%d, ", i; print "end" }' >long.txt
t load-buffer long.txt
t paste-buffer -p
t send-keys Enter
wait_for 'prompt'
t send-keys C-c
wait_for 'message is back to be edited'
wait_for '1199, end$' 2
t send-keys C-u
type_line 'And'
wait_for 'stopped:'
t send-keys C-d
wait_for '^status 0$'
t kill-server
n_servers=$((n_servers + 1))
t new-session -d -x 120 -y 200 "env TERM=dumb '$MILKIT' chat tiny --greedy -n 3 --no-history; echo \"status \$?\"; sleep 600"
wait_for '^>$'
type_line 'And it came'
wait_for 'stopped:'
t load-buffer long.txt
t paste-buffer
wait_for 'dropped the end, is not taken'
type_line '/nothing'
wait_for 'no command /nothing'
t send-keys C-d
wait_for '^status 0$'
t kill-server
finish
