# What milkit serve knows of conversations that are at rest: copies in memory, files that outlast it, and that neither changes an answer.
. "$SOURCE/tests/cli/packages.sh"
. "$SOURCE/tests/cli/serving.sh"
make_package "$tiny" plain -c 512 -b 32 --format mlmodelc
make_package "$SOURCE/tests/data/models/qwen3_5_moe-tiny" recurrent -c 512 -b 32 --format mlmodelc

# completion NAME TEXT [END]: an answer to a long text, in NAME.txt
completion() {
    ask 200 /v1/completions "{\"prompt\":\"$(printf "$2 %.0s" $(seq 40))${3-}\",\"max_tokens\":12,\"temperature\":1,\"seed\":5,\"ignore_eos\":true}"
    mv out.txt "$1.txt"
}
# known NAME EXPRESSION: of k, the known tokens of NAME's prompt, and n, all of them
known() {
    python3 -c 'import json, sys
u = json.load(open(sys.argv[1] + ".txt"))["usage"]
k, n = u["prompt_tokens_details"]["cached_tokens"], u["prompt_tokens"]
assert n > 64, n
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" || fail "$package: not so of $1: $2: $(tail -c 600 "$1.txt")"
}
alike() { # A B: the same text
    python3 -c 'import json, sys
a, b = (json.load(open(p + ".txt"))["choices"] for p in sys.argv[1:])
sys.exit(0 if a == b else 1)' "$1" "$2" || fail "$package: $1 and $2 differ: $(cat "$1.txt" "$2.txt")"
}

for package in plain recurrent; do
    # one slot, two conversations in turns: the first one is known when it comes again
    serve $package --parallel 1
    completion first "In the beginning"
    completion other "And Moses said"
    completion again "In the beginning"
    known first "k == 0"
    known other "k < 32"
    known again "k >= n - 1"
    alike first again
    # texts that begin alike: from the third one on what can't be cut back is known to where they part
    completion left "And God said" "unto Moses"
    completion right "And God said" "to the king"
    completion straight "And God said" "behold"
    known straight "k >= 64"
    stop
    serve $package --parallel 1 --cache-ram 0
    completion first0 "In the beginning"
    completion other0 "And Moses said"
    completion again0 "In the beginning"
    known again0 "k < 32"
    alike first first0
    alike other other0
    alike first again0
    completion straight0 "And God said" "behold"
    alike straight straight0
    stop

    # files: a restart knows what was known before
    rm -rf kept
    serve $package --parallel 1 --cache-dir kept
    completion one "In the beginning"
    completion two "And Moses said"
    stop
    [ "$(stat -c %a kept)" = 700 ] || fail "others can look into the folder: $(stat -c %a kept)"
    [ "$(ls kept/*.state | wc -l)" -ge 2 ] || fail "nothing was kept: $(ls kept)"
    for file in kept/*; do [ "$(stat -c %a "$file")" = 600 ] || fail "others can read $file"; done
    serve $package --parallel 2 --cache-dir kept
    completion three "In the beginning"
    completion four "And Moses said"
    known three "k >= n - 1"
    known four "k >= n - 1"
    alike first three
    alike other four
    stop
    grep -q dropped log.txt && fail "a good file is dropped: $(cat log.txt)"

    # damaged: a warning, and the prompt is computed
    for part in state tokens; do
        for file in kept/*.$part; do
            python3 - "$file" <<'P'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 4
open(sys.argv[1], "wb").write(data)
P
        done
        serve $package --parallel 1 --cache-dir kept
        completion five "In the beginning"
        known five "k < 32"
        alike first five
        stop
        grep -q "the cached state is dropped" log.txt || fail "$package: a damaged $part is not told of: $(cat log.txt)"
        serve $package --parallel 1 --cache-dir kept
        completion six "In the beginning"
        known six "k >= n - 1"
        alike first six
        stop
    done
    for file in kept/*.state; do : >"$file"; done
    serve $package --parallel 1 --cache-dir kept
    completion seven "In the beginning"
    alike first seven
    stop
done

# the other package's files are left alone; a limit of files is held
package=plain
before=$(ls kept | wc -l)
serve plain --cache-dir kept --parallel 1 --cache-disk 1
for word in a b c d e f g h; do completion "$word" "$word Moses went $word"; done
stop
[ "$(ls kept | wc -l)" -gt "$before" ] || fail "another package's files went: $(ls kept)"
name=$(ls -t kept/*.state | head -1)
bytes=$(du -cb kept/"$(basename "${name%-*}")"* | tail -1 | cut -f1)
[ "$bytes" -le 1048576 ] && [ "$bytes" -gt 200000 ] || fail "files of $bytes bytes under a limit of 1 MiB: $(ls -l kept)"
: >file
expect 1 "expected a folder" "$MILKIT" serve plain --cache-dir file --port 0
expect 2 "cache-ram" "$MILKIT" serve plain --cache-ram -1
finish
