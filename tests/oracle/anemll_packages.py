"""Packages by ANEMLL's own converter: what they are made of, and whether ours of the same checkpoints say the same.

    python3 -m venv VENV
    VENV/bin/pip install torch coremltools==9.0 numpy==1.26.4 safetensors tqdm pyyaml
    VENV/bin/python tests/oracle/anemll_packages.py ANEMLL FOLDER [MILKIT]

ANEMLL is a working tree of ANEMLL 0.3.5 (github: argus1/Anemll, commit d0c532f), unmodified. Its programs are called in the
order and with the options of its driver, anemll/utils/convert_model.sh, by forks of this process (so torch and coremltools are
loaded once); left out are the driver's compilation by Apple's tool and its chat by Apple's runtime, so a package has .mlpackage folders alone.
numpy is old because coremltools 9.0 fails with 2.4 on these graphs. The packages in tests/data were made with torch 2.15.

Written are tests/data/anemll/CHECKPOINT (random weights from a fixed seed, where they are not there yet), FOLDER/PACKAGE for each row
of PACKAGES, and tests/data/anemll/PACKAGE.json: files, functions, ports and states as coremltools reads them, and the keys of meta.yaml.
With MILKIT (build/release/milkit) the same checkpoints are converted by it, and logits and greedy tokens of both packages
compared, all by milkit's engine: what differs then are the graphs.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import traceback

import coremltools
import numpy
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, os.pardir, "data", "anemll")
TYPES = {65552: "fp16", 65568: "fp32", 131104: "int32"}
COMMIT = "d0c532f"

BATCH = 64
# name: checkpoint, context, chunks. Gemma 3 rotates where the context is above its window of 256.
PACKAGES = {
    "llama-1c": ("llama", 256, 1),
    "llama-2c": ("llama", 512, 2),
    "gemma3-rotate-2c": ("gemma3", 512, 2),
    "gemma3-plain-1c": ("gemma3", 256, 1),
    "gemma3-rotate-1c": ("gemma3", 512, 1),
    "gemma3-plain-2c": ("gemma3", 256, 2),
}

CHECKPOINTS = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 128,
        "torch_dtype": "float16"},
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 32,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 256,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "rope_scaling": None, "attention_bias": False, "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": 136,
        "torch_dtype": "float16"},
}


def make_checkpoint(folder, name, config):
    from safetensors.numpy import save_file

    rng = numpy.random.default_rng(15)
    gemma = name == "gemma3"
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    kv = config["num_key_value_heads"] * head_dim
    tensors = {}

    def matrix(key, rows, columns, scale=1.0):
        values = rng.standard_normal((rows, columns)) * (scale / numpy.sqrt(columns))
        tensors[key] = values.astype(numpy.float16)

    def gain(key, size):
        values = rng.standard_normal(size) * 0.1 + (0.0 if gemma else 1.0)
        tensors[key] = values.astype(numpy.float16)

    matrix("model.embed_tokens.weight", config["vocab_size"], hidden, 3.0)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for key, rows, columns in (
                ("self_attn.q_proj", heads * head_dim, hidden), ("self_attn.k_proj", kv, hidden),
                ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, heads * head_dim),
                ("mlp.gate_proj", config["intermediate_size"], hidden), ("mlp.up_proj", config["intermediate_size"], hidden),
                ("mlp.down_proj", hidden, config["intermediate_size"])):
            matrix(f"{layer}{key}.weight", rows, columns)
        gain(layer + "input_layernorm.weight", hidden)
        gain(layer + "post_attention_layernorm.weight", hidden)
        if gemma:
            gain(layer + "pre_feedforward_layernorm.weight", hidden)
            gain(layer + "post_feedforward_layernorm.weight", hidden)
            gain(layer + "self_attn.q_norm.weight", head_dim)
            gain(layer + "self_attn.k_norm.weight", head_dim)
    gain("model.norm.weight", hidden)
    if not config["tie_word_embeddings"]:
        matrix("lm_head.weight", config["vocab_size"], hidden, 3.0)
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def run_program(anemll, log, program, *options, environment=None):
    """A module or a script of ANEMLL, as python3 -m or python3 would run it."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(stream, 1)
            os.dup2(stream, 2)
            os.environ.update(environment or {})
            os.chdir(anemll)
            sys.path.insert(0, anemll)
            sys.argv = [program, *options]
            if program.endswith(".py"):
                runpy.run_path(os.path.join(anemll, program), run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__")
            status = 0
        except SystemExit as e:
            status = 1 if e.code else 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    if os.waitpid(pid, 0)[1] != 0:
        with open(log, errors="replace") as f:
            sys.exit(f"{program} {' '.join(options)}: {f.read()[-3000:]}")


def convert_by_anemll(anemll, out, checkpoint, context, chunks):
    """The steps of convert_model.sh --context C --batch 64 --chunk N --lut1 "" --lut2 "" --lut3 ""."""
    with open(os.path.join(checkpoint, "config.json")) as f:
        config = json.load(f)
    gemma = config["model_type"].startswith("gemma3")
    prefix = "gemma3" if gemma else "llama"
    rotate = gemma and context > config["sliding_window"]
    log = out + ".log"
    shutil.rmtree(out, ignore_errors=True)
    if os.path.exists(log):
        os.remove(log)
    os.makedirs(out)
    sizes = ["--context-length", str(context), "--batch-size", str(BATCH)]
    places = ["--prefix", prefix, "--model", checkpoint, "--output", out]
    several = ["--chunk", str(chunks)]
    converter = f"anemll.ane_converter.{prefix}_converter"
    run_program(anemll, log, converter, "--part", "1", *sizes, *places)
    run_program(anemll, log, converter, "--part", "3", *sizes[:2], *places)
    run_program(anemll, log, converter, "--part", "2", *several, *sizes, *places)
    run_program(anemll, log, converter, "--part", "2_prefill", "--dynamic-prefill-slice", *several, *sizes, *places)
    if rotate:
        run_program(anemll, log, converter, "--part", "2_rotate", *several, *sizes, *places)
        run_program(anemll, log, converter, "--part", "2_prefill_rotate", "--dynamic-prefill-slice", *several, *sizes, *places)
    run_program(anemll, log, "anemll/utils/combine_models.py", *several, *(["--gemma3"] if rotate else []), "--prefix", prefix,
                "--input", out, "--output", out)
    parts = 16 if gemma else 8
    base, rest = divmod(config["vocab_size"], parts)
    info = {"vocab_size": config["vocab_size"], "lm_head_chunk_sizes": [base + (i < rest) for i in range(parts)]}
    run_program(anemll, log, "anemll/utils/generate_meta_yaml.py", os.path.basename(checkpoint), str(context), str(BATCH), "none", "none",
                "none", str(chunks), prefix, config["model_type"], out,
                *(["--sliding-window", str(config["sliding_window"])] if gemma else []), "--dynamic-prefill-slice",
                environment={"ANEMLL_CONVERSION_INFO": json.dumps(info)})


def describe_ports(ports):
    said = []
    for port in ports:
        kind = port.type.WhichOneof("Type")
        array = port.type.stateType.arrayType if kind == "stateType" else port.type.multiArrayType
        shapes = [list(s.shape) for s in array.enumeratedShapes.shapes]
        said.append({"name": port.name, "type": TYPES[array.dataType], "shape": list(array.shape), **({"shapes": shapes} if shapes else {})})
    return said


def describe(package):
    """What coremltools reads of a package."""
    models = {}
    for name in sorted(os.listdir(package)):
        # Beside the combined chunks lie the single functions that they were made of, which nobody publishes.
        if not name.endswith(".mlpackage") or re.search("_(FFN|prefill)(_rotate)?_chunk_", name):
            continue
        spec = coremltools.models.utils.load_spec(os.path.join(package, name))
        d = spec.description
        functions = list(d.functions) or [d]
        models[name[: -len(".mlpackage")]] = {
            "specification": spec.specificationVersion,
            "default": d.defaultFunctionName or "main",
            "functions": {
                getattr(f, "name", "") or "main": {
                    "inputs": describe_ports(f.input), "outputs": describe_ports(f.output), "states": describe_ports(f.state)}
                for f in functions},
            "metadata": {k: v for k, v in sorted(d.metadata.userDefined.items()) if k.startswith("com.anemll")},
        }
    with open(os.path.join(package, "meta.yaml")) as f:
        meta = yaml.safe_load(f)["model_info"]
    return {"models": models, "meta": {k: v for k, v in meta.items() if k != "description"}}


def run_milkit(milkit, *options):
    run = subprocess.run([milkit, *options], capture_output=True)
    if run.returncode:
        sys.exit(f"milkit {' '.join(options)}: {run.stderr.decode('utf-8', 'replace')}")
    return run.stdout.decode()


def compare_numbers(milkit, name, theirs, checkpoint, context, chunks, work):
    from safetensors.numpy import load_file

    ours = os.path.join(work, name + ".ours")
    run_milkit(milkit, "convert", checkpoint, "-o", ours, "--force", "-q", "-c", str(context), "-b", str(BATCH), "--chunks",
               str(chunks), "--anemll-rotate")
    with open(os.path.join(checkpoint, "config.json")) as f:
        vocabulary = json.load(f)["vocab_size"]
    # Up to behind the window, where there is one; the rest of the context is left to choose.
    n = context - 40
    tokens = numpy.random.default_rng(16).integers(3, vocabulary, n)
    ids = os.path.join(work, name + ".ids")
    with open(ids, "w") as f:
        f.write(" ".join(map(str, tokens)))
    logits = {}
    for form, more in (("single", []), ("prefill", ["--prefill"])):
        for folder in (theirs, ours):
            file = os.path.join(work, "logits.safetensors")
            run_milkit(milkit, "logits", folder, "--tokens", "@" + ids, "--force", "-q", "-o", file, *more)
            logits[form, folder] = load_file(file)["logits"].astype(numpy.float64)
    greedy = [run_milkit(milkit, "run", folder, "--tokens", "@" + ids, "-n", "32", "--greedy", "--ids", "--ignore-eos", "-q").strip().split(",")
              for folder in (theirs, ours)]
    for form in ("single", "prefill"):
        a, b = logits[form, theirs], logits[form, ours]
        cosine = (a * b).sum(1) / numpy.sqrt((a * a).sum(1) * (b * b).sum(1))
        top = (a.argmax(1) == b.argmax(1)).mean()
        print(f"{name} {form}: {len(a)} positions, smallest cosine {cosine.min():.7f}, largest difference {abs(a - b).max():.4f} "
              f"(deviation {b.std():.3f}), same best token {100 * top:.1f} %")
    same = next((i for i, (x, y) in enumerate(zip(*greedy)) if x != y), len(greedy[0]))
    print(f"{name} greedy: {same} of {len(greedy[0])} tokens the same")


def main():
    anemll, work = (os.path.abspath(p) for p in sys.argv[1:3])
    milkit = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
    os.makedirs(work, exist_ok=True)
    for name, config in CHECKPOINTS.items():
        folder = os.path.join(DATA, name)
        if not os.path.exists(folder):
            make_checkpoint(folder, name, config)
    for name, (checkpoint, context, chunks) in PACKAGES.items():
        folder = os.path.join(work, name)
        source = os.path.abspath(os.path.join(DATA, checkpoint))
        if not os.path.exists(os.path.join(folder, "meta.yaml")):
            convert_by_anemll(anemll, folder, source, context, chunks)
        said = {"made_by": f"ANEMLL 0.3.5, commit {COMMIT}", "checkpoint": checkpoint, "context": context, "batch": BATCH, "chunks": chunks,
                **describe(folder)}
        with open(os.path.join(DATA, name + ".json"), "w") as f:
            f.write(re.sub(r"\[[\d,\s]+\]", lambda m: re.sub(r"\s+", "", m[0]).replace(",", ", "), json.dumps(said, indent=1)) + "\n")
        if milkit:
            compare_numbers(milkit, name, folder, source, context, chunks, work)


if __name__ == "__main__":
    main()
