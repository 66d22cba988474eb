"""Programs for the rules of src/lint: tests/data/lint/ID.mil, on which a rule fires, and ID.fixed.mil, its twin on which it is silent.

usage: make_lint_cases.py FOLDER
"""
import os
import sys

H = [1, 64, 1, 32]  # the shape of most activations


def dims(d):
    return "[" + ", ".join("?" if x is None else str(x) for x in d) + "]"


def tensor(dtype, d):
    return f"tensor<{dtype}, {dims(d)}>" if d else dtype


def number(dtype, x):
    if dtype.startswith("fp"):
        return str(x) if isinstance(x, str) else float(x).hex()
    return str(x).lower() if dtype == "bool" else str(x)


class Function:
    def __init__(self, name="main", opset="ios18"):
        self.name, self.opset, self.inputs, self.lines, self.n, self.blobs = name, opset, [], [], 0, 64

    def input(self, name, dtype, d, state=False):
        t = tensor(dtype, d)
        self.inputs.append((name, f"state<{t}>" if state else t))
        return name

    def fresh(self, stem):
        self.n += 1
        return f"{stem}_{self.n}"

    def const(self, dtype, d, values, stem="c"):
        name, t = self.fresh(stem), tensor(dtype, d)
        if not d:
            raw = f'{dtype}("{values}")' if dtype == "string" else f"{dtype}({number(dtype, values)})"
        else:
            def rows(shape, at):
                if len(shape) == 1:
                    return "[" + ", ".join(number(dtype, x) for x in at[:shape[0]]) + "]"
                step = len(at) // shape[0]
                return "[" + ", ".join(rows(shape[1:], at[i * step:(i + 1) * step]) for i in range(shape[0])) + "]"
            raw = f"{t}({rows(d, values)})"
        self.lines.append(f'{t} {name} = const()[name = string("{name}"), val = {raw}];')
        return name

    def blob_value(self, dtype, d):
        at, self.blobs = self.blobs, self.blobs + 64
        return f'{tensor(dtype, d)}(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64({at})))'

    def blob(self, dtype, d, stem="w"):
        name = self.fresh(stem)
        self.lines.append(f'{tensor(dtype, d)} {name} = const()[name = string("{name}"), val = {self.blob_value(dtype, d)}];')
        return name

    def op(self, kind, result, **args):
        """result: (dtype, dims), a list of them, or None."""
        results = result if isinstance(result, list) else [result] if result else []
        names = [self.fresh(kind) for _ in results]
        left = ", ".join(f"{tensor(*r)} {n}" for r, n in zip(results, names))
        right = ", ".join(f"{k} = {('(' + ', '.join(v) + ')') if isinstance(v, (list, tuple)) else v}" for k, v in sorted(args.items()))
        label = names[0] if names else self.fresh(kind)
        self.lines.append((left + " = " if left else "") + f'{kind}({right})[name = string("{label}")];')
        return names[0] if len(names) == 1 else names or None

    # what many cases need
    def x(self, d=H, name="x"):
        return self.input(name, "fp16", d)

    def add(self, x, d=H, y=1.0):
        return self.op("add", ("fp16", d), x=x, y=self.const("fp16", [], y))

    def conv(self, x, weight, out, d):
        ones, zeros = self.const("int32", [2], [1, 1]), self.const("int32", [4], [0] * 4)
        return self.op("conv", ("fp16", d), x=x, weight=weight, strides=ones, dilations=ones, pad=zeros,
                       pad_type=self.const("string", [], "valid"), groups=self.const("int32", [], 1))

    def ints(self, values):
        return self.const("int32", [len(values)], values)

    def matmul(self, x, y, d, ty=False):
        return self.op("matmul", ("fp16", d), x=x, y=y, transpose_x=self.const("bool", [], False),
                       transpose_y=self.const("bool", [], ty))

    def text(self, outputs):
        ins = ", ".join(f"{t} {n}" for n, t in sorted(self.inputs))
        body = "\n".join("            " + line for line in self.lines)
        return f"    func {self.name}<{self.opset}>({ins}) {{\n{body}\n        }} -> ({', '.join(outputs)});\n"


def program(*functions):
    return "program(1.3)\n{\n" + "".join(functions) + "}"


CASES = {}


def case(rule):
    def add(make):
        CASES[rule] = make
        return make
    return add


def with_x(body, d=H):
    f = Function()
    return program(f.text([body(f, f.x(d))]))


def binary_axis(n):
    return with_x(lambda f, x: f.add(x, [1, 1, 1, n]), [1, 1, 1, n])


case("ANE001")(lambda bad: binary_axis(70000 if bad else 60000))
case("ANE002")(lambda bad: binary_axis(20000 if bad else 16384))
case("ANE003")(lambda bad: with_x(lambda f, x: f.matmul(x, x, [1, 1, 1, 1], True),
                                  [1, 1, 1, 40000 if bad else 32768]))
case("ANE004")(lambda bad: with_x(lambda f, x: f.add(x, [1] * (5 if bad else 4) + [32]), [1] * (5 if bad else 4) + [32]))
case("ANE005")(lambda bad: with_x(lambda f, x: f.add(x, [1, 64, 1, None if bad else 32]), [1, 64, 1, None if bad else 32]))


@case("ANE006")
def _(bad):
    k = 17 if bad else 15
    return with_x(lambda f, x: f.conv(x, f.blob("fp16", [64, 64, 1, k]), 64, [1, 64, 1, 33 - k]))


def unary(kind, **more):
    return lambda f, x: f.op(kind, ("fp16", H), x=x, **{k: f.const(*v) for k, v in more.items()})


@case("ANE010")
def _(bad):
    def body(f, x):
        if bad:
            return f.op("cumsum", ("fp16", H), x=f.add(x), axis=f.const("int32", [], 3))
        return f.matmul(f.add(x), f.blob("fp16", [32, 32]), H)
    return with_x(body)


@case("ANE011")
def _(bad):
    def body(f, x):
        x = f.add(x)
        if bad:
            y = f.op("cast", ("int32", H), x=x, dtype=f.const("string", [], "int32"))
            y = f.op("add", ("int32", H), x=y, y=f.const("int32", [], 1))
            return f.op("cast", ("fp16", H), x=y, dtype=f.const("string", [], "fp16"))
        return f.op("floor", ("fp16", H), x=x)
    return with_x(body)


@case("ANE012")
def _(bad):
    def body(f, x):
        x = f.add(x)
        table = f.blob("fp16", [8, 64])
        if bad:
            i = f.op("cast", ("int32", H), x=x, dtype=f.const("string", [], "int32"))
            i = f.op("reshape", ("int32", [2048]), x=i, shape=f.ints([2048]))
        else:
            i = f.ints([0, 3])
        return f.op("gather", ("fp16", [2048 if bad else 2, 64]), x=table, indices=i, axis=f.const("int32", [], 0),
                    batch_dims=f.const("int32", [], 0), validate_indices=f.const("bool", [], False))
    return with_x(body)


@case("ANE013")
def _(bad):
    f = Function()
    x = f.add(f.x())
    if bad:
        y = f.op("reduce_argmax", ("int32", [1, 1, 1, 32]), x=x, axis=f.const("int32", [], 1), keep_dims=f.const("bool", [], True))
    else:
        y = f.op("reduce_max", ("fp16", [1, 1, 1, 32]), x=x, axes=f.ints([1]), keep_dims=f.const("bool", [], True))
    return program(f.text([y]))


@case("ANE014")
def _(bad):
    if not bad:
        return with_x(lambda f, x: f.add(x))
    f = Function()
    x = f.x()
    t = f"list<{tensor('fp16', H)}, 4>"
    f.lines.append(f"int32 list_length_1 = list_length(ls = items)[name = string(\"list_length_1\")];")
    f.inputs.append(("items", t))
    return program(f.text([f.add(x)]))


@case("ANE015")
def _(bad):
    f = Function()
    x, at = f.x([1, 8, 64, 32]), f.input("current_pos", "int32", [1])
    if bad:
        at = f.op("mul", ("int32", [1]), x=at, y=f.const("int32", [], 2))
    zero, zeros = f.ints([0]), f.ints([0, 0])
    begin = f.op("concat", ("int32", [4]), values=[zeros, at, zero], axis=f.const("int32", [], 0), interleave=f.const("bool", [], False))
    y = f.op("slice_by_size", ("fp16", [1, 8, 1, 32]), x=f.add(x, [1, 8, 64, 32]), begin=begin, size=f.ints([1, 8, 1, 32]))
    return program(f.text([y]))


@case("ANE016")
def _(bad):
    def body(f, x):
        if bad:
            return f.op("mul", ("fp16", H), x=x, y=f.op("sigmoid", ("fp16", H), x=x))
        t = f.op("tanh", ("fp16", H), x=f.op("mul", ("fp16", H), x=x, y=f.const("fp16", [], 0.5)))
        t = f.op("mul", ("fp16", H), x=t, y=f.const("fp16", [], 0.5))
        return f.op("mul", ("fp16", H), x=x, y=f.add(t, H, 0.5))
    return with_x(body)


case("ANE017")(lambda bad: with_x(unary("gelu", mode=("string", [], "TANH_APPROXIMATION")) if bad else unary("tanh")))


@case("ANE018")
def _(bad):
    def body(f, x):
        x = f.add(x)
        if bad:
            x = f.op("tile", ("fp16", [1, 128, 1, 32]), x=x, reps=f.ints([1, 2, 1, 1]))
        return f.add(x, [1, 128 if bad else 64, 1, 32])
    return with_x(body)


@case("ANE019")
def _(bad):
    def body(f, x):
        x = f.add(x)
        if not bad:
            return f.op("round", ("fp16", H), x=x)
        scale = f.const("fp16", [], 0.5)
        q = f.op("quantize", ("int8", H), input=x, scale=scale, output_dtype=f.const("string", [], "int8"))
        return f.op("dequantize", ("fp16", H), input=q, scale=scale)
    return with_x(body)


@case("ANE020")
def _(bad):
    d = [1, 4, 32, 32]

    def body(f, x):
        if bad:
            return f.op("scaled_dot_product_attention", ("fp16", d), query=x, key=x, value=x)
        p = f.op("softmax", ("fp16", d), x=f.matmul(x, x, d, True), axis=f.const("int32", [], -1))
        return f.matmul(p, x, d)
    return with_x(body, d)


@case("ANE021")
def _(bad):
    if bad:
        return with_x(lambda f, x: f.op("linear", ("fp16", [1, 32, 512]), x=x, weight=f.blob("fp16", [512, 256]),
                                        bias=f.blob("fp16", [512])), [1, 32, 256])
    return with_x(lambda f, x: f.conv(x, f.blob("fp16", [512, 256, 1, 1]), 512, [1, 512, 1, 32]), [1, 256, 1, 32])


def cache(f, name="cache", d=(4, 2, 64, 32)):
    return f.input(name, "fp16", list(d), state=True)


def corner(f, at, first):
    return f.op("concat", ("int32", [4]), values=[f.ints([first, 0]), at, f.ints([0])], axis=f.const("int32", [], 0),
                interleave=f.const("bool", [], False))


def update(f, old, new, begin, end, d):
    return f.op("slice_update", ("fp16", list(d)), x=old, update=new, begin=begin, end=end)


@case("ANE022")
def _(bad):
    d = [4, 2, 64, 32]
    f = Function()
    new, at = f.x([1, 2, 1, 32], "new"), f.input("current_pos", "int32", [1])
    if bad:
        old = f.add(f.x(d, "old"), d)
    else:
        old = f.op("read_state", ("fp16", d), input=cache(f))
    y = update(f, old, new, f.ints([0, 0, 5, 0]), f.ints([1, 2, 6, 32]), d)
    if not bad:
        f.op("write_state", None, input="cache", data=y)
        y = f.op("read_state", ("fp16", d), input="cache")
    return program(f.text([f.add(y, d)]))


@case("ANE023")
def _(bad):
    def body(f, x):
        if not bad:
            return f.op("exp", ("fp16", H), x=x)
        y = f.op("cast", ("fp32", H), x=x, dtype=f.const("string", [], "fp32"))
        y = f.op("exp", ("fp32", H), x=y)
        return f.op("cast", ("fp16", H), x=y, dtype=f.const("string", [], "fp16"))
    return with_x(body)


# ---- weights


def weighted(make):
    """A convolution of 64 channels whose weight make(f) gives."""
    return with_x(lambda f, x: f.conv(x, make(f), 64, H))


def lut(f, bits, groups, entry="fp16", d=(64, 64, 1, 1), vector=1, axes=None):
    axes = axes or [groups] + [1] * (len(d) - 1)
    kw = {"indices": f.blob_value(f"uint{bits}", list(d)), "lut": f.blob_value(entry, axes + [2 ** bits, vector])}
    out = [d[0] * vector] + list(d[1:]) if vector > 1 else list(d)
    if vector > 1:
        kw["vector_axis"] = f.const("int32", [], 0)
    return f.op("constexpr_lut_to_dense", (entry, out), **kw)


def scaled(f, dtype, scale, d=(64, 64, 1, 1)):
    return f.op("constexpr_blockwise_shift_scale", ("fp16", list(d)), data=f.blob_value(dtype, list(d)),
                scale=f.blob_value("fp16", scale))


case("ANE030")(lambda bad: weighted(lambda f: scaled(f, "int4", [64, 2, 1, 1]) if bad else lut(f, 4, 8)))
case("ANE031")(lambda bad: weighted(lambda f: scaled(f, "int8", [64, 1, 1, 1]) if bad else lut(f, 8, 8)))
case("ANE032")(lambda bad: weighted(lambda f: scaled(f, "int4", [64, 1, 1, 1]) if bad else lut(f, 4, 8)))


@case("ANE033")
def _(bad):
    def make(f):
        if not bad:
            return lut(f, 4, 8)
        return f.op("constexpr_blockwise_shift_scale", ("fp16", [64, 64, 1, 1]), data=lut(f, 4, 1, "int8"),
                    scale=f.blob_value("fp16", [64, 1, 1, 1]))
    return weighted(make)


case("ANE034")(lambda bad: weighted(lambda f: lut(f, 4, 64 if bad else 8)))


@case("ANE035")
def _(bad):
    f = Function()
    ids = f.input("input_ids", "int32", [1, 1])
    table = lut(f, 4, 8, d=(512, 64)) if bad else f.blob("fp16", [512, 64])
    return program(f.text([f.op("gather", ("fp16", [1, 1, 64]), x=table, indices=ids, axis=f.const("int32", [], 0),
                                batch_dims=f.const("int32", [], 0), validate_indices=f.const("bool", [], False))]))


case("ANE036")(lambda bad: weighted(lambda f: lut(f, 3 if bad else 4, 8)))


@case("ANE037")
def _(bad):
    n = 4096 if bad else 3072
    return with_x(lambda f, x: f.conv(x, f.blob("fp16", [2048, n, 1, 1]), 2048, [1, 2048, 1, 32]), [1, n, 1, 32])


case("ANE038")(lambda bad: weighted(lambda f: lut(f, 4, 1, d=(32, 64, 1, 1), vector=2) if bad else lut(f, 4, 8)))
case("ANE039")(lambda bad: weighted(lambda f: lut(f, 4, 8, axes=[8, 4, 1, 1]) if bad else lut(f, 4, 8)))


# ---- states


@case("ANE040")
def _(bad):
    d = [1, 96, 64, 3] if bad else [1, 3, 96, 64]
    f = Function()
    y = f.op("read_state", ("fp16", d), input=cache(f, d=d))
    return program(f.text([f.add(y, d)]))


@case("ANE041")
def _(bad):
    f = Function()
    x = f.x([4, 2, 64, 32])
    cache(f)
    y = f.add(x, [4, 2, 64, 32])
    if not bad:
        y = f.op("add", ("fp16", [4, 2, 64, 32]), x=y, y=f.op("read_state", ("fp16", [4, 2, 64, 32]), input="cache"))
    return program(f.text([y]))


@case("ANE042")
def _(bad):
    f, d = Function(), [4, 2, 64, 32]
    y = f.x(d)
    for name in ("a", "b", "c") if bad else ("a", "b"):
        y = f.op("add", ("fp16", d), x=y, y=f.op("read_state", ("fp16", d), input=cache(f, name, d)))
    return program(f.text([y]))


@case("ANE043")
def _(bad):
    d = [1, 2, 128, 32]
    f = Function()
    new = f.x([1, 2, 1, 32], "new")
    old = f.op("read_state", ("fp16", d), input=cache(f, d=d))
    if bad:
        rest = f.op("slice_by_index", ("fp16", [1, 2, 127, 32]), x=old, begin=f.ints([0, 0, 1, 0]), end=f.ints([1, 2, 128, 32]))
        y = f.op("concat", ("fp16", d), values=[rest, new], axis=f.const("int32", [], 2), interleave=f.const("bool", [], False))
    else:
        at = f.input("current_pos", "int32", [1])
        end = f.op("add", ("int32", [1]), x=at, y=f.const("int32", [], 1))
        stop = f.op("concat", ("int32", [4]), values=[f.ints([1, 2]), end, f.ints([32])], axis=f.const("int32", [], 0),
                    interleave=f.const("bool", [], False))
        y = update(f, old, new, corner(f, at, 0), stop, d)
    f.op("write_state", None, input="cache", data=y)
    return program(f.text([f.op("read_state", ("fp16", d), input="cache")]))


@case("ANE044")
def _(bad):
    d = [2, 1, 128, 32]
    f = Function()
    k, v = f.x([1, 1, 1, 32], "k"), f.x([1, 1, 1, 32], "v")
    old = f.op("read_state", ("fp16", d), input=cache(f, d=d))
    if bad:
        y = update(f, old, k, f.ints([0, 0, 5, 0]), f.ints([1, 1, 6, 32]), d)
        f.op("write_state", None, input="cache", data=y)
        old = f.op("read_state", ("fp16", d), input="cache")
        y = update(f, old, v, f.ints([1, 0, 5, 0]), f.ints([2, 1, 6, 32]), d)
    else:
        kv = f.op("concat", ("fp16", [2, 1, 1, 32]), values=[k, v], axis=f.const("int32", [], 0), interleave=f.const("bool", [], False))
        y = update(f, old, kv, f.ints([0, 0, 5, 0]), f.ints([2, 1, 6, 32]), d)
    f.op("write_state", None, input="cache", data=y)
    return program(f.text([f.op("read_state", ("fp16", d), input="cache")]))


@case("ANE045")
def _(bad):
    texts = []
    for name, t in (("infer", 1), ("prefill", 64)) if bad else (("prefill", 64),):
        f = Function(name)
        y = f.x([1, t, 64], "hidden_states")
        for state in ("a", "b"):
            y = f.op("add", ("fp16", [1, t, 64]), x=y, y=f.op("read_state", ("fp16", [1, 1, 64]), input=cache(f, state, [1, 1, 64])))
        texts.append(f.text([y]))
    return program(*texts)


@case("ANE046")
def _(bad):
    d = [1, 2, 128, 32]
    f = Function()
    new = f.x([1, 2, 1, 32], "new")
    old = f.x(d, "old") if bad else f.op("read_state", ("fp16", d), input=cache(f, d=d))
    y = update(f, old, new, f.ints([0, 0, 5, 0]), f.ints([1, 2, 6, 32]), d)
    if not bad:
        f.op("write_state", None, input="cache", data=y)
        y = f.op("read_state", ("fp16", d), input="cache")
    return program(f.text([y]))


# ---- memory


@case("ANE050")
def _(bad):
    n = 40000 if bad else 4000
    return with_x(lambda f, x: f.conv(x, f.blob("fp16", [n, 30000, 1, 1]), n, [1, n, 1, 32]), [1, 30000, 1, 32])


@case("ANE051")
def _(bad):
    texts = []
    for name, t in (("infer", 1), ("prefill", 64)) if bad else (("infer", 1),):
        f = Function(name)
        texts.append(f.text([f.conv(f.x([1, 1024, 1, t]), f.blob("fp16", [1024, 1024, 1, 1]), 1024, [1, 1024, 1, t])]))
    return program(*texts)


@case("ANE052")
def _(bad):
    def body(f, x):
        ones, zeros = f.const("int32", [2], [1, 1]), f.const("int32", [4], [0] * 4)
        valid, one, w = f.const("string", [], "valid"), f.const("int32", [], 1), f.blob("fp16", [64, 64, 1, 1])
        for _ in range(381 if bad else 380):
            x = f.op("conv", ("fp16", H), x=x, weight=w, strides=ones, dilations=ones, pad=zeros, pad_type=valid, groups=one)
        return x
    return with_x(body)


@case("ANE053")
def _(bad):
    f, n = Function(), 256 if bad else 8192
    d = [1, 256, 1, 32]
    y = f.op("add", ("fp16", d), x=f.x(d), y=f.op("read_state", ("fp16", d), input=cache(f, d=d)))
    return program(f.text([f.conv(y, f.blob("fp16", [n, 256 if bad else 256, 4, 1]), n, [1, n, 1, 32])] if bad else
                          [f.conv(y, f.blob("fp16", [n, 256, 1, 9]), n, [1, n, 1, 24])]))


# ---- numbers


def product(values, n=4):
    """A product with a small constant, after an addition."""
    return with_x(lambda f, x: f.matmul(f.add(x, [1, 1, 32, n]), f.const("fp16", [n, len(values) // n], values),
                                        [1, 1, 32, len(values) // n]), [1, 1, 32, n])


case("ANE060")(lambda bad: product([(1e-5 if bad else 1e-2) * (i + 1) / 4 for i in range(8)]))
case("ANE062")(lambda bad: product(["-inf" if bad and i > 5 else 0.25 for i in range(8)]))


@case("ANE061")
def _(bad):
    def body(f, x):
        x = f.op("tanh", ("fp16", H), x=x)
        return f.conv(x, f.const("fp16", [1, 64, 1, 1], [(1000.0 if bad else 100.0)] * 64), 1, [1, 1, 1, 32])
    return with_x(body)


@case("ANE064")
def _(bad):
    n = 2048

    def body(f, x):
        p = f.op("softmax", ("fp16", [1, 2, 1, n]), x=x, axis=f.const("int32", [], -1))
        if not bad:
            p = f.op("mul", ("fp16", [1, 2, 1, n]), x=p, y=f.const("fp16", [], 64.0))
        y = f.matmul(p, f.x([1, 2, n, 32], "v"), [1, 2, 1, 32])
        return y if bad else f.op("mul", ("fp16", [1, 2, 1, 32]), x=y, y=f.const("fp16", [], 1 / 64))
    return with_x(body, [1, 2, 1, n])


@case("ANE065")
def _(bad):
    def body(f, x):
        d = [1, 32, 64]
        if bad:
            m = f.op("reduce_mean", ("fp16", [1, 32, 1]), x=f.op("mul", ("fp16", d), x=x, y=x), axes=f.ints([-1]), keep_dims=f.const("bool", [], True))
            r = f.op("rsqrt", ("fp16", [1, 32, 1]), x=m, epsilon=f.const("fp16", [], 2 ** -14))
            return f.op("mul", ("fp16", d), x=x, y=r)
        n = f.op("mul", ("fp16", d), x=x, y=f.const("fp16", [], -1.0))
        c = f.op("concat", ("fp16", [1, 32, 128]), values=[x, n], axis=f.const("int32", [], -1), interleave=f.const("bool", [], False))
        c = f.op("layer_norm", ("fp16", [1, 32, 128]), x=c, axes=f.ints([-1]), epsilon=f.const("fp16", [], 2 ** -14))
        return f.op("slice_by_index", ("fp16", d), x=c, begin=f.ints([0, 0, 0]), end=f.ints([1, 32, 64]))
    return with_x(body, [1, 32, 64])


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for rule, make in sorted(CASES.items()):
        for suffix, bad in (("", True), (".fixed", False)):
            with open(os.path.join(folder, rule + suffix + ".mil"), "w") as f:
                f.write(make(bad))


main(sys.argv[1])
