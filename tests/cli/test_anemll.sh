# Packages for ANEMLL's runtimes: what ANEMLL's own converter makes of two checkpoints (tests/data/anemll, by tests/oracle/anemll_packages.py), and
# ours of the same ones: files, functions, ports, states, keys of meta.yaml. Differences are those that the table below names.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
command -v python3 >/dev/null || {
    echo "skipped: no python3 to compare JSON"
    exit 77
}

cat >compare.py <<'PYTHON'
import json
import os
import subprocess
import sys

program, theirs, folder = sys.argv[1:]
theirs = json.load(open(theirs))
differences = []


def differ(what, expected, found):
    differences.append(f"{what}: ANEMLL has {expected}, milkit {found}")


def allowed_state(state):
    # docs/contract.md: ours has as many rows as the context, ANEMLL's Llama at least 512.
    if state["name"] == "model_model_kv_cache_0":
        heads, kv, rows, dim = state["shape"]
        assert rows == max(theirs["context"], 512), state
        return dict(state, shape=[heads, kv, theirs["context"], dim])
    return state


def ports(found):
    said = []
    for p in found:
        port = {"name": p["name"], "type": p["dtype"], "shape": p.get("default_shape", p["shape"])}
        if "enumerated_shapes" in p:
            port["shapes"] = p["enumerated_shapes"]
        said.append(port)
    return said


def compare_ports(what, expected, found, form):
    found = ports(found)
    if form == "mlmodelc":  # the compiled form has inputs by their names
        expected, found = (sorted(x, key=lambda p: p["name"]) for x in (expected, found))
    if len(expected) != len(found):
        return differ(what, [p["name"] for p in expected], [p["name"] for p in found])
    for e, f in zip(expected, found):
        if not e["shape"]:  # an output whose shape follows the input's: coremltools writes none
            assert -1 in f["shape"], f
            f = dict(f, shape=[])
        if e != f:
            differ(what, e, f)


def compare_models():
    for form in ("mlpackage", "mlmodelc"):
        names = sorted(n.rsplit(".", 1)[0] for n in os.listdir(folder) if n.endswith(form))
        if names != sorted(theirs["models"]):
            differ(form, sorted(theirs["models"]), names)
            continue
        for name, model in theirs["models"].items():
            run = subprocess.run([program, "inspect", f"{folder}/{name}.{form}", "--json"], stdout=subprocess.PIPE, check=True)
            ours = json.loads(run.stdout)
            if (model["specification"], model["default"]) != (ours["specification_version"], ours["default_function"]):
                differ(f"{name}.{form}", (model["specification"], model["default"]), (ours["specification_version"], ours["default_function"]))
            functions = {f["name"]: f for f in ours["functions"]}
            if sorted(functions) != sorted(model["functions"]):
                differ(f"functions of {name}.{form}", sorted(model["functions"]), sorted(functions))
                continue
            for key, expected in model["functions"].items():
                where = f"{name}.{form} {key}"
                compare_ports(f"inputs of {where}", expected["inputs"], functions[key]["inputs"], form)
                compare_ports(f"outputs of {where}", expected["outputs"], functions[key]["outputs"], form)
                compare_ports(f"states of {where}", [allowed_state(s) for s in expected["states"]], functions[key]["states"], form)


def read_meta(path):
    """The scalar keys of our meta.yaml, by text: what ANEMLL's generator writes is on lines of its own."""
    found = {}
    for line in open(path):
        key, colon, value = line.strip().partition(": ")
        if colon and not line.lstrip().startswith("-"):
            found.setdefault(key, value)
    return found


def compare_meta():
    ours = read_meta(f"{folder}/meta.yaml")
    expected = {k: v for k, v in theirs["meta"].items() if k != "parameters"}
    # Who made it, with what, and whose licence: ours is not ANEMLL's.
    for key in ("author", "language", "license"):
        del expected[key]
    # docs/contract.md: the family's name, where ANEMLL repeats model_type
    if expected["architecture"] == "gemma3_text":
        expected["architecture"] = "gemma3"
    expected.update(theirs["meta"]["parameters"])
    for key, value in expected.items():
        text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if ours.get(key) != text:
            differ(f"meta.yaml's {key}", text, ours.get(key))


compare_models()
compare_meta()
print("\n".join(differences))
sys.exit(5 if differences else 0)
PYTHON

for said in "$DATA"/anemll/*.json; do
    name=$(basename "$said" .json)
    number() {
        sed -n "s/^ \"$1\": \(.*\),\$/\1/p" "$said" | tr -d '"'
    }
    make_package "$DATA/anemll/$(number checkpoint)" "$name" -c "$(number context)" -b "$(number batch)" --chunks "$(number chunks)" \
        --anemll-rotate
    python3 compare.py "$MILKIT" "$said" "$name" >differences.txt || fail "$name: $(cat differences.txt)"
    echo "$name: compared"
done
# The comparison sees differences: packages of another batch, of another context, of other chunks, and Gemma 3's caches that shift by blocks.
for difference in "-c 512 -b 32 --chunks 2" "-c 480 -b 64 --chunks 2" "-c 512 -b 64 --chunks 3"; do
    rm -rf other
    # shellcheck disable=SC2086
    make_package "$DATA/anemll/llama" other $difference
    python3 compare.py "$MILKIT" "$DATA/anemll/llama-2c.json" other >differences.txt
    [ $? -eq 5 ] || fail "no difference seen: $difference"
done
rm -rf other
make_package "$DATA/anemll/gemma3" other -c 512 -b 64 --chunks 2
python3 compare.py "$MILKIT" "$DATA/anemll/gemma3-rotate-2c.json" other >differences.txt
[ $? -eq 5 ] || fail "no difference seen: caches that shift by blocks"
finish
