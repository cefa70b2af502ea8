"""Vendor steps: operators that onnxruntime executes in between kernels."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import dvm_graph
from dvm_graph.errors import ExecutionError, ShapeError, UnsupportedError
from dvm_graph.ir import DType, Node, Value
from dvm_graph.kernels.plan import ModelPlan, Storage, VendorStep
from dvm_graph.options import Options
from dvm_graph.runtime import vendor
from dvm_graph.runtime.assemble import assemble
from tests.runtime.plans import F32, I64, PlanBuilder, call

OPTIONS = Options(cores=2)


def vendor_step(
    b: PlanBuilder, op: str, inputs: list[int], outputs: list[int], **attributes: Any
) -> None:
    """Appends a step of one ONNX operator over values of the plan."""

    def value(index: int) -> Value:
        described = b.plan.values[index]
        return Value(described.name, described.dtype, b.shapes[index])

    values = {index: value(index) for index in (*inputs, *outputs)}
    operands, results = tuple(values[i] for i in inputs), tuple(values[i] for i in outputs)
    proto = helper.make_node(
        op, [v.name for v in operands], [v.name for v in results], name=f"/{op}", **attributes
    )
    node = Node(
        f"/{op}",
        "vendor",
        operands,
        results,
        {"op": op},
        version=21,
        origin=(f"/{op}",),
        source=proto.SerializeToString(),
    )
    b.plan.steps.append(VendorStep((node,), tuple(inputs), tuple(outputs)))
    for index in outputs:
        b.bind(index)


def vendor_value(
    b: PlanBuilder, name: str, shape: tuple[Any, ...], dtype: DType = F32, output: bool = False
) -> int:
    index = b.value(name, shape, dtype, Storage.VENDOR)
    if output:
        b.returns(*b.plan.outputs, index)
    return index


def test_between_kernels() -> None:
    b = PlanBuilder()
    x = b.input("x", ("m", "n"))
    t = b.value("t", ("m", "n"))
    b.launch([call(b.map("neg", [x], t))])
    sums = vendor_value(b, "sums", ("m", "n"))
    vendor_step(b, "Softmax", [t], [sums], axis=1)
    y = b.output("y", ("m", "n"))
    b.launch([call(b.map("exp", [sums], y))])
    program = assemble(b.plan, OPTIONS)
    for shape in [(3, 5), (1, 1), (3, 5), (0, 4)]:
        x_array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        (result,) = program.run({"x": x_array})
        soft = np.exp(-x_array) / np.exp(-x_array).sum(1, keepdims=True)
        np.testing.assert_allclose(result, np.exp(soft), rtol=1e-5)


def nonzero_then_double() -> ModelPlan:
    """positions = NonZero(x); y = positions + positions, of a size that only the run tells."""
    b = PlanBuilder()
    x = b.input("x", ("n",))
    positions = vendor_value(b, "positions", (1, "found"), I64)
    vendor_step(b, "NonZero", [x], [positions])
    y = b.output("y", (1, "found"), I64)
    t = b.value("t", (1, "found"), I64)
    b.launch([call(b.map("add", [positions, positions], t, I64))])
    b.launch([call(b.map("neg", [t], y, I64))])
    shape = b.output("shape", (1,), I64)
    b.write_dims(shape, ["found"])
    return b.plan


def test_results_of_unknown_size() -> None:
    program = assemble(nonzero_then_double(), OPTIONS)
    for x in ([1, 0, 2, 0, 3], [0, 0], [1] * 50, [], [0, 1, 1, 1, 0]):
        array = np.array(x, np.float32)
        y, shape = program.run({"x": array})
        np.testing.assert_array_equal(y, -2 * np.array(np.nonzero(array)))
        np.testing.assert_array_equal(shape, [np.count_nonzero(array)])


def test_same_unknown_size_reuses_programs() -> None:
    program = assemble(nonzero_then_double(), OPTIONS)
    program.run({"x": np.array([1, 0, 1], np.float32)})
    assert program.statistics.kernels_compiled == 2
    y, _ = program.run({"x": np.array([0, 1, 1], np.float32)})
    assert program.statistics.kernels_compiled == 0
    np.testing.assert_array_equal(y, [[-2, -4]])
    program.run({"x": np.array([0, 0, 1], np.float32)})
    assert program.statistics.kernels_compiled == 2


def test_result_as_output_and_given_output() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    vendor_step(b, "Cos", [x], [vendor_value(b, "y", ("n",), output=True)])
    program = assemble(b.plan, OPTIONS)
    x_array = np.linspace(0, 1, 9, dtype=np.float32)
    (y,) = program.run({"x": x_array})
    np.testing.assert_allclose(y, np.cos(x_array), rtol=1e-6)
    given = np.empty(9, np.float32)
    assert program.run({"x": x_array}, {"y": given})[0] is given
    np.testing.assert_array_equal(given, y)


def test_bfloat16_passes_both_ways() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",), DType.BFLOAT16)
    y = vendor_value(b, "y", ("n",), DType.BFLOAT16)
    vendor_step(b, "Identity", [x], [y])
    z = b.output("z", ("n",), DType.BFLOAT16)
    b.launch([call(b.map("neg", [y], z))])
    x_array = np.arange(7).astype(DType.BFLOAT16.numpy)
    (result,) = assemble(b.plan, OPTIONS).run({"x": x_array})
    np.testing.assert_array_equal(result, -x_array)


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_float8_passes_both_ways(name: str, count: int) -> None:
    """To float8 in one model, back in another."""
    number = getattr(onnx.TensorProto, name)
    dtype = helper.tensor_dtype_to_np_dtype(number)

    def cast(source: int, target: int) -> onnx.ModelProto:
        node = helper.make_node("Cast", ["x"], ["y"], to=target)
        ports = [
            helper.make_tensor_value_info(n, t, [count]) for n, t in (("x", source), ("y", target))
        ]
        graph = helper.make_graph([node], "cast", ports[:1], ports[1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    x = np.linspace(-3, 3, count).astype(np.float32)
    (narrow,) = dvm_graph.optimize(cast(onnx.TensorProto.FLOAT, number)).run({"x": x})
    assert narrow.dtype == dtype
    np.testing.assert_array_equal(narrow.view(np.uint8), x.astype(dtype).view(np.uint8))
    (wide,) = dvm_graph.optimize(cast(number, onnx.TensorProto.FLOAT)).run({"x": narrow})
    np.testing.assert_array_equal(wide, narrow.astype(np.float32))


def test_strings_pass_through() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",), DType.OPAQUE)
    y = vendor_value(b, "y", ("n",), DType.OPAQUE, output=True)
    string = helper.make_tensor_type_proto(onnx.TensorProto.STRING, ["n"]).SerializeToString()
    vendor_step(b, "StringConcat", [x, x], [y])
    (step,) = b.plan.steps
    assert isinstance(step, VendorStep)
    b.plan.steps = [VendorStep(step.nodes, (x,), (y,))]
    for value in (*step.nodes[0].inputs, *step.nodes[0].outputs):
        assert value is not None
        value.opaque_type = string
    (result,) = assemble(b.plan, OPTIONS).run({"x": np.array(["a", "bc"], object)})
    assert list(result) == ["aa", "bcbc"]


def test_contradicting_result() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    vendor_step(b, "NonZero", [x], [vendor_value(b, "positions", (1, "n"), I64, output=True)])
    program = assemble(b.plan, OPTIONS)
    with pytest.raises(ShapeError, match="n is 3 by x and 1 by positions"):
        program.run({"x": np.array([0, 0, 4], np.float32)})
    program.run({"x": np.ones(3, np.float32)})


def test_failing_operator_names_its_node() -> None:
    b = PlanBuilder()
    x, index = b.input("x", ("n",)), b.input("index", ("k",), I64)
    vendor_step(b, "Gather", [x, index], [vendor_value(b, "y", ("k",), output=True)])
    program = assemble(b.plan, OPTIONS)
    feeds = {"x": np.arange(3, dtype=np.float32), "index": np.array([5])}
    with pytest.raises(ExecutionError, match="/Gather"):
        program.run(feeds)
    (result,) = program.run({**feeds, "index": np.array([2, 0])})
    np.testing.assert_array_equal(result, [2, 0])


def test_operator_that_nobody_runs() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    vendor_step(b, "Softmax", [x], [vendor_value(b, "y", ("n",), output=True)], axis=7)
    with pytest.raises(UnsupportedError, match="Softmax"):
        assemble(b.plan, OPTIONS)


def test_threads_do_not_deadlock_over_the_interpreter_lock() -> None:
    program = assemble(nonzero_then_double(), OPTIONS)
    failures: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x = rng.integers(0, 2, size=rng.integers(0, 60)).astype(np.float32)
            y, _ = program.run({"x": x})
            if not np.array_equal(y, -2 * np.array(np.nonzero(x))):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_shapes_that_onnxruntime_deduces_wrongly_do_not_fail_runs() -> None:
    """Dilations of a window with SAME pads: its kernel and what it deduces differ, and values share memory."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float16[a, b, n] x) => (float16[?, ?, ?] big, float16[?, ?, ?] pooled, int64[?, ?, ?] where)
        <float[3] scales = {1, 2, 2}> {
            pooled, where = MaxPool <auto_pad = "SAME_LOWER", dilations = [2], kernel_shape = [3]> (x)
            soft = LogSoftmax (x)
            big = Resize (soft, "", scales)
        }"""
    )
    x = np.random.default_rng(5).standard_normal((12, 2, 5)).astype(np.float16)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    optimised = dvm_graph.optimize(model)
    for _ in range(2):
        results = optimised.run({"x": x})
        for result, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, reference, rtol=2e-3, atol=1e-3)


FOLDS_TO_WHAT_IT_REFUSES = """<ir_version: 8, opset_import: ["": 18]>
    g (float[n, n] x, float low, float high, bool which) => (float[] y) <int64[2] wrong = {1, -5}> {
        r = If (which) <
            then_branch = t () => (float[] a) { bins = Identity (wrong)
                                                a = MelWeightMatrix (bins, bins, bins, low, high) },
            else_branch = e () => (float[] b) { b = Det (x) }
        >
        y = Neg (r)
    }"""


@pytest.mark.parametrize("broken", [False, True])
def test_what_onnxruntime_refuses_of_its_own_rewriting_runs_as_it_is(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the compiler takes it apart, and a part is loaded that would fail if it ran, or breaks."""
    model = onnx.parser.parse_model(FOLDS_TO_WHAT_IT_REFUSES)
    with pytest.raises(Exception, match="num_mel_bins input must be scalar"):
        ort.InferenceSession(model.SerializeToString())
    if broken:
        monkeypatch.setattr(
            "dvm_graph.rescue.compile_model", lambda *_: (_ for _ in ()).throw(ShapeError("broken"))
        )
    feeds = {
        "x": np.array([[2, 1], [1, 3]], np.float32),
        "low": np.float32(0),
        "high": np.float32(1),
        "which": np.array(False),
    }
    with warnings.catch_warnings(record=True) as rescues:
        warnings.simplefilter("always", dvm_graph.RescueWarning)
        optimised = dvm_graph.optimize(model)
    assert ["the whole model" in str(rescue.message) for rescue in rescues] == [True] * broken
    (result,) = optimised.run(feeds)
    np.testing.assert_allclose(result, -np.linalg.det(feeds["x"]), rtol=1e-6)
    assert result.shape == ()


@pytest.mark.parametrize(
    ("body", "options", "spins"),
    [
        ("y = Det(s)", {}, "1"),
        ("y = Det(s)", {"spin": False}, "0"),
        ("y = Det(s) z = Exp(x)", {}, "0"),
    ],
)
def test_threads_spin_where_nobody_else_works(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    body: str,
    options: dict[str, bool],
    spins: str,
) -> None:
    seen = []

    class Session(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, model: Any, given: ort.SessionOptions, **more: Any) -> None:
            seen.append(given.get_session_config_entry("session.intra_op.allow_spinning"))
            super().__init__(model, given, **more)

    monkeypatch.setattr(vendor, "vendor_session", lambda: Session)
    outputs = "float[b] y, float[n] z" if "Exp" in body else "float[b] y"
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        agraph (float[b, m, m] s, float[n] x) => ({outputs}) {{ {body} }}"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text), **options)
    model.save(tmp_path / "m.dvm")
    assert seen[-1] == spins
    dvm_graph.load(tmp_path / "m.dvm", **options)
    assert seen[-1] == spins
