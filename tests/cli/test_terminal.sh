# What models, tokenizers and names of files hold never commands a terminal, whichever command shows it; where stdout is no
# terminal the model's bytes are as they are, and JSON is valid whatever a path is called.
# shellcheck source=tests/cli/packages.sh
# labels: host
. "$SOURCE/tests/cli/packages.sh"
if ! command -v script >/dev/null; then
    echo "SKIPPED: there is no script(1), so nothing was tried at a terminal"
    exit 77
fi
make_package "$tiny" tiny -c 96 -b 16

# escape, C1 as UTF-8, DEL, bell, a direction override
evil=$(printf 'a\033]0;x\007b\302\233c\177d\342\200\256e\342\201\246f')
commands=$(printf '\033|\302[\200-\237]|\177|\007|\342\200[\252-\256]|\342\201[\246-\251]')

# at_terminal COMMAND...: its output (both streams) in screen.txt
at_terminal() {
    printf '%q ' "$@" >command.sh
    script -q -e -c "bash command.sh" screen.txt </dev/null >/dev/null
    # the first line holds the command; the progress line clears itself
    tail -n +2 screen.txt | sed -e '/^Script done/d' -e "s/$(printf '\033')\[K//g" >shown.txt
}
# no_command WHAT COMMAND...: nothing of the kind reaches the terminal, something else does
no_command() {
    local what=$1
    shift
    at_terminal "$@"
    [ -s shown.txt ] || fail "$what: nothing was shown"
    LC_ALL=C grep -qaE -- "$commands" shown.txt && fail "$what: reached the terminal: $(od -c shown.txt | head -20)"
}

expect 0 "" "$MILKIT" tokenize tiny --ids -- "$evil"
ids=$(cat out.txt)
expect 0 "" "$MILKIT" tokenize tiny --decode "$ids"
printf '%s\n' "$evil" | cmp -s - out.txt || fail "a file gets other bytes than the text's"

# ---- run: a file gets the model's bytes, a terminal what is harmless of them ----
"$MILKIT" run tiny --tokens "$ids" --echo -n 0 >out.txt 2>err.txt || fail "run: $(cat err.txt)"
printf '%s\n' "$evil" | cmp -s - out.txt || fail "run gives a file other bytes"
no_command "run" "$MILKIT" run tiny --tokens "$ids" --echo -n 0
LC_ALL=C.UTF-8 grep -q "a.*0;x.*b.*c.*d.*e.*f" shown.txt || fail "run: the harmless rest is not shown: $(cat shown.txt)"

# ---- the other commands that show text of a model or a tokenizer ----
no_command "tokenize" "$MILKIT" tokenize tiny -- "$evil"
no_command "tokenize --decode" "$MILKIT" tokenize tiny --decode "$ids"
printf '{"text": "%s"}\n' "$(printf 'b\302\233\177\342\200\256')" >line.jsonl
no_command "tokenize --jsonl" bash -c "'$MILKIT' tokenize tiny --jsonl <line.jsonl | tee ids.jsonl; '$MILKIT' tokenize tiny --jsonl <ids.jsonl"
cp "$DATA/chat/keep.jinja" tiny/chat_template.jinja
printf '{"messages": [{"role": "user", "content": "%s"}]}' "$(printf '\\u001b[31m\\u009b\\u202e\302\233')" >messages.json
no_command "template" bash -c "'$MILKIT' template tiny --text <messages.json"
no_command "template --jsonl" bash -c "'$MILKIT' template tiny --jsonl <messages.json"
no_command "check" "$MILKIT" check tiny --hf "$tiny" --tokens "$ids" -n 4
no_command "check --json" "$MILKIT" check tiny --hf "$tiny" --tokens "$ids" -n 4 --json
no_command "plan" "$MILKIT" plan tiny
export XDG_STATE_HOME=$SCRATCH/state
printf '/system %s\n/system\nBut\n/tokens\n/history\n' "$evil" >typed.txt
no_command "chat" bash -c "NO_COLOR=1 '$MILKIT' chat tiny --chat-template '$DATA/chat/keep.jinja' --greedy -n 2 <typed.txt"
LC_ALL=C.UTF-8 grep -q "0;x.*b.*c.*d.*e.*f" shown.txt || fail "chat: /system shows nothing: $(cat shown.txt)"

# ---- whoever sits at a terminal is told what a command waits for; no one else is ----
for command in "tokenize tiny" "tokenize tiny --decode" "tokenize tiny --jsonl" "template tiny" "template tiny --jsonl" "run tiny -p -" "run tiny -f -" \
    "run tiny --tokens @-" "chat tiny -p -" "chat tiny -f - --single-turn" "chat tiny --single-turn" "chat tiny --system-file - -p x" "eval tiny --text -" \
    "check tiny --hf $tiny -p -" "logits tiny --json --tokens @-"; do
    at_terminal "$MILKIT" $command
    grep -q "milkit: waiting for .* on stdin; Ctrl-D ends it" shown.txt || fail "$command at a terminal: $(cat shown.txt)"
    at_terminal "$MILKIT" $command -q
    grep -q "waiting" shown.txt && fail "$command -q at a terminal: $(cat shown.txt)"
    printf '[]' | "$MILKIT" $command >out.txt 2>err.txt
    grep -q "waiting" out.txt err.txt && fail "$command with a pipe: $(cat err.txt)"
done

# ---- names of files: messages, tables, JSON ----
mkdir names
cp -r tiny "names/$evil"
no_command "a missing file" "$MILKIT" run "names/$evil/missing" -p x
no_command "a wrong option" "$MILKIT" run "--$evil"
no_command "a wrong command" "$MILKIT" "$evil"
no_command "inspect" "$MILKIT" inspect "names/$evil"
no_command "inspect --json" "$MILKIT" inspect "names/$evil" --json
no_command "a log message" "$MILKIT" convert "$tiny" -o "names/$evil-converted" -c 96 -b 16 --prefix other
no_command "check of a name" "$MILKIT" check "names/$evil" --hf "$tiny" -n 2 --json
broken=$(printf 'caf\351 \377\200"\\')
cp -r tiny "names/$broken"
cp "$tiny/model.safetensors" "names/$broken.safetensors"
expect 0 "" "$MILKIT" inspect "names/$broken" --json
cp out.txt 1.json
expect 0 "" "$MILKIT" inspect "names/$broken.safetensors" --json
cp out.txt 2.json
expect 0 "" "$MILKIT" check "names/$broken" --hf "$tiny" -n 2 --json
cp out.txt 3.json
expect 0 "" "$MILKIT" convert "$tiny" -o "names/$broken-converted" -c 96 -b 16 --report 4.json
if command -v python3 >/dev/null; then
    for file in 1 2 3 4; do
        python3 -c 'import json, sys; json.loads(open(sys.argv[1], "rb").read().decode("utf-8"))' $file.json ||
            fail "$file.json is not valid JSON"
    done
    python3 -c 'import json; assert json.load(open("1.json"))["path"] == "names/caf\ufffd \ufffd\ufffd\"\\"' ||
        fail "the path is not as expected: $(head -3 1.json)"
else
    echo "skipped: no python3 to read the JSON"
fi
finish
