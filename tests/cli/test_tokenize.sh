# milkit tokenize: text and ids both ways, JSON lines against the library's answers, refusals.
. "$SOURCE/tests/cli/packages.sh"

# every golden line, both ways: only the numbers of the answer are compared, so that blanks do not matter
golden=$DATA/tokenizers/tiny.encode.jsonl
"$MILKIT" tokenize "$tiny" --jsonl <"$golden" >ids.jsonl || fail "jsonl"
[ "$(wc -l <ids.jsonl)" -eq 158 ] || fail "expected 158 answers"
cmp <(tr -d ' ' <ids.jsonl) <(sed 's/.*"ids_special": \(\[[^]]*\]\).*/{"ids":\1}/' "$golden" | tr -d ' ') ||
    fail "ids differ from the library's"
"$MILKIT" tokenize "$tiny" --jsonl --decode <"$golden" | "$MILKIT" tokenize "$tiny" --jsonl >again.jsonl
[ "$(wc -l <again.jsonl)" -eq 158 ] || fail "expected 158 answers to decoded text"
printf '{"text": "a\\u0000b"}\n' | "$MILKIT" tokenize "$tiny" --jsonl | "$MILKIT" tokenize "$tiny" --jsonl >nul.jsonl
[ "$(cat nul.jsonl)" = '{"text": "a\u0000b"}' ] || fail "U+0000 does not come back: $(cat nul.jsonl)"

ids=$("$MILKIT" tokenize "$tiny" "Hello there" --ids)
[ "$("$MILKIT" tokenize "$tiny" --decode "$ids")" = "Hello there" ] || fail "argument does not come back"
tokenize_bad() {
    "$MILKIT" tokenize "$tiny" --jsonl <bad.jsonl
}
[ "$(printf 'Hello there' | "$MILKIT" tokenize "$tiny" --ids)" = "$ids" ] || fail "stdin differs from the argument"
[ "$(echo "$ids" | "$MILKIT" tokenize "$tiny/tokenizer.json" --decode)" = "Hello there" ] || fail "ids from stdin"
expect 0 '"<|im_end|>"' "$MILKIT" tokenize "$tiny" "a<|im_end|>"
expect 0 'a b' "$MILKIT" tokenize "$tiny" --decode --skip-special "$("$MILKIT" tokenize "$tiny" --ids "a<|im_end|> b")"
expect 2 "expected a package" "$MILKIT" tokenize
expect 2 "--jsonl" "$MILKIT" tokenize "$tiny" text --jsonl
expect 2 "token ids" "$MILKIT" tokenize "$tiny" --decode "1,x"
expect 2 "token id 99999 is outside the vocabulary" "$MILKIT" tokenize "$tiny" --decode 99999
expect 2 "token id 99999 is outside the vocabulary" "$MILKIT" tokenize "$tiny" --decode "1,99999,2"
[ ! -s out.txt ] || fail "something was decoded beside a bad id"
expect 4 "tokenizer.json" "$MILKIT" tokenize "$SCRATCH" text
expect 1 "$SCRATCH/nowhere: expected a package, a checkpoint or a folder with a tokenizer, found nothing" "$MILKIT" tokenize "$SCRATCH/nowhere" text
echo '{"text": 7}' >bad.jsonl
expect 4 "line 1" tokenize_bad
printf '{"text": "a"}\n{"ids": [1.5]}\n' >bad.jsonl
expect 4 "line 2" tokenize_bad
finish
