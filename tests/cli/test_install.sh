# An installation, as a user and a packager sees it: what is there, what the library shows, programs in C and C++ that are built with
# pkg-config alone, the static library, CMake, and that uninstalling leaves nothing.
# labels: host
. "$SOURCE/tests/cli/packages.sh"

is_sanitized && exit 77 # programs of others are not
prefix=$PWD/prefix
cmake --install "$BUILD" --prefix "$prefix" >install.txt 2>&1 || fail "install: $(tail -3 install.txt)"
for file in bin/milkit include/milkit.h lib/systemd/system/milkit.service lib/systemd/system/milkit.socket; do
    [ -e "$prefix/$file" ] || fail "not installed: $file"
done
library=$(find "$prefix" -name libmilkit.so)
folder=$(dirname "$library")
for file in libmilkit.so.0 libmilkit.a pkgconfig/milkit.pc cmake/milkit/milkitConfig.cmake; do
    [ -e "$folder/$file" ] || fail "not installed: $file"
done

# ---- systemd's units: the installed program, with options that it has ----
unit=$prefix/lib/systemd/system/milkit.service
command=$(sed -n 's/^ExecStart=//p' "$unit")
case $command in
/*/milkit\ serve\ *) ;;
*) fail "the unit starts: $command" ;;
esac
for option in $(printf '%s' "$command" | grep -oE -- '--[a-z-]+'); do
    "$MILKIT" serve --list-options | tail -n +2 | cut -f1 | tr ',' '\n' | grep -qx -- "$option" || fail "the unit: serve has no $option"
done
if command -v systemd-analyze >/dev/null; then
    mkdir -p units && cp "$prefix"/lib/systemd/system/milkit.* units/
    sed -i "s|^ExecStart=[^ ]*|ExecStart=$MILKIT|" units/milkit.service
    SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no units/milkit.service units/milkit.socket >verify.txt 2>&1
    grep -E 'milkit\.(service|socket)' verify.txt && fail "the units: $(cat verify.txt)"
else
    echo "skipped: no systemd-analyze"
fi

# ---- manual pages and completion, from the program's own tables ----
if command -v scdoc >/dev/null; then
    "$MILKIT" help --list | while IFS=$(printf '\t') read -r name summary; do
        page=$prefix/share/man/man1/milkit-$name.1
        grep -qF "milkit-$name" "$page" || echo "no page of $name"
        "$MILKIT" "$name" --list-options | tail -n +2 | cut -f1 | tr ',' '\n' | while read -r option; do
            sed 's/\\//g; s/\.//g' "$page" | grep -qF -- "${option#-}" || echo "$page: no $option"
        done
    done >only.txt
    [ -s only.txt ] && fail "manual pages: $(head -3 only.txt)"
else
    echo "skipped: no scdoc"
fi
complete_words() {
    # shellcheck disable=SC1090
    (
        . "$prefix/share/bash-completion/completions/milkit"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _milkit
        printf '%s ' "${COMPREPLY[@]}"
    )
}
[ "$(complete_words "$MILKIT" conv)" = "convert " ] || fail "completion of a command: $(complete_words "$MILKIT" conv)"
[ "$(complete_words "$MILKIT" convert --lut-f)" = "--lut-ffn --lut-ffn-mixed " ] || fail "completion of an option: $(complete_words "$MILKIT" convert --lut-f)"
touch file.safetensors
[ "$(complete_words "$MILKIT" inspect file.s)" = "file.safetensors " ] || fail "completion of a file"

# ---- the library shows the functions of the header and nothing else ----
grep -oE '\bmk_[a-z0-9_]+\(' "$prefix/include/milkit.h" | tr -d '(' | sort -u >header.txt
nm -D --defined-only "$library" | awk '$2 == "T" { print $3 }' | sed 's/@.*//' | sort -u >shown.txt
nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"' >other.txt
[ -s other.txt ] && fail "the library shows more than functions: $(head -3 other.txt)"
# names of types in the header are followed by a parenthesis only in function pointers' own typedefs
comm -13 header.txt shown.txt >only.txt
[ -s only.txt ] && fail "functions that the header does not have: $(tr '\n' ' ' <only.txt)"
while read -r name; do
    grep -qx "$name" shown.txt || fail "the header promises $name, the library does not have it"
done <header.txt
grep -oE '^\| `mk_[a-z0-9_]+`' "$SOURCE/docs/library.md" | tr -d '|` ' | sort -u >listed.txt
comm -23 header.txt listed.txt >only.txt
[ -s only.txt ] && fail "docs/library.md does not list: $(tr '\n' ' ' <only.txt)"
nm -g --defined-only "$folder/libmilkit.a" | awk 'NF == 3 { print $3 }' | grep -v '^mk_' >only.txt
[ -s only.txt ] && fail "the static library shows more: $(head -3 only.txt)"
if nm "$library" -D --undefined-only | grep -qE ' (exit|printf|puts|__printf_chk|signal|sigaction)(@|$)'; then
    fail "the library prints, ends the program or takes signals: $(nm "$library" -D --undefined-only | grep -E ' (exit|printf|puts|__printf_chk|signal|sigaction)(@|$)')"
fi

# ---- the header alone, in old C and in C++ ----
echo '#include <milkit.h>' >header.c
for compiler in "gcc -std=c99" "g++ -std=c++11 -x c++"; do
    # shellcheck disable=SC2086
    command -v ${compiler%% *} >/dev/null || continue
    $compiler -pedantic -Wall -Wextra -Werror -I"$prefix/include" -c header.c -o header.o || fail "the header: $compiler"
done

# ---- the examples, with pkg-config alone ----
export PKG_CONFIG_PATH=$folder/pkgconfig LD_LIBRARY_PATH=$folder
flags=$(pkg-config --cflags milkit) libs=$(pkg-config --libs milkit)
for example in "$SOURCE"/examples/*.c; do
    name=$(basename "$example" .c)
    [ "$(wc -l <"$example")" -lt 60 ] || fail "$name.c has 60 lines or more"
    # shellcheck disable=SC2086
    gcc -std=c99 -Wall -Wextra -Werror $flags "$example" -o "$name" $libs || fail "C: $name"
    if command -v g++ >/dev/null; then
        # shellcheck disable=SC2086
        g++ -x c++ -Wall -Wextra -Werror -Wno-missing-field-initializers $flags "$example" -o "$name++" $libs || fail "C++: $name"
    else
        echo "skipped: no C++ compiler"
    fi
done
# the program of docs/library.md
sed -n '/^## A program/,/^## Rules/p' "$SOURCE/docs/library.md" | sed -n 's/^    //p' >page.c
# shellcheck disable=SC2086
gcc -std=c99 -Wall -Wextra -Werror $flags page.c -o page $libs || fail "the program of docs/library.md"
for plus in "" ++; do
    [ -x "./convert$plus" ] || continue
    rm -rf package
    "./convert$plus" "$tiny" package >out.txt 2>err.txt || fail "convert$plus: $(tail -1 err.txt)"
    grep -q '"tensors_used": 58' out.txt || fail "convert$plus: $(cat out.txt)"
    "./minimal$plus" package "In the beginning" >out.txt 2>err.txt || fail "minimal$plus: $(tail -1 err.txt)"
    "$MILKIT" run package -p "In the beginning" -n 32 --greedy >expected.txt 2>err.txt
    cmp out.txt expected.txt || fail "minimal$plus and milkit run say different things"
    "./predict$plus" package/qwen_lm_head_lut6.mlmodelc >out.txt 2>err.txt || fail "predict$plus: $(tail -1 err.txt)"
    grep -q '^logits1: 1 1 ' out.txt || fail "predict$plus: $(cat out.txt)"
    printf 'But, beloved\nAnd it came\n' | "./chat$plus" package "Be brief" >out.txt 2>err.txt || fail "chat$plus: $(tail -1 err.txt)"
    [ "$(grep -c '^\[.*: [0-9]* tokens, [0-9]* of the prompt' out.txt)" -eq 2 ] || fail "chat$plus: $(cat out.txt)"
    [ "$(sed -n 's/^\[.* tokens, \([0-9]*\) of.*/\1/p' out.txt | sed -n 2p)" -gt 0 ] || fail "chat$plus: nothing is known in the second turn"
    [ -n "$plus" ] || { ./page package >out.txt 2>err.txt && [ -s out.txt ]; } || fail "the program of docs/library.md: $(tail -1 err.txt)"
    "./minimal$plus" nowhere x >out.txt 2>err.txt && fail "minimal$plus nowhere: no error"
    grep -q nowhere err.txt || fail "minimal$plus nowhere: $(cat err.txt)"
done

# ---- the static library ----
# shellcheck disable=SC2046,SC2086
gcc $flags "$SOURCE/examples/minimal.c" -o minimal_static "$folder/libmilkit.a" $(pkg-config --libs --static milkit | sed 's/-lmilkit//') ||
    fail "the static library does not link"
./minimal_static package "In the beginning" >out.txt 2>err.txt && cmp out.txt expected.txt || fail "minimal_static: $(tail -1 err.txt)"

# ---- CMake ----
mkdir -p project && cp "$SOURCE/examples/minimal.c" project/
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(milkit 0.1 REQUIRED)
add_executable(user minimal.c)
target_link_libraries(user PRIVATE milkit::milkit)
CMAKE
{ cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" && cmake --build project/build; } >cmake.txt 2>&1 ||
    fail "a CMake project: $(tail -3 cmake.txt)"
project/build/user package "In the beginning" >out.txt 2>err.txt && cmp out.txt expected.txt || fail "the CMake project: $(tail -1 err.txt)"

# ---- into a staging folder, and away again ----
DESTDIR=$PWD/stage cmake --install "$BUILD" --prefix /usr >install.txt 2>&1 || fail "DESTDIR: $(tail -3 install.txt)"
[ -x stage/usr/bin/milkit ] || fail "DESTDIR is not honoured"
grep -rIl "$PWD" stage >only.txt && fail "files that name the staging folder: $(head -3 only.txt)"
(cd "$BUILD" && DESTDIR=$SCRATCH/stage cmake -P "$SOURCE/cmake/uninstall.cmake") >install.txt 2>&1 || fail "uninstall: $(tail -3 install.txt)"
find stage ! -type d >only.txt
[ -s only.txt ] && fail "left behind: $(head -3 only.txt)"

# ---- a Debian package: made, installed into a root of its own, removed ----
if command -v dpkg-shlibdeps >/dev/null && [ "$(id -u)" = 0 ]; then
    (cd "$BUILD" && cpack -G DEB -B "$SCRATCH/deb") >deb.txt 2>&1 || fail "cpack: $(tail -3 deb.txt)"
    package=$(find deb -maxdepth 1 -name '*.deb')
    dpkg --info "$package" | grep -q 'Depends:.*libcjson' || fail "the package does not name its libraries: $(dpkg --info "$package" | grep Depends)"
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates && touch root/var/lib/dpkg/status
    dpkg --root="$PWD/root" --force-depends,not-root,script-chrootless --no-triggers -i "$package" >deb.txt 2>&1 || fail "dpkg -i: $(tail -3 deb.txt)"
    [ -x root/usr/bin/milkit ] && [ -e root/usr/bin/coreml_check ] && [ -e root/usr/include/milkit.h ] || fail "the package is not whole"
    dpkg --root="$PWD/root" --force-depends,not-root,script-chrootless --no-triggers -r milkit >deb.txt 2>&1 || fail "dpkg -r: $(tail -3 deb.txt)"
    find root ! -type d ! -path 'root/var/*' >only.txt
    [ -s only.txt ] && fail "left behind by the package: $(head -3 only.txt)"
else
    echo "skipped: a Debian package needs dpkg-dev and root"
fi
finish
