#!/bin/bash
# No folder of src has more than 16 % of its lines: check_folders.sh SOURCE_FOLDER
set -eu
cd "$1/src"
for folder in */; do
    echo "$(find "$folder" -type f -exec cat {} + | wc -l) ${folder%/}"
done | sort -rn | awk -v most=16 '
    { lines[NR] = $1; name[NR] = $2; all += $1 }
    END {
        for (i = 1; i <= NR; i++)
            if (100 * lines[i] > most * all) { printf "src/%s: %.1f %% of the lines, at most %d\n", name[i], 100 * lines[i] / all, most; bad++ }
        printf "%d folders, %d lines, the largest has %.1f %%\n", NR, all, 100 * lines[1] / all
        exit bad > 0 || NR == 0
    }'
