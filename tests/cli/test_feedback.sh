# --lut-method feedback: palettes whose entries are chosen by what the layers' inputs make of an error.
. "$SOURCE/tests/cli/packages.sh"
cp "$DATA/models/eval.txt" text.txt
options="-c 256 -b 16 --format mlmodelc -q"

# weights PACKAGE: one digest of all weight files
weights() {
    find "$1" -name weight.bin | sort | xargs cat | sha256sum | cut -d' ' -f1
}

make_package "$tiny" plain $options
make_package "$tiny" kmeans $options --lut-ffn 3,8 --lut-method kmeans
make_package "$tiny" feedback $options --lut-ffn 3,8 --lut-method feedback --calibration text.txt --calibration-tokens 800 -j 1
grep -q "feedback" feedback/meta.yaml || fail "meta.yaml does not name the method"
[ "$(weights kmeans)" != "$(weights feedback)" ] || fail "feedback changes nothing"
# any number of threads, any instruction set
make_package "$tiny" again $options --lut-ffn 3,8 --lut-method feedback --calibration text.txt --calibration-tokens 800 -j 3
[ "$(weights again)" = "$(weights feedback)" ] || fail "3 threads write other bytes"
MILKIT_CPU=scalar make_package "$tiny" scalar $options --lut-ffn 3,8 --lut-method feedback --calibration text.txt \
    --calibration-tokens 800
[ "$(weights scalar)" = "$(weights feedback)" ] || fail "the scalar level writes other bytes"
# chunks, and one chunk alone, know the same inputs
make_package "$tiny" chunks $options --chunks 2 --lut-ffn 3,8 --lut-method feedback --calibration text.txt --calibration-tokens 800
make_package "$tiny" alone $options --chunks 2 --lut-ffn 3,8 --lut-method feedback --calibration text.txt --calibration-tokens 800 \
    --only chunk:2
for file in $(cd alone && find . -name weight.bin); do
    cmp -s "alone/$file" "chunks/$file" || fail "$file: --only writes other bytes"
done

# it loses less than half of what k-means does (measured: an eighth, with a text of 16,000 tokens)
kl() {
    "$MILKIT" eval "$1" --text text.txt --tokens 1024 --window 128 --against plain --json -q >eval.json 2>err.txt || fail "eval $1"
    grep -oE '"(mean_kl|kl_mean|kl)": *[0-9.e-]+' eval.json | head -1 | grep -oE '[0-9.e-]+$'
}
awk -v k="$(kl kmeans)" -v f="$(kl feedback)" 'BEGIN { exit !(k > 0 && f > 0 && f < 0.5 * k) }' ||
    fail "expected feedback to lose less: KL $(kl kmeans) with k-means, $(kl feedback) with feedback"

# best: the same bytes for threads, instruction sets and parts; less than half of the loss again
best="--lut-ffn 3,8 --lut-head 4 --lut-method best --calibration text.txt --calibration-tokens 600"
make_package "$tiny" best $options --chunks 2 $best -j 1
make_package "$tiny" best_again $options --chunks 2 $best -j 3
[ "$(weights best_again)" = "$(weights best)" ] || fail "best: 3 threads write other bytes"
MILKIT_CPU=scalar make_package "$tiny" best_scalar $options --chunks 2 $best
[ "$(weights best_scalar)" = "$(weights best)" ] || fail "best: the scalar level writes other bytes"
make_package "$tiny" best_alone $options --chunks 2 $best --only chunk:2,head
for file in $(cd best_alone && find . -name weight.bin); do
    cmp -s "best_alone/$file" "best/$file" || fail "best: $file: --only writes other bytes"
done
make_package "$tiny" best3 $options --lut-ffn 3,8 --lut-method best --calibration text.txt --calibration-tokens 800
make_package "$tiny" activation $options --lut-ffn 3,8 --lut-method activation --calibration text.txt --calibration-tokens 800
awk -v k="$(kl kmeans)" -v a="$(kl activation)" -v f="$(kl feedback)" -v b="$(kl best3)" 'BEGIN { exit !(k > a && a > f && f > b && b > 0) }' ||
    fail "expected kmeans, activation, feedback, best in the order of their loss: $(kl kmeans) $(kl activation) $(kl feedback) $(kl best3)"

# Nothing is said: up to 4 bits feedback by a text that the model writes, the same one for any number of threads; wider ones, and where
# it is asked for, k-means.
expect_stderr 0 "--lut-method kmeans" "$MILKIT" convert "$tiny" -o own -c 256 -b 16 --format mlmodelc --lut-ffn 4,8 --calibration-tokens 600 -j 1
make_package "$tiny" own2 $options --lut-ffn 4,8 --lut-method feedback --calibration self --calibration-tokens 600 -j 3
[ "$(weights own)" = "$(weights own2)" ] || fail "the model's text depends on threads"
[ -z "$(find . -maxdepth 1 -name '.*tmp*')" ] || fail "the package that wrote the text is left"
make_package "$tiny" wide $options --lut-ffn 6,8
make_package "$tiny" wide_kmeans $options --lut-ffn 6,8 --lut-method kmeans
[ "$(weights wide)" = "$(weights wide_kmeans)" ] || fail "6 bits are not k-means"
make_package "$tiny" wide_text $options --lut-ffn 6,8 --calibration text.txt --calibration-tokens 800
[ "$(weights wide)" != "$(weights wide_text)" ] || fail "6 bits with a text are k-means"

# Killed at ten moments and resumed: the same bytes; layers before the part that is written go through their palettes again.
small=$DATA/models/llama-bias
seq 1 120 | paste -sd, >small.ids
options="-c 64 -b 8 --chunks 3 --format mlmodelc -q --lut-ffn 3,8 --lut-head 4 --lut-method best --calibration @small.ids"
begin=$(date +%s%N)
make_package "$small" whole $options
took=$((($(date +%s%N) - begin) / 1000000))
for i in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf killed .killed.tmp-*
    # shellcheck disable=SC2086
    "$MILKIT" convert "$small" -o killed $options 2>err.txt &
    sleep "$(awk -v t="$took" -v i="$i" 'BEGIN { printf "%.3f", t * i / 11000 }')"
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    # shellcheck disable=SC2086
    [ -d killed ] || "$MILKIT" convert "$small" -o killed $options --resume 2>err.txt || fail "resuming: $(tail -1 err.txt)"
    [ "$(weights killed)" = "$(weights whole)" ] || fail "killed after $i of 11 parts of its time: other bytes"
done
# an input with few tokens has nearest entries; it is said
seq 1 20 | paste -sd, >few.ids
expect_stderr 0 "too few tokens" "$MILKIT" convert "$small" -o few -c 64 -b 8 --format mlmodelc --lut-ffn 3,8 --lut-method feedback --calibration @few.ids

# what can't be
expect 2 "--calibration" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method kmeans --calibration text.txt --residual-scale off
expect 2 "kmeans, exact, activation, fisher, feedback or best" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method worst
expect 2 "--calibration-tokens" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method feedback --calibration-tokens 0
echo 1 >one.ids
expect 4 "expected a text of some words" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method feedback --calibration @one.ids
echo 1,99999999 >far.ids
expect 2 "expected an id below" "$MILKIT" convert "$tiny" -o x --lut-ffn 4 --lut-method feedback --calibration @far.ids
[ ! -e x ] || fail "a refused conversion left its folder"
finish
