"""Single Core ML models: functions, ports, states, predictions, with numpy arrays in and out."""

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_void_p
import json

import numpy as np

from ._library import RANK_MAX, Handle, ModelOptions, Port, Tensor, default, lib, new, path_bytes, take_text

PRECISIONS = {"default": 0, "fp32": 1, "fp16": 2}

_TO_NUMPY = {
    1: np.float32,
    2: np.float16,
    3: np.float64,
    4: np.int32,
    5: np.int16,
    6: np.int8,
    7: np.uint8,
    8: np.bool_,
}
_FROM_NUMPY = {np.dtype(v): k for k, v in _TO_NUMPY.items()}
_INPUTS, _OUTPUTS, _STATES = 0, 1, 2
_TEXT, _I64, _SCORES = 9, 10, 11
COLORS = (None, "gray", "RGB", "BGR", "gray fp16")


def numpy_type(number):
    """The numpy type of a tensor's `type`; None: a port that is not a tensor."""
    return _TO_NUMPY.get(number)


class PortInfo:
    """name, dtype (numpy's; None: not a tensor) and shape (-1: known by running) of an input, output or state; color ("RGB", ..) of an image;
    is_optional: an input with a default; is_label, is_scores: what a classifier gives."""

    def __init__(self, port):
        self.name = port.name.decode()
        self.dtype = numpy_type(port.type)
        self.shape = tuple(port.dims[: port.rank])
        self.color = COLORS[port.color]
        self.is_optional = port.is_optional
        self.is_label = port.type in (_TEXT, _I64)
        self.is_scores = port.type == _SCORES

    def __repr__(self):
        kind = np.dtype(self.dtype).name if self.dtype else "not a tensor"
        return f"{self.name}: {kind} {list(self.shape)}"


def _tensor(array):
    """The array as the library sees it: nothing is copied, strides are kept. The caller keeps the array alive."""
    number = _FROM_NUMPY.get(array.dtype)
    if number is None:
        raise TypeError(f"arrays of {array.dtype} are not supported")
    if array.ndim > RANK_MAX:
        raise ValueError(f"{array.ndim} dimensions, the most is {RANK_MAX}")
    t = new(Tensor, type=number, rank=array.ndim, data=array.ctypes.data)
    for i, (n, stride) in enumerate(zip(array.shape, array.strides)):
        t.dims[i] = n
        t.strides[i] = stride
    return t


def _as_input(value):
    """What a caller gave as an array that the library can take: 64-bit integers have a narrower type, lists have none."""
    array = np.asarray(value)
    if array.dtype == np.int64 or array.dtype == np.uint32 or array.dtype == np.uint64 or array.dtype == np.uint16:
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise ValueError("an integer does not fit into 32 bits")
        array = narrow
    if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.size and any(n > 1 and s % array.itemsize for n, s in zip(array.shape, array.strides)):
        array = np.ascontiguousarray(array)
    return array


def _array_of(t):
    """A copy of a dense tensor, writable and owned by numpy."""
    shape = tuple(t.dims[: t.rank])
    dtype = np.dtype(_TO_NUMPY[t.type])
    n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    out = np.empty(shape, dtype)
    if n:
        ctypes.memmove(out.ctypes.data, t.data, n)
    return out


def _labels_of(t):
    """The labels of a tensor of them, a list."""
    n = t.dims[0] if t.rank else 1
    kind = c_char_p if t.type == _TEXT else ctypes.c_int64
    values = ctypes.cast(t.data, ctypes.POINTER(kind))
    return [values[i].decode("utf-8", "replace") if t.type == _TEXT else values[i] for i in range(n)]


def _output_of(result, i, t, port):
    """Output i as Python has it: an array, the pixels of an image, a label, or numbers by label."""
    if port.is_label:
        return _labels_of(t)[0]
    if port.is_scores:
        labels = new(Tensor)
        lib.mk_result_labels(result, i, byref(labels))
        return dict(zip(_labels_of(labels), _array_of(t).tolist()))
    if port.color:
        pixels = new(Tensor)
        lib.mk_result_pixels(result, i, byref(pixels))
        return _array_of(pixels)
    return _array_of(t)


class State(Handle):
    """What a model keeps between calls, zeros at first. One call at a time; any function with the same states may use it."""

    _close = "mk_state_free"

    def __init__(self, function):
        self._function = function
        out = c_void_p()
        lib.mk_state_new(byref(out), function.value)
        super().__init__(out)

    def names(self):
        return [p.name for p in self._function.states]

    def read(self, name):
        """A copy, in the declared type."""
        t = new(Tensor)
        lib.mk_state_read(self.value, name.encode(), byref(t))
        array = np.zeros(tuple(t.dims[: t.rank]), _TO_NUMPY[t.type])
        t = _tensor(array)
        lib.mk_state_read(self.value, name.encode(), byref(t))
        return array

    def write(self, name, value):
        """value: an array of the state's shape; its numbers are converted to the declared type."""
        array = _as_input(value)
        lib.mk_state_write(self.value, name.encode(), byref(_tensor(array)))

    def __repr__(self):
        return f"State({', '.join(self.names())})"


class Function(Handle):
    """One function of a model. Several threads may call it at once, each with its own state."""

    _close = "mk_function_close"

    def __init__(self, model, name=None):
        out = c_void_p()
        lib.mk_function_open(byref(out), model.value, name.encode() if name is not None else None)
        super().__init__(out)
        self.inputs = self._ports(_INPUTS)
        self.outputs = self._ports(_OUTPUTS)
        self.states = self._ports(_STATES)

    def _ports(self, kind):
        ports = []
        for i in range(lib.mk_function_ports(self.value, kind)):
            port = new(Port)
            lib.mk_function_port(self.value, kind, i, byref(port))
            ports.append(PortInfo(port))
        return ports

    def state(self):
        return State(self)

    def predict(self, inputs, state=None):
        """inputs: a dict of arrays (or what numpy makes arrays of) by name; images as pixels [height, width, 3] or [height, width], or as PIL
        has them. Returns a dict of arrays in the declared types, of uint8 pixels for images, of the label and a dict for classifiers."""
        arrays = {name: _as_input(value) for name, value in inputs.items()}
        n = len(arrays)
        names = (c_char_p * (n or 1))(*[name.encode() for name in arrays])
        tensors = (Tensor * (n or 1))()
        for i, (name, array) in enumerate(arrays.items()):
            try:
                tensors[i] = _tensor(array)
            except (TypeError, ValueError) as error:
                raise type(error)(f"input {name}: {error}") from None
        result = c_void_p()
        lib.mk_predict(self.value, names, tensors, n, state.value if state is not None else None, None, byref(result))
        try:
            out = {}
            for i in range(lib.mk_result_count(result)):
                name, t = c_char_p(), new(Tensor)
                lib.mk_result_get(result, i, byref(name), byref(t))
                out[name.value.decode()] = _output_of(result, i, t, self.outputs[i])
            return out
        finally:
            lib.mk_result_free(result)


class Model(Handle):
    """One .mlpackage, .mlmodelc or .mlmodel.

    precision: "default" (float32 inside of fused steps), "fp32" (op by op in float32) or "fp16" (each result rounded to fp16)."""

    _close = "mk_model_close"

    def __init__(self, path, precision="default", library=None):
        self._library = library or default()
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        out = c_void_p()
        options = new(ModelOptions, precision=PRECISIONS[precision])
        lib.mk_model_open(byref(out), self._library.value, path_bytes(path), byref(options))
        super().__init__(out)
        self.path = path

    @property
    def functions(self):
        """The names of all functions."""
        n = lib.mk_model_functions(self.value)
        return [lib.mk_model_function_name(self.value, i).decode() for i in range(n)]

    def function(self, name=None):
        """A function by name; None: the default one."""
        return Function(self, name)

    def predict(self, inputs, state=None):
        """Of the default function, which is opened once."""
        if not hasattr(self, "_function"):
            self._function = Function(self)
        return self._function.predict(inputs, state)

    def state(self):
        if not hasattr(self, "_function"):
            self._function = Function(self)
        return self._function.state()


def inspect(path, library=None):
    """What is in a file or folder of any kind that milkit reads, as `milkit inspect --json` prints it."""
    out = c_void_p()
    lib.mk_inspect((library or default()).value, path_bytes(path), byref(out))
    return json.loads(take_text(out))


def compile_model(package, output, force=False, library=None):
    """A .mlpackage as a .mlmodelc."""
    options = b'{"force": true}' if force else None
    lib.mk_compile((library or default()).value, path_bytes(package), path_bytes(output), options)
