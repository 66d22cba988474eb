"""Importing this makes the coremltools that is installed predict through milkit.

It must come before the first import of coremltools: as a line of a script, as `python -m milkit.coremltools SCRIPT`, or as
`pytest -p milkit.coremltools.install`. coremltools looks for its native module once, when it is imported, and copies the answer to
"is this macOS" into several of its modules; both get other answers here. No file of coremltools is changed."""

import sys
import types

from ._bridge import ModelProxy, State

_NATIVE = "coremltools.libcoremlpython"
_MACOS_VERSION = (26, 0)


def _is_macos():
    return True


def _macos_version():
    return _MACOS_VERSION


def _native_module():
    module = types.ModuleType(_NATIVE)
    module._MLModelProxy = ModelProxy
    module._State = State
    for name in (
        "_MLModelAssetProxy",
        "_MLComputePlanProxy",
        "_MLCPUComputeDeviceProxy",
        "_MLGPUComputeDeviceProxy",
        "_MLNeuralEngineComputeDeviceProxy",
        "_MLModelStructureProgramOperationProxy",
        "_MLModelStructureNeuralNetworkLayerProxy",
    ):
        setattr(module, name, type(name, (), {}))
    return module


def _patch(module):
    for name, value in (("_macos_version", _macos_version), ("_is_macos", _is_macos)):
        if hasattr(module, name):
            setattr(module, name, value)
    if hasattr(module, "_IS_MACOS"):
        module._IS_MACOS = True


def install():
    if _NATIVE in sys.modules and getattr(sys.modules[_NATIVE], "_MLModelProxy", None) is ModelProxy:
        return
    if "coremltools" in sys.modules:
        raise ImportError("milkit.coremltools.install must be imported before coremltools")
    sys.modules[_NATIVE] = _native_module()
    import coremltools  # noqa: F401  (every module that it loads now is patched below)
    import coremltools._deps

    for name, module in list(sys.modules.items()):
        if module is not None and (name == "coremltools" or name.startswith("coremltools.")):
            _patch(module)


install()
