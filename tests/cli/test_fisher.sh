# --lut-method fisher: palettes in which a weight counts with its squared gradients.
. "$SOURCE/tests/cli/packages.sh"
cp "$DATA/models/eval.txt" text.txt
options="-c 256 -b 16 --format mlmodelc -q"
fisher="--lut-ffn 3,8 --lut-method fisher --calibration text.txt --calibration-tokens 600"

# weights PACKAGE: one digest of all weight files
weights() {
    find "$1" -name weight.bin | sort | xargs cat | sha256sum | cut -d' ' -f1
}

make_package "$tiny" plain $options
make_package "$tiny" kmeans $options --lut-ffn 3,8 --lut-method kmeans
make_package "$tiny" fisher $options $fisher -j 1
grep -q "fisher" fisher/meta.yaml || fail "meta.yaml does not name the method"
# the same bytes for any number of threads, any level of instructions, any number of chunks in one run or several
make_package "$tiny" again $options $fisher -j 3
[ "$(weights again)" = "$(weights fisher)" ] || fail "3 threads write other bytes"
MILKIT_CPU=scalar make_package "$tiny" scalar $options $fisher
[ "$(weights scalar)" = "$(weights fisher)" ] || fail "the scalar level writes other bytes"
make_package "$tiny" chunks $options $fisher --chunks 2
make_package "$tiny" alone $options $fisher --chunks 2 --only chunk:2
cmp "$(find chunks -path '*02of02*/weight.bin')" "$(find alone -path '*02of02*/weight.bin')" ||
    fail "a chunk alone has other bytes"

# the head by its own gradients, alone as with the rest
make_package "$tiny" head $options $fisher --lut-head 4,8
make_package "$tiny" head_alone $options $fisher --lut-head 4,8 --only head
make_package "$tiny" head_kmeans $options --lut-ffn none --lut-head 4,8 --lut-method kmeans --only head
of_head() {
    find "$1" -path '*lm_head*/weight.bin'
}
cmp "$(of_head head)" "$(of_head head_alone)" || fail "a head alone has other bytes"
cmp -s "$(of_head head)" "$(of_head head_kmeans)" && fail "the head has the palettes of k-means"

# what it is for
kl() {
    "$MILKIT" eval "$1" --text text.txt --tokens 1024 --window 128 --against plain --json -q >eval.json 2>err.txt || fail "eval $1"
    grep -oE '"(mean_kl|kl_mean|kl)": *[0-9.e-]+' eval.json | head -1 | grep -oE '[0-9.e-]+$'
}
awk -v k="$(kl kmeans)" -v f="$(kl fisher)" 'BEGIN { exit !(k > 0 && f > 0 && f <= 0.8 * k) }' ||
    fail "expected fisher to lose less: KL $(kl kmeans) with k-means, $(kl fisher) with fisher"

# a family with experts and a delta rule; nothing is left of files without names
make_package "$DATA/models/qwen3_5_moe-tiny" experts -c 64 -b 16 --format mlmodelc -q --lut-ffn 4,8 --lut-method fisher \
    --calibration text.txt --calibration-tokens 100
[ -z "$(find . -name '.milkit-spill*')" ] || fail "a temporary file is left"
expect 2 "--calibration-tokens" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method fisher --calibration-tokens 0
echo 1,99999999 >far.ids
expect 2 "expected an id below" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method fisher --calibration @far.ids
[ ! -e x ] || fail "a refused call made an output"
