#!/bin/bash
# Checks the includes of src/ against the table of folders in docs/architecture.md: check_includes.sh SOURCE_FOLDER
# Prints each violation; exit status 1 when there is one.
set -eu
cd "$1"

# What each folder may include besides itself. "*": everything.
declare -A may=(
    [base]=""
    [format]="base"
    [mil]="base format"
    [arch]="base format mil"
    [quant]="base mil"
    [convert]="base format mil arch quant"
    [kernel]="base"
    [engine]="base format mil kernel"
    [reference]="base format"
    [text]="base format"
    [runtime]="base format engine text"
    [server]="base runtime text"
    [cli]="*"
)
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
        report "src/$folder: not in the table of folders"
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
            if [[ $name == *_int.h || $name == *_internal.h ]]; then
                report "$where: an internal header of another folder"
            fi
            if [ "${may[$folder]}" != "*" ] && [[ " ${may[$folder]} " != *" $target "* ]]; then
                report "$where: $folder may include only: ${may[$folder]:-nothing}"
            fi
        done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file" || true)
    done
done
if [ "$n_files" = 0 ]; then
    report "no source files found"
fi
echo "$n_files files checked, $n_bad violations"
[ "$n_bad" = 0 ]
