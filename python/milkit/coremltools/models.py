"""MLModel, CompiledMLModel, MLState and ComputeUnit, as far as predicting goes, without coremltools."""

import enum
import os
import warnings
from types import SimpleNamespace

import numpy as np

from .. import Error, inspect
from ._bridge import ModelProxy


class ComputeUnit(enum.Enum):
    """A label: only the processor computes here."""

    ALL = 1
    CPU_AND_GPU = 2
    CPU_ONLY = 3
    CPU_AND_NE = 4


class MLState:
    def __init__(self, proxy):
        self.__proxy__ = proxy

    def read_state(self, name):
        """A float32 copy of an fp16 state; else in its own type."""
        return self.__proxy__.read_state(name)

    def write_state(self, name, value):
        self.__proxy__.write_state(name, value)

    def __repr__(self):
        return repr(self.__proxy__)


def _expanded(path):
    return os.path.expanduser(os.path.expandvars(path))


def _checked_units(units):
    if not isinstance(units, ComputeUnit):
        raise TypeError('"compute_units" parameter must be of type: milkit.coremltools.ComputeUnit')
    return units


def _proxy_state(state):
    return None if state is None else state.__proxy__


def _predictions(proxy, data, state):
    if type(data) is not dict and type(data) is not list:
        raise TypeError(f'"data" parameter must be a dictionary or a list of dictionaries, not {type(data)}')
    if type(data) is list:
        for d in data:
            if type(d) is not dict:
                raise TypeError(f'"data" list must contain only dictionaries, not {type(d)}')
        assert state is None, "state can only be used with unbatched data"
        return proxy.batchPredict(data)
    return proxy.predict(data, _proxy_state(state))


def _narrowed(data):
    """fp16 arrays become float32, in place, as coremltools does."""
    for d in data if type(data) is list else [data]:
        if type(d) is dict:
            for name, value in d.items():
                if isinstance(value, np.ndarray) and value.dtype == np.float16:
                    d[name] = value.astype(np.float32)


def _feature(port):
    return SimpleNamespace(
        name=port["name"],
        type=SimpleNamespace(multiArrayType=SimpleNamespace(shape=list(port.get("shape") or []), dataType=port.get("dtype"))),
    )


def _function_spec(function):
    return SimpleNamespace(
        name=function["name"],
        input=[_feature(p) for p in function["inputs"]],
        output=[_feature(p) for p in function["outputs"]],
        state=[_feature(p) for p in function["states"]],
    )


class _Spec(SimpleNamespace):
    """The part of a specification that scripts look at: description.input/output/state/functions, mlProgram.functions."""

    def WhichOneof(self, _):
        return "mlProgram"


def _spec_of(report):
    functions = [_function_spec(f) for f in report["functions"]]
    name = report.get("default_function") or functions[0].name
    default = next(f for f in functions if f.name == name)
    is_multi = len(functions) > 1
    description = SimpleNamespace(
        input=[] if is_multi else default.input,
        output=[] if is_multi else default.output,
        state=[] if is_multi else default.state,
        functions=functions if is_multi else [],
        defaultFunctionName=name if is_multi else "",
        metadata=SimpleNamespace(userDefined=dict(report.get("metadata", {}).get("user_defined", {}))),
    )
    return _Spec(
        specificationVersion=report.get("specification_version"),
        description=description,
        mlProgram=SimpleNamespace(functions={f["name"]: f for f in report["functions"]}),
    )


class MLModel:
    """A .mlpackage or .mlmodel."""

    def __init__(self, model, skip_model_load=False, compute_units=ComputeUnit.ALL, weights_dir=None, function_name=None,
                 optimization_hints=None):
        if not isinstance(model, str):
            raise TypeError(f'"model" must be a path (str), not {type(model)}')
        self.compute_unit = _checked_units(compute_units)
        self.optimization_hints = optimization_hints
        self._path = _expanded(model)
        if self._path.rstrip("/").endswith(".mlmodelc"):
            raise ValueError(f"{model} is a compiled model: use CompiledMLModel")
        report = inspect(self._path)
        self._spec = _spec_of(report)
        names = [f["name"] for f in report["functions"]]
        if function_name is not None and function_name not in names:
            raise ValueError(f"function_name {function_name} not found in the model.")
        self.function_name = function_name or report.get("default_function")
        function = next(f for f in report["functions"] if f["name"] == self.function_name)
        self._inputs = [p["name"] for p in function["inputs"]]
        self._images = {p["name"]: p.get("image") for p in function["inputs"]}
        self.user_defined_metadata = self._spec.description.metadata.userDefined
        self.input_description = {p.name: "" for p in self._spec.description.input}
        self.output_description = {p.name: "" for p in self._spec.description.output}
        self.__proxy__, self._error = None, None
        if not skip_model_load:
            try:
                self.__proxy__ = ModelProxy(self._path, self.compute_unit.name, function_name or "")
            except RuntimeError as error:
                self._error = error
                warnings.warn(f"You will not be able to run predict() on this Core ML model: {error}", RuntimeWarning)

    def _loaded(self):
        if self.__proxy__ is None:
            raise self._error or Exception("The model was not loaded (skip_model_load)")
        return self.__proxy__

    def get_spec(self):
        return self._spec

    def get_compiled_model_path(self):
        return self._loaded().get_compiled_model_path()

    def predict(self, data, state=None):
        for d in data if type(data) is list else [data]:
            if type(d) is not dict:
                continue
            for name, value in d.items():
                if name not in self._inputs:
                    raise KeyError(
                        f'Provided key "{name}", in the input dict, does not match any of the model input name(s), '
                        f"which are: {set(self._inputs)}"
                    )
                if self._images.get(name):
                    modes = {"RGB": "RGB", "BGR": "RGB", "gray": "L", "gray fp16": "F"}
                    if getattr(value, "mode", None) != modes[self._images[name]]:
                        raise TypeError(f'image input "{name}" must be a PIL image of the mode {modes[self._images[name]]}')
                elif not isinstance(value, (np.ndarray, int, float, str, dict)):
                    value = value.detach().numpy() if hasattr(value, "detach") else np.array(value)
                    d[name] = value.astype(np.int32) if value.dtype == np.int64 else value
        _narrowed(data)
        return _predictions(self._loaded(), data, state)

    def make_state(self):
        return MLState(self._loaded().newState())


class CompiledMLModel:
    """A .mlmodelc. Loading errors are raised at once."""

    def __init__(self, path, compute_units=ComputeUnit.ALL, function_name=None, optimization_hints=None):
        if not isinstance(path, str):
            raise TypeError('The "path" parameter must be of type "str".')
        if function_name is not None and not isinstance(function_name, str):
            raise TypeError('The "function_name" parameter must be of type "str".')
        self.compute_unit = _checked_units(compute_units)
        self.function_name = function_name
        self.optimization_hints = optimization_hints
        self.__proxy__ = ModelProxy(_expanded(path), self.compute_unit.name, function_name or "")

    def predict(self, data, state=None):
        _narrowed(data)
        return _predictions(self.__proxy__, data, state)

    def make_state(self):
        return MLState(self.__proxy__.newState())
