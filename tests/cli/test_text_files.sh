# The files from which text becomes ids and messages become text: a package has those of its checkpoint, and a damaged one is
# an error.
# labels: host
. "${0%/*}/packages.sh"

# Wherever the template stands, package and checkpoint render alike; other files of the folders are not taken along.
cp -r "$gqa8" from
chmod -R u+w from
cp "$tiny/tokenizer.json" from/
ask='{"messages": [{"role": "user", "content": "hi"}]}'
one='{"chat_template": "ONE{% for m in messages %}[{{ m.content }}]{% endfor %}"}'
for form in config json jinja jinja_and_json more; do
    rm -rf from/chat_template* from/additional_chat_templates to
    echo '{}' >from/tokenizer_config.json
    name=
    case $form in
    config) echo "$one" >from/tokenizer_config.json ;;
    json) echo "$one" >from/chat_template.json ;;
    jinja) echo 'TWO{{ messages[0].content }}' >from/chat_template.jinja ;;
    jinja_and_json)
        echo 'TWO{{ messages[0].content }}' >from/chat_template.jinja
        echo "$one" >from/chat_template.json
        ;;
    more)
        echo "$one" >from/chat_template.json
        mkdir from/additional_chat_templates
        echo 'THREE{{ messages[0].content }}' >from/additional_chat_templates/short.jinja
        echo 'note' >from/additional_chat_templates/notes.txt
        name="--name short"
        ;;
    esac
    expect_stderr 0 "MB of weights" "$MILKIT" convert from -o to -c 32 -b 8 --format mlmodelc
    for folder in from to; do
        # shellcheck disable=SC2086
        echo "$ask" | "$MILKIT" template $folder $name >$folder.txt 2>err.txt || fail "$form: $folder: $(cat err.txt)"
    done
    [ -s to.txt ] && cmp -s from.txt to.txt || fail "$form: checkpoint and package render differently"
    [ ! -e to/additional_chat_templates/notes.txt ] || fail "what is no template was copied"
done
grep -q THREE to.txt || fail "the named template was not taken"
for file in preprocessor_config.json video_preprocessor_config.json processor_config.json special_tokens_map.json; do
    echo '{"of": "'$file'"}' >from/$file
done
rm -rf to
expect_stderr 0 "MB of weights" "$MILKIT" convert from -o to -c 32 -b 8 --format mlmodelc
for file in from/*.json from/additional_chat_templates/short.jinja; do
    case $file in */config.json | */model* | */golden*) continue ;; esac
    cmp "$file" "to/${file#from/}" || fail "$file was not copied"
done
# Settings that text depends on must be readable.
echo '{}' >from/added_tokens.json
for file in tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.json; do
    cp from/$file kept.json
    echo '{"a": ' >from/$file
    expect 4 "$file" "$MILKIT" convert from -o broken -c 32 -b 8
    [ ! -e broken ] || fail "$file is broken, and there is a package"
    cp kept.json from/$file
done
echo '{"a": ' >to/tokenizer_config.json
expect 4 "tokenizer_config.json" "$MILKIT" run to -p hi -n 1

finish
