"""milkit: Core ML models and language-model packages, converted, checked and run without a Mac.

    import milkit
    model = milkit.Model("model.mlpackage")
    print(model.predict({"x": [[1.0, 2.0]]}))

    package = milkit.Package("qwen3-package")
    for text in package.generate("In the beginning", max_tokens=20, greedy=True):
        print(text, end="", flush=True)

A thin layer over libmilkit (include/milkit.h): calls release the interpreter's lock, arrays go in without a copy."""

from ._library import Error, Library, version
from .model import Function, Model, State, compile_model, inspect
from .package import Package, Sampler, Session, Tokenizer, check, convert

__all__ = [
    "Error",
    "Function",
    "Library",
    "Model",
    "Package",
    "Sampler",
    "Session",
    "State",
    "Tokenizer",
    "check",
    "compile_model",
    "convert",
    "inspect",
    "version",
]
