"""Outside judge of the protobuf form: coremltools and protoc read what milkit wrote.

    python3 -m venv VENV && VENV/bin/pip install coremltools numpy
    VENV/bin/python tests/oracle/check_protobuf.py REWRITE PACKAGE...

REWRITE is a program that reads a model.mlmodel ($1) and writes it anew ($2) with milkit's code
(the unit test program test_protobuf does that when it is called with two paths). For each package the
rewritten file must parse in coremltools' schema, hold no unknown fields, and equal the original
message field by field, where maps compare as maps. Prints one line a package; exit 1 when one differs.
"""

import os
import subprocess
import sys
import tempfile

from coremltools.proto import Model_pb2


def read(path):
    model = Model_pb2.Model()
    with open(path, "rb") as f:
        model.ParseFromString(f.read())
    return model


def normalise(model):
    """What milkit is free to change: metadata is always written."""
    model.description.metadata.SetInParent()
    for function in model.mlProgram.functions.values():
        for block in function.block_specializations.values():
            drop_texts(block)


def drop_texts(block):
    """Documentation of single values is not kept."""
    for op in block.operations:
        for value in op.attributes.values():
            value.docString = ""
        for inner in op.blocks:
            drop_texts(inner)


def check(rewrite, package, scratch):
    path = package
    if os.path.isdir(package):
        path = os.path.join(package, "Data/com.apple.CoreML/model.mlmodel")
    out = os.path.join(scratch, "model.mlmodel")
    subprocess.run([rewrite, path, out], check=True)
    with open(out, "rb") as f:
        raw = subprocess.run(["protoc", "--decode_raw"], stdin=f, capture_output=True)
    if raw.returncode != 0:
        return "protoc can't decode it"
    original, written = read(path), read(out)
    normalise(original)
    normalise(written)
    if written != original:
        return "differs from the original"
    if written.SerializeToString(deterministic=True) != original.SerializeToString(deterministic=True):
        return "serializes differently"
    return None


def main():
    rewrite, packages = sys.argv[1], sys.argv[2:]
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            problem = check(rewrite, package, scratch)
            if problem:
                failures += 1
                print(f"{package}: {problem}")
    print(f"{len(packages) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
