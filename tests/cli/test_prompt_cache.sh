# --prompt-cache: what was computed is not computed again and changes no result; a state of anything else is refused.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 512 -b 64
make_package "$tiny" other_form -c 512 -b 64 --format mlmodelc
make_package "$DATA/models/qwen3_5-equal" recurrent -c 128 -b 8
make_package "$DATA/models/gemma4-window" window -c 128 -b 8
export HOME=$SCRATCH/home
unset XDG_STATE_HOME

# run PACKAGE PROMPT OPTIONS...: out.txt, err.txt
run() {
    "$MILKIT" run "$1" --tokens "$2" --ids --greedy --ignore-eos -n 8 --stats "${@:3}" >out.txt 2>err.txt ||
        fail "run $*: status $? ($(tail -1 err.txt))"
}
reused() {
    sed -n 's/.*prompt: [0-9]* tokens, \([0-9]*\) reused.*/\1/p' err.txt
}
# refused STATUS TEXT COMMAND...: the file of the cache stays what it is
refused() {
    cp state.bin kept.bin
    expect "$@" --prompt-cache state.bin
    cmp -s state.bin kept.bin || fail "a refused file was replaced: $*"
}

# ---- run: the same prompt again, a longer one, another one; the same ids as without ----
short=5,9,12,40,41,42,7,8,9,10,11,12,13,14,15,16,17,18,19,20
for package in tiny recurrent window; do
    rm -f state.bin
    run $package $short
    cp out.txt short.txt
    run $package "$short,$(cat short.txt),30,31"
    cp out.txt long.txt
    run $package 5,9,77,78
    cp out.txt parted.txt
    run $package $short --prompt-cache state.bin
    [ "$(reused)" = 0 ] || fail "$package: something is known to a new file"
    for threads in 1 3; do
        run $package $short --prompt-cache state.bin -t $threads
        cmp -s out.txt short.txt || fail "$package: $(cat out.txt), without a cache $(cat short.txt)"
        [ "$(reused)" -ge 19 ] || fail "$package: $(cat err.txt)"
    done
    run $package "$short,$(cat short.txt),30,31" --prompt-cache state.bin
    cmp -s out.txt long.txt || fail "$package, longer: $(cat out.txt), without a cache $(cat long.txt)"
    [ "$(reused)" -ge 20 ] || fail "$package, longer: $(cat err.txt)"
    run $package 5,9,77,78 --prompt-cache state.bin
    cmp -s out.txt parted.txt || fail "$package, another prompt: $(cat out.txt), without a cache $(cat parted.txt)"
    # of a snapshot too, to which the prompt goes back
    run $package 5,9,77,78 --prompt-cache state.bin
    cmp -s out.txt parted.txt && [ "$(reused)" -ge 3 ] || fail "$package, back: $(cat out.txt err.txt)"
done

# ---- the other form of a package; nothing is written with -ro ----
rm -f state.bin
run tiny $short --prompt-cache state.bin
run other_form $short --prompt-cache state.bin
[ "$(reused)" = 19 ] || fail "other form: $(cat err.txt)"
cp state.bin kept.bin
run tiny 5,9,77 --prompt-cache state.bin --prompt-cache-ro
[ "$(reused)" = 2 ] || fail "-ro: $(cat err.txt)"
cmp -s state.bin kept.bin || fail "--prompt-cache-ro has written"
run tiny 5,9,77 --prompt-cache missing.bin --prompt-cache-ro
grep -q 'missing.bin: no such file' err.txt || fail "-ro without a file: $(cat err.txt)"
[ -e missing.bin ] && fail "--prompt-cache-ro has made a file"

# ---- what is refused: other weights, a package, a precision; damage; what is not a state at all ----
ask="run --tokens 5,9 -n 1 --ids --greedy"
cp -r tiny changed
weights=$(ls -d changed/*FFN*/weights/weight.bin changed/*FFN*/Data/com.apple.CoreML/weights/weight.bin 2>/dev/null | head -1)
size=$(stat -c %s "$weights")
for at in $((size * 2 / 7)) $((size - 64)); do
    byte=$(od -An -tu1 -j "$at" -N 1 "$weights")
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$weights" bs=1 seek="$at" conv=notrunc status=none
    refused 4 "its weights are not these" "$MILKIT" $ask changed
    [ "$at" -eq $((size - 64)) ] && break # the last change stays
    printf "\\$(printf %o "$byte")" | dd of="$weights" bs=1 seek="$at" conv=notrunc status=none
done
refused 4 "another package" "$MILKIT" $ask recurrent
refused 4 "another precision" "$MILKIT" $ask tiny --precision fp32
printf x | dd of=state.bin bs=1 seek=900 conv=notrunc status=none
refused 4 "damaged" "$MILKIT" $ask tiny
cp tiny/meta.yaml state.bin
refused 4 "expected the state of a milkit session" "$MILKIT" $ask tiny
rm state.bin
expect 0 "" "$MILKIT" $ask tiny --prompt-cache new/far/folder/state.bin
[ -s new/far/folder/state.bin ] || fail "missing folders above the file are not made"
expect 1 "is not a folder" "$MILKIT" $ask tiny --prompt-cache tiny/meta.yaml/far/state.bin
if [ "$(id -u)" != 0 ]; then
    mkdir -m 500 closed
    expect 1 "can't write into the folder closed" "$MILKIT" $ask tiny --prompt-cache closed/far/state.bin
else
    echo "skipped: root can write into any folder"
fi
expect 2 "expected --prompt-cache FILE" "$MILKIT" $ask tiny --prompt-cache-ro
mkdir folder
expect 4 "folder" "$MILKIT" $ask tiny --prompt-cache folder

# ---- chat: the system message is known to the next chat, and answers are the same ----
chat() {
    printf "$1" | "$MILKIT" chat tiny --greedy -n 6 --stats -S 'Be brief, and say what is.' "${@:2}" >out.txt 2>err.txt ||
        fail "chat $*: $(tail -1 err.txt)"
}
rm -f state.bin
chat 'But, beloved\nAnd it came\n'
cp out.txt plain.txt
chat 'Another\n' --prompt-cache state.bin
chat 'But, beloved\nAnd it came\n' --prompt-cache state.bin
cmp -s out.txt plain.txt || fail "chat: $(cat out.txt), without a cache $(cat plain.txt)"
[ "$(sed -n 's/.*, \([0-9]*\) reused.*/\1/p' err.txt | head -1)" -ge 12 ] || fail "chat: $(cat err.txt)"
chat 'But, beloved\n/clear\nwords' --prompt-cache state.bin
refused 4 "its weights are not these" "$MILKIT" chat changed --greedy -n 1 -p x

# ---- an interrupted prompt goes on where it was ----
make_package "$tiny" long -c 8192 -b 16
awk 'BEGIN { for (i = 0; i < 8000; i++) printf "%s%d", i ? "," : "", (i * 7 + i / 50) % 290 }' >ids.txt
rm -f state.bin
for seconds in 0.5 1 2 4 8; do # a busy machine may not have begun
    MILKIT_CPU=scalar "$MILKIT" run long --tokens @ids.txt --ids --greedy -n 1 -t 1 --prompt-cache state.bin >out.txt 2>err.txt &
    pid=$!
    sleep $seconds
    kill -INT $pid
    wait $pid
    [ $? -eq 130 ] || fail "SIGINT: $(cat err.txt)"
    [ -s state.bin ] && break
done
[ -s state.bin ] || fail "an interrupted run keeps nothing: $(cat err.txt)"
finish
