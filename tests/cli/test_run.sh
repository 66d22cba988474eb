# milkit run from the outside: text and ids, where they go, how it ends.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 512 -b 64
make_package "$tiny" short -c 32 -b 8 --format mlmodelc
make_package "$gqa8" gqa8 -c 512 -b 64 --chunks 2 --format mlpackage
golden=$tiny/golden.safetensors

# ---- greedy tokens of transformers, from ids and from text ----
for prompt in one five batch64 long; do
    ids "$golden" $prompt.ids >prompt.txt
    expect 0 "" "$MILKIT" run tiny --tokens @prompt.txt --ids --greedy --ignore-eos -n 32
    cp out.txt $prompt.ids
    [ "$(wc -l <out.txt)" -eq 1 ] || fail "$prompt: ids on more than one line"
    [ "$(tr ',' '\n' <out.txt | wc -l)" -eq 32 ] || fail "$prompt: expected 32 ids"
    compare greedy $prompt.ids "$golden" $prompt 0.05 5
done
ids "$gqa8/golden.safetensors" long.ids >prompt.txt
expect 0 "" "$MILKIT" run gqa8 --tokens @prompt.txt --ids --greedy --ignore-eos -n 32
cp out.txt all.txt
compare greedy all.txt "$gqa8/golden.safetensors" long 0.05 3
# the prompts of golden.json: "five" is this text
printf 'But, beloved' >five.txt
expect 0 "" "$MILKIT" run tiny -p 'But, beloved' --ids --greedy --ignore-eos -n 32
cmp -s out.txt five.ids || fail "a prompt as text gives other ids than as ids"
expect 0 "" "$MILKIT" run tiny -f five.txt --ids --greedy --ignore-eos -n 32
cmp -s out.txt five.ids || fail "-f"
for how in "-p -" "-f -"; do
    # shellcheck disable=SC2086
    "$MILKIT" run tiny $how --ids --greedy --ignore-eos -n 32 <five.txt >out.txt 2>err.txt || fail "$how: status"
    cmp -s out.txt five.ids || fail "$how: other ids"
done

# ---- text is what the ids mean ----
"$MILKIT" run tiny -p 'But, beloved' --greedy --ignore-eos -n 32 >text.txt 2>err.txt || fail "text: status"
[ ! -s err.txt ] || fail "something on stderr: $(head -1 err.txt)"
printf '{"ids":[%s]}\n' "$(cat five.ids)" | "$MILKIT" tokenize tiny --decode --jsonl >decoded.txt
text=$(cat text.txt)
grep -qF -- "$(printf '%s' "$text" | head -1 | head -c 60)" decoded.txt || fail "text is not the decoded ids: $text"
"$MILKIT" run tiny -p 'But, beloved' --greedy --ignore-eos -n 32 --echo >echo.txt 2>err.txt || fail "--echo: status"
[ "$(cat echo.txt)" = "But, beloved$text" ] || fail "--echo: $(head -1 echo.txt)"
expect 0 "" "$MILKIT" run tiny -p 'But, beloved' -n 0
[ "$(wc -c <out.txt)" -eq 1 ] || fail "-n 0 printed more than the end of the line"
expect 0 "stopped: length" "$MILKIT" run tiny -p 'But, beloved' --greedy --ignore-eos -n 32 --stats
cmp -s out.txt text.txt || fail "--stats changes stdout"
grep -q "prompt: [0-9]* tokens, [0-9.]* tokens/s; generated: 32 tokens" err.txt || fail "--stats: $(cat err.txt)"

# ---- choices: by the package, the options, the seed ----
expect 0 "" "$MILKIT" run tiny -p 'And' --ids --seed 5 --temp 1.2 -n 24 --ignore-eos
cp out.txt seed5.txt
expect 0 "" "$MILKIT" run tiny -p 'And' --ids --seed 5 --temp 1.2 -n 24 --ignore-eos -t 1
cmp -s out.txt seed5.txt || fail "the same seed gives other tokens"
expect 0 "" "$MILKIT" run tiny -p 'And' --ids --seed 6 --temp 1.2 -n 24 --ignore-eos
cmp -s out.txt seed5.txt && fail "another seed gives the same tokens"
expect 0 "" "$MILKIT" run tiny -p 'But, beloved' --ids --temp 1.5 --top-k 1 -n 32 --ignore-eos --seed 1
cmp -s out.txt five.ids || fail "--top-k 1 is not greedy"
expect 0 "" "$MILKIT" run tiny -p 'But, beloved' --ids --temp 0 -n 32 --ignore-eos
cmp -s out.txt five.ids || fail "--temp 0 is not greedy"

# ---- how it ends ----
# the id of config.json ends the text: everything before it, and nothing of it
ids "$gqa8/golden.safetensors" long.ids >prompt.txt
before=$(tr ',' '\n' <all.txt | sed -n '/^2$/q;p' | paste -sd, -)
expect 0 "" "$MILKIT" run gqa8 --tokens @prompt.txt --ids --greedy -n 32
[ "$(cat out.txt)" = "$before" ] || fail "stop id: expected $before, found $(cat out.txt)"
# the context ends it, with a word about it
ids "$golden" batch64.ids 20 >prompt.txt
expect 0 "full" "$MILKIT" run short --tokens @prompt.txt --ids --greedy --ignore-eos -n 100
n=$(tr ',' '\n' <out.txt | wc -l)
[ "$n" -ge 12 ] && [ "$n" -le 13 ] || fail "context of 32, prompt of 20: $n tokens"
expect 0 "" "$MILKIT" run short --tokens @prompt.txt --ids --greedy --ignore-eos -n -1
[ "$(tr ',' '\n' <out.txt | wc -l)" -eq "$n" ] || fail "-n -1 does not go to the end of the context"
ids "$golden" batch64.ids 32 >prompt.txt # a prompt that fills it
expect 0 "" "$MILKIT" run short --tokens @prompt.txt --ids --greedy --ignore-eos -n 1
ids "$golden" batch64.ids 33 >prompt.txt
expect 6 "33 tokens" "$MILKIT" run short --tokens @prompt.txt --ids
grep -q 32 err.txt || fail "the message does not say what the context holds"
[ ! -s out.txt ] || fail "a refused prompt printed something"

# ---- usage ----
expect 2 "expected a package folder" "$MILKIT" run -p x
expect 2 "expected one of -p" "$MILKIT" run tiny
expect 2 "expected one of -p" "$MILKIT" run tiny -p x -f five.txt
expect 2 "empty" "$MILKIT" run tiny -p ''
expect 2 "did you mean '--prompt'" "$MILKIT" run tiny --promt x
expect 2 "whole number" "$MILKIT" run tiny -p x -n ten
expect 2 "temperature" "$MILKIT" run tiny -p x --temp -1
expect 2 "top-p" "$MILKIT" run tiny -p x --top-p 2
expect 2 "top-p" "$MILKIT" run tiny -p x --top-p 0
expect 2 "top-k" "$MILKIT" run tiny -p x --top-k -3
expect 2 "min-p" "$MILKIT" run tiny -p x --min-p 1
expect 2 "penalty" "$MILKIT" run tiny -p x --repeat-penalty 0
expect 2 "temperature" "$MILKIT" run tiny -p x --temp nan
expect 2 "2057" "$MILKIT" run tiny --tokens 5000 --ids
expect 1 "missing.txt" "$MILKIT" run tiny -f missing.txt
expect 4 "tokenizer" "$MILKIT" run gqa8 -p hello
expect 4 "tokenizer" "$MILKIT" run gqa8 --tokens 1,2,3
expect 0 "usage: milkit run" "$MILKIT" run --help
[ ! -s err.txt ] || fail "help on stderr"

# ---- stdin, stdout that fail ----
"$MILKIT" run tiny -p - -n 3 <&- >out.txt 2>err.txt
[ $? -eq 1 ] || fail "closed stdin: status $?"
"$MILKIT" run tiny -p - -n 3 </dev/null >out.txt 2>err.txt
[ $? -eq 4 ] || fail "empty stdin"
if [ -e /dev/full ]; then
    "$MILKIT" run tiny -p And --greedy -n 20 >/dev/full 2>err.txt
    [ $? -eq 1 ] || fail "full disk: expected status 1"
    grep -q "No space left" err.txt || fail "full disk: $(cat err.txt)"
fi
"$MILKIT" run tiny -p And --greedy -n 20 >&- 2>err.txt
[ $? -eq 1 ] || fail "closed stdout: expected status 1"
[ -s err.txt ] || fail "closed stdout: no message"
"$MILKIT" run tiny -p And --greedy --ignore-eos -n 400 2>err.txt | head -c 20 >out.txt
[ "${PIPESTATUS[0]}" -eq 0 ] && [ ! -s err.txt ] || fail "broken pipe: expected status 0 and no message"
[ "$(wc -c <out.txt)" -eq 20 ] || fail "broken pipe: the first bytes did not arrive"
# a closed stderr is nothing to fail for, and no file takes its place
cp -r tiny copy
"$MILKIT" run copy -p 'But, beloved' --greedy --ignore-eos -n 32 --stats >out.txt 2>&-
[ $? -eq 0 ] || fail "closed stderr: status"
cmp -s out.txt text.txt || fail "closed stderr: other text"
diff -r tiny copy >/dev/null || fail "closed stderr: the package changed"

# ---- logits of which none is a number ----
cp -r tiny nan
find nan -path '*embeddings*' -name weight.bin | while read -r file; do
    # 64 bytes of file header, 64 of the only record's; 0x7e7e is no number
    bytes=$(wc -c <"$file")
    { head -c 128 "$file" && head -c $((bytes - 128)) /dev/zero | tr '\0' '~'; } >poisoned.bin
    cat poisoned.bin >"$file"
done
for how in --greedy "--temp 1 --seed 3"; do
    # shellcheck disable=SC2086
    expect 5 "none of the" "$MILKIT" run nan -p And -n 4 $how
    grep -q "logits is a number" err.txt && [ ! -s out.txt ] || fail "tokens were made up: $(cat out.txt)"
done

# ---- Ctrl-C ----
make_package "$tiny" long -c 2048 -b 64 --format mlmodelc
for signal in INT TERM; do
    : >stopped.txt
    MILKIT_CPU=scalar "$MILKIT" run long -p And --greedy --ignore-eos -n -1 -t 1 >stopped.txt 2>err.txt &
    pid=$!
    for _ in $(seq 400); do
        [ -s stopped.txt ] && break
        sleep 0.02
    done
    kill -$signal $pid
    wait $pid
    got=$?
    [ $got -eq 130 ] || fail "SIG$signal: expected status 130, found $got ($(tail -1 err.txt))"
    grep -q interrupted err.txt || fail "SIG$signal: no message"
    [ -s stopped.txt ] && [ "$(tail -c 1 stopped.txt | od -An -c | tr -d ' ')" = '\n' ] || fail "SIG$signal: no end of line"
done
finish
