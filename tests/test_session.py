"""`InferenceSession` beside onnxruntime's: the calls of its documentation give the same from both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import dvm_graph
from dvm_graph.comparison import reference_session
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]

MODEL = parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n, 4] x, int64[n] k) => (float[n, 4] y, int64[n] l)
    { y = Gelu(x) l = Add(k, k) }"""
).SerializeToString()
HALF = parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 20]>
    g (bfloat16[n] x) => (float[n] y) { y = Cast<to = 1>(x) }"""
).SerializeToString()

sessions = pytest.mark.parametrize(
    "make",
    [onnxruntime.InferenceSession, dvm_graph.InferenceSession],
    ids=["onnxruntime", "dvm_graph"],
)
Make = Callable[..., Any]


def _feeds(n: int = 3) -> dict[str, Array]:
    values = np.random.default_rng(0).standard_normal((n, 4))
    return {"x": values.astype(np.float32), "k": np.arange(n)}


def _expected(feeds: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _check(results: list[Array], feeds: dict[str, Array]) -> None:
    for result, expected in zip(results, _expected(feeds), strict=True):
        assert_close(result, expected)


def test_in_the_place_of_onnxruntimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vendor operators and references are onnxruntime's own sessions still."""
    matrices = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]> g (float[n, 3, 3] x) => (float[n] y) { y = Det(x) }"""
    ).SerializeToString()
    monkeypatch.setattr(onnxruntime, "InferenceSession", dvm_graph.InferenceSession)
    (result,) = onnxruntime.InferenceSession(model).run(None, {"x": matrices})
    np.testing.assert_allclose(result, np.linalg.det(matrices), rtol=1e-5)
    assert not isinstance(reference_session(model), dvm_graph.InferenceSession)


@sessions
def test_arguments_of_onnxruntime(make: Make) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = False
    session = make(MODEL, sess_options=options, providers=[("CPUExecutionProvider", {})])
    _check(session.run(None, _feeds()), _feeds())
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_overridable_initializers() == []


@sessions
def test_inputs_and_outputs_are_described(make: Make) -> None:
    session = make(MODEL, providers=["CPUExecutionProvider"])
    described = [(a.name, a.shape, a.type) for a in (*session.get_inputs(), *session.get_outputs())]
    assert described == [
        ("x", ["n", 4], "tensor(float)"),
        ("k", ["n"], "tensor(int64)"),
        ("y", ["n", 4], "tensor(float)"),
        ("l", ["n"], "tensor(int64)"),
    ]


@sessions
def test_metadata(make: Make) -> None:
    model = onnx.ModelProto.FromString(MODEL)
    model.producer_name, model.domain, model.model_version = "here", "org.example", 3
    model.doc_string, model.graph.doc_string = "of two", "a graph"
    onnx.helper.set_model_props(model, {"classes": "a b"})
    # A function of the model's own: its graph is rewritten as it is loaded.
    imports = [onnx.helper.make_opsetid("", 20)]
    negate = onnx.helper.make_node("Neg", ["x"], ["y"])
    model.functions.append(
        onnx.helper.make_function("own", "Minus", ["x"], ["y"], [negate], imports)
    )
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.graph.node.append(onnx.helper.make_node("Minus", ["x"], ["z"], domain="own"))
    meta = make(model.SerializeToString(), providers=["CPUExecutionProvider"]).get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.version) == ("here", "org.example", 3)
    assert (meta.description, meta.graph_description) == ("of two", "a graph")
    assert meta.graph_name == "g"
    assert meta.custom_metadata_map == {"classes": "a b"}


@sessions
def test_metadata_of_nothing(make: Make) -> None:
    assert make(MODEL, providers=["CPUExecutionProvider"]).get_modelmeta().version == 2**63 - 1


@sessions
@pytest.mark.parametrize("names", [None, [], ["l"], ["l", "y"]])
def test_outputs_by_name(make: Make, names: list[str] | None) -> None:
    feeds = _feeds()
    results = make(MODEL, providers=["CPUExecutionProvider"]).run(names, feeds)
    by_name = dict(zip(["y", "l"], _expected(feeds), strict=True))
    for result, name in zip(results, names or ["y", "l"], strict=True):
        assert_close(result, by_name[name])


@sessions
def test_ort_values(make: Make) -> None:
    feeds = _feeds()
    session = make(MODEL, providers=["CPUExecutionProvider"])
    values = {k: onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
    results = session.run_with_ort_values(["y", "l"], values)
    assert all(isinstance(result, onnxruntime.OrtValue) for result in results)
    _check([result.numpy() for result in results], feeds)


@sessions
def test_ort_value_of_a_type_that_numpy_lacks(make: Make) -> None:
    bits = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    session = make(HALF, providers=["CPUExecutionProvider"])
    (result,) = session.run_with_ort_values(None, {"x": value})
    assert result.numpy().tolist() == [1.0, -2.0, np.inf]


@sessions
def test_io_binding(make: Make) -> None:
    feeds = _feeds()
    session = make(MODEL, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    k = feeds["k"]
    binding.bind_input("k", "cpu", 0, np.int64, k.shape, k.ctypes.data)
    y = onnxruntime.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32)
    binding.bind_ortvalue_output("y", y)
    binding.bind_output("l")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    _check(binding.copy_outputs_to_cpu(), feeds)
    _check([value.numpy() for value in binding.get_outputs()], feeds)
    _check([y.numpy(), binding.copy_outputs_to_cpu()[1]], feeds)

    target = np.zeros(3, np.int64)
    binding.clear_binding_outputs()
    binding.bind_output("l", "cpu", 0, onnx.TensorProto.INT64, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
    assert_close(target, _expected(feeds)[1])


@sessions
def test_run_async(make: Make) -> None:
    done = threading.Event()
    seen: list[Any] = []

    def callback(results: list[Array], user_data: str, error: str) -> None:
        seen.append((results, user_data, error))
        done.set()

    session = make(MODEL, providers=["CPUExecutionProvider"])
    session.run_async(None, _feeds(), callback, "mine")
    assert done.wait(60)
    ((results, user_data, error),) = seen
    assert (user_data, error) == ("mine", "")
    _check(results, _feeds())


def test_run_async_tells_errors() -> None:
    done = threading.Event()
    errors: list[str] = []

    def callback(results: list[Array], user_data: None, error: str) -> None:
        errors.append(error)
        done.set()

    feeds = {**_feeds(), "k": np.arange(4).reshape(2, 2)}
    dvm_graph.InferenceSession(MODEL).run_async(None, feeds, callback)
    assert done.wait(60)
    assert "k has rank 2" in errors[0]


@sessions
def test_missing_inputs_are_value_errors(make: Make) -> None:
    session = make(MODEL, providers=["CPUExecutionProvider"])
    with pytest.raises(ValueError, match="k"):
        session.run(None, {"x": np.zeros((3, 4), np.float32)})


def test_other_providers_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        dvm_graph.InferenceSession(MODEL, providers=["CUDAExecutionProvider"])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.run(None, [1, 2]),
        lambda s: s.run(["z"], _feeds()),
        lambda s: s.run_with_iobinding(dvm_graph.InferenceSession(MODEL).io_binding()),
        lambda s: s.io_binding().bind_output("y", "cuda", 0),
        lambda s: s.io_binding().bind_output("y", "cpu", 0, np.float32, None, 64),
        lambda s: dvm_graph.InferenceSession(MODEL, cuda=True),
    ],
    ids=["feeds", "output", "foreign binding", "device", "address alone", "argument"],
)
def test_wrong_calls(wrong: Callable[[Any], Any]) -> None:
    with pytest.raises(dvm_graph.InputError):
        wrong(dvm_graph.InferenceSession(MODEL))
