#!/bin/sh
# Converts a checkpoint and lets the package continue a prompt: demo.sh MILKIT CHECKPOINT PROMPT
set -eu
milkit=$1 checkpoint=$2 prompt=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

show() {
    printf '$ %s\n' "$*" >&2
    "$@"
}
show "$milkit" convert "$checkpoint" -o "$folder/package" -c 512 -b 64
show "$milkit" run "$folder/package" -p "$prompt" -n 60 --greedy
