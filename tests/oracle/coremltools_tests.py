"""A pytest plugin: coremltools' own op tests, run through milkit.

    python3 -m venv venv && venv/bin/pip install coremltools==9.0 "numpy<2" pytest pillow scipy torch
    export MILKIT_LIBRARY=build/release/libmilkit.so.0 PYTHONPATH=python:tests/oracle
    export PYMIL_TEST_TARGETS=mlprogram COMPUTE_UNITS=CPU_ONLY RESULTS=results.json [RECORD=folder]
    venv/bin/python -m pytest -p milkit.coremltools.install -p coremltools_tests \
        venv/lib/python3*/site-packages/coremltools/converters/mil/mil/ops/tests

The tests are unchanged: they build programs, compute what is expected with numpy, scipy or torch, and compare. Only those count that
reach the loading of a model. RESULTS gets a JSON object: for each such test its outcome, why it failed, and the op types of its
program. RECORD gets the package, inputs and expected outputs of those that passed, for make_op_fixtures.py. SAMPLE=N runs every
N-th test of a file, by a sum over its name, so always the same ones.
"""

import collections
import json
import os
import shutil
import zlib

import numpy as np
import pytest

import milkit.coremltools._bridge as bridge

_current = [None]
_reached = {}  # test -> op types
_results = {}
_recorded = {}  # test -> list of (package, inputs, expected)


def _ops_of(path):
    import milkit

    try:
        histogram = collections.Counter()
        for function in milkit.inspect(path)["functions"]:
            histogram.update(function["histogram"])
        return sorted(op for op in histogram if op not in ("const", "cast", "identity"))
    except Exception:
        return []


def _watch_loading():
    load = bridge.ModelProxy.__init__

    def init(self, path, *arguments, **options):
        _reached.setdefault(_current[0], _ops_of(path))
        load(self, path, *arguments, **options)

    bridge.ModelProxy.__init__ = init


def _watch_comparing():
    import coremltools.converters.mil.testing_utils as utils
    import coremltools.converters.mil.mil.ops.tests.testing_utils as ops_utils

    compare = utils.compare_backend

    def compare_and_record(mlmodel, input_key_values, expected_outputs, *arguments, **options):
        inputs = {k: np.array(v) for k, v in input_key_values.items()}
        out = compare(mlmodel, input_key_values, expected_outputs, *arguments, **options)
        folder = os.environ.get("RECORD")
        state = options.get("state")
        if folder and state is None and mlmodel.package_path and all(isinstance(v, np.ndarray) for v in expected_outputs.values()):
            _recorded.setdefault(_current[0], []).append((mlmodel.package_path, inputs, expected_outputs, options.get("dtype", "fp32")))
            n = len(_recorded[_current[0]]) - 1
            name = "".join(c if c.isalnum() else "_" for c in _current[0].split("::", 1)[1])[:150] + f"_{n}"
            into = os.path.join(folder, name)
            shutil.rmtree(into, ignore_errors=True)
            os.makedirs(into)
            shutil.copytree(mlmodel.package_path, os.path.join(into, "model.mlpackage"))
            np.savez(os.path.join(into, "in.npz"), **inputs)
            np.savez(os.path.join(into, "out.npz"), **expected_outputs)
        return out

    utils.compare_backend = compare_and_record
    ops_utils.compare_backend = compare_and_record


_watch_loading()
_watch_comparing()


def pytest_collection_modifyitems(config, items):
    n = int(os.environ.get("SAMPLE", "1"))
    left_out = [item for item in items if zlib.crc32(item.nodeid.split("::", 1)[1].encode()) % n]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    _current[0] = item.nodeid
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and item.nodeid in _reached:
        why = f"{type(call.excinfo.value).__name__}: {call.excinfo.value}"[:300] if report.failed else ""
        _results[item.nodeid] = {"outcome": report.outcome, "why": why, "ops": _reached[item.nodeid]}


def pytest_sessionfinish():
    path = os.environ.get("RESULTS")
    if path:
        with open(path, "w") as f:
            json.dump(_results, f, indent=1)
