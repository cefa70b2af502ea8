"""Bodies of `Scan` whose states have nothing to do with each other, or have: each chain of them may be a core's own.

Every way in which a turn may make one of two states, with every one of the other, against onnxruntime.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import parse

WAYS = {
    "own": "t{i} = Add(s{i}, r{i}) a{i} = Tanh(t{i})",
    "product": "t{i} = MatMul(s{i}, w) a{i} = Tanh(t{i})",
    "other": "a{i} = Sub(s{j}, r{i})",
    "both": "a{i} = Mul(s{i}, s{j})",
    "kept": "a{i} = Identity(s{i})",
    "row": "a{i} = Identity(r{i})",
    "captured": "a{i} = Identity(c)",
}
"""What a turn leaves of state i: of it, of the other one, of a row, or of what is captured."""
SCAN = """g (float[b, h] x0, float[b, h] x1, float[b, h] c, float[h, h] w, float[t, b, h] p0, float[t, b, h] p1)
  => (float[b, h] y0, float[b, h] y1, float[t, k, l] z0, float[t, k1, l1] z1, float[t, k2, l2] z2, float[t, k3, l3] z3) {{
  y0, y1, z0, z1, z2, z3 = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [0, 0, 1, 0],
    body = turn (float[b, h] s0, float[b, h] s1, float[b, h] r0, float[b, h] r1)
      => (float[b, h] a0, float[b, h] a1, float[b, h] o0, float[b, h] o1, float[b, h] o2, float[b, h] o3) {{
      {first}
      {second}
      o0 = Identity(a0)
      o1 = Exp(a1)
      o2 = Mul(r0, c)
      o3 = Identity(r1)
    }}>(x0, x1, p0, p1)
}}"""


def scan(first: str, second: str) -> onnx.ModelProto:
    """States s0 and s1 of [b, h] and their rows; what is collected is of each, and of neither."""
    return parse(
        SCAN.format(first=WAYS[first].format(i=0, j=1), second=WAYS[second].format(i=1, j=0))
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


LSTM = """g (float[t, b, {h}] x, float[{d}, {g}, {h}] w, float[{d}, {g}, {h}] r) => (float[t, {d}, b, {h}] y)
  {{ y = LSTM <hidden_size = {h}, direction = "{direction}">(x, w, r) }}"""


@pytest.mark.parametrize(
    ("directions", "hidden", "batch", "shares"),
    [
        *((1, 64, batch, min(batch, 16)) for batch in (1, 3, 8, 16, 50)),
        *((2, hidden, batch, min(batch, 8)) for hidden in (64, 192) for batch in (4, 16)),
    ],
)
def test_many_cores_take_rows_of_a_batch_by_themselves(
    monkeypatch: pytest.MonkeyPatch, directions: int, hidden: int, batch: int, shares: int
) -> None:
    """As many cores as there are rows, where that costs less than to meet at every turn; of each direction."""
    monkeypatch.setenv("DVM_MACHINE", "sapphire-rapids")
    direction, turns = ("forward", "bidirectional")[directions - 1], 20
    model = parse(LSTM.format(h=hidden, g=4 * hidden, d=directions, direction=direction))
    random = np.random.default_rng(batch)
    weights = (directions, 4 * hidden, hidden)
    shapes = {"x": (turns, batch, hidden), "w": weights, "r": weights}
    most = 1.5 / hidden**0.5
    given: dict[str, Any] = {
        name: random.uniform(-most, most, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    compiled, wanted = dvm_graph.optimize(model, strict=True, cores=16), session(model)
    np.testing.assert_allclose(compiled.run(given)[0], wanted.run(None, given)[0], atol=1e-5)
    kernels = compiled.profile(given, repeats=1).kernels
    launches = {kernel.launches for kernel in kernels if " body 0/" in kernel.name}
    assert launches == {1 + shares * (turns - 1)}  # the first turn is a run of its own
