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

head -c 20 "$gguf/ok.gguf" >cut.gguf
refuses 4 "cut.gguf: header: expected 8 bytes at byte 16, found a file of 20 bytes" inspect cut.gguf
refuses 4 "cut.gguf: header: expected 8 bytes" convert cut.gguf -o package
[ ! -e package ] || fail "a refused file left a package"
cp "$gguf/ok.gguf" model-without-suffix
refuses 3 "key general.architecture: milkit reads" convert "$gguf/blocks.gguf" -o package
shows "llama.block_count: 1" model-without-suffix
refuses 1 "nothing.gguf" convert nothing.gguf -o package
refuses 2 "a configuration replaces keys of what a GGUF file says" convert "$DATA/models/qwen3-gqa8" --config out.json -o package

# What was made for a file is gone with the command.
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"
exit $failed
