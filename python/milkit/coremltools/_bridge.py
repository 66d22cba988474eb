"""What coremltools keeps in its native module, on top of milkit: a model that predicts, its states, and the compiler.

The rules for arguments and results are those of coremltools 9 on macOS: which Python values are taken, that fp16 comes back as
float32, and that everything the framework itself would refuse is a RuntimeError."""

import os
import shutil
import tempfile
import time

import numpy as np

from .. import Error
from ..model import Function, Model, compile_model

_ARRAY_TYPES = (np.int8, np.int32, np.float32, np.float64)


def _as_feature(name, value, port):
    """The value as an array of the declared type and rank."""
    if port is not None and port.color:
        return _pixels(name, value, port)
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if isinstance(value, (int, np.integer)) or isinstance(value, (float, np.floating)):
        array = np.asarray([value], np.int32 if isinstance(value, (int, np.integer)) else np.float64)
    elif isinstance(value, np.ndarray) and value.dtype in _ARRAY_TYPES:
        array = value
    else:
        print("Error: value type not convertible:")
        print(value)
        raise RuntimeError("value type not convertible")
    if port is None or port.dtype is None:
        return array
    if array.ndim == 0:
        array = array.reshape(1)
    if len(port.shape) == 0 and array.size == 1:
        array = array.reshape(())
    wanted = np.dtype(port.dtype)
    if wanted == np.bool_:
        return array != 0
    if wanted.kind in "iu" and array.dtype.kind == "f":
        return np.trunc(array).astype(wanted)
    return array


_MODES = {"RGB": ("RGB", "RGBA"), "BGR": ("RGB", "RGBA"), "gray": ("L",), "gray fp16": ("F",)}


def _pixels(name, value, port):
    """A PIL image as an array."""
    if getattr(value, "mode", None) not in _MODES[port.color]:
        raise RuntimeError(f"input {name} must be a PIL image of the mode {_MODES[port.color][0]}")
    return np.asarray(value)


def _as_image(pixels, color):
    """As the framework hands images out: RGBA, L or F."""
    from PIL import Image

    if color == "gray fp16":
        return Image.fromarray(pixels.astype(np.float32), "F")
    image = Image.fromarray(pixels)
    return image.convert("RGBA") if image.mode == "RGB" else image


def _as_result(array, port):
    """An output as the framework hands it out: fp16 as float32, narrow integers as int32 but int8, no rank 0; labels as they are."""
    if port.is_label or port.is_scores:
        return array
    if port.color:
        return _as_image(array, port.color)
    return _as_array(array)


def _as_array(array):
    if array.ndim == 0:
        array = array.reshape(1)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype in _ARRAY_TYPES:
        return array
    return array.astype(np.int32)


class State:
    """What MLState wraps. Its printed form names the states."""

    def __init__(self, function):
        self._state = function.state()
        self._names = [p.name for p in function.states]

    def _known(self, name):
        if name not in self._names:
            raise RuntimeError(f"the model has no state named {name}; it has {', '.join(self._names) or 'none'}")

    def read_state(self, name):
        self._known(name)
        return _as_array(self._state.read(name))

    def write_state(self, name, value):
        self._known(name)
        if not isinstance(value, np.ndarray) or value.dtype not in _ARRAY_TYPES:
            raise RuntimeError("value type not convertible")
        try:
            self._state.write(name, value)
        except Error as error:
            raise RuntimeError(str(error)) from None

    def __repr__(self):
        return f"<milkit state: {', '.join(self._names)}>"


class ModelProxy:
    """One loaded function. Compute units and hints are labels here: nothing but the processor computes."""

    def __init__(self, path, compute_units="ALL", function_name="", hints=None, asset=None):
        begin = time.perf_counter_ns()
        self._path = path
        self._compiled = None
        self._last = None
        try:
            self._model = Model(path)
            self._function = Function(self._model, function_name or None)
        except Error as error:
            raise RuntimeError(f'Error compiling model: "{error}"') from None
        self._inputs = {p.name: p for p in self._function.inputs}
        self._load = time.perf_counter_ns() - begin

    def predict(self, data, state=None):
        arrays = {}
        for name, value in data.items():
            if name not in self._inputs:
                raise RuntimeError(
                    f"the model has no input {name}; it has {', '.join(self._inputs) or 'none'}"
                )
            arrays[name] = _as_feature(name, value, self._inputs[name])
        begin = time.perf_counter_ns()
        try:
            out = self._function.predict(arrays, state._state if state is not None else None)
        except (Error, TypeError, ValueError) as error:
            raise RuntimeError(f"Unable to compute the prediction using ML Program: {error}") from None
        self._last = time.perf_counter_ns() - begin
        return {p.name: _as_result(out[p.name], p) for p in self._function.outputs}

    def batchPredict(self, batch):
        return [self.predict(data) for data in batch]

    def newState(self):
        try:
            return State(self._function)
        except Error as error:
            raise RuntimeError(str(error)) from None

    def get_compiled_model_path(self):
        if str(self._path).rstrip("/").endswith(".mlmodelc"):
            return self._path
        if self._compiled is None:
            self._compiled = compile_to_folder(self._path)
        return self._compiled

    def get_load_duration_in_nano_seconds(self):
        return self._load

    def get_last_predict_duration_in_nano_seconds(self):
        return self._last

    @staticmethod
    def maximum_supported_specification_version():
        return 10

    @staticmethod
    def auto_set_specification_version(data):
        return data

    @staticmethod
    def compileModel(path):
        return compile_to_folder(path)

    @staticmethod
    def _refused(*_):
        raise RuntimeError("milkit does not know this call: plans, structures and devices are the framework's own")

    create_model_asset_from_path = create_model_asset_from_memory = _refused
    get_model_structure = get_available_compute_devices = get_all_compute_devices = get_compute_plan = _refused


def compile_to_folder(path):
    """A new .mlmodelc in a folder of its own under the temporary one, which the caller owns, as coremltools' is."""
    folder = tempfile.mkdtemp(prefix="milkit-")
    name = os.path.splitext(os.path.basename(str(path).rstrip("/")))[0] + ".mlmodelc"
    output = os.path.join(folder, name)
    try:
        compile_model(path, output)
    except Error as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RuntimeError(f'Error compiling model: "{error}"') from None
    return output
