#!/bin/bash
# A published model's shapes (Qwen3-0.6B's unless SIZE says otherwise) with random weights: conversion against copying, memory, time to the first token, decode
# against a plain read of the same bytes, prefill. Everything is measured in one run; compare ratios, not figures.
#
# [SIZE=0.6b] bench/real_shapes.sh BUILD SCRATCH [CONVERT OPTIONS]    needs about 4 GB of disk in SCRATCH
# sizes: those of tools/make_checkpoint.c; a SCRATCH for each
set -eu
build=$(realpath "$1") scratch=$2
shift 2
milkit=$build/milkit
mkdir -p "$scratch"
cd "$scratch"
[ -e checkpoint/config.json ] || "$build"/bench/make_checkpoint checkpoint --size "${SIZE:-0.6b}"
seconds() {
    local start end
    start=$(date +%s.%N)
    "$@" >/dev/null 2>&1
    end=$(date +%s.%N)
    echo "$end - $start" | bc
}
cat checkpoint/* >/dev/null
rm -rf package copy
copy=$(seconds bash -c 'cp -r checkpoint copy && sync copy/*')
rm -rf copy
convert=$(seconds "$milkit" convert checkpoint -o package -c 1024 --report report.json "$@")
echo "convert $* $convert s, copying the checkpoint $copy s, ratio $(echo "scale=2; $convert / $copy" | bc)"
grep -o '"peak_anonymous[a-z_]*": *[0-9]*' report.json || true
files=$(ls package/*_FFN*.mlmodelc/weights/weight.bin package/*_lm_head*.mlmodelc/weights/weight.bin)
cat $files >/dev/null
for threads in 1 2; do
    for round in 1 2 3; do
        read -r plain best < <("$build"/bench/bench_read $threads 5 $files)
        stats=$("$milkit" run package --tokens 1,2,3,4,5,6,7,8 --ids -n 48 --greedy --ignore-eos --stats -t $threads 2>&1 >/dev/null | tail -n 1)
        rate=$(echo "$stats" | sed 's/.*generated: [0-9]* tokens, \([0-9.]*\) .*/\1/')
        bytes=$(cat $files | wc -c)
        gbs=$(echo "scale=3; $rate * $bytes / 1000000000" | bc)
        echo "decode, $threads threads: $rate tokens/s = $gbs GB/s, plain read $plain GB/s, ratio $(echo "scale=3; $gbs / $plain" | bc)"
    done
done
ids=$(seq -s, 1 512)
"$milkit" run package --tokens "$ids" --ids -n 1 --greedy --ignore-eos --stats 2>&1 >/dev/null | tail -n 1
for round in 1 2 3; do
    echo "start to first token: $(seconds "$milkit" run package --tokens 1 --ids -n 1 --greedy) s"
done
