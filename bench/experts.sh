#!/bin/bash
# Time of a token against the number of experts: two models that differ in it alone (16 and 64, 4 chosen), random
# weights. The ratio is near 1 when only the chosen experts' rows are read, and near 3 when all are.
#
# bench/experts.sh BUILD SCRATCH    needs about 5 GB of disk in SCRATCH
set -eu
build=$(realpath "$1") scratch=$2
mkdir -p "$scratch"
cd "$scratch"
for experts in 16 64; do
    [ -e moe$experts/config.json ] || "$build"/bench/make_checkpoint moe$experts --size moe$experts
    [ -d package$experts ] || "$build"/milkit convert moe$experts -o package$experts -c 512 --format mlmodelc -q
    cat package$experts/*/weights/weight.bin >/dev/null
done
rate() {
    "$build"/milkit run "package$1" --tokens 1,2,3,4 --ids -n 64 --temp 1 --seed 1 --ignore-eos --stats -t "$2" 2>&1 >/dev/null |
        sed -n 's/.*generated: [0-9]* tokens, \([0-9.]*\) .*/\1/p'
}
for threads in 1 2; do
    for round in 1 2 3 4 5; do
        few=$(rate 16 $threads) many=$(rate 64 $threads)
        echo "$threads threads: 16 experts $few tokens/s, 64 experts $many tokens/s, time ratio $(echo "scale=3; $few / $many" | bc)"
    done
done
