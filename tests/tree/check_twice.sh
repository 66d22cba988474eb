#!/bin/bash
# check_twice.py where there is a Python: check_twice.sh SOURCE_FOLDER
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 "$(dirname "$0")/check_twice.py" "$1"
