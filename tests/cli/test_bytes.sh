# The bytes of packages are the same whatever compiler and processor milkit was built with: the files of one package of
# each family and graph against the checksums of tests/data/packages/bytes.txt, which every build has to meet. A graph that
# is meant to change brings new ones: UPDATE=1 writes them.
. "$SOURCE/tests/cli/packages.sh"
golden=$DATA/packages/bytes.txt

# package NAME CHECKPOINT OPTIONS...
package() {
    local name=$1 checkpoint=$2
    shift 2
    "$MILKIT" convert "$DATA/models/$checkpoint" -o "$name" --split-head 2 -q "$@" 2>err.txt ||
        fail "convert $checkpoint $*: $(cat err.txt)"
}
package qwen3 qwen3-gqa8 -c 64 -b 8 --chunks 2
package qwen3-lut4 qwen3-bias -c 64 -b 8 --lut-ffn 4 --lut-head 6 --lut-method kmeans --format mlmodelc
package qwen3_5 qwen3_5-equal -c 64 -b 16
package qwen3_5-chunked qwen3_5-equal -c 64 -b 16 --gdn-chunk 4 --exact-norms --format mlmodelc
package experts qwen3_5_moe-random -c 64 -b 16 --format mlmodelc
package experts-exact qwen3_5_moe-random -c 64 -b 1 --exact-topk --format mlmodelc
package gemma4-window gemma4-window -c 96 -b 8 --chunks 3
package gemma4-full gemma4-resaved -c 64 -b 8 --format mlmodelc
package llama llama-bias -c 64 -b 8 --format mlmodelc
package qwen2 qwen2-window -c 64 -b 8 --format mlmodelc
package mistral mistral-window -c 64 -b 8 --lut-ffn 6 --format mlmodelc
package smollm3 smollm3-list -c 64 -b 8 --format mlmodelc
package gemma3 gemma3-linear -c 96 -b 8 --chunks 2
package gemma3-rotate gemma3-linear -c 64 -b 8 --anemll-rotate --format mlmodelc
package qwen3_moe qwen3_moe-mixed -c 64 -b 8 --format mlmodelc

# What other conversions share with it, meta.yaml and copies, has tests of its own.
find . -path "*.mlmodelc/*" -type f -o -path "*.mlpackage/*" -type f ! -name weight.bin | LC_ALL=C sort |
    xargs sha256sum >sums.txt
[ -z "${UPDATE-}" ] || cp sums.txt "$golden"
if ! diff "$golden" sums.txt >diff.txt; then
    fail "$(grep -c '^>' diff.txt) files of $(wc -l <sums.txt) have other bytes: $(sed -n 's/^> [^ ]* *//p' diff.txt | head -n 3 | tr '\n' ' ')"
fi
[ "$(wc -l <sums.txt)" -ge 100 ] || fail "only $(wc -l <sums.txt) files were compared"
exit $failed
