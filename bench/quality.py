#!/usr/bin/env python3
"""What palettization costs on a small trained checkpoint: width x group x method -> bits per weight, perplexity, KL to
the fp16 package, conversion time. Prints a Markdown table and writes a plot (SVG).

quality.py MILKIT CHECKPOINT EVAL_TEXT SCRATCH SVG"""
import json, os, shutil, subprocess, sys

milkit, checkpoint, text, scratch, svg = sys.argv[1:6]
os.makedirs(scratch, exist_ok=True)


def run(*arguments):
    return subprocess.run([milkit, *arguments], check=True, capture_output=True, text=True).stdout


def convert(name, *options):
    out, report = os.path.join(scratch, name), os.path.join(scratch, name + ".json")
    shutil.rmtree(out, ignore_errors=True)
    run("convert", checkpoint, "-o", out, "-q", "--format", "mlmodelc", "--report", report, *options)
    return out, json.load(open(report))


def evaluate(package, *options):
    return json.loads(run("eval", package, "--text", text, "--tokens", "2000", "--window", "256", "--json", "-q", *options))


base, _ = convert("fp16")
fp16 = evaluate(base)["perplexity"]
rows = []
cases = [(w, g, m) for w in (8, 6, 4, 3, 2, 1) for g in (8, 1, 0) for m in ("kmeans", "exact")]
squared = {}  # (width, group, method) -> squared error of all palettized weights
for width, group, method in cases:
    lut = f"{width},{group}"
    package, report = convert(f"lut{width}g{group}{method}", "--lut-ffn", lut, "--lut-head", lut, "--lut-method", method)
    result = evaluate(package, "--against", base)
    squared[width, group, method] = sum(t["mean_squared_error"] * t["rows"] * t["columns"] for p in report["parts"] for t in p["tensors"])
    parts = [p for p in report["parts"] if "FFN" in p["name"] or "head" in p["name"]]
    weights = sum(p["weights"] for p in parts)
    bits = sum(p["bits_per_weight"] * p["weights"] for p in parts) / weights
    rows.append((width, group, method, bits, result["perplexity"], result["against"]["mean_kl"],
                 result["against"]["top1_agreement"], report["seconds"]))

print(f"fp16: perplexity {fp16:.3f}\n")
print("| bits | channels a table | method | bits per weight | perplexity | change | mean KL | same top-1 | conversion |")
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
for width, group, method, bits, perplexity, kl, top1, seconds in rows:
    print(f"| {width} | {group or 'whole weight'} | {method} | {bits:.2f} | {perplexity:.2f} | {100 * (perplexity / fp16 - 1):+.2f} % "
          f"| {kl:.5f} | {100 * top1:.1f} % | {seconds:.2f} s |")

for width, group, method in squared:
    if method == "exact":
        print(f"\nsquared error at {width} bits, {group} channels a table: kmeans {squared[width, group, 'kmeans']:.6f}, exact {squared[width, group, 'exact']:.6f}, "
              f"ratio {squared[width, group, 'kmeans'] / squared[width, group, 'exact']:.7f}")

# Bits per weight against the loss in nats, on a logarithmic scale.
import math
points = [(bits, max(math.log(p / fp16), 1e-5), g) for _, g, m, bits, p, *_ in rows if m == "kmeans"]
x = lambda bits: 60 + 60 * bits
y = lambda loss: 300 - 55 * (math.log10(loss) + 5)
marks = {8: "#1f77b4", 1: "#2ca02c", 0: "#d62728"}
out = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="360" font-family="sans-serif" font-size="12">',
       '<rect width="640" height="360" fill="white"/>', '<path d="M60 20V300H620" fill="none" stroke="black"/>']
for bits in range(1, 10):
    out.append(f'<text x="{x(bits):.0f}" y="316" text-anchor="middle">{bits}</text>')
for power in range(-5, 1):
    out.append(f'<text x="54" y="{y(10 ** power) + 4:.0f}" text-anchor="end">1e{power}</text>')
for bits, loss, group in points:
    out.append(f'<circle cx="{x(bits):.1f}" cy="{y(loss):.1f}" r="4" fill="{marks[group]}"/>')
for i, (group, name) in enumerate(((8, "8 channels a table"), (1, "1 channel a table"), (0, "one table a weight"))):
    out.append(f'<circle cx="440" cy="{40 + 18 * i}" r="4" fill="{marks[group]}"/><text x="450" y="{44 + 18 * i}">{name}</text>')
out.append('<text x="340" y="340" text-anchor="middle">bits per weight (indices and tables)</text>')
out.append('<text x="70" y="16">loss over fp16, nats per token (values below 1e-5 drawn there)</text></svg>')
open(svg, "w").write("\n".join(out) + "\n")
