# The library and the command line are one thing: the same ids and the same bits of logits through milkit.h and through milkit.
. "$SOURCE/tests/cli/packages.sh"

ids=70,75,80,85,90,95,100,105,110,115,120,125,130,135,140,145,150,155,160,165

# same PACKAGE
same() {
    local vocabulary how rows
    vocabulary=$("$MILKIT" inspect "$1" --json | sed -n 's/.*"vocab_size":[[:space:]]*\([0-9]*\).*/\1/p' | head -1)
    [ "$vocabulary" -gt 100 ] || fail "$1: no size of a vocabulary"
    for how in "" --prefill; do
        "$MILKIT" logits "$1" --tokens $ids $how --force -o command.safetensors 2>err.txt || fail "$1 $how: $(tail -1 err.txt)"
        "$CLIENT" "$1" $ids 24 "$([ -n "$how" ] && echo 0 || echo 1)" library.bin >library.txt 2>err.txt || fail "client $1: $(tail -1 err.txt)"
        rows=$(($(stat -c %s library.bin) / 4 / vocabulary))
        [ "$rows" -gt 0 ] && [ $((rows * vocabulary * 4)) -eq "$(stat -c %s library.bin)" ] || fail "$1 $how: rows of logits"
        # positions come first in the file, the logits last
        tail -c $((rows * vocabulary * 4)) command.safetensors | cmp - library.bin || fail "$1 $how: other bits"
        tail -c $((rows * (vocabulary + 1) * 4)) command.safetensors | head -c 8 >positions.bin
        [ -n "$how" ] || [ "$(od -An -td4 positions.bin | xargs)" = "0 1" ] || fail "$1: not all rows: $(od -An -td4 positions.bin)"
    done
    "$MILKIT" run "$1" --tokens $ids --ids --greedy -n 24 >command.txt 2>err.txt || fail "run $1: $(tail -1 err.txt)"
    cmp command.txt library.txt || fail "$1: other ids: $(cat command.txt library.txt)"
}

make_package "$tiny" tiny -c 128 -b 16
same tiny
make_package "$tiny" lut -c 128 -b 16 --chunks 2 --lut-ffn 6 --lut-head 6
same lut
make_package "$DATA/models/qwen3_5_moe-tiny" recurrent -c 128 -b 16 --format mlmodelc
same recurrent
for level in scalar avx2; do
    MILKIT_CPU=$level "$MILKIT" help >/dev/null 2>&1 || continue
    export MILKIT_CPU=$level
    same tiny
    unset MILKIT_CPU
done
finish
