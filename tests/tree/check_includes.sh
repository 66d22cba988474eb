#!/bin/bash
# Checks the includes of src/ against what each folder uses, which CMakeLists.txt says (milkit_folder(NAME USES ...)), and the
# table of docs/architecture.md against the same: check_includes.sh SOURCE_FOLDER
# Prints each violation; exit status 1 when there is one.
set -eu
cd "$1"

# What each folder may include besides itself, by the name of the folder.
declare -A may=()
while read -r folder uses; do
    may[$folder]=$uses
done < <(tr '\n' ' ' <CMakeLists.txt | grep -oE 'milkit_folder\([^)$]*\)' |
    sed -E 's/^milkit_folder\(//; s/ +LIBS.*|\)$//; s/ USES / /; s/ +/ /g')
# The only header of a folder that others may include.
declare -A door=([engine]="engine.h")
# Folders that only some files may include, and their names: what stands behind a seam.
declare -A seam=([engine]="src/runtime/backend_engine.c")
# Headers that the build makes, by the folder that may include them.
declare -A generated=([mil]="coreml.pb-c.h")

n_files=0 n_bad=0
report() {
    echo "$1"
    n_bad=$((n_bad + 1))
}

for path in src/*/; do
    folder=${path#src/}
    folder=${folder%/}
    if [ -z "${may[$folder]+known}" ]; then
        report "src/$folder: CMakeLists.txt has no milkit_folder($folder)"
        continue
    fi
    for file in "$path"*.c "$path"*.h "$path"*.def; do
        [ -f "$file" ] || continue
        n_files=$((n_files + 1))
        while IFS=: read -r line text; do
            name=${text#*\"}
            name=${name%%\"*}
            where="$file:$line: \"$name\""
            if [[ " ${generated[$folder]:-} " == *" $name "* || $name == milkit.h ]]; then
                continue
            fi
            if [[ $name != */* || $name == *..* ]]; then
                report "$where: expected \"folder/file.h\""
                continue
            fi
            target=${name%%/*}
            if [ "$target" = "$folder" ]; then
                continue
            fi
            if [[ $name == *_int.h || $name == *_internal.h || ${name#*/} != "${door[$target]:-${name#*/}}" ]]; then
                report "$where: an internal header of another folder"
            fi
            if [ -n "${seam[$target]:-}" ] && [[ " ${seam[$target]} " != *" $file "* ]]; then
                report "$where: $target is included by ${seam[$target]} alone"
            fi
            if [[ " ${may[$folder]} " != *" $target "* ]]; then
                report "$where: $folder may include only: ${may[$folder]:-nothing}"
            fi
        done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file" || true)
        for target in "${!seam[@]}"; do
            if [ "$folder" = "$target" ] || [[ " ${seam[$target]} " == *" $file "* ]]; then
                continue
            fi
            while IFS=: read -r line text; do
                report "$file:$line: a name of $target: $text"
            done < <(grep -noE "\<${target}_[a-z]\w*|\<${target^^}_[A-Z]\w*" "$file" || true)
        done
    done
done

# The table's rows: | folder | job | may include |, with "-" for nothing and "everything" for all other folders.
declare -A rows=()
while IFS='|' read -r _ folder _ uses _; do
    folder=${folder// /}
    rows[$folder]=1
    uses=${uses//,/}
    uses=$(echo ${uses/ - /})
    [ "$uses" != everything ] || uses=$(printf '%s\n' "${!may[@]}" | grep -vx "$folder" | sort | xargs)
    if [ -z "${may[$folder]+known}" ]; then
        report "docs/architecture.md: a row for $folder, which CMakeLists.txt doesn't have"
    elif [ "$(printf '%s\n' $uses | sort | xargs)" != "$(printf '%s\n' ${may[$folder]} | sort | xargs)" ]; then
        report "docs/architecture.md: $folder may include ${uses:-nothing}, CMakeLists.txt says ${may[$folder]:-nothing}"
    fi
done < <(sed -n '/^| folder | job | may include |/,/^$/p' docs/architecture.md | tail -n +3 | grep '^|')
for folder in "${!may[@]}"; do
    [ -n "${rows[$folder]+known}" ] || report "docs/architecture.md: no row for the folder $folder"
done
# Files of cli that are clients of the library (the paragraph below the table), with the headers of cli that they include.
declare -A seen=()
check_client() { # FILE CLIENT
    local file=$1 name
    [ -z "${seen[$file]+known}" ] || return 0
    seen[$file]=1
    if [ ! -f "$file" ]; then
        [ ! -f src/cli/main.c ] || report "docs/architecture.md: a client $file, which is not there"
        return 0
    fi
    while IFS= read -r name; do
        case $name in
        milkit.h | base/* | cli/*.def) ;;
        cli/*.h) check_client "src/$name" "$2" ;;
        *) report "$file: \"$name\": $2 is a client of the library: milkit.h, cli and base alone" ;;
        esac
    done < <(grep -oE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*"' "$file" | sed -E 's/.*"(.*)"/\1/')
}
while IFS= read -r name; do
    check_client "src/cli/$name" "$name"
done < <(sed -n '/^like any other program/,/^$/p' docs/architecture.md | grep -oE '`[a-z_]+\.c`' | tr -d '`')

# A source of one instruction set is empty on other processors: the guard stands before the first header of intrinsics or of lanes.
for file in src/kernel/*_avx2.c src/kernel/*_avx512.c; do
    [ -f "$file" ] || continue
    first=$(grep -nE '^[[:space:]]*#[[:space:]]*(if .*__x86_64__|include .*(immintrin|_avx))' "$file" | head -1)
    [[ $first == *__x86_64__* ]] || report "$file: expected #if defined(__x86_64__) before $first"
done

if [ "$n_files" = 0 ]; then
    report "no source files found"
fi
echo "$n_files files checked, $n_bad violations"
[ "$n_bad" = 0 ]
