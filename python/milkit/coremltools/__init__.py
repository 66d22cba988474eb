"""coremltools' way of predicting, on Linux.

Two doors. `import milkit.coremltools as ct` needs no coremltools: MLModel, CompiledMLModel, MLState and ComputeUnit with its rules for
arguments and its errors, over milkit's library. `import milkit.coremltools.install` before `import coremltools` makes a coremltools that
is installed predict, so that scripts and test suites run unchanged; `python -m milkit.coremltools SCRIPT` does that for a script."""

from .models import CompiledMLModel, ComputeUnit, MLModel, MLState
from . import models


def use():
    """What importing milkit.coremltools.install does."""
    from . import install  # noqa: F401


__all__ = ["CompiledMLModel", "ComputeUnit", "MLModel", "MLState", "models", "use"]
