# GGUF files: what is said of them, their tokenizers, damaged ones.
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH/tmp"
cd "$SCRATCH" || exit 1
export TMPDIR=$SCRATCH/tmp
failed=0
gguf=$DATA/gguf

fail() {
    echo "FAILED: $*"
    failed=1
}

# shows TEXT PATH
shows() {
    "$MILKIT" inspect "$2" >out.txt 2>err.txt || fail "$2: $(tail -1 err.txt)"
    grep -qF -- "$1" out.txt || fail "$2: expected '$1' in the report: $(head -3 out.txt)"
}

# refuses STATUS TEXT COMMAND...
refuses() {
    local want=$1 text=$2
    shift 2
    "$MILKIT" "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$want" ] || fail "$*: expected status $want, found $got"
    grep -qF -- "$text" err.txt || fail "$*: expected '$text', found $(tail -1 err.txt)"
}

# ids PATH TEXT IDS: as llama.cpp gives them
ids() {
    local got
    got=$("$MILKIT" tokenize --ids "$1" "$2" 2>err.txt) || fail "$1: $(tail -1 err.txt)"
    [ "$got" = "$3" ] || fail "$1: '$2': expected $3, found $got"
}

shows "llama.block_count: 1" "$gguf/ok.gguf"
shows "tokenizer.ggml.tokens: 270 of string: <unk> <s> </s> <0x00> ..." "$gguf/ok.gguf"
shows "gguf version 3, 3 files" "$gguf/llama-small.split-00001-of-00003.gguf"
shows "q4_k  Q4_K [3, 512]" "$gguf/blocks.gguf"
"$MILKIT" inspect --json "$gguf/ok.gguf" >out.json || fail "--json"
grep -q '"general.architecture":	"llama"' out.json || fail "no metadata in the JSON"

ids "$gguf/llama-small.Q8_0.gguf" 'Hello world' 42,71,78,78,81,264,278,78,70
ids "$gguf/llama-small.Q8_0.gguf" $' the  man\nand' 263,223,223,79,67,80,201,67,269
ids "$gguf/llama-small.split-00001-of-00003.gguf" 'naïve 123' 80,67,130,110,267,223,19,20,21

# SentencePiece by scores, without a space in front
ids "$gguf/gemma3-plain.Q5_0.gguf" 'Hello world' 81,290,117,117,293,289,128,293,298,117,299
ids "$gguf/gemma3-plain.Q5_0.gguf" $' the  man\nand' 289,267,6,118,276,4,276,299

head -c 20 "$gguf/ok.gguf" >cut.gguf
refuses 4 "cut.gguf: header: expected 8 bytes at byte 16, found a file of 20 bytes" inspect cut.gguf
refuses 4 "cut.gguf: header: expected 8 bytes" convert cut.gguf -o package
[ ! -e package ] || fail "a refused file left a package"
cp "$gguf/ok.gguf" model-without-suffix
refuses 3 "key general.architecture: milkit reads" convert "$gguf/blocks.gguf" -o package
shows "llama.block_count: 1" model-without-suffix
refuses 1 "nothing.gguf" convert nothing.gguf -o package
refuses 2 "a configuration replaces keys of what a GGUF file says" convert "$DATA/models/qwen3-gqa8" --config out.json -o package

# A package of the file, of its parts and of the checkpoint that is written out of it: the same bytes.
convert() {
    "$MILKIT" convert "$@" >out.txt 2>err.txt || fail "convert $*: $(tail -1 err.txt)"
}
small=$gguf/llama-small.Q8_0.gguf
convert "$small" -o package -c 64 -b 16
grep -qF 'was quantized before (F32 7, Q8_0 23: 8.5 bits a number)' err.txt || fail "not said that it was quantized: $(cat err.txt)"
grep -q 'name: anemll-llama-small.Q8_0-ctx64' package/meta.yaml || fail "$(head -2 package/meta.yaml)"
convert "$gguf/llama-small.split-00001-of-00003.gguf" -o parts -c 64 -b 16
grep -q 'name: anemll-llama-small.split-ctx64' parts/meta.yaml || fail "$(head -2 parts/meta.yaml)"
convert "$small" --format safetensors -o plain
convert plain -o again -c 64 -b 16
for other in parts again; do
    rm -f package/meta.yaml $other/meta.yaml
    diff -r package $other >out.txt || fail "$other: $(head -3 out.txt)"
done
rm -rf package
convert "$small" -o package -c 64 -b 16
"$MILKIT" check package --hf "$small" -n 8 >out.txt 2>err.txt || fail "check: $(tail -1 out.txt err.txt)"
grep -q 'verdict: pass' out.txt || fail "check: $(tail -1 out.txt)"
"$MILKIT" eval package --text "$DATA/models/eval.txt" --tokens 100 --window 50 --against "$small" >out.txt 2>err.txt ||
    fail "eval --against: $(tail -1 err.txt)"
convert "$small" -o palettes -c 64 -b 16 --lut-ffn 4 --lut-method kmeans
grep -qE 'quantized again: KL divergence from the file.s own numbers 0\.[0-9]+ nats' err.txt ||
    fail "not said what palettes cost: $(cat err.txt)"
refuses 1 "exists already" convert "$small" --format safetensors -o plain
refuses 2 "is one already" convert plain --format safetensors -o twice
# Families whose settings are in no key of a file, or whose tensors lie otherwise there: the known models' are taken, and said.
for one in "smollm3-nope no_rope_layers" "qwen3_moe-split norm_topk_prob"; do
    file=$gguf/${one% *}.Q8_0.gguf
    convert "$file" -o "${one% *}" -c 64 -b 4
    grep -qF "${one#* } is in no key of a GGUF" err.txt || fail "$file: not said: $(cat err.txt)"
    "$MILKIT" check "${one% *}" --hf "$file" --tokens 0,147,248,151,299 -n 8 --layers >out.txt 2>err.txt || fail "$file: $(tail -1 err.txt)"
    grep -q 'verdict: pass' out.txt || fail "$file: $(tail -1 out.txt)"
done
# The rotation is another one with another base, on both sides.
echo '{"rope_theta": 77}' >other.json
convert "$small" -o other -c 64 -b 16 --config other.json
"$MILKIT" check other --hf "$small" --config other.json -n 4 >out.txt 2>err.txt || fail "check --config: $(tail -1 out.txt)"
"$MILKIT" check other --hf "$small" -n 4 >out.txt 2>err.txt
[ $? -eq 5 ] || fail "check without --config: $(tail -1 out.txt)"

# What was made for a file is gone with the command.
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"
exit $failed
