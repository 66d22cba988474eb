# The recipe of docs/shipping.md, as it stands there: passes for a good package, and fails where something became worse. The
# session that opens README.md, as it stands there.
# labels: host
. "$SOURCE/tests/cli/packages.sh"

# block KIND: the first fenced block of that kind
block() {
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$SOURCE/docs/shipping.md" | sed '1d;$d'
}
block sh >check-package.sh
block yaml >package.yaml
grep -q '^milkit convert' check-package.sh && grep -q 'check-package.sh' package.yaml || fail "no recipe in docs/shipping.md"
mkdir bin
ln -s "$MILKIT" bin/milkit
PATH=$PWD/bin:$PATH
cp "$DATA/models/eval.txt" eval.txt
ln -s "$tiny" checkpoint
# the step of the workflow that checks, word for word
step=$(sed -n 's/^ *- run: \(sh check-package.sh .*\)/\1/p' package.yaml)
[ -n "$step" ] || fail "the workflow does not run the recipe"

expect 0 "perplexity" sh -c "$step"
for file in out/package/meta.yaml out/convert.json out/check.json out/eval.json perplexity.txt; do
    [ -s $file ] || fail "the recipe leaves no $file"
done
grep -q '"verdict": "pass"' out/check.json || fail "the report of check"
expect 0 "perplexity" sh -c "$step"
# worse than last time
cp perplexity.txt good.txt
awk '{ print $1 / 1.02 }' good.txt >perplexity.txt
expect 1 "the perplexity rose" sh -c "$step"
awk '{ print $1 / 1.005 }' good.txt >perplexity.txt
expect 0 "" sh -c "$step"
cp good.txt perplexity.txt
expect 1 "the perplexity rose" sh -c "$step --lut-ffn 2 --lut-method kmeans"
# a converter that writes another model: its package is refused by the checkpoint
rm bin/milkit
cat >bin/milkit <<P
#!/bin/sh
if [ "\$1" = convert ]; then
    shift 2
    exec "$MILKIT" convert "$gqa8" "\$@"
fi
exec "$MILKIT" "\$@"
P
chmod +x bin/milkit
expect 5 "is not a package of this checkpoint" sh -c "$step"
rm bin/milkit
ln -s "$MILKIT" bin/milkit
# a checkpoint that is not there
rm checkpoint
expect 1 "checkpoint" sh -c "$step"

# ---- README.md ----
mkdir clone
ln -s "$SOURCE/tests" clone/tests
cd clone || exit 1
# Commands are the lines "    $ ..." of the session; the lines below one are in what it prints, in this order ("..." stands for anything).
awk '/^    \$ /{ seen = 1 } seen && !/^    /{ exit } seen { print substr($0, 5) }' "$SOURCE/README.md" >session.txt
n_commands=0
same_time() {
    sed 's/in [0-9.]* s$/in 0.4 s/; s/[0-9.]* tokens\/s/N tokens\/s/g'
}
while IFS= read -r line; do
    case $line in
    '$ '*)
        n_commands=$((n_commands + 1))
        sh -c "${line#??}" >printed.txt 2>&1 || fail "README: ${line#??}: $(tail -1 printed.txt)"
        same_time <printed.txt >rest.txt
        ;;
    ...) ;;
    *)
        shown=$(printf '%s\n' "$line" | same_time)
        if at=$(grep -nxF -- "$shown" rest.txt); then
            sed "1,${at%%:*}d" rest.txt >rest2.txt
            mv rest2.txt rest.txt
        else
            fail "README shows '$line', the command printed: $(head -3 printed.txt)"
        fi
        ;;
    esac
done <session.txt
[ $n_commands -ge 3 ] || fail "README has no session"
# every command of the program is in its table, and every page it names is there
sed -n 's/^CLI_COMMAND(\([a-z]*\),.*/\1/p' "$SOURCE/src/cli/commands.def" | while read -r command; do
    grep -q "^| \`$command\` |" "$SOURCE/README.md" || echo "$command"
done >left.txt
[ ! -s left.txt ] || fail "README does not name the commands $(cat left.txt)"
grep -o '](docs/[a-z-]*\.md)' "$SOURCE"/README.md | tr -d '()]' | while read -r page; do
    [ -f "$SOURCE/$page" ] || echo "$page"
done >left.txt
[ ! -s left.txt ] || fail "README names pages that are not there: $(cat left.txt)"
cd ..
finish
