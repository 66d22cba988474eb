# milkit chat at a terminal, which tmux plays: three turns, /regen, Ctrl-C in mid answer, /save and /load, thinking dimmed.
. "$SOURCE/tests/cli/packages.sh"
if ! command -v tmux >/dev/null; then
    echo "SKIPPED: tmux is not installed, so nothing was tried at a terminal"
    exit 77
fi
make_package "$tiny" tiny -c 2048 -b 64
export XDG_STATE_HOME=$SCRATCH/state HOME=$SCRATCH
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
finish
