"""Bodies of `Scan` whose states have nothing to do with each other, or have: each chain of them may be a core's own.

Every way in which a turn may make one of two states, with every one of the other, against onnxruntime.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import onnx.helper
import onnx.numpy_helper
import pytest
from onnx import TensorProto

import dvm_graph
from tests.decompose.reference import session

WAYS = {
    "own": "Tanh(Add({own}, {row}))",
    "product": "Tanh(MatMul({own}, w))",
    "other": "Sub({other}, {row})",
    "both": "Mul({own}, {other})",
    "kept": "{own}",
    "row": "{row}",
    "captured": "{c}",
}
"""What a turn leaves of a state: of it, of the other one, of a row, or of what is captured."""


def scan(first: str, second: str, directions: tuple[int, int] = (0, 1)) -> onnx.ModelProto:
    """States s0 and s1 of [b, h] and their rows; what is collected is of each, of both, and of neither."""
    nodes: list[onnx.NodeProto] = []

    def value(expression: str, names: dict[str, str]) -> str:
        expression = expression.strip()
        if "(" not in expression:
            return names.get(expression[1:-1], expression)
        op, inside = expression.split("(", 1)
        inside = inside[:-1]
        depth, parts, begin = 0, [], 0
        for at, letter in enumerate(inside + ","):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                parts.append(inside[begin:at])
                begin = at + 1
        operands = [value(part, names) for part in parts]
        nodes.append(onnx.helper.make_node(op, operands, [f"v{len(nodes)}"]))
        return nodes[-1].output[0]

    after = [
        value(WAYS[way], {"own": f"s{i}", "other": f"s{1 - i}", "row": f"r{i}", "c": "c"})
        for i, way in enumerate((first, second))
    ]
    collected = [after[0], f"Exp({after[1]})", "Mul(r0, c)", "r1"]
    results = [*after, *(value(expression, {}) for expression in collected)]
    outputs = [f"o{i}" for i in range(len(results))]
    nodes += [
        onnx.helper.make_node("Identity", [result], [output])
        for result, output in zip(results, outputs, strict=True)
    ]

    def info(name: str, *shape: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or None)

    given = ["s0", "s1", "r0", "r1"]
    body = onnx.helper.make_graph(
        nodes, "turn", [info(name, "b", "h") for name in given], [info(name) for name in outputs]
    )
    results = [f"y{i}" for i in range(len(outputs))]
    node = onnx.helper.make_node(
        "Scan",
        ["x0", "x1", "p0", "p1"],
        results,
        body=body,
        num_scan_inputs=2,
        scan_input_directions=directions,
        scan_output_directions=[0, 0, 1, 0],
    )
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info(name, "b", "h") for name in ("x0", "x1", "c")]
        + [info("w", "h", "h")]
        + [info(name, "t", "b", "h") for name in ("p0", "p1")],
        [info(name) for name in results],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )


def feeds(steps: int, batch: int, width: int) -> dict[str, Any]:
    random = np.random.default_rng(steps + batch + width)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    return {
        **{name: normal(batch, width) for name in ("x0", "x1", "c")},
        "w": normal(width, width) / np.float32(width**0.5),
        **{name: normal(steps, batch, width) for name in ("p0", "p1")},
    }


@pytest.mark.parametrize(("first", "second"), [*itertools.product(WAYS, WAYS)])
def test_ways_to_make_two_states(first: str, second: str) -> None:
    model = scan(first, second)
    reference = session(model)
    for cores in (1, 2, 5):
        compiled = dvm_graph.optimize(model, strict=True, cores=cores)
        for shape in ((1, 1, 3), (9, 2, 5), (40, 6, 16), (9, 2, 5)):
            given = feeds(*shape)
            wanted = reference.run(None, given)
            for got, want in zip(compiled.run(given), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_each_chain_is_seen_through_by_one_core() -> None:
    """Of a body that all cores would share, were it one chain; the first turn is a run of its own."""
    compiled = dvm_graph.optimize(scan("product", "product"), strict=True, cores=2)
    turns, given = 30, feeds(30, 1, 512)
    for _ in range(200):  # a worker that comes late finds all chains taken
        run = compiled.profile(given, repeats=1).typical
        each = [
            Counter(span.name for span in spans if " body " in span.name) for spans in run.cores
        ]
        names = set().union(*each)
        most = {name: max(counts[name] for counts in each) for name in names}
        assert len(names) > 1
        by_one = set(most.values()) <= {turns - 1, turns}  # no launch was broken off
        if by_one and all(any(counts[name] == most[name] for name in names) for counts in each):
            return
    raise AssertionError("no chain was each core's")
