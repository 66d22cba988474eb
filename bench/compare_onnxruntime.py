"""A MobileNet-like network and a small transformer encoder, the same graph and weights in Core ML and in ONNX, run by milkit and by onnxruntime.

    python3 -m venv venv && venv/bin/pip install coremltools==9.0 "numpy<2" onnx onnxruntime
    MILKIT_LIBRARY=build/release/libmilkit.so.0 PYTHONPATH=python venv/bin/python bench/compare_onnxruntime.py [FOLDER] [THREADS] [ROUNDS]

The two take turns; a line has the fastest and the median time of each, the ratio of the fastest ones, and how far the results are apart. FOLDER keeps
the models, which are made when they are not there. A last line has 1 and 8 Python threads that predict on one model.
"""

import os
import statistics
import sys
import threading
import time

import numpy as np

folder = sys.argv[1] if len(sys.argv) > 1 else "bench-onnx"
threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
os.makedirs(folder, exist_ok=True)
rng = np.random.default_rng(1)


class Both:
    """One graph in two forms: each call adds an operation to the ONNX graph and gives a value of the MIL one."""

    def __init__(self, shape):
        from onnx import TensorProto, helper

        self.nodes, self.weights, self.n, self.helper = [], [], 0, helper
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def weight(self, value):
        from onnx import numpy_helper

        self.n += 1
        self.weights.append(numpy_helper.from_array(value, f"w{self.n}"))
        return f"w{self.n}"

    def node(self, kind, *inputs, **attributes):
        self.n += 1
        name = f"n{self.n}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def random(*shape):
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def mobilenet(mb, b, x, o):
    """Thirteen blocks of a depthwise and a pointwise convolution, as MobileNet has them."""

    def conv(x, o, n_in, n_out, kernel, stride, groups):
        w, bias = random(n_out, n_in // groups, kernel, kernel), random(n_out, 1)[:, 0] * np.float32(0.1)
        pad = kernel // 2
        x = mb.conv(x=x, weight=w, bias=bias, strides=[stride] * 2, pad_type="custom", pad=[pad] * 4, groups=groups)
        o = b.node("Conv", o, b.weight(w), b.weight(bias), strides=[stride] * 2, pads=[pad] * 4, group=groups, kernel_shape=[kernel] * 2)
        return mb.clip(x=x, alpha=0.0, beta=6.0), b.node("Clip", o, b.weight(np.float32(0)), b.weight(np.float32(6)))

    x, o = conv(x, o, 3, 32, 3, 2, 1)
    n = 32
    for n_out, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]:
        x, o = conv(x, o, n, n, 3, stride, n)
        x, o = conv(x, o, n, n_out, 1, 1, 1)
        n = n_out
    x, o = mb.reduce_mean(x=x, axes=[2, 3], keep_dims=False), b.node("GlobalAveragePool", o)
    o = b.node("Flatten", o)
    w, bias = random(1000, n), random(1000, 1)[:, 0]
    return mb.linear(x=x, weight=w, bias=bias), b.node("Gemm", o, b.weight(w), b.weight(bias), transB=1)


def encoder(mb, b, x, o, n=384, heads=6, layers=4, length=128):
    """Pre-norm layers of attention and a feed-forward network with GELU."""

    def linear(x, o, n_in, n_out):
        w, bias = random(n_out, n_in), random(n_out, 1)[:, 0] * np.float32(0.1)
        y = b.node("MatMul", o, b.weight(np.ascontiguousarray(w.T)))
        return mb.linear(x=x, weight=w, bias=bias), b.node("Add", y, b.weight(bias))

    def norm(x, o):
        g, be = 1 + random(n, 1)[:, 0] * np.float32(0.1), random(n, 1)[:, 0] * np.float32(0.1)
        return (mb.layer_norm(x=x, axes=[-1], gamma=g, beta=be, epsilon=1e-5),
                b.node("LayerNormalization", o, b.weight(g), b.weight(be), axis=-1, epsilon=1e-5))

    def heads_of(x, o):
        shape = [1, length, heads, n // heads]
        x = mb.transpose(x=mb.reshape(x=x, shape=shape), perm=[0, 2, 1, 3])
        return x, b.node("Transpose", b.node("Reshape", o, b.weight(np.array(shape, np.int64))), perm=[0, 2, 1, 3])

    for _ in range(layers):
        h, p = norm(x, o)
        (q, qo), (k, ko), (v, vo) = [heads_of(*linear(h, p, n, n)) for _ in range(3)]
        scale = np.float32((n // heads) ** -0.5)
        s = mb.softmax(x=mb.mul(x=mb.matmul(x=q, y=k, transpose_y=True), y=scale), axis=-1)
        kt = b.node("Transpose", ko, perm=[0, 1, 3, 2])
        so = b.node("Softmax", b.node("Mul", b.node("MatMul", qo, kt), b.weight(scale)), axis=-1)
        a = mb.reshape(x=mb.transpose(x=mb.matmul(x=s, y=v), perm=[0, 2, 1, 3]), shape=[1, length, n])
        ao = b.node("Reshape", b.node("Transpose", b.node("MatMul", so, vo), perm=[0, 2, 1, 3]), b.weight(np.array([1, length, n], np.int64)))
        y, yo = linear(a, ao, n, n)
        x, o = mb.add(x=x, y=y), b.node("Add", o, yo)
        h, p = norm(x, o)
        h, p = linear(h, p, n, 4 * n)
        g = b.node("Erf", b.node("Mul", p, b.weight(np.float32(2**-0.5))))
        p = b.node("Mul", b.node("Mul", p, b.weight(np.float32(0.5))), b.node("Add", g, b.weight(np.float32(1))))
        h, p = linear(mb.gelu(x=h, mode="EXACT"), p, 4 * n, n)
        x, o = mb.add(x=x, y=h), b.node("Add", o, p)
    return x, o


MODELS = {"mobilenet": (mobilenet, (1, 3, 224, 224)), "encoder": (encoder, (1, 128, 384))}


def make(name):
    import coremltools as ct
    import onnx
    from coremltools.converters.mil import Builder as mb

    build, shape = MODELS[name]
    b, outputs = Both(shape), []

    @mb.program(input_specs=[mb.TensorSpec(shape=shape)], opset_version=ct.target.iOS16)
    def program(x):
        y, o = build(mb, b, x, "x")
        outputs.append(o)
        return mb.identity(x=y, name="y")

    model = ct.convert(program, source="milinternal", convert_to="mlprogram", compute_precision=ct.precision.FLOAT32,
                       minimum_deployment_target=ct.target.iOS16, skip_model_load=True)
    model.save(os.path.join(folder, name + ".mlpackage"))
    h = b.helper
    output = h.make_tensor_value_info(outputs[0], onnx.TensorProto.FLOAT, None)
    graph = h.make_graph(b.nodes, name, [b.input], [output], b.weights)
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, os.path.join(folder, name + ".onnx"))


def timed(call):
    time.sleep(0.02)  # workers of the other that still look for work
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


for name, (_, shape) in MODELS.items():
    if not os.path.exists(os.path.join(folder, name + ".onnx")):
        make(name)

if rounds > 0:
    import onnxruntime as ort

    import milkit

    library = milkit.Library(threads=threads)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    print(f"{threads} threads, {rounds} turns, onnxruntime {ort.__version__}, milkit {milkit.version()}")
    for name, (_, shape) in MODELS.items():
        theirs = ort.InferenceSession(os.path.join(folder, name + ".onnx"), options, providers=["CPUExecutionProvider"])
        ours = milkit.Model(os.path.join(folder, name + ".mlpackage"), library=library).function()
        x = rng.standard_normal(shape).astype(np.float32)
        a, b = ours.predict({"x": x})["y"], theirs.run(None, {"x": x})[0]
        apart = np.abs(a - b).max() / np.abs(b).max()
        times = [[], []]
        for _ in range(rounds):
            times[0].append(timed(lambda: ours.predict({"x": x})))
            times[1].append(timed(lambda: theirs.run(None, {"x": x})))
        best, median = [min(t) for t in times], [statistics.median(t) for t in times]
        print(f"{name}: milkit {best[0]:.2f} ms (median {median[0]:.2f}), onnxruntime {best[1]:.2f} ms ({median[1]:.2f}), "
              f"ratio {best[0] / best[1]:.2f}, results {apart:.1e} apart")

        # Of one thread each, the processor time that the calling thread takes: a busy machine changes it little.
        options.intra_op_num_threads = 1
        theirs = ort.InferenceSession(os.path.join(folder, name + ".onnx"), options, providers=["CPUExecutionProvider"])
        options.intra_op_num_threads = threads
        alone = milkit.Model(os.path.join(folder, name + ".mlpackage"), library=milkit.Library(threads=1)).function()
        best = [1e9, 1e9]
        for _ in range(rounds):
            for i, call in enumerate((lambda: alone.predict({"x": x}), lambda: theirs.run(None, {"x": x}))):
                begin = time.thread_time()
                call()
                best[i] = min(best[i], (time.thread_time() - begin) * 1e3)
        print(f"{name}: processor time of one thread, milkit {best[0]:.2f} ms, onnxruntime {best[1]:.2f} ms, ratio {best[0] / best[1]:.2f}")

        def work(n):
            for _ in range(n):
                results.append(np.array_equal(ours.predict({"x": x})["y"], a))

        sums, results = [], []
        for n_threads in (1, 8):
            workers = [threading.Thread(target=work, args=(16 // n_threads,)) for _ in range(n_threads)]
            sums.append(timed(lambda: ([w.start() for w in workers], [w.join() for w in workers])))
        print(f"{name}: 16 predictions by 1 Python thread {sums[0]:.1f} ms, by 8 {sums[1]:.1f} ms; same bits: {all(results)}")
