"""What becomes of the contents of constants."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import dvm_graph
from dvm_graph.options import Options
from dvm_graph.runtime.assemble import assemble
from dvm_graph.runtime.contents import PackedArrays
from tests.runtime.plans import PlanBuilder, call, random

OPTIONS = Options(cores=2)


def test_released_constants_are_gone_but_the_program_runs() -> None:
    b = PlanBuilder()
    weights = random(16, 24)
    x, w, y = b.input("x", ("m", 16)), b.constant("w", weights), b.output("y", ("m", 24))
    b.launch([call(b.matmul(x, b.panels(w), y, packed=True))])
    built = assemble(b.plan, OPTIONS, release_packed=True)
    x_array = random(3, 16)
    (result,) = built.run({"x": x_array})
    np.testing.assert_allclose(result, x_array @ weights, rtol=1e-4, atol=1e-4)
    constant = b.plan.values[w].constant
    assert constant is not None and constant.data is not None
    assert constant.data.nbytes == 16 * 24 * 4 and not any(constant.data.strides)


def test_contents_stay_until_the_last_of_their_panels_is_packed() -> None:
    b = PlanBuilder()
    weights = random(16, 24)
    w = b.constant("w", weights)
    feeds = {name: random(3, 16) for name in ("x", "z")}
    outputs = [b.output(f"y_{name}", (f"m_{name}", 24)) for name in feeds]
    b.launch(
        [
            call(b.matmul(b.input(name, (f"m_{name}", 16)), b.panels(w), y, packed=True))
            for name, y in zip(feeds, outputs, strict=True)
        ]
    )
    results = assemble(b.plan, OPTIONS, release_packed=True).run(feeds)
    for result, x in zip(results, feeds.values(), strict=True):
        np.testing.assert_allclose(result, x @ weights, rtol=1e-4, atol=1e-4)


def test_programs_share_panels_of_one_array_while_it_lives() -> None:
    shared = PackedArrays()

    def panels(weights: Any) -> np.ndarray[Any, Any]:
        b = PlanBuilder()
        x, w, y = b.input("x", ("m", 16)), b.constant("w", weights), b.output("y", ("m", 24))
        packed = b.panels(w)
        b.launch([call(b.matmul(x, packed, y, packed=True))])
        program = assemble(b.plan, OPTIONS, release_packed=True, packed=shared)
        x_array = random(3, 16)
        (result,) = program.run({"x": x_array})
        np.testing.assert_allclose(result, x_array @ weights, rtol=1e-4, atol=1e-4)
        return program.contents(packed)

    weights = random(16, 24)
    mine, again, other = panels(weights), panels(weights), panels(weights.copy())
    assert np.shares_memory(mine, again) and not np.shares_memory(mine, other)
    assert len(shared) == 1
    del weights
    assert len(shared) == 0


def test_contents_that_a_kernel_reads_stay() -> None:
    b = PlanBuilder()
    weights = random(16, 24)
    x, z, w = b.input("x", ("m", 16)), b.input("z", (16, 24)), b.constant("w", weights)
    y, v = b.output("y", ("m", 24)), b.output("v", (16, 24))
    b.launch([call(b.matmul(x, b.panels(w), y, packed=True)), call(b.map("add", [z, w], v))])
    feeds = {"x": random(3, 16), "z": random(16, 24)}
    product, total = assemble(b.plan, OPTIONS, release_packed=True).run(feeds)
    np.testing.assert_allclose(product, feeds["x"] @ weights, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(total, feeds["z"] + weights)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (3, 5)])
def test_weights_in_a_file_are_not_in_memory_twice(kernel: tuple[int, int], tmp_path: Path) -> None:
    weights = random(256, 128, *kernel)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[k // 2 for k in kernel] * 2)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 128, 8, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 256, 8, 8])
    graph = onnx.helper.make_graph(
        [node], "g", [x], [y], [onnx.numpy_helper.from_array(weights, "w")]
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    compiled = dvm_graph.optimize(path)
    resident = _resident(tmp_path / "weights")
    assert resident < weights.nbytes / 8
    feeds = {"x": random(2, 128, 8, 8)}
    (expected,) = onnxruntime.InferenceSession(path).run(None, feeds)
    np.testing.assert_allclose(compiled.run(feeds)[0], expected, rtol=1e-4, atol=1e-4)


def _resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    resident, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and name == "Rss":
            resident += int(rest.split()[0]) * 1024
    return resident


def test_weights_that_passes_rearranged_are_in_memory_once(tmp_path: Path) -> None:
    """Python holds next to nothing of 16 MiB that were packed, in a process that compiles for the first time, too."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[n, 2048] x) => (float[n, 8192] y)
        <float small = {0.01}, uint8 middle = {128}, int8 zero = {0}, float narrow = {0.02}> {
            q = QuantizeLinear (x, small, middle)
            a = DequantizeLinear (q, small, middle)
            b = DequantizeLinear (w, narrow, zero)
            y = MatMul (a, b)
        }"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).integers(-128, 128, (2048, 8192), np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "model.onnx")
    code = f"""
import gc, tracemalloc, dvm_graph
tracemalloc.start()
model = dvm_graph.optimize({str(tmp_path / "model.onnx")!r}, strict=True)
gc.disable()
print(sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= 1 << 20))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < weights.nbytes / 4


_REWRITTEN = {
    "a norm, and transposes that sink": """<float[2] one = {1, 1}, float[2] two = {2, 3}, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1},
            float[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}> {
        p = Pad <mode = "reflect"> (x, pads)
        c = Conv (p, w)
        b = BatchNormalization (c, two, one, one, two)
        r = Relu (b)
        y = Transpose <perm = [0, 2, 3, 1]> (r)
    }""",
    "branches that take in what is beside them": """{
        least = ReduceMin <keepdims = 0> (x)
        zero = Constant <value = float {0}> ()
        some = Less (least, zero)
        z = If (some) <
            then_branch = a () => (float[1, 3, h, w2] s) { t = Softmax (x)  s = Neg (t) },
            else_branch = b () => (float[1, 3, h, w2] u) { u = Identity (x) }
        >
        y = Exp (z)
    }""",
    "a loop that computes the same in each turn": """{
        turns = Constant <value = int64 {50}> ()
        true = Constant <value = bool {1}> ()
        y = Loop (turns, true, x) <body = a (int64 i, bool c, float[1, 3, h, w2] s) => (bool d, float[1, 3, h, w2] t) {
            d = Identity (c)
            e = Softmax (x)
            t = Add (s, e)
        }>
    }""",
}


_LEFT = """
import gc, json, sys
import onnx, dvm_graph
from dvm_graph.ir import Graph, Node

for name, text in json.load(sys.stdin).items():
    model = onnx.parser.parse_model(text)
    dvm_graph.optimize(model)  # loads what it needs
    gc.collect()
    gc.disable()
    compiled = dvm_graph.optimize(model, strict=True)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    left = [each for each in gc.garbage if isinstance(each, Graph | Node)]
    assert not left, (name, left)
    del compiled, left
    gc.set_debug(0)
    gc.garbage.clear()
"""
"""In a process of its own: what other tests did waits for the collector, too."""


def test_operators_that_were_rewritten_lie_in_no_cycles() -> None:
    """Nobody collects what compiling leaves behind, weights among it, before the next search of everything."""
    texts = {
        name: f'<ir_version: 10, opset_import: ["" : 21]> g (float[1, 3, h, w2] x) => (float y) {body}'
        for name, body in _REWRITTEN.items()
    }
    subprocess.run([sys.executable, "-c", _LEFT], input=json.dumps(texts), text=True, check=True)
