"""Compiling takes time in proportion to the model: what each function of the compiler runs, on models four times as large."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dvm_graph.decompose import decompose
from dvm_graph.import_ import import_onnx
from dvm_graph.options import Options
from dvm_graph.passes import fill_branches
from dvm_graph.pipeline import compile_model
from dvm_graph.symbolic import Facts, Meter, Symbols
from tests.growth import grown

_Made = tuple[list[onnx.NodeProto], list[str], list[str], dict[str, object]]
"""Operators, inputs as `name: extents`, results, and constants."""


def _chain(n: int) -> _Made:
    ops = ("Tanh", "Sigmoid", "Relu", "Neg")
    nodes = [helper.make_node(ops[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
    return nodes, ["v0: a b"], [f"v{n}"], {}


def _residuals(n: int) -> _Made:
    nodes, constants = [], {}
    for i in range(n // 4):
        constants[f"w{i}"] = np.full((8, 8), i, np.float32)
        nodes += [
            helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"m{i}"]),
            helper.make_node("Softmax", [f"m{i}"], [f"s{i}"]),
            helper.make_node("Tanh", [f"s{i}"], [f"t{i}"]),
            helper.make_node("Add", [f"t{i}", f"v{i}"], [f"v{i + 1}"]),
        ]
    return nodes, ["v0: a 8"], [f"v{n // 4}"], constants


def _readers(n: int) -> _Made:
    """One value that everything reads, whose results are all wanted."""
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    nodes += [helper.make_node("Mul", ["y", f"c{i}"], [f"z{i}"]) for i in range(n)]
    constants = {f"c{i}": np.float32(i + 0.5) for i in range(n)}
    return nodes, ["x: a b"], [f"z{i}" for i in range(n)], constants


def _sum_of_readers(n: int) -> _Made:
    nodes = []
    for i in range(n // 2):
        nodes.append(helper.make_node("Mul", ["x", f"c{i}"], [f"z{i}"]))
        nodes.append(helper.make_node("Add", [f"s{i}", f"z{i}"], [f"s{i + 1}"]))
    constants = {f"c{i}": np.float32(i + 0.5) for i in range(n // 2)}
    return nodes, ["x: a b", "s0: a b"], [f"s{n // 2}"], constants


def _one_concat(n: int) -> _Made:
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"z{i}"]) for i in range(n)]
    nodes.append(helper.make_node("Concat", [f"z{i}" for i in range(n)], ["y"], axis=0))
    return nodes, ["x: a b"], ["y"], {f"c{i}": np.float32(i) for i in range(n)}


def _concats(n: int) -> _Made:
    nodes = []
    for i in range(n // 3):
        nodes += [
            helper.make_node("Tanh", [f"v{i}"], [f"t{i}"]),
            helper.make_node("Slice", [f"t{i}", "zero", "four", "one"], [f"s{i}"]),
            helper.make_node("Concat", [f"s{i}", f"s{i}"], [f"v{i + 1}"], axis=1),
        ]
    ends = {"zero": np.array([0]), "four": np.array([4]), "one": np.array([1])}
    return nodes, ["v0: a 8"], [f"v{n // 3}"], ends


def _parts(n: int) -> _Made:
    parts = [f"s{i}" for i in range(n // 2)]
    nodes = [helper.make_node("Split", ["x"], parts, axis=0, num_outputs=n // 2)]
    nodes += [helper.make_node("Tanh", [f"s{i}"], [f"z{i}"]) for i in range(n // 2)]
    return nodes, [f"x: {n // 2} b"], [f"z{i}" for i in range(n // 2)], {}


def _recurrence(n: int) -> _Made:
    """Steps over parts of a tensor, whose states are collected."""
    turns = n // 4
    parts = [f"s{i}" for i in range(turns)]
    nodes = [helper.make_node("Split", ["x"], parts, axis=0, num_outputs=turns)]
    for i in range(turns):
        nodes += [
            helper.make_node("MatMul", [f"h{i}", "w"], [f"p{i}"]),
            helper.make_node("Add", [f"p{i}", f"s{i}"], [f"a{i}"]),
            helper.make_node("Tanh", [f"a{i}"], [f"h{i + 1}"]),
        ]
    states = [f"h{i + 1}" for i in range(turns)]
    nodes.append(helper.make_node("Concat", states, ["y"], axis=0))
    return nodes, [f"x: {turns} 8", "h0: 1 8"], ["y"], {"w": np.ones((8, 8), np.float32)}


def _symbols(n: int) -> _Made:
    nodes = []
    for i in range(n // 2):
        nodes.append(helper.make_node("Tanh", [f"x{i}"], [f"t{i}"]))
        nodes.append(helper.make_node("ReduceSum", [f"t{i}", "axis"], [f"z{i}"]))
    inputs = [f"x{i}: a{i} b{i}" for i in range(n // 2)]
    return nodes, inputs, [f"z{i}" for i in range(n // 2)], {"axis": np.array([1])}


def _pads(n: int) -> _Made:
    """Each value is a row longer than the one before."""
    nodes = []
    for i in range(n // 2):
        nodes.append(helper.make_node("Pad", [f"v{i}", "row"], [f"p{i}"]))
        nodes.append(helper.make_node("Tanh", [f"p{i}"], [f"v{i + 1}"]))
    return nodes, ["v0: a b"], [f"v{n // 2}"], {"row": np.array([0, 0, 1, 0])}


def _shapes(n: int) -> _Made:
    nodes = []
    for i in range(n // 6):
        nodes += [
            helper.make_node("Shape", [f"v{i}"], [f"s{i}"]),
            helper.make_node("Gather", [f"s{i}", "zero"], [f"d{i}"]),
            helper.make_node("Concat", [f"d{i}", "rest"], [f"c{i}"], axis=0),
            helper.make_node("Reshape", [f"v{i}", f"c{i}"], [f"r{i}"]),
            helper.make_node("Softmax", [f"r{i}"], [f"t{i}"]),
            helper.make_node("Reshape", [f"t{i}", f"s{i}"], [f"v{i + 1}"]),
        ]
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    return nodes, ["v0: a b c"], [f"v{n // 6}"], constants


def _sizes_of_data(n: int) -> _Made:
    nodes = []
    for i in range(n // 4):
        nodes += [
            helper.make_node("NonZero", [f"v{i}"], [f"n{i}"]),
            helper.make_node("Gather", [f"n{i}", "zero"], [f"g{i}"]),
            helper.make_node("Gather", [f"v{i}", f"g{i}"], [f"h{i}"]),
            helper.make_node("Tanh", [f"h{i}"], [f"v{i + 1}"]),
        ]
    return nodes, ["v0: a"], [f"v{n // 4}"], {"zero": np.array(0)}


def _vendor(n: int) -> _Made:
    nodes = []
    for i in range(n // 3):
        nodes += [
            helper.make_node("Tanh", [f"v{i}"], [f"t{i}"]),
            helper.make_node("Det", [f"t{i}"], [f"d{i}"]),
            helper.make_node("Add", [f"t{i}", f"d{i}"], [f"v{i + 1}"]),
        ]
    return nodes, ["v0: a a"], [f"v{n // 3}"], {}


def _loops(n: int) -> _Made:
    """Bodies whose values have the names of each other's, numbered."""
    nodes = []
    for i in range(n // 6):
        body = helper.make_graph(
            [
                helper.make_node("MatMul", [f"s{i}", "w"], [f"p{i}"]),
                helper.make_node("Softmax", [f"p{i}"], [f"q{i}"]),
                helper.make_node("Identity", [f"k{i}"], [f"l{i}"]),
            ],
            f"body{i}",
            [
                helper.make_tensor_value_info(f"n{i}", TensorProto.INT64, []),
                helper.make_tensor_value_info(f"k{i}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"s{i}", TensorProto.FLOAT, ["a", 8]),
            ],
            [
                helper.make_tensor_value_info(f"l{i}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"q{i}", TensorProto.FLOAT, ["a", 8]),
            ],
        )
        nodes += [
            helper.make_node("NonZero", [f"v{i}"], [f"z{i}"]),
            helper.make_node("Shape", [f"z{i}"], [f"t{i}"], start=1),
            helper.make_node("Squeeze", [f"t{i}"], [f"m{i}"]),
            helper.make_node("Loop", [f"m{i}", "true", f"v{i}"], [f"v{i + 1}"], body=body),
        ]
    constants = {"w": np.ones((8, 8), np.float32), "true": np.array(True)}
    return nodes, ["v0: a 8"], [f"v{n // 6}"], constants


def _branches(n: int) -> _Made:
    """Operators around branches that move into them."""
    nodes = []
    for i in range(n // 8):
        branches = {}
        for name, op in (("then_branch", "Softmax"), ("else_branch", "Sigmoid")):
            inner = [
                helper.make_node("MatMul", [f"m{i}", "w"], [f"{op}{i}p"]),
                helper.make_node(op, [f"{op}{i}p"], [f"{op}{i}r"]),
            ]
            result = helper.make_tensor_value_info(f"{op}{i}r", TensorProto.FLOAT, ["a", 8])
            branches[name] = helper.make_graph(inner, f"{op}{i}", [], [result])
        nodes += [
            helper.make_node("ReduceMax", [f"v{i}"], [f"g{i}"], keepdims=0),
            helper.make_node("Greater", [f"g{i}", "one"], [f"c{i}"]),
            helper.make_node("Mul", [f"v{i}", "one"], [f"m{i}"]),
            helper.make_node("If", [f"c{i}"], [f"r{i}"], **branches),
            helper.make_node("Exp", [f"r{i}"], [f"e{i}"]),
            helper.make_node("Add", [f"e{i}", f"v{i}"], [f"v{i + 1}"]),
        ]
    constants: dict[str, object] = {"w": np.full((8, 8), 0.5, np.float32), "one": np.float32(1.5)}
    return nodes, ["v0: a 8"], [f"v{n // 8}"], constants


_FAMILIES: dict[str, Callable[[int], _Made]] = {
    "a chain": _chain,
    "residual layers": _residuals,
    "readers of one value": _readers,
    "a sum of readers": _sum_of_readers,
    "one concat": _one_concat,
    "concats": _concats,
    "parts of one value": _parts,
    "a recurrence": _recurrence,
    "symbols": _symbols,
    "pads": _pads,
    "shapes": _shapes,
    "sizes that data tells": _sizes_of_data,
    "vendor operators": _vendor,
    "loops": _loops,
    "branches": _branches,
}


def _model(made: _Made) -> bytes:
    nodes, inputs, results, constants = made
    described = []
    for text in inputs:
        name, extents = text.split(": ")
        shape = [int(each) if each.isdigit() else each for each in extents.split()]
        described.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    outputs = [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in results]
    kept = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "g", described, outputs, kept)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    written: bytes = model.SerializeToString()
    return written


@pytest.mark.parametrize("family", _FAMILIES)
def test_compiling_takes_linear_time(family: str) -> None:
    def make(size: int) -> Callable[[], object]:
        model = _model(_FAMILIES[family](size))
        return lambda: compile_model(model, Options())

    assert not grown(make, 64)


def test_filling_branches_takes_linear_time() -> None:
    """Of so many that what it does for each shows beside the rest."""

    def make(size: int) -> Callable[[], object]:
        options = Options()
        facts = Facts(Symbols(), Meter(options))
        graph = import_onnx(_model(_branches(size)), options, facts.symbols)
        graph = decompose(graph, facts, options)
        return lambda: fill_branches(graph, facts, options.limits.max_operators)

    assert not grown(make, 256)
