#!/usr/bin/env python3
"""Gradients of a checkpoint's loss by torch's autograd, for the tests of the reference's own.

usage: make_gradients.py OUT_DIR CHECKPOINT_DIR...

Writes OUT_DIR/NAME.safetensors. The weights are upcast from their stored type to float64 (transformers computes norms, the
softmax and the gated delta rule in float32 all the same), attention is eager. TOKENS tokens are cut into texts of LENGTH, the
last one shorter; the loss of a text is the sum over its tokens but the first of -log p(token). A head that is tied to the
embeddings counts as a matrix of its own. Per matrix, by the end of its name in the checkpoint, float64 numbers:

  norm and sum of the first text's gradient, norm and sum of the squares summed over the texts, the gradient at POINTS places,
  the sum of squares there; place k is element (k * 2654435761 + 12345) mod n of the tensor in the checkpoint's file.

Needs torch, transformers >= 5, safetensors, numpy.
"""
import json, pathlib, sys
import numpy, torch, transformers
from safetensors import safe_open
from safetensors.numpy import save_file

TOKENS, LENGTH, POINTS = 112, 48, 64


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    cls = getattr(transformers, config["architectures"][0])
    model = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    if hasattr(model.config, "_experts_implementation"):
        model.set_experts_implementation("eager")
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # whose row would get no gradient
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    return config, model


def names_in_files(folder):
    names = set()
    for path in folder.glob("*.safetensors"):
        if not path.name.startswith("golden"):
            with safe_open(path, "np") as f:
                names.update(f.keys())
    return names


def end_of(name):
    """What of a name is the same in the files and in the model."""
    at = name.find("layers.")
    return name[at:] if at >= 0 else ".".join(name.split(".")[-2:])


def matrices(model, in_files):
    """name in the files -> parameter, part of it"""
    found = {}
    ends = {end_of(n) for n in in_files if "vis" not in n and "mtp." not in n}
    for name, p in model.named_parameters():
        if any(t in name for t in ("visual", "vision", "mtp.", "conv1d", "multi_modal")) or p.dim() < 2:
            continue
        end = end_of(name)
        if end in ends or name == "lm_head.weight":
            found[end] = (p, None)
        elif end.endswith("experts.gate_up_proj"):
            half = p.shape[1] // 2
            for i in range(p.shape[0]):
                found[end.replace("gate_up_proj", f"{i}.gate_proj.weight")] = (p, (i, slice(0, half)))
                found[end.replace("gate_up_proj", f"{i}.up_proj.weight")] = (p, (i, slice(half, None)))
        elif end.endswith("experts.down_proj"):
            for i in range(p.shape[0]):
                found[end.replace("down_proj", f"{i}.down_proj.weight")] = (p, (i,))
        else:
            raise SystemExit(f"{name}: not in the files")
    return found


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    for folder in map(pathlib.Path, sys.argv[2:]):
        config, model = load(folder)
        vocab = config.get("text_config", config)["vocab_size"]
        # The last ids of a wrapper stand for images.
        top = vocab - 8 if "text_config" in config else vocab
        numbers = torch.randint(0, top, (TOKENS,), generator=torch.Generator().manual_seed(77))
        weights = matrices(model, names_in_files(folder))
        squares, first = {}, {}
        for begin in range(0, TOKENS, LENGTH):
            ids = numbers[begin : begin + LENGTH]
            model.zero_grad(set_to_none=True)
            logits = model(input_ids=ids[None], use_cache=False).logits[0]
            torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:], reduction="sum").backward()
            for name, (p, part) in weights.items():
                g = torch.zeros_like(p) if p.grad is None else p.grad
                g = (g if part is None else g[part]).detach().double().flatten()
                first.setdefault(name, g.clone())
                squares[name] = squares.get(name, 0) + g * g
        tensors = {"tokens": numbers.numpy().astype(numpy.int32), "length": numpy.array([LENGTH], numpy.int32)}
        for name in weights:
            g, f = first[name], squares[name]
            at = torch.tensor([(k * 2654435761 + 12345) % g.numel() for k in range(POINTS)])
            numbers_of = torch.cat([torch.stack([g.norm(), g.sum(), f.norm(), f.sum()]), g[at], f[at]])
            tensors[name] = numbers_of.numpy().astype(numpy.float64)
        save_file(tensors, out / f"{folder.name}.safetensors",
                  metadata={"torch": torch.__version__, "transformers": transformers.__version__})
        print(folder.name, len(weights), "matrices", float(sum(v[0] ** 2 for v in tensors.values() if v.dtype == float)))


if __name__ == "__main__":
    main()
