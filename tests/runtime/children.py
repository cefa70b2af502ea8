"""Child processes for what may not be done to the process of the tests: forks, signals, limits, exits."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

SECONDS = 120
"""A child that takes longer hangs: each is done within a few."""

PROLOGUE = """
import faulthandler, gc, os, signal, sys, threading, time
import numpy as np
import onnx
from onnx import helper as h
import dvm_graph
from models import random_feeds, tiny_path

VENDOR = {"node_NonZero_1"}  # of the model "nonzero", to be left to the vendor library

def bert():
    model = dvm_graph.optimize(tiny_path("bert"))
    feeds = random_feeds("bert", {"batch": 2, "seq": 17})
    expected = model.run(feeds)
    def right(run=model.run):
        return all(np.array_equal(a, b) for a, b in zip(run(feeds), expected, strict=True))
    return model, feeds, right

def endless():
    '''y = x + 1 + 1 ...: a Loop that goes on as long as `on` is true.'''
    t = onnx.TensorProto
    body = h.make_graph(
        [h.make_node("Identity", ["c"], ["c2"]), h.make_node("Add", ["v", "one"], ["v2"])], "body",
        [h.make_tensor_value_info("i", t.INT64, []), h.make_tensor_value_info("c", t.BOOL, []),
         h.make_tensor_value_info("v", t.FLOAT, ["n"])],
        [h.make_tensor_value_info("c2", t.BOOL, []), h.make_tensor_value_info("v2", t.FLOAT, ["n"])],
        [h.make_tensor("one", t.FLOAT, [1], [1.0])])
    graph = h.make_graph(
        [h.make_node("Loop", ["", "on", "x"], ["y"], body=body)], "g",
        [h.make_tensor_value_info("on", t.BOOL, []), h.make_tensor_value_info("x", t.FLOAT, ["n"])],
        [h.make_tensor_value_info("y", t.FLOAT, ["n"])])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)

ON = {"on": np.array(True), "x": np.zeros(3, np.float32)}
OFF = {"on": np.array(False), "x": np.zeros(3, np.float32)}

def long_kernels():
    '''Products of a large square matrix, one after the other: seconds of kernels.'''
    t = onnx.TensorProto
    nodes = [h.make_node("MatMul", [f"v{i}", "v0"], [f"v{i + 1}"]) for i in range(30)]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("v0", t.FLOAT, ["n", "n"])],
                         [h.make_tensor_value_info("v30", t.FLOAT, ["n", "n"])])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)

LONG, SHORT = ({"v0": np.eye(n, dtype=np.float32)} for n in (2500, 3))
"""


def heed_interrupts() -> None:
    """For a child before it begins: what a shell runs in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def in_child(code: str) -> str:
    """What the child prints; it has to end with status 0 and to say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=heed_interrupts,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert not done.stderr, done.stderr
    return done.stdout
