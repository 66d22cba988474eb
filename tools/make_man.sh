#!/bin/sh
# Makes the manual pages out of the program's own tables: make_man.sh MILKIT VERSION FOLDER. Needs scdoc.
set -eu
milkit=$1 version=$2 folder=$3
mkdir -p "$folder"

# What scdoc would take for markup.
plain() {
    sed 's/[\\*_~<>#|]/\\&/g; s/^\([].[-]\)/\\\1/'
}
page() {
    scdoc >"$folder/$1.1.part"
    mv "$folder/$1.1.part" "$folder/$1.1"
}
# A tab, which stands between columns.
tab=$(printf '\t')

{
    printf 'milkit(1) "milkit %s" "milkit"\n\n# NAME\n\nmilkit - language models as Core ML packages\n\n' "$version"
    printf '# SYNOPSIS\n\n*milkit* _COMMAND_ [_OPTIONS_]\n\n# DESCRIPTION\n\n'
    printf 'Converts Hugging Face checkpoints into Core ML packages for the Apple Neural Engine, checks them, and runs them with an engine of its own.\n\n'
    printf '# COMMANDS\n\n'
    "$milkit" help --list | while IFS=$tab read -r name summary; do
        printf '*%s*\n\t%s; see *milkit-%s*(1)\n\n' "$name" "$(printf '%s' "$summary" | plain)" "$name"
    done
    cat <<'TEXT'
# EXIT STATUS

*0*
	done

*1*
	failed: the system refused something, or an internal error

*2*
	wrong usage

*3*
	not supported

*4*
	a bad input file

*5*
	checked, and outside the limits

*6*
	out of memory, or over a limit

*130*
	interrupted

# ENVIRONMENT

*MILKIT\_CPU*
	scalar, avx2 or avx512: the instructions to use

*MILKIT\_LIMIT*
	a factor for the limits of memory and work of a program
TEXT
} | page milkit

"$milkit" help --list | while IFS=$tab read -r name summary; do
    {
        "$milkit" "$name" --list-options >"$folder/options.txt"
        synopsis=$(head -n 1 "$folder/options.txt" | cut -f2 | plain)
        printf 'milkit-%s(1) "milkit %s" "milkit"\n\n# NAME\n\nmilkit-%s - %s\n\n' "$name" "$version" "$name" \
            "$(printf '%s' "$summary" | plain)"
        printf '# SYNOPSIS\n\n*milkit %s* %s\n\n# OPTIONS\n\n' "$name" "$synopsis"
        tail -n +2 "$folder/options.txt" | tr '\t' '\001' | while IFS=$(printf '\001') read -r names value help; do
            names=$(printf '%s' "$names" | plain | sed 's/,/*, */g')
            [ -z "$value" ] || value=" _$(printf '%s' "$value" | plain)_"
            printf '*%s*%s\n\t%s\n\n' "$names" "$value" "$(printf '%s' "$help" | plain)"
        done
        printf '# SEE ALSO\n\n*milkit*(1)\n'
    } | page "milkit-$name"
done
rm -f "$folder/options.txt"
