#!/bin/sh
# What a Mac says of a package, in one file that can be sent back: system, plan, check, speed, the questions that nobody has answered.
# mac_report.sh PACKAGE [CHECKPOINT] >REPORT
# MILKIT: the program (milkit); CHIP: its name where the system does not tell; UNITS: --compute-units; RUNS: of measurements (3).
# Lines for people begin with "# "; each measured point is one line of JSON, which `milkit forecast --fit REPORT` reads.
set -u
[ $# -ge 1 ] && [ $# -le 2 ] || {
    echo "usage: mac_report.sh PACKAGE [CHECKPOINT] >REPORT" >&2
    exit 2
}
package=$1 checkpoint=${2:-}
milkit=${MILKIT:-milkit} units=${UNITS:-cpu-and-ane} runs=${RUNS:-3}
core="--backend coreml --compute-units $units"
[ -d "$package" ] || {
    echo "mac_report.sh: no package $package" >&2
    exit 1
}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# say TITLE COMMAND...: the command's words, with its status, as lines for people
say() {
    echo "# == $1"
    echo "# == $1" >&2
    shift
    "$@" >"$scratch/out" 2>&1 </dev/null
    status=$?
    sed 's/^/# /' "$scratch/out"
    [ $status -eq 0 ] || echo "# (status $status)"
}
# value KEY FILE: the first number or text of a key
value() {
    sed -n 's/.*"'"$1"'":[[:space:]]*"\{0,1\}\([^",}]*\).*/\1/p' "$2" | head -n 1
}

chip=${CHIP:-$(sysctl -n machdep.cpu.brand_string 2>/dev/null | sed 's/^Apple //')}
system=$(sw_vers -productVersion 2>/dev/null || uname -r)
system="$(sw_vers -productName 2>/dev/null || uname -s) $system"
echo "# milkit report 1"
say versions "$milkit" --version
echo "# chip: ${chip:-not known}"
echo "# system: $system"
echo "# memory: $(sysctl -n hw.memsize 2>/dev/null || echo 'not known')"
echo "# compute units: $units"
say package "$milkit" inspect "$package"
say lint "$milkit" lint "$package"
say 'plan by rules' "$milkit" check "$package" --plan
# shellcheck disable=SC2086
{
    say 'plan by Core ML' "$milkit" check "$package" --plan $core
    say 'one token by Core ML' "$milkit" run "$package" --tokens 1 --ids -n 1 --greedy $core
    say 'the same by the engine' "$milkit" run "$package" --tokens 1 --ids -n 1 --greedy
    say '32 tokens by Core ML' "$milkit" run "$package" --tokens 1,2,3,4,5,6,7,8 --ids -n 32 --greedy $core
    say 'the same by the engine' "$milkit" run "$package" --tokens 1,2,3,4,5,6,7,8 --ids -n 32 --greedy
    if [ -n "$checkpoint" ]; then
        say 'check by Core ML' "$milkit" check "$package" --hf "$checkpoint" -n 16 $core
        say 'check by the engine' "$milkit" check "$package" --hf "$checkpoint" -n 16
    fi
    say 'speed' "$milkit" bench "$package" -p 0 -n 64 -r "$runs" -o jsonl $core
    cp "$scratch/out" "$scratch/speed"
    say 'speed of prompts' "$milkit" bench "$package" -p 128 -n 0 -r "$runs" -o jsonl $core
}

# The counts of a package do not depend on the chip that is asked for.
"$milkit" forecast "$package" --chip "${chip:-M4}" --json >"$scratch/forecast" 2>/dev/null ||
    "$milkit" forecast "$package" --chip M4 --json >"$scratch/forecast" 2>/dev/null
speed=$(value avg_ts "$scratch/speed")
if [ -n "$chip" ] && [ -n "$speed" ] && [ -s "$scratch/forecast" ]; then
    printf '{"milkit_mac_report": 1, "model": "%s", "weights": "%s", "chip": "%s", "system": "%s", ' \
        "$(value model_type "$scratch/speed")" "$(value lut_ffn "$scratch/speed")" "$chip" "$system"
    printf '"calls": %s, "operations": %s, "weight_mb": %s, "cache_mb": %s, "tokens_per_second": %s}\n' \
        "$(value calls "$scratch/forecast")" "$(value operations "$scratch/forecast")" \
        "$(value weight_mb "$scratch/forecast")" "$(value cache_mb "$scratch/forecast")" "$speed"
else
    echo "# no point: chip '${chip:-not known}', speed '${speed:-not measured}'"
fi

cat <<'END'
# == questions
# Nobody has published answers; a line each, if you know them.
# 1. Did Activity Monitor or `sudo powermetrics --samplers ane_power` show the Neural Engine at work?
# 2. How long did the first load take, and the second?
# 3. Is the text the same with UNITS=cpu-and-gpu?
# 4. Did another program use the Neural Engine or the GPU meanwhile? Was the machine on battery?
END
