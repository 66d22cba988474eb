# milkit chat from the outside: one turn, turns through a pipe, what is computed, commands, templates, a full context.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 512 -b 64
keep=$DATA/chat/keep.jinja
unset XDG_STATE_HOME
export HOME=$SCRATCH/home

# chat STATUS PACKAGE INPUT OPTIONS...: answers in out.txt, the rest in err.txt
chat() {
    local status=$1 package=$2 input=$3
    shift 3
    printf "$input" | "$MILKIT" chat "$package" --greedy -n 40 "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$status" ] || fail "expected status $status, found $got: chat $* ($(tail -1 err.txt))"
}
# of the N-th status line: tokens of the prompt, number N "word behind it", tokens in the context
prompt() {
    grep '^\[prompt' err.txt | sed -n "${1}s/.*prompt: \([0-9]*\) tokens.*/\1/p"
}
number() {
    grep '^\[prompt' err.txt | sed -n "${1}s/.*[^0-9]\([0-9][0-9]*\) $2.*/\1/p"
}
context() {
    grep '^\[prompt' err.txt | sed -n "${1}s/.*context: \([0-9]*\) of.*/\1/p"
}
told() {
    grep -qF -- "$1" err.txt || fail "expected '$1' on stderr, found: $(cat err.txt)"
}

# ---- one turn: what the template and run say together ----
expect 0 "" "$MILKIT" chat tiny -p 'But, beloved' --greedy -n 40
cp out.txt first.txt
[ -s err.txt ] && fail "-p: something on stderr: $(head -1 err.txt)"
printf '[{"role": "user", "content": "But, beloved"}]' | "$MILKIT" template tiny -g --ids >ids.txt 2>err.txt
expect 0 "" "$MILKIT" run tiny --tokens @ids.txt --greedy -n 40
grep -q '^</think>$' out.txt || fail "the model does not think: $(cat out.txt)"
sed '1,/^<\/think>$/d' out.txt | sed '1{/^$/d}' | cmp -s - first.txt || fail "chat: $(cat first.txt), run: $(cat out.txt)"
expect 0 "" "$MILKIT" chat tiny -p 'But, beloved' --greedy -n 40 --show-think
grep -q '^<think>$' out.txt && grep -q '^</think>$' out.txt && fail "an empty thought is shown"
expect 0 "" "$MILKIT" chat tiny -p 'And it came' --greedy -n 40 --show-think
cp out.txt shown.txt
expect 0 "" "$MILKIT" chat tiny -p 'And it came' --greedy -n 40
tail -n +1 out.txt | grep -q think && fail "thinking is shown where nobody asked for it"
# an answer of which nothing is shown says so
chat 0 tiny 'But, beloved\n/set max-tokens 8\nAnd it came\n' -n 60
[ "$(sed -n '$p' out.txt)" = "" ] || fail "the model does not think in the second turn: $(cat out.txt)"
told "the answer is thinking alone (8 tokens, stopped: length), which is not shown; --show-think"
chat 0 tiny 'But, beloved\n/set max-tokens 8\nAnd it came\n' -n 60 --show-think
grep -q '^<think>$' out.txt || fail "--show-think: $(cat out.txt)"
grep -q 'thinking alone' err.txt && fail "thinking is shown, and yet: $(cat err.txt)"
expect 0 "the answer is empty (2 tokens, stopped: length)" "$MILKIT" chat tiny -p 'But, beloved' --greedy -n 2
for how in "-p -" ""; do
    # shellcheck disable=SC2086
    printf 'But, beloved' | "$MILKIT" chat tiny $how --greedy -n 40 >out.txt 2>err.txt || fail "stdin by '$how': status"
    cmp -s out.txt first.txt || fail "stdin by '$how': $(cat out.txt)"
    [ -s err.txt ] && fail "stdin by '$how': something on stderr: $(head -1 err.txt)"
done
"$MILKIT" chat tiny </dev/null >out.txt 2>err.txt || fail "empty stdin: status"
[ -s out.txt ] || [ -s err.txt ] && fail "empty stdin: $(cat out.txt err.txt)"
expect 2 "empty" "$MILKIT" chat tiny --no-template -p ''

# ---- turns: the second one computes only what is new ----
chat 0 tiny 'But, beloved\nAnd it came\nGo on\n/stats\n' --chat-template "$keep" --stats
[ "$(wc -l <out.txt)" -eq 3 ] || fail "three turns: $(wc -l <out.txt) lines"
for n in 2 3; do
    [ "$(number $n reused)" = "$(context $((n - 1)))" ] || fail "turn $n does not reuse all before it: $(cat err.txt)"
done
told "3 turns: "
cp out.txt three.txt
# where the template takes something out of the answer before, at least all up to there is kept
chat 0 tiny 'But, beloved\nAnd it came\n' --stats
[ "$(number 2 reused)" = "$(prompt 1)" ] || fail "the prompt of turn 1 is not kept: $(cat err.txt)"
# and it makes no difference to the answer
printf '{"messages": [{"role": "user", "content": "But, beloved"}, {"role": "assistant", "content": "%s"}]}' \
    "$(head -1 three.txt)" >history.json
chat 0 tiny '/load history.json\nAnd it came\n' --chat-template "$keep"
[ "$(cat out.txt)" = "$(sed -n 2p three.txt)" ] || fail "reuse changes the answer: $(cat out.txt)"

# ---- commands ----
chat 0 tiny 'But, beloved\nAnd it came\n/regen\n/regen\n' --chat-template "$keep" --stats
[ "$(sed -n 2p out.txt)" = "$(sed -n 3p out.txt)" ] && [ "$(sed -n 2p out.txt)" = "$(sed -n 4p out.txt)" ] ||
    fail "/regen: $(cat out.txt)"
[ "$(number 3 evaluated)" = 1 ] || fail "/regen computes the prompt again: $(cat err.txt)"
chat 0 tiny 'But, beloved\nAnd it came\n/save saved.json\n/clear\nBut, beloved\n/load saved.json\nGo on\n' --chat-template "$keep"
cmp -s <(sed -n 1p out.txt) <(sed -n 3p out.txt) || fail "/clear: $(cat out.txt)"
[ "$(sed -n 4p out.txt)" = "$(sed -n 3p three.txt)" ] || fail "/load: $(cat out.txt)"
chat 0 tiny '/load saved.json\n/save again.json\n'
cmp -s saved.json again.json || fail "/load and /save give another file"
chat 0 tiny '/load saved.json\n/regen\n' --chat-template "$keep"
[ "$(cat out.txt)" = "$(sed -n 2p three.txt)" ] || fail "/regen after /load: $(cat out.txt)"
chat 0 tiny '/system Be brief.\n/system\nBut, beloved\n/system -\n/clear\nBut, beloved\n'
told "Be brief."
[ "$(sed -n '$p' out.txt)" = "$(cat first.txt)" ] || fail "/system -: $(cat out.txt)"
chat 0 tiny 'But, beloved\n/tokens\n' -S 'Be brief.'
told '"<|im_start|>"'
told "tokens of 512"
grep -c '"<|im_start|>"' err.txt | grep -qx 3 || fail "--system: expected three messages, found $(cat err.txt)"
# users' text holds no special tokens
chat 0 tiny 'a<|im_end|>b\n/tokens\n'
grep -c '"<|im_end|>"' err.txt | grep -qx 1 || fail "a special token came out of a message: $(cat err.txt)"
chat 0 tiny '/set max-tokens 3\n/set temp 0.5\n/set\nBut, beloved\n/stats\n'
told "answer: 3 tokens"
told "temperature 0.5"
chat 0 tiny '/think off\nBut, beloved\n/tokens\n'
told 'think is off'
chat 0 tiny '/help\n/exit\nBut, beloved\n'
told "/regen"
[ -s out.txt ] && fail "/exit does not end"
printf 'But, beloved' >message.txt
chat 0 tiny '/read message.txt\n'
cmp -s out.txt first.txt || fail "/read: $(cat out.txt)"
echo 'But, beloved' >message.txt
chat 0 tiny '/read message.txt\n'
cmp -s out.txt first.txt || fail "/read with a line end: $(cat out.txt)"
chat 0 tiny '"""But,\nbeloved"""\nBut,\\\nbeloved\n/save lines.json\n'
[ "$(grep -cF '"content": "But,\nbeloved"' lines.json)" -eq 2 ] || fail "several lines: $(cat lines.json)"
chat 0 tiny '"""But,\nbeloved' -n 1
[ "$(wc -l <out.txt)" -eq 1 ] || fail "the end of the input does not end a message: $(cat out.txt)"
chat 0 tiny '\n  \n\n'
[ -s out.txt ] && fail "an empty line is answered"
chat 4 tiny '\0But\n'
told "NUL byte"
chat 0 tiny '//help\n/save slash.json\n' -n 3
grep -qF '"content": "/help"' slash.json || fail "//: $(cat slash.json)"
chat 0 tiny '"""/help\n"""\n/save --force slash.json\n' -n 3
grep -qF '"content": "/help\n"' slash.json || fail "quoted: $(cat slash.json)"
for bad in "/nothing" "/set" "/think"; do
    case $bad in
    /set) chat 2 tiny '/set colour 3\n' && told 'no setting "colour"' ;;
    /think) chat 2 tiny '/think maybe\n' && told 'found "maybe"' ;;
    *) chat 2 tiny "$bad\n" && told "no command $bad" ;;
    esac
done
# what takes no arguments is no command with them, and no message either
for name in help exit quit clear regen stats tokens; do
    chat 2 tiny "But, beloved\\n/$name the table\\n"
    told "/$name takes nothing behind it"
    [ "$(wc -l <out.txt)" -eq 1 ] || fail "/$name with arguments: $(cat out.txt)"
done
chat 2 tiny '/set top-p 7\n'
told "top-p"
chat 2 tiny '/set top-k many\n'
told "expected a number"
chat 2 tiny '/regen\n'
told "nothing to answer"
chat 1 tiny '/load missing.json\n'
told "missing.json"
echo '{"messages": [{"role": "user", "content": 5}]}' >bad.json
chat 4 tiny '/load bad.json\n'
told "message 0"
echo '{"messages": 7}' >bad.json
chat 4 tiny '/load bad.json\n'
echo '{"messages": [{"role": "robot", "content": "x"}]}' >bad.json
chat 4 tiny '/load bad.json\n'
told robot
chat 1 tiny '/save saved.json/x.json\n'
# nobody can be asked here, so a file that is there stays
cp saved.json kept.json
chat 2 tiny 'And it came\n/save kept.json\n' -n 3
told "--force"
cmp -s saved.json kept.json || fail "/save has replaced a file"
chat 0 tiny 'And it came\n/save --force kept.json\n' -n 3
grep -qF 'And it came' kept.json || fail "/save --force: $(cat kept.json)"
chat 2 tiny '/save --force\n'
told "expected a file name"
# numbers of tool calls keep their digits
calls='[{"function": {"name": "f", "arguments": {"n": 123456789012345678901234567890, "x": 1.0}}}]'
echo '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls":  '"$calls"' }]}' >calls.json
chat 0 tiny '/load calls.json\n/save calls2.json\n'
grep -qF "\"tool_calls\": $calls" calls2.json || fail "tool calls: $(cat calls2.json)"
[ -e "$HOME" ] && fail "a history was kept away from a terminal"

# ---- templates ----
printf "{%%- if messages %%}" >bad.jinja
expect 4 "bad.jinja" "$MILKIT" chat tiny -p x --chat-template bad.jinja
printf "{{ raise_exception('no room for ' + messages[0].role) }}" >raise.jinja
"$MILKIT" chat tiny -p x --chat-template raise.jinja >out.txt 2>err.txt && fail "raise_exception: status 0"
told "no room for user"
expect 1 "missing.jinja" "$MILKIT" chat tiny -p x --chat-template missing.jinja
chat 0 tiny 'But, beloved\n/tokens\n' --chat-template "$keep" --template-args '{"suffix": "Amen"}' -n 0
told '"men"'
expect 2 "JSON object" "$MILKIT" chat tiny -p x --template-args '[1]'
expect 2 "--template-args" "$MILKIT" chat tiny -p x --template-args '{'
expect 2 "expected on, off or auto" "$MILKIT" chat tiny -p x --think perhaps
expect 2 "--no-template leaves nothing" "$MILKIT" chat tiny -p x --think on --no-template
expect 2 "expected a package folder" "$MILKIT" chat -p x
expect 2 "temperature" "$MILKIT" chat tiny -p x --temp -1
cp -r tiny plain
sed -i '/"chat_template"/d' plain/tokenizer_config.json
expect 4 "no chat template" "$MILKIT" chat plain -p x
grep -q -- --no-template err.txt || fail "no way out is named: $(cat err.txt)"
# without a template a chat goes on with the text
expect 0 "" "$MILKIT" run plain -p 'But, beloved' --greedy --ignore-eos -n 24
cp out.txt run.txt
expect 0 "" "$MILKIT" chat plain -p 'But, beloved' --greedy --ignore-eos -n 24 --no-template
cmp -s out.txt run.txt || fail "--no-template: $(cat out.txt), run: $(cat run.txt)"
chat 0 plain 'But, beloved\nAnd\n' --no-template --ignore-eos -n 24 --stats
[ "$(number 2 reused)" = "$(($(context 1) - 1))" ] || fail "--no-template: $(cat err.txt)"

# ---- a full context: the oldest messages go, aloud; too long a message is refused ----
make_package "$tiny" short -c 64 -b 16 --format mlmodelc
chat 0 short 'But, beloved\nAnd it came\nGo on\nAnd so on\n/stats\n/save all.json\n' --chat-template "$keep" -n 10 --stats
[ "$(wc -l <out.txt)" -ge 4 ] || fail "full context: $(cat out.txt)"
told "the context of 64 tokens is full: the oldest messages"
told "messages are dropped"
[ "$(grep -c '"role"' all.json)" -eq 8 ] || fail "dropped messages are not saved: $(cat all.json)"
for n in 1 2 3 4; do
    [ "$(context $n)" -le 64 ] || fail "turn $n: $(context $n) tokens in a context of 64"
done
long=$(printf 'And it came to pass %.0s' 1 2 3 4 5 6 7 8 9 10 11 12)
chat 6 short "$long\n"
told "the package's context holds 64"
chat 0 short 'But, beloved\n' -n -1 --ignore-eos
told "is full: the answer ends here"

# ---- packages that can't be rewound: the same answers whatever was computed before, the same rule when they are full ----
if [ -n "$SHARED" ] && [ -d "$SHARED/models/qwen3_5-tiny" ]; then
    for model in qwen3_5-tiny gemma4-tiny; do
        make_package "$SHARED/models/$model" $model -c 128 -b 16 --format mlmodelc
        chat 0 $model 'But, beloved\nAnd it came\n/regen\n/save '$model'.json\nGo on\nMore\nAnd more\n' -n 24 --stats
        cp out.txt answers.txt
        [ "$(sed -n 2p out.txt)" = "$(sed -n 3p out.txt)" ] || fail "$model: /regen: $(cat out.txt)"
        [ "$(number 2 reused)" = "$(prompt 1)" ] || fail "$model: nothing is kept: $(cat err.txt)"
        told "the context of 128 tokens is full: the oldest messages"
        chat 0 $model '/load '$model'.json\n/regen\nGo on\n' -n 24
        cmp -s out.txt <(sed -n 3,4p answers.txt) || fail "$model: other answers from scratch: $(cat out.txt answers.txt)"
    done
else
    echo "SKIPPED: no checkpoints with recurrent states and windowed caches here"
fi

# ---- stdout that fails, Ctrl-C away from a terminal ----
if [ -e /dev/full ]; then
    "$MILKIT" chat tiny -p And --greedy >/dev/full 2>err.txt
    [ $? -eq 1 ] || fail "full disk: expected status 1"
    told "No space left"
fi
"$MILKIT" chat tiny -p And --greedy >&- 2>err.txt
[ $? -eq 1 ] || fail "closed stdout: expected status 1"
make_package "$tiny" long -c 2048 -b 64 --format mlmodelc
: >stopped.txt
MILKIT_CPU=scalar "$MILKIT" chat long -p And --greedy --ignore-eos -t 1 >stopped.txt 2>err.txt &
pid=$!
for _ in $(seq 400); do
    [ -s stopped.txt ] && break
    sleep 0.02
done
kill -INT $pid
wait $pid
got=$?
[ $got -eq 130 ] || fail "SIGINT: expected status 130, found $got ($(tail -1 err.txt))"
told interrupted
finish
