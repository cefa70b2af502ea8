"""Profiles: parts add up, work is what the mathematics says, traces load, results do not change."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import dvm_graph
from dvm_graph import _core
from dvm_graph.errors import InputError
from dvm_graph.profile import Kernel, Profile, Span, Timeline
from models import tiny_path

BERT = tiny_path("bert")


def bert_feeds(batch: int = 3, seq: int = 37) -> dict[str, Any]:
    ids = np.random.default_rng(0).integers(0, 2, (batch, seq))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


@pytest.fixture(scope="module", params=[1, 2])
def profiled(request: pytest.FixtureRequest) -> tuple[dvm_graph.Model, Profile]:
    model = dvm_graph.optimize(BERT, cores=request.param)
    return model, model.profile(bert_feeds(), repeats=3)


def lanes(run: Timeline) -> list[tuple[Span, ...]]:
    return [run.host, run.compiler, *run.cores]


def matmul(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> test {text}')


def only_kernel(model: onnx.ModelProto, feeds: dict[str, Any]) -> Kernel:
    (kernel,) = dvm_graph.optimize(model).profile(feeds, repeats=1).kernels
    return kernel


def test_spans_do_not_overlap_and_lie_within_the_run(
    profiled: tuple[dvm_graph.Model, Profile],
) -> None:
    _, profile = profiled
    for run in (profile.first, profile.typical):
        for lane in lanes(run):
            end = 0.0
            for span in lane:
                assert end <= span.start + 1e-12 and span.seconds >= 0
                end = span.end
            assert end <= run.seconds


def test_parts_add_up(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    _, profile = profiled
    run = profile.typical
    assert len(run.cores) == profile.cores
    assert run.busy == pytest.approx(sum(kernel.core_seconds for kernel in profile.kernels))
    whole = run.busy + run.idle + profile.cores * (run.vendor + run.host_alone)
    assert whole == pytest.approx(profile.cores * run.seconds)
    assert sum(profile.units().values()) <= run.busy * 1.001
    assert profile.typical.seconds in profile.run_seconds and len(profile.run_seconds) == 3
    for kernel in profile.kernels:
        assert 0 < kernel.seconds <= kernel.core_seconds + 1e-12
        assert kernel.core_seconds <= profile.cores * kernel.seconds + 1e-12
        timed = sum(entry.core_seconds for entry in kernel.instructions)
        assert 0 < timed <= kernel.core_seconds * 1.001


def test_every_launched_kernel_appears_once(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    model, profile = profiled
    model.run(bert_feeds())
    names = Counter(kernel.name for kernel in profile.kernels)
    assert set(names.values()) == {1}
    assert sum(kernel.launches for kernel in profile.kernels) == model.statistics.kernels_launched
    tiles: Counter[str] = Counter()
    for lane in profile.typical.cores:
        for span in lane:
            tiles[span.name] += span.tiles
    assert tiles == {kernel.name: kernel.tiles for kernel in profile.kernels}


def test_only_the_first_run_compiles(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    model, profile = profiled
    compiled = {span.name: span.seconds for span in profile.first.compiler}
    assert profile.typical.compiler == ()
    assert compiled == {k.name: k.compile_seconds for k in profile.kernels if k.compile_seconds}
    model.forget()
    model.run(bert_feeds())
    # What gives way to its fallback has been compiled, but runs nowhere.
    given_up = any(listing.why for listing in model.listings({"batch": 3, "seq": 37}))
    assert 0 < len(compiled) <= model.statistics.kernels_compiled
    assert (len(compiled) < model.statistics.kernels_compiled) == given_up


def test_instructions_match_the_bytecode(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    model, profile = profiled
    listed = model.disassemble(bert_feeds())
    for entry in profile.instructions():
        assert entry.family == "tiles" or all(f in listed for f in entry.family.split("+"))
        assert entry.count > 0
    assert profile.units()["cube"] > 0 and profile.units()["vector"] > 0


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 33, 5), (64, 48, 129)])
def test_work_of_a_matmul(m: int, n: int, k: int) -> None:
    model = matmul("(float[m, k] a, float[k, n] b) => (float[m, n] c) { c = MatMul(a, b) }")
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    kernel = only_kernel(model, {"a": a, "b": b})
    assert (kernel.matmul_flops, kernel.vector_flops) == (2 * m * n * k, 0)
    assert (kernel.read_bytes, kernel.written_bytes) == (4 * (m * k + k * n), 4 * m * n)
    assert kernel.flops_per_second == kernel.flops / kernel.seconds


def test_work_of_a_batched_matmul_with_a_shared_operand() -> None:
    model = matmul(
        "(float[b, 5, 7] a, float[7, 3] w, float[3] c) => (float[b, 5, 3] y) "
        "{ p = MatMul(a, w) y = Add(p, c) }"
    )
    shapes = {"a": (6, 5, 7), "w": (7, 3), "c": (3,)}
    kernel = only_kernel(model, {name: np.ones(shape, "f4") for name, shape in shapes.items()})
    assert (kernel.matmul_flops, kernel.vector_flops) == (2 * 6 * 5 * 3 * 7, 6 * 5 * 3)
    assert kernel.read_bytes == 4 * (6 * 5 * 7 + 7 * 3 + 3)
    assert kernel.written_bytes == 4 * 6 * 5 * 3


def test_work_of_a_product_with_packed_weights_reads_them() -> None:
    """Panels have no strides: they lie in an order of their own."""
    model = matmul("(float[m, 40] a) => (float[m, 64] c) { c = MatMul(a, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((40, 64), np.float32), "w"))
    kernel = only_kernel(model, {"a": np.ones((3, 40), np.float32)})
    assert (kernel.read_bytes, kernel.written_bytes) == (4 * (3 * 40 + 40 * 64), 4 * 3 * 64)


def test_work_of_element_wise_operators_and_reductions() -> None:
    model = matmul("(float[n, 10] x) => (float[n, 1] y) { s = Exp(x) y = ReduceMax<axes=[1]>(s) }")
    kernel = only_kernel(model, {"x": np.ones((13, 10), np.float32)})
    assert (kernel.matmul_flops, kernel.vector_flops) == (0, 2 * 13 * 10)
    assert (kernel.read_bytes, kernel.written_bytes) == (4 * 13 * 10, 4 * 13)


def test_a_gather_reads_what_it_picks_and_no_more_than_there_is() -> None:
    model = matmul(
        "(float[v, 8] table, int64[n] ids) => (float[n, 8] y) { y = Gather(table, ids) }"
    )
    for v, n, rows in ((100, 3, 3), (2, 9, 2)):
        feeds = {"table": np.ones((v, 8), np.float32), "ids": np.zeros(n, np.int64)}
        kernel = only_kernel(model, feeds)
        assert (kernel.read_bytes, kernel.written_bytes) == (4 * 8 * rows + 8 * n, 4 * 8 * n)


def test_profiling_changes_no_bit(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    model, _ = profiled
    before = model.run(bert_feeds())
    during = model._program.run(bert_feeds(), record=_core.RunStatistics())
    after = model.run(bert_feeds())
    for a, b, c in zip(before, during, after, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_vendor_calls_are_timed_and_named() -> None:
    model = matmul("(float[n, m, m] x) => (float[n] y) { z = Neg(x) y = Det(z) }")
    profile = dvm_graph.optimize(model).profile({"x": np.ones((2, 3, 3), np.float32)}, repeats=2)
    for run in (profile.first, profile.typical):
        (call,) = [span for span in run.host if span.category == "vendor"]
        assert call.name.startswith("Det") and 0 < call.seconds <= run.seconds
        assert run.vendor == call.seconds
    assert "Det" in str(profile)


def test_joined_instructions_are_named(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    _, profile = profiled
    names = [entry.family for entry in profile.instructions()]
    groups = [name.split("+") for name in names if "+" in name]
    assert {"v_exp", "v_erf"} <= {family for group in groups for family in group} | set(names)
    assert len(set(names)) == len(names)


def test_onnx_operators_share_the_time_of_kernels(
    profiled: tuple[dvm_graph.Model, Profile],
) -> None:
    _, profile = profiled
    entries = profile.onnx_operators()
    assert any("MatMul" in name for name, _, _ in entries)
    assert any("LayerNormalization" in name for name, _, _ in entries)
    assert sum(seconds for _, _, seconds in entries) == pytest.approx(profile.typical.busy)
    assert sum(launches for _, launches, _ in entries) == sum(k.launches for k in profile.kernels)


def test_the_host_tells_what_it_did(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    _, profile = profiled
    host = profile.typical.host
    assert [span.category for span in host][:3] == ["bind", "memory", "stage"]
    assert all(a.end <= b.start + 1e-9 for a, b in pairwise(host))
    for lane in profile.typical.cores:
        for work in lane:
            assert any(
                span.category == "stage" and span.start <= work.start <= work.end <= span.end
                for span in host
            )


def test_nothing_to_launch() -> None:
    model = matmul("(float[n] x) => (float[n] y) { y = Neg(x) }")
    profile = dvm_graph.optimize(model).profile({"x": np.zeros(0, np.float32)}, repeats=1)
    assert profile.kernels == () and profile.typical.busy == 0
    assert "0 kernels" in str(profile)


def test_the_trace_is_valid(profiled: tuple[dvm_graph.Model, Profile], tmp_path: Path) -> None:
    _, profile = profiled
    path = tmp_path / "trace.json"
    profile.write_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    by_lane: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            by_lane.setdefault((event["pid"], event["tid"]), []).append(event)
    assert set(by_lane) <= set(names)
    threads = [tid for _, tid in names]
    processes = {pid for pid, _ in names}
    assert len(set(threads)) == len(threads) and not {0, *processes} & set(threads)
    for event in events:
        assert event["ph"] in ("X", "M") and isinstance(event["name"], str)
        assert all(type(event[key]) is int for key in ("pid", "tid"))
    assert {names[lane] for lane in by_lane} >= {"host", "core 0"}
    for lane in by_lane.values():
        end = 0.0
        for event in lane:
            assert event["ts"] >= end - 1e-6 and event["dur"] >= 0
            end = event["ts"] + event["dur"]
    total = sum(len(lane) for run in (profile.first, profile.typical) for lane in lanes(run))
    assert sum(map(len, by_lane.values())) == total


def test_text_and_json_name_every_kernel(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    _, profile = profiled
    data = json.loads(json.dumps(profile.to_dict()))
    assert [kernel["name"] for kernel in data["kernels"]] == [k.name for k in profile.kernels]
    slowest = max(profile.kernels, key=lambda kernel: kernel.core_seconds)
    assert slowest.name in str(profile)


def test_ceilings_are_measured_once(profiled: tuple[dvm_graph.Model, Profile]) -> None:
    model, profile = profiled
    found = model._program.ceilings()
    profiled_with = (profile.peak_flops, profile.copy_bytes, profile.read_bytes)
    assert (found.flops, found.copy_bytes, found.read_bytes) == profiled_with
    assert found.flops > 1e8 and min(found.copy_bytes, found.read_bytes) > 1e7


def test_repeats_have_to_be_positive() -> None:
    model = dvm_graph.optimize(BERT)
    with pytest.raises(InputError, match="repeats is 0"):
        model.profile(bert_feeds(), repeats=0)
    feeds = bert_feeds()
    del feeds["input_ids"]
    with pytest.raises(InputError, match="missing input"):
        model.profile(feeds)


def test_work_of_attention_has_both_products() -> None:
    model = matmul(
        "(float[b, m, 8] q, float[b, s, 8] k, float[b, s, 4] v) => (float[b, m, 4] y) {"
        " t = Transpose<perm=[0, 2, 1]>(k) p = MatMul(q, t) w = Softmax<axis=-1>(p)"
        " y = MatMul(w, v) }"
    )
    shapes = {"q": (3, 70, 8), "k": (3, 50, 8), "v": (3, 50, 4)}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    kernels = dvm_graph.optimize(model).profile(feeds, repeats=1).kernels
    assert sum(kernel.matmul_flops for kernel in kernels) == 2 * 3 * 70 * 50 * (8 + 4)


TURNS = """(int64 m, float[k, k] s, bool c) => (float[k, k] t, float[p] y) <int64[1] last = {1}> {
    t = Loop (m, , s) <body = step (int64 i, bool on, float[k, k] a) => (bool onward, float[k, k] b) {
        onward = Identity (on) p = MatMul (a, a) b = Tanh (p)
    }>
    y = If (c) <
        then_branch = one () => (float[k] u) { n = Neg (t) r = ReduceMax <keepdims = 0, axes = [1]> (n) u = Exp (r) },
        else_branch = two () => (float[p] v) { h = MatMul (t, t) v = ReduceSum <keepdims = 0> (h, last) }
    >
}"""

HOST_TURN = "z = NonZero (p) r = ReduceMax <keepdims = 0> (z) f = Cast <to = 1> (r) q = Add (p, f) b = Tanh (q)"


@pytest.mark.parametrize("repeats", [True, False])
def test_bodies_of_control_flow_are_told(repeats: bool, tmp_path: Path) -> None:
    """Turns in one launch, or each as a run of its own: where an operator of the host is among them."""
    text = TURNS if repeats else TURNS.replace("b = Tanh (p)", HOST_TURN)
    model = dvm_graph.optimize(matmul(text))
    turns = 50
    feeds = {"m": np.array(turns), "s": np.eye(5, dtype=np.float32), "c": np.array(True)}
    profile = model.profile(feeds, repeats=2)
    inside = {k.name: k for k in profile.kernels if " body 0/" in k.name}
    assert inside.keys() == {k.name for k in profile.kernels}
    steps = [k for k in inside.values() if k.name.startswith("Loop")]
    assert {k.launches for k in steps} == {turns}
    assert sum(k.matmul_flops for k in steps) == turns * 2 * 5**3
    assert sum(k.launches for k in inside.values()) == model.statistics.kernels_launched
    run = profile.typical
    assert run.busy == pytest.approx(sum(k.core_seconds for k in profile.kernels))
    assert sum(span.category == "host" for span in run.host) == (0 if repeats else turns)
    alone = run.host_operators + run.control + run.host_alone
    whole = run.busy + run.idle + profile.cores * alone
    assert whole == pytest.approx(profile.cores * run.seconds)
    assert 0 < run.control < run.seconds
    calls = [span for span in run.host if span.category == "control"]
    assert [span.name.split()[0] for span in calls] == ["Loop", "If"]
    for lane in run.cores:
        assert all(any(c.start <= s.start <= s.end <= c.end for c in calls) for s in lane)
    assert {"MatMul", "Tanh"} <= {one for k in steps for one in k.operators}
    compiled = {span.name for span in profile.first.compiler}
    assert compiled == {k.name for k in profile.kernels if k.compile_seconds} == set(inside)
    profile.write_trace(tmp_path / "trace.json")
    assert "Loop" in (tmp_path / "trace.json").read_text()


SCANNED = """(float[n] z, float[n, t, k] x) => (float[n] h, float[t, n] y) {
    h, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [0], body = step
        (float[q] a, float[q, k] row) => (float[q] b, float[q] c) {
            r = ReduceMax <axes = [1], keepdims = 0> (row) p = Add (a, r) b = Tanh (p) c = Exp (b)
        }
    > (z, x)
}"""
RECURRENT = """(float[t, b, 16] x, float[1, 64, 16] w, float[1, 64, 16] r) => (float[t, 1, b, 16] y) {
    y = LSTM <hidden_size = 16> (x, w, r)
}"""


@pytest.mark.parametrize(
    ("text", "dims", "shapes"),
    [
        (TURNS, {"k": 5}, {"s": (5, 5)}),
        (SCANNED, {"n": 3, "t": 7, "k": 5}, {"z": (3,), "x": (3, 7, 5)}),
        (RECURRENT, {"t": 7, "b": 4}, {"x": (7, 4, 16), "w": (1, 64, 16), "r": (1, 64, 16)}),
    ],
    ids=["Loop", "Scan", "LSTM"],
)
def test_kernels_of_turns_are_listed_at_the_dims_of_a_run(
    text: str, dims: dict[str, int], shapes: dict[str, tuple[int, ...]]
) -> None:
    """Extents inside are those of what a turn is given."""
    feeds: dict[str, Any] = {n: np.ones(shape, np.float32) for n, shape in shapes.items()}
    if text is TURNS:
        feeds |= {"m": np.array(9), "c": np.array(True)}
    model = dvm_graph.optimize(matmul(text))
    ran = {kernel.name for kernel in model.profile(feeds, repeats=1).kernels}
    listed = {listing.name for listing in model.listings(dims)}
    assert any(" body 0/" in name for name in ran)
    assert ran <= listed
