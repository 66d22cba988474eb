"""ANEMLL's own client, tests/chat.py, unmodified, on Linux: does it say what `milkit run --greedy` says?

    pip install coremltools==9.0 torch transformers tokenizers pyyaml
    MILKIT_LIBRARY=build/release/libmilkit.so.0 PYTHONPATH=python \
        python3 tests/oracle/anemll_chat.py CHAT.PY build/release/milkit ../shared [FOLDER]

Packages of ours (qwen3, llama, gemma3) and of ANEMLL's converter. Checkpoints without a tokenizer get one of bytes, whose text is as random as
their weights; what is compared is the text of 24 tokens.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

chat, milkit, shared = (os.path.abspath(p) for p in sys.argv[1:4])
work = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 else tempfile.mkdtemp()
os.makedirs(work, exist_ok=True)
TOKENS = 24
PROMPT = "In the beginning"


def make_tokenizer(folder, size):
    """A tokenizer of single bytes, then as many words as the vocabulary has room for."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(alphabet)}
    while len(vocabulary) < size:
        vocabulary[f"<w{len(vocabulary)}>"] = len(vocabulary)
    t = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        f.write('{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<w%d>"}' % (size - 1))


def said_by_chat(folder):
    """What chat.py saves: it prints from a thread that may be cut off."""
    saved = os.path.join(work, "saved.txt")
    if os.path.exists(saved):
        os.remove(saved)
    run = subprocess.run(
        [sys.executable, "-m", "milkit.coremltools", chat, "--meta", os.path.join(folder, "meta.yaml"), "--prompt", PROMPT,
         "--max-tokens", str(TOKENS), "--no-template", "--save", saved],
        capture_output=True, cwd=work)
    log = (run.stdout + run.stderr).decode("utf-8", "replace")
    if not os.path.exists(saved):
        return None, log
    with open(saved, encoding="utf-8", errors="replace") as f:
        return re.sub(r"<\|im_end\|>|<w\d+>$", "", f.read()), log


def said_by_milkit(folder):
    run = subprocess.run([milkit, "run", folder, "-p", PROMPT, "-n", str(TOKENS), "--greedy", "-q"], capture_output=True)
    return run.stdout.decode("utf-8", "replace"), run.stderr.decode("utf-8", "replace")


def compare(name, folder):
    chat_text, log = said_by_chat(folder)
    run_text, errors = said_by_milkit(folder)
    # chat.py saves the end token in the place of the last one it made.
    same = chat_text is not None and len(chat_text.strip()) > 10 and run_text.startswith(chat_text.rstrip("\n"))
    print(f"{name}: {'same' if same else 'DIFFERS'}")
    if not same:
        print("  chat.py:", repr(chat_text))
        print("  milkit: ", repr(run_text), errors[-300:])
        if chat_text is None:
            print(log[-1500:])
    return same


good = []
for model in ("qwen3-tiny", "llama-small", "gemma3-plain"):
    checkpoint = os.path.join(work, model)
    shutil.rmtree(checkpoint, ignore_errors=True)
    shutil.copytree(os.path.join(shared, "models", model), checkpoint)
    os.chmod(checkpoint, 0o755)
    if not os.path.exists(os.path.join(checkpoint, "tokenizer.json")):
        import json

        with open(os.path.join(checkpoint, "config.json")) as f:
            make_tokenizer(checkpoint, json.load(f)["vocab_size"])
    package = os.path.join(work, model + "-package")
    subprocess.run([milkit, "convert", checkpoint, "-o", package, "-c", "256", "-b", "64", "-q", "--force", "--format", "both"], check=True)
    good.append(compare(model + " (ours)", package))
anemll = os.path.join(shared, "peer-packages", "anemll")
for name in sorted(os.listdir(anemll)):
    folder = os.path.join(work, name)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(anemll, name), folder)
    for d, _, _ in os.walk(folder):
        os.chmod(d, 0o755)
    make_tokenizer(folder, 640)
    good.append(compare(name + " (ANEMLL's)", folder))
print(f"{sum(good)} of {len(good)}")
sys.exit(not all(good))
