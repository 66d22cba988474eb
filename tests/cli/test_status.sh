# The exit statuses of bad inputs, one table for all commands: what is not there or can't be read is 1, what is there and is
# not what is expected is 4, what the command line itself says wrongly is 2. One message each, and nothing is written.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" package -c 64 -b 8
head -c 600 "$DATA/models/eval.txt" >text
: >empty
mkdir folder
ln -s nowhere dangling
ln -s circle circle
printf 'not a model at all\n' >garbage
mkfifo pipe
echo '[{"model_type": "x", "n_threads": 1, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": [1]}]' >results.json
echo x >locked
chmod 000 locked
model=package/qwen_lm_head

# check_status EXPECTED NAME COMMAND...
check_status() {
    local expected=$1 name=$2 got
    shift 2
    rm -rf out out.st out.mlmodelc
    echo '[]' | timeout 300 "$MILKIT" "$@" >out.txt 2>err.txt
    got=$?
    [ $got -eq "$expected" ] || fail "$name: expected status $expected, found $got: milkit $* ($(head -1 err.txt))"
    [ "$(grep -c 'error:' err.txt)" -eq 1 ] || fail "$name: expected one message: milkit $* ($(head -3 err.txt))"
    grep -qF -- "$name" err.txt || [ "$expected" -eq 4 ] || fail "$name is not named: milkit $* ($(head -1 err.txt))"
    [ ! -e out ] && [ ! -e out.st ] && [ ! -e out.mlmodelc ] || fail "$name: something was written: milkit $*"
    n_cases=$((n_cases + 1))
}

# A row: what the argument is to be, and the call with PATH in its place.
table() {
    cat <<'ROWS'
folder convert PATH -o out -q
folder check PATH --hf CHECKPOINT --tokens 1 -n 0
folder check package --hf PATH --tokens 1 -n 0
file   check package --hf CHECKPOINT -n 0 -f PATH
file   check package --hf CHECKPOINT -n 0 --tokens @PATH
folder run PATH -p x -n 1
file   run package -n 1 -f PATH
file   run package -n 1 --tokens @PATH
folder chat PATH -p x -n 1
folder serve PATH --port 0
file   chat package --no-template -n 1 -f PATH
file   chat package --no-template -n 1 -p x --system-file PATH
file   chat package -n 1 -p x --chat-template PATH
folder logits PATH --tokens 1 -o out.st
file   logits package -o out.st --tokens @PATH
folder eval PATH --text text
file   eval package --text PATH
folder eval package --text text --tokens 8 --window 8 -q --against PATH
folder bench PATH -p 8 -n 1 -r 1
file   bench package -p 8 -n 1 -r 1 --compare PATH
file   bench package -p 8 -n 1 -r 1 results.json --compare PATH
folder tokenize PATH x
file   tokenize package --decode @PATH
folder template PATH
any    inspect PATH
any    lint PATH
any    forecast PATH --chip M4
any    compile PATH -o out.mlmodelc
any    plan PATH
any    predict PATH --random -o out.st
file   predict HEAD --in PATH -o out.st
file   convert CHECKPOINT --lut-ffn 4 --lut-ffn-mixed 5 -o out -q --calibration PATH
ROWS
}
n_cases=0
while read -r kind call; do
    for name in missing folder/missing dangling circle; do
        expected=1
        # shellcheck disable=SC2086
        check_status $expected $name $(printf '%s' "$call" | sed "s#PATH#$name#; s#CHECKPOINT#$tiny#; s#HEAD#package/qwen_lm_head.mlmodelc#")
    done
    wrong="empty folder"
    if [ "$kind" != file ]; then
        wrong+=" garbage"
        # shellcheck disable=SC2086
        check_status 1 pipe $(printf '%s' "$call" | sed "s#PATH#pipe#; s#CHECKPOINT#$tiny#; s#HEAD#package/qwen_lm_head.mlmodelc#")
    fi
    for name in $wrong; do
        case "$name $call" in
        "empty chat"*--system-file*) continue ;;   # no system message
        "empty chat"*--chat-template*) continue ;; # a template may be empty: a message without a word
        esac
        # shellcheck disable=SC2086
        check_status 4 $name $(printf '%s' "$call" | sed "s#PATH#$name#; s#CHECKPOINT#$tiny#; s#HEAD#package/qwen_lm_head.mlmodelc#")
    done
    # the superuser reads everything
    if [ "$kind" = file ] && [ ! -r locked ]; then
        # shellcheck disable=SC2086
        check_status 1 locked $(printf '%s' "$call" | sed "s#PATH#locked#; s#CHECKPOINT#$tiny#; s#HEAD#package/qwen_lm_head.mlmodelc#")
    fi
done < <(table)
[ $n_cases -gt 150 ] || fail "only $n_cases cases"
# every command that reads files is in the table
sed -n 's/^CLI_COMMAND(\([a-z]*\),.*/\1/p' "$SOURCE/src/cli/commands.def" | grep -vxE "pull|list|rm" | while read -r command; do
    table | grep -q "^[a-z]* *$command " || echo "$command"
done >left.txt
[ ! -s left.txt ] || fail "commands that the table of this test does not have: $(cat left.txt)"

# ---- a part that is missing inside a package or a checkpoint ----
for part in meta.yaml qwen_embeddings qwen_FFN_PF_chunk_01of01 qwen_lm_head qwen_lm_head.mlmodelc/model.mil \
    qwen_lm_head.mlmodelc/weights/weight.bin; do
    rm -rf broken
    cp -r package broken
    rm -rf broken/$part broken/$part.mlmodelc broken/*.mlpackage
    for call in "run broken --tokens 1 --ids -n 1" "check broken --hf $tiny --tokens 1 -n 0" "logits broken --tokens 1 -o out.st" "plan broken"; do
        # shellcheck disable=SC2086
        check_status 4 "${part##*/}" $call
    done
done
for part in config.json model.safetensors; do
    rm -rf broken
    cp -r "$tiny" broken
    chmod -R u+w broken
    rm -f broken/$part broken/golden.safetensors
    for call in "convert broken -o out -q" "check package --hf broken --tokens 1 -n 0"; do
        # shellcheck disable=SC2086
        check_status 4 $part $call
    done
done

# ---- what the command line says wrongly ----
for call in "convert" "pull" "pull not-a-name" "rm" "list x" "check" "run" "chat" "logits" "eval" "tokenize" "inspect" "lint" "forecast" "forecast package" "compile" "plan" "template" \
    "convert a b" "run package" "run package -p x -f text" "run package -p" "run package -n x -p x" "logits package --tokens 1" \
    "logits package --tokens 1,x -o out.st" "logits package --tokens 999999 -o out.st" "tokenize package --decode 1,x" "eval package" \
    "check package --tokens 1" "bench" "bench package -p x" "bench package -p 9-1" "bench package -o text" "bench package -pg 1" "bench package -r 0" \
    "bench results.json" "bench package -t 1- -p 8" "bench package --compare results.json -o csv" "run package -p \"\"" "plan package --precision double" "nothing" "help nothing"; do
    rm -rf out.st
    eval "\"\$MILKIT\" $call" >out.txt 2>err.txt </dev/null
    got=$?
    [ $got -eq 2 ] && [ ! -s out.txt ] || fail "expected status 2, found $got: milkit $call ($(head -1 err.txt))"
done
chmod 600 locked
finish
