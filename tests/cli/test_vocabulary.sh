# Tokenizers that do not fit their model, stop ids that it does not have, and answers that end where the template ends them
# though no config says so.
# labels: host
. "$SOURCE/tests/cli/packages.sh"

# checkpoint NAME EOS TOKENIZER_CONFIG: qwen3-tiny (2057 tokens, of which its tokenizer has fewer) with other configs
checkpoint() {
    mkdir "$1"
    cp "$tiny"/*.json "$tiny"/*.safetensors "$1" && rm -f "$1"/golden*
    sed -i "s/\"eos_token_id\": *[0-9]*/\"eos_token_id\": ${2%%,*}/" "$1/config.json"
    printf '{"eos_token_id": [%s]}' "$2" >"$1/generation_config.json"
    [ -z "$3" ] || printf '%s' "$3" >"$1/tokenizer_config.json"
}
template=$(sed -n 's/.*"chat_template": *\("\([^"\\]\|\\.\)*"\).*/\1/p' "$tiny/tokenizer_config.json")
[ -n "$template" ] || [ -e "$tiny/chat_template.jinja" ] || fail "qwen3-tiny has no chat template"

# ---- more ids than the model has ----
extra=$(for i in $(seq 100); do printf '"<|extra%d|>"%s' "$i" "$([ "$i" -lt 100 ] && echo ,)"; done)
checkpoint large "1997, 99999" "{\"eos_token\": \"<|im_end|>\", \"extra_special_tokens\": [$extra]${template:+, \"chat_template\": $template}}"
last=$("$MILKIT" tokenize large --ids '<|extra100|>' 2>/dev/null)
[ "$last" -ge 2057 ] || fail "the tokenizer has no id beyond the vocabulary: $last"
"$MILKIT" convert large -o pkg -c 64 -b 8 >out.txt 2>err.txt || fail "convert: $(tail -1 err.txt)"
grep -q "warning: pkg: the tokenizer has ids up to $last (\"<|extra100|>\"), the model's vocabulary has 2057" err.txt ||
    fail "convert does not say it: $(cat err.txt)"
grep -q "warning: pkg: the stop id 99999 is beyond the model's vocabulary" err.txt || fail "convert says nothing of the stop id"
printf 'Hello <|extra100|>' >text.txt
for command in "run pkg -p Hello<|extra100|> -n 1" "run pkg -f text.txt -n 1" "eval pkg --text text.txt" \
    "check pkg --hf large -n 1 -p Hello<|extra100|>"; do
    # shellcheck disable=SC2086
    expect 4 "the tokenizer gives the id $last (\"<|extra100|>\"), the model's vocabulary has 2057" "$MILKIT" $command
    grep -q "does not fit" err.txt || fail "$command: $(tail -1 err.txt)"
    grep -q -- "--help" err.txt && fail "$command: points to the help"
done
for command in "run pkg -p Hello -n 1 --ids" "chat pkg -p Hello -n 1"; do # what fits runs
    # shellcheck disable=SC2086
    expect_stderr 0 "the tokenizer has ids up to $last" "$MILKIT" $command
done
expect_stderr 0 "the tokenizer has ids up to $last" "$MILKIT" tokenize pkg Hello
expect_stderr 0 "the tokenizer has ids up to $last" "$MILKIT" tokenize large Hello
# a template that uses such a token
cp -r pkg marked
printf '{{ messages[0].content }}<|extra100|>' >marked/chat_template.jinja
expect 4 "tokenizer.json does not fit the model" "$MILKIT" chat marked -p Hello -n 1
expect 2 "expected an id below 2057" "$MILKIT" run pkg --tokens 5,2057 --ids
make_package "$tiny" tiny -c 64 -b 8
grep -q warning err.txt && fail "a tokenizer that fits is warned of: $(cat err.txt)"
expect 0 "" "$MILKIT" tokenize tiny Hello
grep -q warning err.txt && fail "a tokenizer that fits is warned of: $(cat err.txt)"

# ---- a turn's end that no config declares ----
# golden: the answer of the checkpoint as it is, which ends at <|im_end|>
make_package "$tiny" whole -c 512 -b 64
question='Continue: And it came to pass'
"$MILKIT" chat whole -p "$question" --greedy -n 120 --stats >want.txt 2>err.txt
grep -q "stopped: end of text" err.txt || fail "the trained answer does not end: $(cat err.txt)"
checkpoint base 1995 "{\"eos_token\": \"<|endoftext|>\"${template:+, \"chat_template\": $template}}"
make_package base base-package -c 512 -b 64
"$MILKIT" chat base-package -p "$question" --greedy -n 120 --stats >out.txt 2>err.txt
cmp -s out.txt want.txt || fail "the answer goes on: $(cat out.txt)"
grep -q "stopped: end of text" err.txt || fail "nothing stops it: $(cat err.txt)"
"$MILKIT" chat base-package -p "$question" --greedy -n 120 --stats --no-auto-stop >out.txt 2>err.txt
grep -q "stopped: length" err.txt || fail "--no-auto-stop: $(cat err.txt)"
"$MILKIT" chat base-package -p "$question" --greedy -n 120 --stats --ignore-eos >out.txt 2>err.txt
grep -q "stopped: length" err.txt || fail "--ignore-eos: $(cat err.txt)"
"$MILKIT" chat base-package -p "$question" --greedy -n 120 -v >out.txt 2>err.txt
grep -q "ends at <|im_end|>" err.txt || fail "-v does not say it"
# templates that end turns otherwise, or not at all
try() { # NAME TEMPLATE EXPECTED: the stop that -v names, or nothing
    printf '%s' "$2" >template.jinja
    "$MILKIT" chat base-package --chat-template template.jinja -p "Hello" --greedy -n 1 -v >out.txt 2>err.txt || fail "$1: status"
    [ "$(sed -n 's/.*an answer ends at \([^ ]*\) .*/\1/p' err.txt)" = "$3" ] || fail "$1: $(cat err.txt)"
}
try "behind blanks" '{% for m in messages %}{{ m.content }}  {{ "<|im_end|>" }}{% endfor %}' "<|im_end|>"
try "of answers alone" '{% for m in messages %}{{ m.content }}{% if m.role == "assistant" %}<|im_end|>{% endif %}{% endfor %}' "<|im_end|>"
try "none" '{% for m in messages %}{{ m.content }}{% endfor %}' ""
try "text" '{% for m in messages %}{{ m.content }} END{% endfor %}' ""
try "declared" '{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}' ""
try "only before" '{% for m in messages %}<|im_end|>{{ m.content }}{% endfor %}' ""
try "no answers" '{{ messages[0].content }}{% if messages|length > 1 %}{{ raise_exception("one message") }}{% endif %}' ""
finish
