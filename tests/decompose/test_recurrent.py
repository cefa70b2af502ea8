"""`LSTM`, `GRU` and `RNN` without vendor operators, against onnxruntime, at every attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.errors import ShapeError, StrictError
from tests.decompose.reference import session

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
INPUTS, HIDDEN = 4, 6


def recurrent(
    op: str,
    *,
    constant: bool = True,
    bias: bool = True,
    lengths: bool = False,
    initial: bool = True,
    peepholes: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """The operator over any number of steps and batches."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    generator = np.random.default_rng(0)
    rows = GATES[op] * HIDDEN
    shapes: dict[str, tuple[int, ...]] = {
        "w": (directions, rows, INPUTS),
        "r": (directions, rows, HIDDEN),
    }
    names = ["x", "w", "r", "", "", ""]
    inputs = {"x": ("t", "b", INPUTS)}
    if bias:
        shapes["b"], names[3] = (directions, 2 * rows), "b"
    if lengths:
        names[4] = "lengths"
    state = ("b", directions, HIDDEN) if attributes.get("layout") else (directions, "b", HIDDEN)
    if attributes.get("layout"):
        inputs["x"] = ("b", "t", INPUTS)
    states = ("h", "c")[: 1 + (op == "LSTM")]
    if initial:
        names[5:] = states
        inputs |= dict.fromkeys(states, state)
    if peepholes:
        names += [""] * (7 - len(names)) + ["p"]
        shapes["p"] = (directions, 3 * HIDDEN)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    if lengths:
        infos.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["b"]))
    most = 1.5 / HIDDEN**0.5  # so that errors of a step fade
    arrays = {n: generator.uniform(-most, most, s).astype(np.float32) for n, s in shapes.items()}
    if not constant:
        infos += [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
        arrays = {}
    outputs = ["y", *(f"last_{state}" for state in states)]
    node = helper.make_node(op, names, outputs, name="n", hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        infos,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def feeds_for(model: onnx.ModelProto, steps: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(steps)
    sizes = {"t": steps, "b": batch}
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for info in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        feeds[info.name] = generator.uniform(-0.8, 0.8, shape).astype(np.float32)
        if info.name == "lengths":
            feeds[info.name] = generator.integers(1, steps + 1, batch).astype(np.int32)
    return feeds


def agrees(model: onnx.ModelProto, sizes: tuple[tuple[int, int], ...] = ((5, 3), (1, 1))) -> None:
    compiled, reference = dvm_graph.optimize(model, strict=True, cores=2), session(model)
    for steps, batch in sizes:
        feeds = feeds_for(model, steps, batch)
        for got, want in zip(compiled.run(feeds), reference.run(None, feeds), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op: str, direction: str) -> None:
    agrees(recurrent(op, direction=direction), ((5, 3), (1, 1), (40, 2)))
    agrees(recurrent(op, direction=direction, lengths=True))
    agrees(
        recurrent(op, direction=direction, lengths=True, constant=False, bias=False, initial=False)
    )


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_weights_of_unknown_extents(op: str, direction: str) -> None:
    """They are those of the definition; `hidden_size` tells it, and over no steps states stay as they were."""
    known = recurrent(op, direction=direction, constant=False)
    model = onnx.ModelProto.FromString(known.SerializeToString())
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}{axis}"
    feeds = feeds_for(known, 5, 3)
    compiled, reference = dvm_graph.optimize(model, strict=True), session(known)
    for got, want in zip(compiled.run(feeds), reference.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    feeds["x"] = feeds["x"][:0]
    _, *last = compiled.run(feeds)
    for state, name in zip(last, ("h", "c"), strict=False):
        np.testing.assert_array_equal(state, feeds[name])


@pytest.mark.parametrize("op", GATES)
def test_clip(op: str) -> None:
    agrees(recurrent(op, clip=0.3))
    agrees(recurrent(op, clip=0.2, lengths=True, direction="bidirectional"))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("attributes", [{}, {"input_forget": 1}, {"clip": 0.2}], ids=str)
def test_peepholes(direction: str, attributes: dict[str, Any]) -> None:
    agrees(recurrent("LSTM", peepholes=True, direction=direction, **attributes))


@pytest.mark.parametrize("bias", [False, True])
def test_linear_before_reset(bias: bool) -> None:
    agrees(recurrent("GRU", linear_before_reset=1, bias=bias, direction="bidirectional"))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "name",
    [
        "Affine",
        "Elu",
        "HardSigmoid",
        "LeakyRelu",
        "Relu",
        "ScaledTanh",
        "Softsign",
        "ThresholdedRelu",
    ],
)
def test_activations(op: str, name: str) -> None:
    count = FUNCTIONS[op]
    agrees(
        recurrent(
            op,
            activations=[name] * count,
            activation_alpha=[0.7, 0.6, 0.5][:count],
            activation_beta=[0.3, 0.2, 0.1][:count],
        )
    )


def test_parameters_without_a_default_are_left_to_onnxruntime() -> None:
    model = recurrent("RNN", activations=["Affine"])
    with pytest.raises(StrictError):
        dvm_graph.optimize(model, strict=True)
    feeds = feeds_for(model, 2, 2)
    want = session(model).run(None, feeds)
    np.testing.assert_allclose(dvm_graph.optimize(model).run(feeds)[0], want[0], rtol=1e-6)


@pytest.mark.parametrize("op", GATES)
def test_operands_of_unknown_extents(op: str) -> None:
    """They are taken for what the operator says, and runs refuse others."""
    model = recurrent(op, constant=False, lengths=True)
    feeds = feeds_for(model, 2, 3)
    for given in model.graph.input:
        if given.name in ("b", "h", "c", "lengths"):
            for number, dim in enumerate(given.type.tensor_type.shape.dim):
                dim.dim_param = f"{given.name}{number}"
    compiled = dvm_graph.optimize(model, strict=True)
    for got, want in zip(compiled.run(feeds), session(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    feeds["b"] = feeds["b"][:, :-1]
    with pytest.raises(ShapeError):
        compiled.run(feeds)


@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_the_same_with_axes_moved(op: str) -> None:
    """onnxruntime has no kernels for this layout."""
    feeds = feeds_for(recurrent(op), 5, 3)
    usual = dvm_graph.optimize(recurrent(op), strict=True).run(feeds)
    moved = {name: np.ascontiguousarray(np.swapaxes(x, 0, 1)) for name, x in feeds.items()}
    y, *last = dvm_graph.optimize(recurrent(op, layout=1), strict=True).run(moved)
    np.testing.assert_allclose(np.transpose(y, (1, 2, 0, 3)), usual[0], rtol=1e-5, atol=1e-6)
    for got, want in zip(last, usual[1:], strict=True):
        np.testing.assert_allclose(np.swapaxes(got, 0, 1), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("batch", [0, 3])
def test_no_steps_leave_the_states_as_they_are(op: str, direction: str, batch: int) -> None:
    """onnxruntime gives zeros as the last states, or ends the process."""
    model = recurrent(op, direction=direction, lengths=True)
    feeds = feeds_for(model, 1, batch)
    feeds["x"], feeds["lengths"] = feeds["x"][:0], feeds["lengths"] * 0
    y, *last = dvm_graph.optimize(model, strict=True).run(feeds)
    assert y.shape == (0, 1 + (direction == "bidirectional"), batch, HIDDEN)
    for state, got in zip(("h", "c"), last, strict=False):
        np.testing.assert_array_equal(got, feeds[state])


@pytest.mark.parametrize("op", GATES)
def test_many_steps_on_one_core_and_on_several(op: str) -> None:
    model = recurrent(op, direction="bidirectional", lengths=True)
    feeds = feeds_for(model, 500, 33)
    want = session(model).run(None, feeds)
    for cores in (1, 2, 3):
        compiled = dvm_graph.optimize(model, strict=True, cores=cores)
        for got, expected in zip(compiled.run(feeds), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("options", [{"constant": False}, {"initial": False}], ids=str)
def test_shares_of_a_batch(op: str, direction: str, options: dict[str, bool]) -> None:
    model = recurrent(op, direction=direction, lengths=True, peepholes=op == "LSTM", **options)
    agrees(model, ((30, 8), (30, 5), (2, 9), (1, 8), (7, 1), (30, 8)))


def test_each_core_takes_a_share_of_a_batch_through_all_turns() -> None:
    model = recurrent("LSTM")
    launched = {}
    for cores in (1, 2):
        compiled = dvm_graph.optimize(model, strict=True, cores=cores)
        for steps in (5, 9):
            compiled.run(feeds_for(model, steps, 8))
            launched[cores, steps] = compiled.statistics.kernels_launched
    turn = (launched[1, 9] - launched[1, 5]) // 4
    assert turn > 0
    assert launched[2, 9] - launched[2, 5] == 2 * 4 * turn


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("attributes", [{}, {"linear_before_reset": 1}], ids=str)
def test_the_first_step_multiplies_no_zeros(op: str, attributes: dict[str, Any]) -> None:
    if attributes and op != "GRU":
        attributes = {"clip": 0.5}
    for direction in ("forward", "bidirectional"):
        model = recurrent(op, initial=False, direction=direction, **attributes)
        agrees(model, ((1, 1), (1, 3), (2, 1), (6, 4), (6, 3)))
        profile = dvm_graph.optimize(model, strict=True).profile(feeds_for(model, 3, 2), repeats=1)
        flops = {k.name: k.matmul_flops for k in profile.kernels if "/" in k.name}
        later = sum(flops[name] for name in flops if "body 0" in name)
        first = sum(flops[name] for name in flops if "body 1" in name)
        # Of a GRU, the new gate's product is of r times h, and r may be no number.
        assert later > 2 * first >= 0
        assert op == "GRU" or first == 0


def test_weights_that_are_not_finite_make_zeros_something_else() -> None:
    model = recurrent("LSTM", initial=False)
    for tensor in model.graph.initializer:
        if tensor.name == "r":
            r = numpy_helper.to_array(tensor).copy()
            r[0, 1, 2] = np.inf
            tensor.CopyFrom(numpy_helper.from_array(r, "r"))
    feeds = feeds_for(model, 2, 3)
    y, *_ = dvm_graph.optimize(model, strict=True).run(feeds)
    assert np.isnan(y[0, 0, :, 1]).all()  # 0 times infinite, in an input gate
    assert not np.isnan(y[0, 0, :, 0]).any()


def test_turns_are_bit_for_bit_the_same_every_time() -> None:
    model = recurrent("LSTM")
    compiled, feeds = dvm_graph.optimize(model, strict=True, cores=2), feeds_for(model, 300, 8)
    first = [output.tobytes() for output in compiled.run(feeds)]
    for _ in range(20):
        assert [output.tobytes() for output in compiled.run(feeds)] == first


def test_checked() -> None:
    """Passes and kernels of the body, too."""
    dvm_graph.optimize(recurrent("LSTM", lengths=True, direction="bidirectional"), check=True)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("hidden", [32, 512])
def test_short_steps_and_those_that_cores_share(
    op: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core takes steps that are over sooner than cores have met, and nobody else has any."""
    monkeypatch.setattr("tests.decompose.test_recurrent.HIDDEN", hidden)
    model = recurrent(op, initial=False)
    agrees(model, ((20, 1), (3, 2), (2, 1)))
    compiled, feeds = dvm_graph.optimize(model, strict=True, cores=2), feeds_for(model, 40, 1)
    record = compiled.profile(feeds)
    steps = [kernel for kernel in record.kernels if kernel.launches >= 39]
    assert steps
    assert all((kernel.tiles > kernel.launches) == (hidden == 512) for kernel in steps)
