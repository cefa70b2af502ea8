"""Convolutions begin with a row and end their sums in registers, between bounds or gated, whatever follows them.

Every addend with every ending and every window, behind a product and before one, against onnxruntime.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.reference import assert_all_close
from tests.end_to_end.test_control_flow import parse

ADDENDS = {
    "none": ("", "d"),
    "zero": ("e = Add(d, zero)", "e"),
    "number": ("e = Add(d, number)", "e"),
    "row": ("e = Add(d, row)", "e"),
    "turned": ("e = Add(row, d)", "e"),
    "image": ("e = Add(d, p)", "e"),
    "itself": ("e = Add(d, d)", "e"),
}
# Of the last result {0} and the sum {1}.
ENDINGS = {
    "none": (),
    "relu": ("Relu({0})",),
    "clip": ("Clip({0}, low, high)",),
    "crossed": ("Max({0}, high)", "Min({0}, low)"),
    "of a row": ("Max({0}, row)",),
    "not a number": ("Max({0}, nan)",),
    "and more": ("Relu({0})", "Mul({0}, row)", "Min({0}, high)"),
    "hard swish": ("HardSwish({0})",),
    "as exported": ("Add({0}, three)", "Clip({0}, zero, six)", "Mul({1}, {0})", "Div({0}, six)"),
    "times a sixth": ("Add({0}, three)", "Clip({0}, zero, six)", "Div({0}, six)", "Mul({0}, {1})"),
    "leaky": ("LeakyRelu<alpha = 0.2>({0})",),
    "leaky, scaled": ("LeakyRelu<alpha = 0.2>({0})", "Mul({0}, six)"),
    "steep": ("LeakyRelu<alpha = 3.0>({0})",),
    "squared": ("Mul({0}, {0})",),
    "of a line": ("Mul({0}, low)", "Add({0}, three)", "Mul({0}, {1})"),
    "and bounded": ("HardSwish({0})", "Relu({0})"),
    "and moved": ("HardSwish({0})", "Add({0}, three)"),
    "bounded before": ("Relu({0})", "HardSwish({0})"),
    "gated by a row": ("Mul({0}, row)", "Add({0}, three)", "Clip({0}, zero, six)", "Mul({0}, {1})"),
    "read again": ("Add({0}, three)", "Clip({0}, zero, six)", "Mul({0}, {1})", "Add({0}, {1})"),
    "upside down": ("Div(six, {0})", "Clip({0}, zero, six)", "Mul({0}, {1})"),
    "endless": ("Max({0}, endless)", "Mul({0}, {1})"),
    "too steep": ("Div({0}, vanishing)", "Clip({0}, zero, number)", "Mul({0}, {1})"),
    "rounded": ("Add({0}, large)", "Sub({0}, large)", "Mul({0}, {1})"),
    "greater than rounded": ("Add({0}, large)", "Sub({0}, large)", "Max({0}, {1})"),
    "back and forth": ("Mul({0}, huge)", "Clip({0}, zero, six)", "Mul({0}, {1})", "Div({0}, huge)"),
    "a part that vanishes": ("Div({0}, huge)", "Div({0}, huge)", "Max({0}, {1})"),
}
WINDOWS = {
    "3 x 3 of all": "kernel_shape = [3, 3], pads = [1, 1, 1, 1]",
    "3 x 3": "kernel_shape = [3, 3], pads = [1, 1, 1, 1]",
    "5 x 5 by 2": "kernel_shape = [5, 5], strides = [2, 2], pads = [2, 2, 2, 2]",
    "dilated": "kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 2, 2, 2]",
}
MODEL = """g (float[n, 24, h, w] x, float[24, 24, 1, 1] k, float[24, c, t, t] weights,
    float[24, 1, 1] row, float zero, float number, float low, float high, float nan, float three, float six,
    float endless, float vanishing, float large, float huge) => (float[n, a, b, c] y) {{
  p = Conv(x, k)
  d = Conv<group = {groups}, {window}>(p, weights)
  {steps}
  y = {last}
}}"""


def groups_of(window: str) -> int:
    return 1 if window.endswith("of all") else 24


def model(addend: str, ending: str, window: str, product: bool) -> onnx.ModelProto:
    step, total = ADDENDS[addend]
    steps, name = [step], total
    for i, operation in enumerate(ENDINGS[ending]):
        steps.append(f"b{i} = {operation.format(name, total)}")
        name = f"b{i}"
    last = f"Conv({name}, k)" if product else f"Identity({name})"
    return parse(
        MODEL.format(
            window=WINDOWS[window], groups=groups_of(window), steps="\n  ".join(steps), last=last
        )
    )


CONSTANTS = (
    *("k", "weights", "row", "zero", "number", "low", "high", "nan", "three", "six", "endless"),
    *("vanishing", "large", "huge"),
)


def with_constants(proto: onnx.ModelProto, window: str) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    taps = 5 if window.startswith("5") else 3
    arrays: dict[str, Any] = {
        "k": random.standard_normal((24, 24, 1, 1)) / 5,
        "weights": random.standard_normal((24, 24 // groups_of(window), taps, taps)) / 3,
        "row": random.standard_normal((24, 1, 1)),
        "zero": 0.0,
        "number": 0.25,
        "low": -0.5,
        "high": 0.75,
        "nan": np.nan,
        "three": 3.0,
        "six": 6.0,
        "endless": np.inf,
        "vanishing": 1e-40,
        "large": 1.5 * 2**23,
        "huge": 1e30,
    }
    inputs = [i for i in proto.graph.input if i.name not in CONSTANTS]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    used = {name for node in proto.graph.node for name in node.input}
    for name in CONSTANTS:
        if name in used:
            array = np.asarray(arrays[name], np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


CASES = [
    case
    for case in itertools.product(ADDENDS, ENDINGS, WINDOWS)
    if case[0] != "image" or case[2] != "5 x 5 by 2"  # whose image has another size
]


@pytest.mark.parametrize("product", [False, True], ids=["result", "product"])
@pytest.mark.parametrize(("addend", "ending", "window"), CASES)
def test_what_follows_sums_of_windows(addend: str, ending: str, window: str, product: bool) -> None:
    proto = with_constants(model(addend, ending, window, product), window)
    compiled, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    for shape in ((1, 24, 7, 9), (3, 24, 1, 2), (2, 24, 14, 14)):
        feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
        assert_all_close(
            compiled.run(feeds), reference.run(None, feeds), reduction_length=24 * 25 * 24
        )


@pytest.mark.parametrize("addend", ["none", "zero", "row", "turned"])
@pytest.mark.parametrize("window", ["3 x 3", "3 x 3 of all"])
@pytest.mark.parametrize(
    "ending",
    ["relu", "clip", "hard swish", "as exported", "times a sixth", "leaky", "of a line", "squared"],
)
def test_a_row_and_an_ending_are_no_instructions(addend: str, ending: str, window: str) -> None:
    proto = with_constants(model(addend, ending, window, False), window)
    listings = dvm_graph.optimize(proto, strict=True).listings({"n": 1, "h": 14, "w": 14})
    text = listings[-1].text
    assert not any(word.startswith("v_") for word in text.split())
    (line,) = (line for line in text.splitlines() if "clamp (" in line)
    assert "clamp (#-inf, #inf)" not in line or "gate (" in line


def test_zeros_behind_a_product_are_no_instructions() -> None:
    """Folded statistics of a network that was never trained: its biases are zeros."""
    text = """g (float[n, 24, h, w] x, float[24, 24, 1, 1] k, float zero) => (float[n, a, b, c] y) {
      p = Conv(x, k)
      d = Add(p, zero)
      y = Relu(d)
    }"""
    proto = with_constants(parse(text), "3 x 3")
    compiled = dvm_graph.optimize(proto, strict=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 24, 9, 9)).astype(np.float32)}
    bytecode = compiled.disassemble(feeds)
    assert "m_matmul_clamp_f32" in bytecode
    assert not {"v_add_f32", "v_max_f32"} & set(bytecode.split())
    assert_all_close(compiled.run(feeds), session(proto).run(None, feeds), reduction_length=24)
