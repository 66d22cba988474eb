# Recommended sampling from generation_config.json to run and chat: a bad value never stops a package, penalties hold,
# options go before, and what has no effect is named.
# labels: host
. "$SOURCE/tests/cli/packages.sh"

mkdir checkpoint
cp "$tiny"/*.json "$tiny"/*.safetensors checkpoint/ && rm -f checkpoint/golden*
tiny_copy=checkpoint
generation() { printf '%s' "$1" >checkpoint/generation_config.json; }

# ---- every key with a value that it can't have: convert warns and leaves it out, and the package runs in silence ----
generation '{"do_sample": false, "temperature": -1, "top_p": -0.1, "top_k": [3], "min_p": "0.1", "repetition_penalty": NaN,
 "presence_penalty": 1e999, "frequency_penalty": {}, "suppress_tokens": [1.5], "bad_words_ids": [5], "eos_token_id": 1997}'
make_package $tiny_copy bad -c 64 -b 8
for key in temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty suppress_tokens bad_words_ids; do
    [ "$(grep -c "warning: .*generation_config.json: $key: expected" err.txt)" -eq 1 ] || fail "convert says nothing of $key"
done
grep -q '^    recommended_sampling: {do_sample: false}$' bad/meta.yaml || fail "meta.yaml: $(grep recommended bad/meta.yaml)"
for command in "run bad -p Hello -n 3 --ids" "run bad -p Hello -n 3 --ids --greedy" "chat bad -p Hello -n 3" \
    "logits bad --tokens 1,2 -o logits.safetensors" "plan bad" "check bad --hf $tiny_copy -n 2"; do
    # shellcheck disable=SC2086
    expect 0 "" "$MILKIT" $command
    grep -q warning err.txt && fail "$command: $(head -1 err.txt)"
done

# ---- ids of special tokens that are none: said by convert and by readers, and the others stop ----
for value in '"x"' '{}' true 1.5 4294967296 -2 '["x"]' '[1, [2]]' '[1, null]'; do
    for key in eos_token_id bos_token_id pad_token_id; do
        generation "{\"$key\": $value}"
        expect_stderr 0 "generation_config.json: $key: expected" "$MILKIT" convert $tiny_copy -o stops --force -c 64 -b 8 --no-verify
        [ "$(grep -c warning err.txt)" -eq 1 ] || fail "$key $value: $(cat err.txt)"
    done
    generation "{\"eos_token_id\": $value}"
    cp checkpoint/generation_config.json stops/
    expect_stderr 0 "stops/generation_config.json: eos_token_id: expected a token id" "$MILKIT" run stops --tokens 5 -n 3 --ids --greedy
done
generation '{}'
sed 's/"eos_token_id": *[0-9]*/"eos_token_id": "x"/' "$tiny/config.json" >checkpoint/config.json
expect_stderr 0 "checkpoint/config.json: eos_token_id: expected" "$MILKIT" convert $tiny_copy -o stops --force -c 64 -b 8 --no-verify
cp "$tiny/config.json" checkpoint/config.json
first=$("$MILKIT" run bad --tokens 5 -n 1 --ids --greedy 2>err.txt)
for value in null -1 '[]' "[$first, -1]" "$first"; do # no stop, or one that comes at once
    generation "{\"eos_token_id\": $value, \"bos_token_id\": null, \"pad_token_id\": -1}"
    expect 0 "" "$MILKIT" convert $tiny_copy -o stops --force -c 64 -b 8 --no-verify
    grep -q warning err.txt && fail "$value: $(cat err.txt)"
done
generation "{\"eos_token_id\": [\"x\", $first]}"
cp checkpoint/generation_config.json stops/
expect 0 "" "$MILKIT" run stops --tokens 5 -n 3 --ids --greedy
[ "$(tr ',' '\n' <out.txt | wc -l)" -eq 1 ] || fail "a good id beside a bad one does not stop: $(cat out.txt)"
cp bad/generation_config.json checkpoint/

# ---- a package of somebody else's with such values: a warning each, and it runs ----
for value in "temperature: -1" "top_p: 0" "top_p: 1.5" "temperature: 150" "top_k: many" "min_p: .nan" "suppress_tokens: 3"; do
    cp -r bad other
    sed -i "s/recommended_sampling: .*/recommended_sampling: {do_sample: true, $value}/" other/meta.yaml
    expect_stderr 0 "warning: other/meta.yaml: line" "$MILKIT" run other -p Hello -n 3 --ids --greedy
    [ "$(grep -c warning err.txt)" -eq 1 ] || fail "$value: $(cat err.txt)"
    expect 0 "" "$MILKIT" run other -p Hello -n 3 --ids --seed 1
    rm -r other
done
cp -r bad other
sed -i "s/    recommended_sampling: .*/    moe: 7/; s/hidden_size: .*/hidden_size: wide/" other/meta.yaml
cp checkpoint/generation_config.json other/
expect_stderr 0 "hidden_size: expected an integer" "$MILKIT" run other -p Hello -n 3 --ids
grep -q "moe: expected a mapping" err.txt || fail "moe: $(cat err.txt)"
grep -q "generation_config.json: top_p: expected" err.txt || fail "generation_config.json: $(cat err.txt)"
rm -r other

# ---- penalties and lists are kept and are the defaults; options go before them ----
greedy() { "$MILKIT" run "$@" --tokens 40,41,40,41,40,41 --ids --greedy --ignore-eos -n 12 2>err.txt; }
plain=$(greedy bad)
first=${plain%%,*}
generation '{"repetition_penalty": 5.0}'
make_package $tiny_copy penalty -c 64 -b 8
grep -q 'recommended_sampling: {do_sample: false, repetition_penalty: 5.0}' penalty/meta.yaml || fail "repetition_penalty is not kept"
penalized=$(greedy penalty)
[ "$penalized" != "$plain" ] || fail "repetition_penalty has no effect"
[ "$(greedy bad --repeat-penalty 5)" = "$penalized" ] || fail "--repeat-penalty is not what the package recommends"
[ "$(greedy penalty --repeat-penalty 1)" = "$plain" ] || fail "--repeat-penalty 1 does not turn it off"
[ "$(greedy penalty -t 1)" = "$penalized" ] || fail "other tokens with one thread"
[ "$(tr ',' '\n' <<<"$penalized" | sort -u | wc -l)" -eq 12 ] || fail "a penalty of 5, and tokens repeat: $penalized"
generation "{\"suppress_tokens\": [$first], \"num_beams\": 4, \"no_repeat_ngram_size\": 3, \"typical_p\": 1.0}"
"$MILKIT" convert $tiny_copy -o penalty --force -c 64 -b 8 >out.txt 2>err.txt || fail "convert --force"
grep -q "not used, here and in packages: no_repeat_ngram_size, num_beams$" err.txt || fail "unused keys: $(cat err.txt)"
case ",$(greedy penalty)," in *",$first,"*) fail "suppress_tokens: $first is generated" ;; esac
cp -r bad other
sed -i "s/recommended_sampling: .*/recommended_sampling: {do_sample: false, bad_words_ids: [[41, $first]]}/" other/meta.yaml
case "$(greedy other)" in "$first",* | "$first") fail "bad_words_ids: $first follows 41" ;; esac
sed -i "s/recommended_sampling: .*/recommended_sampling: {do_sample: false, presence_penalty: 90, frequency_penalty: 5}/" other/meta.yaml
[ "$(greedy other)" = "$(greedy bad --presence-penalty 90 --frequency-penalty 5)" ] || fail "presence and frequency penalties"
[ "$(greedy other)" != "$plain" ] || fail "presence and frequency penalties have no effect"
[ "$(greedy other --presence-penalty 0 --frequency-penalty 0)" = "$plain" ] || fail "their options do not turn them off"
sed -i "s/recommended_sampling: .*/recommended_sampling: {do_sample: true, temperature: 5.0, min_p: 0.8}/" other/meta.yaml
sampled() { "$MILKIT" run "$@" --tokens 40,41 --ids --ignore-eos -n 12 --seed 3 2>err.txt; }
[ "$(sampled other)" = "$(sampled bad --temp 5 --min-p 0.8)" ] || fail "min_p is not --min-p"
[ "$(sampled other --min-p 0)" = "$(sampled bad --temp 5)" ] || fail "--min-p 0 does not turn it off"
[ "$(sampled other --min-p 0)" != "$(sampled other)" ] || fail "min_p has no effect"

# ---- chat has the same defaults, shows them, and sets them ----
sed -i "s/recommended_sampling: .*/recommended_sampling: {do_sample: false, repetition_penalty: 1.25, presence_penalty: 0.5}/" other/meta.yaml
printf '/set\n/set frequency-penalty 0.25\n/set min-p 0.5\n/set\n/set presence-penalty 1000\n' | "$MILKIT" chat other >out.txt 2>err.txt
for text in "repeat-penalty 1.25" "presence-penalty 0.5" "frequency-penalty 0" "frequency-penalty 0.25" "min-p 0.5" \
    "presence penalty: expected -100 to 100, found 1000"; do
    grep -qF "$text" err.txt || fail "chat: no '$text'"
done
expect 2 "presence penalty: expected" "$MILKIT" run bad -p a --presence-penalty nan
finish
