# Options of other tools: each works as ours, is ignored with a note or refused with a hint, as docs/options.md says; prompts
# from files and stdin; a reader that closes stdout.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8 --format mlmodelc
page=$SOURCE/docs/options.md

# ---- every name of habits.def does what its row says, in every command of the row ----
runners=run,chat,logits,eval,check,plan,bench
sed '1,/\*\//d' "$SOURCE/src/cli/habits.def" | { tr '\n' ' '; echo; } | sed 's/CLI_HABIT(/\n/g' | sed "s/RUNNERS \"/\"$runners/; s/^RUNNERS/\"$runners\"/" |
    sed -n 's/^"\([^"]*\)", *"\([^"]*\)", *\([A-Z]*\), *\([A-Z]*\), .*/\1 \2 \3 \4/p' >habits.txt
n_habits=0
while read -r commands names value kind; do
    for name in ${names//,/ }; do
        grep -qF -- "\`$name\`" "$page" || fail "$name is not in docs/options.md"
        text=
        [ "$value" = NONE ] || text=on
        # each name in one command, each command with one name
        list=${commands%%,*}
        [ "$name" != "${names%%,*}" ] || list=${commands//,/ }
        for command in $list; do
            n_habits=$((n_habits + 1))
            if [ "$kind" = REFUSED ]; then
                "$MILKIT" $command $name $text >out.txt 2>err.txt
                [ $? -eq 2 ] && grep -q -- "$name is not an option of milkit $command: " err.txt ||
                    fail "$command $name: $(head -1 err.txt)"
            else
                # what follows is neither taken for its value nor is the value left over
                "$MILKIT" $command $name $text --no-such-option >out.txt 2>err.txt
                [ $? -eq 2 ] && grep -q -- "unknown option '--no-such-option'" err.txt || fail "$command $name: $(head -1 err.txt)"
            fi
        done
    done
done <habits.txt
[ $n_habits -gt 200 ] || fail "only $n_habits rows of habits.def were read"
[ "$(wc -l <habits.txt)" -eq "$(grep -c '^CLI_HABIT' "$SOURCE/src/cli/habits.def")" ] || fail "rows of habits.def were not read"

# ---- a word too many: what other programs take in its place is named ----
while read -r command hint; do
    expect 2 "unexpected argument 'word'; " "$MILKIT" $command tiny word word
    grep -qF -- "$hint" err.txt || fail "$command: expected $hint: $(head -1 err.txt)"
done <<'WORDS'
run -p TEXT
chat -p TEXT
check --hf
convert -o
eval --text
logits --tokens
predict --in
template stdin
tokenize quoted
WORDS

# a note each, and none with -q wherever it stands
expect 0 "-ngl is ignored: " "$MILKIT" run tiny -p And -n 2 --ids --greedy -ngl 99 -fa on -fa --mlock -c 4096
[ "$(grep -c "is ignored" err.txt)" -eq 5 ] || fail "notes: $(cat err.txt)"
cp out.txt plain.txt
expect 0 "" "$MILKIT" run tiny -p And -n 2 --ids --greedy -ngl=99 -fa -q
[ ! -s err.txt ] || fail "notes with -q: $(cat err.txt)"
cmp -s out.txt plain.txt || fail "an ignored option changes the result"
expect 2 "-ngl needs a value" "$MILKIT" run tiny -p And -ngl
expect 2 "--mlock takes no value" "$MILKIT" run tiny -p And --mlock=1
expect 2 "unknown option '-nx'" "$MILKIT" run tiny -nx
expect 2 "unknown option '-temp'; did you mean '--temp'?" "$MILKIT" run tiny -temp 1

# ---- other names of ours ----
# same OPTIONS -- OTHER OPTIONS: run and chat give the same for both
same() {
    local command=$1 ours=() theirs=() now=ours word
    shift
    for word in "$@"; do
        if [ "$word" = -- ]; then
            now=theirs
        elif [ $now = ours ]; then
            ours+=("$word")
        else
            theirs+=("$word")
        fi
    done
    "$MILKIT" "$command" "${ours[@]}" >ours.txt 2>ours.err <message.txt || fail "$command ${ours[*]}: $(tail -1 ours.err)"
    "$MILKIT" "$command" "${theirs[@]}" >theirs.txt 2>theirs.err <message.txt || fail "$command ${theirs[*]}: $(tail -1 theirs.err)"
    cmp -s ours.txt theirs.txt || fail "$command: ${ours[*]} and ${theirs[*]} differ"
    [ -s ours.txt ] || fail "$command ${ours[*]} printed nothing"
}
printf 'And the\n' >message.txt
printf 'And the' >bare.txt
printf 'And the\r\n' >windows.txt
printf 'And the\n\n' >two.txt
printf 'be kind\n' >system.txt
n="-n 8 --ignore-eos --greedy"
for other in "--meta tiny" "--meta tiny/meta.yaml" "-d tiny" "--d tiny" "--dir tiny" "-m tiny" "--model=tiny"; do
    same run tiny -p And $n -- $other -p And $n
done
for other in --predict --n-predict --max-tokens; do
    same run tiny -p And -n 8 --ignore-eos --greedy -- tiny -p And $other 8 --ignore-eos --greedy
done
same run tiny -p And -n 8 --ignore-eos --greedy -- tiny -pAnd -n8 --ignore-eos --greedy
chat="tiny --no-template -n 8 --ignore-eos --greedy"
same chat $chat -p "And the" -- $chat -st
same chat $chat -p "And the" -- $chat -f message.txt
same chat $chat -p "And the" -- $chat -f -
for other in "--system 'be kind'" "-sys 'be kind'" "--system-prompt 'be kind'" "--system-file system.txt" "-sysf system.txt"; do
    eval "same chat $chat -S 'be kind' -p And -- $chat $other -p And"
done
same chat $chat -p "And the" -- tiny --ignore-chat-template -n 8 --ignore-eos --greedy -p "And the"
"$MILKIT" chat $chat -p And -i <message.txt >both.txt 2>err.txt || fail "chat -i: $(tail -1 err.txt)"
"$MILKIT" chat $chat -p And >one.txt 2>err.txt </dev/null
[ "$(wc -c <both.txt)" -gt "$(wc -c <one.txt)" ] || fail "chat -i does not go on"
expect 2 "only one of" "$MILKIT" chat $chat -p And -f message.txt
expect 2 "only one of" "$MILKIT" chat $chat -S x -sysf system.txt
make_package "$tiny" plain -c 64 -b 8 --format mlmodelc
make_package "$tiny" none -c 64 -b 8 --format mlmodelc --lut1 "" --lut2 none --lut3 "" --skip-check --chunk 1
diff -r plain none >diff.txt || fail "--lut1 \"\" changes the package: $(head -2 diff.txt)"
rm -r plain none

# ---- one line end at the end of a file or of stdin is not part of a prompt ----
for file in message.txt windows.txt; do
    same run tiny -f bare.txt $n --ids -- tiny -f $file $n --ids
done
same run tiny -f bare.txt $n --ids -- tiny -p - $n --ids
same run tiny -f bare.txt $n --ids -- tiny -f <(cat message.txt) $n --ids
echo_of() {
    "$MILKIT" run tiny "$@" -n 0 --echo
}
[ "$(echo_of -f two.txt | wc -l)" -eq 2 ] || fail "more than one line end is dropped"
[ "$(echo_of -f message.txt --keep-newline | wc -l)" -eq 2 ] || fail "--keep-newline"
[ "$(printf '\n' | "$MILKIT" tokenize tiny --ids)" != "" ] || fail "tokenize takes stdin as it is"
expect 0 '"prompt_tokens": ' "$MILKIT" check tiny --hf "$tiny" -f message.txt -n 0 --json
grep -o '"prompt": \[[0-9, ]*\]' out.txt >ours.txt
expect 0 "" "$MILKIT" check tiny --hf "$tiny" -p "And the" -n 0 --json
grep -o '"prompt": \[[0-9, ]*\]' out.txt | cmp -s - ours.txt || fail "check keeps the line end of a prompt file"

# ---- a reader that has seen enough is not an error ----
# closed STATUS COMMAND...
closed() {
    local status=$1 got
    shift
    { "$@" 2>err.txt; echo $? >status.txt; } | head -c 1 >/dev/null
    got=$(cat status.txt)
    [ "$got" -eq "$status" ] && [ ! -s err.txt ] || fail "closed stdout: status $got, $(head -1 err.txt): $*"
}
# A reader that is gone before anything is written, so that no pipe buffer hides it.
gone() {
    local status=$1 got
    shift
    { sleep 0.1; "$@" 2>err.txt; echo $? >status.txt; } | :
    got=$(cat status.txt)
    [ "$got" -eq "$status" ] && [ ! -s err.txt ] || fail "stdout without a reader: status $got, $(head -1 err.txt): $*"
}
closed 0 "$MILKIT" run tiny -p And -n 60 --ignore-eos
for command in "run tiny -p And -n 9" "chat $chat -p And" "plan tiny" "inspect tiny" "inspect tiny --json" "tokenize tiny And" "tokenize tiny --ids And" \
    "eval tiny --text $DATA/models/eval.txt --tokens 16 --window 16 -q" "check tiny --hf $tiny --tokens 1,2 -n 0" "help" "help run" "--version"; do
    gone 0 "$MILKIT" $command
done
# the verdict stands
{ sleep 0.1; "$MILKIT" check tiny --hf "$tiny" --tokens 1,2,3 -n 0 --max-kl 0 --max-difference 0 2>err.txt; echo $? >status.txt; } | :
[ "$(cat status.txt)" -eq 5 ] && grep -q "outside the limits" err.txt || fail "a verdict without a reader: $(cat status.txt err.txt)"
# a full disk is an error
if [ -w /dev/full ]; then
    "$MILKIT" run tiny -p And -n 4 >/dev/full 2>err.txt
    [ $? -eq 1 ] && grep -q "No space left" err.txt || fail "a full disk: $(cat err.txt)"
fi
finish
