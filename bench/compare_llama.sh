#!/bin/bash
# milkit beside llama-bench in turns: builds the packages of the widths in question from one checkpoint, runs both programs one after the other
# ROUNDS times, and prints the tables and the ratios.
#
# LLAMA_BENCH=PROGRAM GGUF="q4_0.gguf q6_k.gguf .." [ROUNDS=3] [THREADS=2] [TESTS="-p 512 -n 128"] [WIDTHS="4,8 6,8 8,8 fp16"] \
#     bench/compare_llama.sh BUILD CHECKPOINT SCRATCH
# Without LLAMA_BENCH only milkit is measured.
set -eu
build=$(realpath "$1") checkpoint=$(realpath "$2") scratch=$3
milkit=$build/milkit
tests=${TESTS:--p 512 -n 128} rounds=${ROUNDS:-3} threads=${THREADS:-2} context=${CONTEXT:-1024}
mkdir -p "$scratch"
cd "$scratch"
packages=""
for width in ${WIDTHS:-4,8 6,8 8,8 fp16}; do
    name=package-${width/,/-}
    options=""
    [ "$width" = fp16 ] || options="--lut-ffn $width --lut-head $width --lut-method kmeans"
    # shellcheck disable=SC2086
    [ -e "$name" ] || "$milkit" convert "$checkpoint" -o "$name" -c "$context" --format mlmodelc -q $options
    packages="$packages $name"
done
rm -f ours.jsonl llama.jsonl
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for package in $packages; do
        # shellcheck disable=SC2086
        "$milkit" bench "$package" $tests -t "$threads" -r 1 -q -o jsonl >>ours.jsonl
    done
    for file in ${GGUF:-}; do
        # shellcheck disable=SC2086
        [ -z "${LLAMA_BENCH:-}" ] || "$LLAMA_BENCH" -m "$file" $tests -t "$threads" -r 1 -o jsonl >>llama.jsonl
    done
done
if [ -s llama.jsonl ]; then
    "$milkit" bench ours.jsonl --compare llama.jsonl
else
    # shellcheck disable=SC2086
    "$milkit" bench $packages $tests -t "$threads" -r "$rounds" -q
fi
