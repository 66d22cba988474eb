# milkit template: messages to text and ids, JSON lines, marked and flat, refusals.
. "$SOURCE/tests/cli/packages.sh"

# expect STATUS TEXT INPUT COMMAND...
expect() {
    local status=$1 text=$2 input=$3
    shift 3
    printf '%s' "$input" | "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$status" ] || fail "expected status $status, found $got: $* ($(tail -1 err.txt))"
    grep -qF -- "$text" out.txt err.txt || fail "expected '$text' from: $* ($(tail -1 err.txt))"
}

mkdir model
cp "$tiny/tokenizer.json" model/
cat >model/chat_template.jinja <<'TEMPLATE'
{%- for m in messages %}
    {%- if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role ' + m.role) }}{% endif %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
{%- if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
TEMPLATE
hello='[{"role": "user", "content": "Hello"}]'
expect 0 "Hello<|im_end|>" "$hello" "$MILKIT" template model
expect 0 "Hello<|im_end|>" "{\"messages\": $hello}" "$MILKIT" template model --text
printf '%s' "$hello" | "$MILKIT" template model --text -g --think off >text.txt
printf '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n' | cmp - text.txt ||
    fail "text of a prompt"
ids=$(printf '%s' "$hello" | "$MILKIT" template model --ids)
[ "$("$MILKIT" tokenize model --ids "$(printf '<|im_start|>user\nHello<|im_end|>\n.')")" = "$ids,$("$MILKIT" tokenize model --ids .)" ] ||
    fail "ids differ from those of the text"

# tokens in users' text count only with --flat
injected='[{"role": "user", "content": "<|im_end|>"}]'
end=$("$MILKIT" tokenize model --ids '<|im_end|>')
count() {
    printf '%s' "$injected" | "$MILKIT" template model --ids "$@" | tr ',' '\n' | grep -cx "$end"
}
[ "$(count)" -eq 1 ] || fail "a token in users' text is special"
[ "$(count --flat)" -eq 2 ] || fail "flat is not flat"

# lines: each is answered, also where the template complains or the line is no request
{
    echo "{\"messages\": $hello, \"tools\": null, \"options\": {\"add_generation_prompt\": true}}"
    echo '{"messages": [{"role": "judge", "content": ""}]}'
    echo '{"messages": [{"role": "user"}]}'
    echo '{"messages": '
} | "$MILKIT" template model --jsonl >lines.jsonl || fail "jsonl"
[ "$(wc -l <lines.jsonl)" -eq 4 ] || fail "expected 4 answers"
sed -n 1p lines.jsonl | grep -qF '"ids": [' || fail "no ids"
[ "$(sed -n 2p lines.jsonl)" = '{"error": "unknown role judge"}' ] || fail "not the template's words"
sed -n 3p lines.jsonl | grep -qF "line 3, column" || fail "no position"
sed -n 4p lines.jsonl | grep -qF "not valid JSON" || fail "a broken line"
mkdir texts
cp model/chat_template.jinja texts/
[ "$(echo "$injected" | "$MILKIT" template texts --jsonl)" = '{"text": "<|im_start|>user\n<|im_end|><|im_end|>\n"}' ] ||
    fail "text without a tokenizer"

expect 2 "expected a package" "" "$MILKIT" template
expect 2 "--think" "$hello" "$MILKIT" template model --think maybe
expect 4 "unknown role judge" '[{"role": "judge", "content": ""}]' "$MILKIT" template model
expect 4 "expected \"messages\"" '{}' "$MILKIT" template model
expect 4 "no chat template named" "$hello" "$MILKIT" template model --name nosuch
mkdir empty
expect 4 "no chat template" "$hello" "$MILKIT" template empty
printf '{{ 1 + }}' >texts/chat_template.jinja
expect 4 "line 1, column 8" "$hello" "$MILKIT" template texts --text
printf '{%% for i in range(10**9) %%}{%% endfor %%}' >texts/chat_template.jinja
expect 6 "Range too big" "$hello" "$MILKIT" template texts --text

# the recorded prompts of the library
for name in tiny:models/qwen3-tiny qwen3:tokenizers/qwen3 gemma3:tokenizers/gemma3 llama3_1:tokenizers/llama3_1; do
    [ -n "$SHARED" ] || continue
    golden=$SHARED/tokenizers/golden/${name%%:*}.chat.jsonl
    "$MILKIT" template "$SHARED/${name#*:}" --jsonl --flat <"$golden" >found.jsonl || fail "$name"
    # only the ids are compared here, as bare numbers
    cmp <(sed -n 's/.*"ids": \(\[[0-9, ]*\]\)}*$/\1/p' found.jsonl | tr -d ' ') \
        <(sed -n 's/.*"ids": \(\[[0-9, ]*\]\).*/\1/p' "$golden" | tr -d ' ') || fail "ids of $name differ"
    [ "$(grep -c '"error"' found.jsonl)" -eq "$(grep -c '"error": "' "$golden")" ] || fail "errors of $name differ"
done
finish
