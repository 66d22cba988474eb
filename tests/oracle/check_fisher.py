"""Are the tables of `--lut-method fisher` as good as weighted k-means by torch's gradients?

    python check_fisher.py CHECKPOINT PACKAGE IDS [LENGTH [STEP]]

PACKAGE: converted with `--format mlmodelc --lut-ffn N,G --lut-method fisher --calibration @IDS`, of a family whose matrices keep
their rows (llama, qwen2, qwen3, mistral, ...). By SqueezeLLM's definition a weight counts with the sum over texts of LENGTH (256)
tokens of its squared gradient. For every STEP-th (8) group: the weighted squared error of the package's entries, by that of the exact
weighted k-means of the same numbers, in float64 and before tables are rounded to fp16. Needs torch, transformers, numpy; run
by hand.
"""
import pathlib, re, sys
import numpy, torch, transformers

BLOB = r"tensor<(\w+), \[([\d, ]+)\]>\(BLOBFILE\(path = string\(\"@model_path/([^\"]+)\"\), offset = uint64\((\d+)\)\)\)"


def read_blob(folder, kind, shape, path, offset):
    with open(folder / path, "rb") as f:
        f.seek(int(offset))
        head = numpy.frombuffer(f.read(64), "<u8")
        f.seek(int(head[2]))
        raw = numpy.frombuffer(f.read(int(head[1])), numpy.uint8)
    shape = [int(n) for n in shape.split(",")]
    if kind == "fp16":
        return raw.view("<f2").astype(numpy.float64).reshape(shape)
    bits = int(kind.removeprefix("uint"))
    n = int(numpy.prod(shape))
    stream = numpy.unpackbits(raw, bitorder="little")[: n * bits].reshape(n, bits)
    return (stream.astype(numpy.int64) << numpy.arange(bits)).sum(1).reshape(shape)


def palettes(package):
    for mil in sorted(pathlib.Path(package).glob("*/model.mil")):
        for line in mil.read_text().splitlines():
            if "constexpr_lut_to_dense" in line:
                parts = [read_blob(mil.parent, *p) for p in re.findall(BLOB, line)]
                name = re.search(r'name = string\("(\w+)"\)', line).group(1)
                yield name, parts[0].reshape(parts[0].shape[:2]), parts[1].reshape(parts[1].shape[0], -1)


def least_cost(x, f, k):
    """Of at most k clusters of x, each value weighted by f: exact, over sorted distinct values."""
    x, inverse = numpy.unique(x, return_inverse=True)
    f = numpy.bincount(inverse, f)
    s0, s1, s2 = (numpy.concatenate([[0], numpy.cumsum(f * x**p)]) for p in range(3))
    n = len(x)
    begin, end = numpy.meshgrid(numpy.arange(n), numpy.arange(1, n + 1), indexing="ij")
    w, m = s0[end] - s0[begin], s1[end] - s1[begin]
    with numpy.errstate(all="ignore"):
        cost = numpy.where(end > begin, numpy.maximum(s2[end] - s2[begin] - m * m / w, 0), numpy.inf)
    best = cost[0]
    for _ in range(k - 1):
        # best[j]: of values 0 .. j; one cluster more begins at i
        later = (numpy.concatenate([[0], best[:-1]])[:, None] + cost).min(0)
        best = numpy.minimum(best, later)
    return best[-1]


def main():
    checkpoint, package, ids_file = sys.argv[1:4]
    length = int(sys.argv[4]) if len(sys.argv) > 4 else 256
    step = int(sys.argv[5]) if len(sys.argv) > 5 else 8
    ids = torch.tensor([int(n) for n in re.findall(r"\d+", open(ids_file).read())])
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager")
    torch.set_num_threads(1)
    lin = {n: m.weight for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "layers." in n}
    squares = {n: 0 for n in lin}
    for begin in range(0, len(ids), length):
        text = ids[begin : begin + length]
        model.zero_grad(set_to_none=True)
        logits = model(input_ids=text[None], use_cache=False).logits[0]
        torch.nn.functional.cross_entropy(logits[:-1], text[1:], reduction="sum").backward()
        for n, w in lin.items():
            squares[n] = squares[n] + w.grad.double() ** 2
    by_name = {re.sub(r"\W", "_", n.removeprefix("model.")) + "_weight": n for n in lin}
    found = exact = 0.0
    worst, n_groups = 0, 0
    for name, codes, tables in palettes(package):
        if name not in by_name:
            continue
        w = lin[by_name[name]].detach().half().double().numpy()
        f = squares[by_name[name]].numpy()
        group = w.shape[0] // len(tables)
        for i in range(0, len(tables), step):
            rows = slice(i * group, (i + 1) * group)
            here = f[rows] / f[rows].mean() + 1e-6
            cost = (here * (tables[i][codes[rows]] - w[rows]) ** 2).sum()
            least = least_cost(w[rows].ravel(), here.ravel(), tables.shape[1])
            worst, n_groups = max(worst, cost / least), n_groups + 1
            found, exact = found + cost / here.sum(), exact + least / here.sum()
    print(f"{n_groups} groups: weighted squared error by the exact one's: all {found / exact:.6f}, worst {worst:.6f}")
    sys.exit(int(n_groups == 0 or found / exact > 1.001))


if __name__ == "__main__":
    main()
