# milkit bench: its formats, as llama-bench's readers take them, what it refuses, and comparing. Never how fast anything is.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8 --format mlmodelc --lut-ffn 4,8 --lut-method kmeans
make_package "$DATA/models/qwen3_5-equal" hybrid -c 64 -b 8 --format mlmodelc
q() { # q SCRIPT: python with the last output in out.txt
    python3 -c "$1" || fail "$2"
}

# ---- tests and their names, in order ----
expect 0 "" "$MILKIT" bench tiny -p 16,8 -n 2 -n 3 -pg 8,2 -d 0,9 -r 2 -t 1,2 -q
[ "$(grep -c '^| qwen3' out.txt)" -eq 20 ] || fail "expected 20 rows: $(cat out.txt)"
sed -n 's/^| qwen3.*| *\([0-9]*\) | *\([pt][^|]*[^ |]\) |.*±.*/\1 \2/p' out.txt >names.txt
for threads in 1 2; do
    for depth in "" " @ d9"; do
        for name in pp16 pp8 tg2 tg3 pp8+tg2; do echo "$threads $name$depth"; done
    done
done >expected.txt
cmp -s names.txt expected.txt || fail "tests: $(diff names.txt expected.txt | head -5)"
head -1 out.txt | grep -q '^| model  *|  *size |  *params | backend  *| threads |  *test |  *t/s |' || fail "header: $(head -1 out.txt)"
tail -1 out.txt | grep -q '^build: milkit ' || fail "no line about the build"
grep -q 'qwen3 2.9M LUT4,8 head fp16' out.txt || fail "the model's name: $(sed -n 3p out.txt)"
# ranges
expect 0 "" "$MILKIT" bench tiny -p 0 -n 1-8*2 -r 1 -q --llama
[ "$(grep -o 'tg[0-9]*' out.txt | tr '\n' ' ')" = "tg1 tg2 tg4 tg8 " ] || fail "a range: $(cat out.txt)"
grep -q 'GB/s' out.txt && fail "--llama shows columns of ours"
expect 0 "" "$MILKIT" bench tiny -p 8-24+8 -n 0 -r 1 --no-warmup
[ "$(grep -o 'pp[0-9]*' out.txt | tr '\n' ' ')" = "pp8 pp16 pp24 " ] || fail "a range with a step: $(cat out.txt)"
expect 0 "run one by one" "$MILKIT" bench tiny -p 9 -n 0 -r 1
# contexts that can't be rewound are made again or restored
expect 0 "" "$MILKIT" bench hybrid -p 8 -n 2 -d 20 -r 2 -q --sampling
expect 0 "" "$MILKIT" bench hybrid tiny -p 8 -n 2 -d 20 -r 2 -q --made-up-depth --progress --delay 0.01
[ "$(grep -c '@ d20' out.txt)" -eq 4 ] || fail "two packages: $(cat out.txt)"

# ---- formats ----
expect 0 "" "$MILKIT" bench tiny -p 8 -n 2 -r 3 -q -o json -oe jsonl
cp err.txt rows.jsonl
cp out.txt rows.json
expect 0 "" "$MILKIT" bench tiny -p 8 -n 2 -r 1 -q -o csv
cp out.txt rows.csv
mkdir 'quo"ted,'
cp -r tiny 'quo"ted,/p'
expect 0 "" "$MILKIT" bench 'quo"ted,/p' -p 8 -n 0 -r 1 -q -o csv
cp out.txt quoted.csv
cp -r tiny "it's"
expect 0 "" "$MILKIT" bench "it's" -p 8 -n 2 -r 1 -q -o sql
cp out.txt rows.sql
if command -v python3 >python.txt; then
    q '
import json, csv, sqlite3
peer = ("build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll "
  "type_k type_v n_gpu_layers n_cpu_moe split_mode main_gpu no_kv_offload flash_attn devices tensor_split tensor_buft_overrides load_mode embeddings no_op_offload no_host "
  "fit_target fit_min_ctx n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts").split()
rows = json.load(open("rows.json"))
lines = [json.loads(l) for l in open("rows.jsonl")]
assert rows == lines and len(rows) == 2, "json and jsonl"
for row in rows:
    keys = list(row)
    assert keys[:len(peer)] == peer, keys
    assert keys[len(peer):len(peer) + 2] == ["samples_ns", "samples_ts"], keys
    assert len(row["samples_ns"]) == 3 and len(row["samples_ts"]) == 3
    n = row["n_prompt"] + row["n_gen"]
    for ns, ts in zip(row["samples_ns"], row["samples_ts"]):
        assert abs(ts * ns / 1e9 / n - 1) < 1e-3
    mean = sum(row["samples_ts"]) / 3
    assert abs(row["avg_ts"] / mean - 1) < 1e-4
    deviation = (sum((x - mean) ** 2 for x in row["samples_ts"]) / 2) ** 0.5
    assert abs(row["stddev_ts"] - deviation) < 1e-3 * mean
    assert row["median_ts"] and len(row["package_hash"]) == 64 and row["n_ubatch"] == 8 and row["cpu_strict"] is False
    assert row["min_ts"] <= row["median_ts"] <= row["max_ts"]
assert rows[0]["share_of_read"] is None and rows[1]["share_of_peak"] is None
assert rows[1]["bytes_per_token"] > rows[1]["weight_bytes_per_token"] > 0
table = list(csv.DictReader(open("rows.csv")))
assert len(table) == 2 and list(table[0])[:len(peer)] == peer and table[1]["n_gen"] == "2"
assert float(table[0]["stddev_ts"]) == 0, "one run deviates by 0"
assert list(csv.DictReader(open("quoted.csv")))[0]["model_filename"] == "quo\"ted,/p"
base = sqlite3.connect(":memory:")
base.executescript(open("rows.sql").read())
base.executescript(open("rows.sql").read())
assert base.execute("select count(*), min(model_filename) from llama_bench").fetchone() == (4, "it\x27s")
assert base.execute("select count(*) from llama_bench l join milkit_bench m on m.llama_bench_row = l.rowid where m.isa <> \"\"").fetchone()[0] == 4
assert [c[1] for c in base.execute("pragma table_info(llama_bench)")] == peer
' "formats"
else
    echo "no python3: formats are not parsed"
fi

# ---- comparing: ours from a file, theirs as llama-bench writes it ----
cat >theirs.json <<'ROWS'
[
  {
    "build_commit": "abc", "model_type": "qwen3 0.6B Q4_0", "n_threads": 2, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "test_time": "2026-01-01T00:00:00Z",
    "avg_ts": 10.0, "samples_ns": [ 1, 2 ],
    "samples_ts": [ 9.0, 11.0, 10.0 ]
  },
  {
    "model_type": "qwen3 0.6B Q4_0", "n_threads": 2, "n_prompt": 0, "n_gen": 4, "n_depth": 512,
    "samples_ts": [ 10.0 ]
  }
]
ROWS
cat >ours.jsonl <<'ROWS'
{"model_type": "LUT4", "n_threads": 2, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": [20, 21]}
{"model_type": "LUT4", "n_threads": 2, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": [22]}
{"model_type": "LUT4", "n_threads": 1, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": [1]}
{"model_type": "LUT4", "n_threads": 2, "n_prompt": 0, "n_gen": 4, "n_depth": 512, "samples_ts": [15]}
ROWS
expect 0 "" "$MILKIT" bench ours.jsonl --compare theirs.json
cat >expected.txt <<'ROWS'
| model | against | threads | test | t/s | against, t/s | ratio | 95 % |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| LUT4 | qwen3 0.6B Q4_0 | 2 | pp8 | 21.00 | 10.00 | 2.10 | 1.82 - 2.44 |
| LUT4 | qwen3 0.6B Q4_0 | 2 | tg4 @ d512 | 15.00 | 10.00 | 1.50 |  |
ROWS
cmp -s out.txt expected.txt || fail "comparison: $(cat out.txt)"
cat theirs.json theirs.json >twice.json
expect 0 "" "$MILKIT" bench ours.jsonl --against twice.json -o json
grep -q '"ratio": 2.1' out.txt && grep -q '"ratio_low": null' out.txt || fail "comparison in JSON: $(cat out.txt)"
expect 0 "| 2 | pp8 |" "$MILKIT" bench tiny -p 8 -n 0 -r 2 -t 2 -q --compare theirs.json
grep -q 'GB/s' out.txt && fail "--compare shows more than ratios"
expect 4 "no row has the test" "$MILKIT" bench tiny -p 8 -n 0 -r 1 -t 1 -q --compare theirs.json
for bad in '{' '[1]' '[{"model_type": "x"}]' '[{"model_type": 5}]' 'plain' \
    '[{"model_type": "x", "n_threads": 2, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": ["1"]}]' \
    '[{"model_type": "x", "n_threads": 2, "n_prompt": 8, "n_gen": 0, "n_depth": 0, "samples_ts": [0]}]' \
    '[{"model_type": "x", "n_threads": 2, "n_prompt": -8, "n_gen": 0, "n_depth": 0, "samples_ts": [1]}]'; do
    printf '%s\n' "$bad" >bad.json
    expect 4 "bad.json" "$MILKIT" bench ours.jsonl --compare bad.json
done

# ---- what does not fit is said before anything runs ----
expect 6 "60 + 0 tokens behind a context of 5 do not fit: the package's context holds 64" "$MILKIT" bench tiny -p 8,60 -n 1 -d 5 -r 1
[ ! -s out.txt ] || fail "something was measured before: $(cat out.txt)"
expect 2 "-p: expected numbers" "$MILKIT" bench tiny -p 8x
expect 2 "-p: '1-1000000*1' is not" "$MILKIT" bench tiny -p 1-1000000*1 -n 0
expect 2 "more than 1000 values" "$MILKIT" bench tiny -p 1-100000 -n 0
expect 2 "-n: '8-4' is not a range" "$MILKIT" bench tiny -n 8-4
finish
