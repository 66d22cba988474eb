# milkit convert from the outside: exit statuses, messages, interruption, full disks; nothing is left behind.
. "$SOURCE/tests/cli/packages.sh"
bias=$DATA/models/qwen3-bias

# Neither the output nor a temporary folder of it may exist.
nothing_left() {
    local found
    found=$(ls -A | grep -F "$1" | head -1)
    [ -z "$found" ] || fail "left behind: $found"
}

# ---- usage ----
expect 2 "expected a checkpoint folder" "$MILKIT" convert
expect 2 "expected an output folder" "$MILKIT" convert "$tiny"
expect 2 "did you mean '--chunks'" "$MILKIT" convert "$tiny" -o o --chunsk 2
expect 2 "whole number" "$MILKIT" convert "$tiny" -o o -c 12x
expect 2 "context" "$MILKIT" convert "$tiny" -o o -c 0
expect 2 "batch size" "$MILKIT" convert "$tiny" -o o -c 16 -b 17
expect 2 "chunks: expected 1 to 5" "$MILKIT" convert "$tiny" -o o --chunks 6
expect 2 "prefix" "$MILKIT" convert "$tiny" -o o --prefix a.b
expect 2 "--format" "$MILKIT" convert "$tiny" -o o --format zip
expect 2 "did you mean 'convert'" "$MILKIT" covnert
expect 1 "found nothing" "$MILKIT" convert missing -o o
nothing_left o.tmp
[ ! -e o ] || fail "a refused call made an output"

"$MILKIT" --version >out.txt || fail "--version"
grep -q '^milkit [0-9]' out.txt || fail "--version prints no version"
"$MILKIT" help convert >out.txt || fail "help convert"
grep -q -- '--context' out.txt || fail "help convert shows no options"
ln -sf "$MILKIT" coreml_convert
expect_stderr 0 "MB of weights" ./coreml_convert "$tiny" -o alias -c 32 -b 8 --lut-ffn none
rm -rf alias

# ---- the same bytes for any number of threads ----
for n in 1 2 3; do
    expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o "threads$n" -j $n --chunks 2
done
diff -r threads1 threads2 >/dev/null && diff -r threads1 threads3 >/dev/null || fail "output depends on threads"
[ -f threads1/meta.yaml ] && [ -f threads1/qwen_FFN_PF_chunk_02of02.mlmodelc/model.mil ] || fail "files are missing"
grep -q "no tokenizer" err.txt || fail "no warning about the tokenizer"
expect 1 "exists" "$MILKIT" convert "$bias" -o threads1
expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o threads1 --force --format mlpackage
[ ! -e threads1/qwen_embeddings.mlmodelc ] || fail "--force kept files of the old package"
rm -rf threads1 threads2 threads3

# ---- checkpoints that are refused ----
copy() {
    rm -rf broken
    cp -r "$1" broken
    chmod -R u+w broken
}
copy "$bias"
sed -i 's/"model_type": *"qwen3"/"model_type": "mamba"/' broken/config.json
expect 3 'found "mamba"' "$MILKIT" convert broken -o bad
copy "$bias"
LC_ALL=C sed -i 's/layers\.1\.mlp\.up_proj/layers.1.mlp.xp_proj/' broken/*.safetensors broken/*.json
expect 4 "tensor model.layers.1.mlp.up_proj.weight is missing" "$MILKIT" convert broken -o bad
copy "$bias"
sed -i 's/"intermediate_size": */&1/' broken/config.json
expect 4 "expected shape" "$MILKIT" convert broken -o bad
copy "$bias"
shard=$(ls broken/model-*.safetensors | tail -1)
printf '\000\000\200\176' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 4)) conv=notrunc 2>/dev/null
expect 4 "within fp16's range" "$MILKIT" convert broken -o bad
copy "$bias"
truncate -s -100 "$shard"
expect 4 "$(basename "$shard")" "$MILKIT" convert broken -o bad
copy "$bias"
printf '{"model_type": ' >broken/config.json
expect 4 "config.json" "$MILKIT" convert broken -o bad
copy "$bias"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n' >"$shard"
expect 4 "LFS" "$MILKIT" convert broken -o bad
rm -rf broken
nothing_left bad

# ---- writes that fail ----
# A limit on the size of files: the write of a weight file fails half way.
(
    ulimit -f 300
    expect 1 "can't write" "$MILKIT" convert "$tiny" -o limited
    exit $failed
) || failed=1
nothing_left limited
if [ "$(id -u)" = 0 ] && mkdir -p tmpfs && mount -t tmpfs -o size=4m tmpfs tmpfs 2>/dev/null; then
    expect 1 "MB left" "$MILKIT" convert "$tiny" -o tmpfs/package
    [ -z "$(ls -A tmpfs)" ] || fail "left on the full disk: $(ls -A tmpfs)"
    umount tmpfs
else
    echo "skipped: a disk too small needs root and mount"
fi

# ---- interruption ----
# A checkpoint of zeros with holes: quick to make, long to convert.
make_large() {
    mkdir -p large
    printf '{"model_type": "qwen3", "hidden_size": 1024, "vocab_size": 600000, "intermediate_size": 64, "num_hidden_layers": 1,
"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64, "tie_word_embeddings": true}' >large/config.json
    local header="" at=0 size name shape
    while read -r name shape; do
        size=2
        for n in ${shape//,/ }; do size=$((size * n)); done
        header="$header,\"model.$name.weight\":{\"dtype\":\"F16\",\"shape\":[$shape],\"data_offsets\":[$at,$((at + size))]}"
        at=$((at + size))
    done <<LIST
embed_tokens 600000,1024
norm 1024
layers.0.input_layernorm 1024
layers.0.post_attention_layernorm 1024
layers.0.self_attn.q_proj 64,1024
layers.0.self_attn.k_proj 64,1024
layers.0.self_attn.v_proj 64,1024
layers.0.self_attn.o_proj 1024,64
layers.0.self_attn.q_norm 64
layers.0.self_attn.k_norm 64
layers.0.mlp.gate_proj 64,1024
layers.0.mlp.up_proj 64,1024
layers.0.mlp.down_proj 1024,64
LIST
    header="{${header#,}}"
    local n=${#header}
    printf "\\x$(printf %x $((n & 255)))\\x$(printf %x $((n >> 8 & 255)))\\0\\0\\0\\0\\0\\0%s" "$header" >large/model.safetensors
    truncate -s $((8 + n + at)) large/model.safetensors
}
if [ "$(df --output=avail -k . | tail -1)" -gt 4000000 ]; then
    make_large
    for signal in INT TERM; do
        # A background job of a script ignores SIGINT; the program sets its own handler all the same.
        "$MILKIT" convert large -o stopped 2>err.txt &
        pid=$!
        for _ in $(seq 200); do
            [ -n "$(find . -path '*stopped.tmp-*' -name 'weight.bin*' -size +1M 2>/dev/null)" ] && break
            sleep 0.05
        done
        kill -$signal $pid
        wait $pid
        got=$?
        [ $got -eq 130 ] || fail "expected status 130 after SIG$signal, found $got ($(tail -1 err.txt))"
        grep -q interrupted err.txt || fail "SIG$signal: no message"
        nothing_left stopped
    done
    # with a part finished: it is kept, and the message says how to go on
    "$MILKIT" convert large -o stopped 2>err.txt &
    pid=$!
    for _ in $(seq 400); do
        [ -n "$(find . -path '*stopped.tmp-*lm_head*' -name 'weight.bin*' -size +1M 2>/dev/null)" ] && break
        sleep 0.05
    done
    kill -INT $pid
    wait $pid
    got=$?
    [ $got -eq 130 ] || fail "in the head: expected status 130, found $got ($(tail -1 err.txt))"
    grep -q "interrupted; finished parts are kept (2 of 3), --resume" err.txt || fail "in the head: $(tail -1 err.txt)"
    [ ! -e stopped ] || fail "an unfinished package under its final name"
    ls -d .stopped.tmp-* >/dev/null 2>&1 || fail "the finished parts were not kept"
    rm -rf .stopped.tmp-*
    rm -rf large
else
    echo "skipped: interruption needs 4 GB of disk"
fi
finish
