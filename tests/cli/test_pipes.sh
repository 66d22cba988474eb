# A FIFO or a device in the place of any file of a package or a checkpoint is refused at once, with its name; text for a
# command may come from a pipe.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8
mkdir checkpoint
cp "$tiny"/*.json "$tiny"/*.safetensors checkpoint/ && rm -f checkpoint/golden*

# refused FOLDER FILE COMMAND...: the file is a FIFO, then a device
refused() {
    local folder=$1 file=$2
    shift 2
    cp -r "$folder" other
    rm -rf "other/$file"
    mkfifo "other/$file"
    expect 1 "$file: not a regular file" timeout 300 "$@"
    rm -f "other/$file"
    ln -s /dev/zero "other/$file"
    expect 1 "$file: not a regular file" timeout 300 "$@"
    rm -rf other
}

for file in meta.yaml config.json generation_config.json tokenizer.json tokenizer_config.json qwen_lm_head.mlmodelc/model.mil \
    qwen_embeddings.mlmodelc/weights/weight.bin; do
    refused tiny "$file" "$MILKIT" run other -p Hello -n 1
done
for file in special_tokens_map.json added_tokens.json; do
    cp -r tiny plain
    echo '{}' >plain/tokenizer_config.json
    refused plain "$file" "$MILKIT" run other -p Hello -n 1
    rm -r plain
done
for file in chat_template.jinja chat_template.json special_tokens_map.json; do
    refused tiny "$file" "$MILKIT" chat other -p Hello -n 1
done
for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
    refused checkpoint "$file" "$MILKIT" convert other -o converted -c 64 -b 8
    [ ! -e converted ] || fail "$file: convert left something"
done
mkfifo pipe
expect 1 "pipe: not a regular file" timeout 300 "$MILKIT" inspect pipe
expect 1 "pipe: not a regular file" timeout 300 "$MILKIT" chat tiny --chat-template pipe -p Hello

expect 0 "" "$MILKIT" run tiny -p "Hello there" -n 3 --greedy --ids
cp out.txt text.txt
expect 0 "" "$MILKIT" run tiny -f <(printf 'Hello there') -n 3 --greedy --ids
cmp -s out.txt text.txt || fail "<(command) gives other ids"
printf 'Hello there' | "$MILKIT" run tiny -f /dev/stdin -n 3 --greedy --ids >out.txt 2>err.txt
cmp -s out.txt text.txt || fail "/dev/stdin gives other ids"
finish
