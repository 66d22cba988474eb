#!/bin/bash
# check_calls.py where there is a Python: check_calls.sh SOURCE_FOLDER NM ARCHIVE...
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 "$(dirname "$0")/check_calls.py" "$@"
