"""Recurrent operators, and signals: transforms and windows."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Value
from tests.fuzz.operands import along, maybe
from tests.fuzz.registry import OTHER, recipe, types

INT32, INT64 = TensorProto.INT32, TensorProto.INT64
FLOAT, DOUBLE, FLOAT16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16

_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh")
_ACTIVATIONS = (*_ACTIVATIONS, "HardSigmoid", "Elu", "Softsign", "Softplus")
_OF_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
_UNBOUNDED = {"Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "Elu", "Softplus"}
_OF_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


@recipe("LSTM", "GRU", "RNN", kind=OTHER, weight=2)
def recurrent(g: Growth, op: str) -> Value:
    kinds = (FLOAT, FLOAT, FLOAT, DOUBLE) if op != "RNN" else (FLOAT,)
    dtype = g.choose(kinds)
    x = g.ranked((dtype,), 3, 3)
    if 0 in x.at(2):
        raise RefusedError  # onnxruntime leaves products over nothing as it finds them
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    hidden = g.choose((1, 3, 4))
    direction = g.choose(("forward", "reverse", "bidirectional"))
    n = 2 if direction == "bidirectional" else 1
    layout = 1 if g.opset >= 14 and g.chance(0.15) else None
    batch = 0 if layout else 1

    def state() -> Value:
        dims = ((batch,), n, hidden) if layout else (n, (batch,), hidden)
        return g.fresh(dtype, along(x, *dims))

    w = g.fresh(dtype, along(x, n, gates * hidden, (2,)))
    r = g.fresh(dtype, [(n, gates * hidden, hidden)] * g.breadth)
    b = maybe(g, lambda: g.fresh(dtype, [(n, 2 * gates * hidden)] * g.breadth))
    lengths = None
    if g.chance(0.25) and min(x.at(1 - batch)) > 0:
        most = Contents(low=(1,) * g.breadth, high=tuple(s + 1 for s in x.at(1 - batch)))
        lengths = g.fresh(INT32, along(x, (batch,)), most)
    operands = [x, w, r, b, lengths, maybe(g, state, 0.3)]
    if op == "LSTM":
        operands.append(maybe(g, state, 0.3))
        if g.chance(0.2):
            operands.append(g.fresh(dtype, [(n, 3 * hidden)] * g.breadth))
    functions = _activations(g, n * {"LSTM": 3, "GRU": 2, "RNN": 1}[op])
    grows = not _UNBOUNDED.isdisjoint(functions.get("activations", ()))
    clip = 0.5 if grows and max(x.at(1 - batch)) > 2 else g.choose((None, None, None, 0.5))
    attributes = {
        "hidden_size": hidden,
        "direction": direction,
        "linear_before_reset": g.choose((None, 0, 1)) if op == "GRU" else None,
        "clip": clip,
        "input_forget": g.choose((None, None, 0, 1)),
        "layout": layout,
        **functions,
    }
    outputs = g.choose((1, 2, 3) if op == "LSTM" else (1, 2))
    return g.emit(op, operands, attributes, outputs=outputs)


def _activations(g: Growth, count: int) -> dict[str, list[object]]:
    """Names of functions, with numbers for those that take some."""
    if g.chance(0.7):
        return {}
    names = [g.choose(_ACTIVATIONS) for _ in range(count)]
    found: dict[str, list[object]] = {"activations": list(names)}
    for attribute, taking in (("activation_alpha", _OF_ALPHA), ("activation_beta", _OF_BETA)):
        numbers: list[object] = [g.choose((0.2, 0.5, 1.0)) for name in names if name in taking]
        if numbers:
            found[attribute] = numbers
    return found


@recipe("DFT", kind=OTHER, weight=0.5)
def dft(g: Growth) -> Value:
    dtype = g.choose((FLOAT, FLOAT, DOUBLE))
    axis = g.choose((1, 1, 2)) if g.chance(0.3) else 1
    shape = [2, g.choose((4, 5, 8)), g.choose((1, 2))]
    if axis == 2 or g.chance(0.2):
        shape.insert(2, g.choose((3, 4)))
    x = g.fresh(dtype, [tuple(shape)] * g.breadth)
    inverse, half = g.choose((None, 0, 1)), g.choose((None, 0, 1))
    length = None
    if g.chance(0.3):
        length = g.integers(g.choose((3, 4, 8)), g.choose((np.int64, np.int32)))
    named = {"axis": axis} if g.opset < 20 or g.chance(0.7) else {}
    attributes = {"inverse": inverse, "onesided": half}
    operands = [x, length] if length else [x]
    return g.emit("DFT", operands, attributes, params=named)


@recipe("STFT", kind=OTHER, weight=0.5)
def stft(g: Growth) -> Value:
    dtype = g.choose((FLOAT, FLOAT, DOUBLE))
    complex_ = g.chance(0.3)
    x = g.fresh(dtype, [(g.choose((1, 2)), g.choose((16, 23)), 2 if complex_ else 1)] * g.breadth)
    frame, step = g.choose((4, 5, 8)), g.choose((1, 3, 4))
    window = maybe(g, lambda: g.fresh(dtype, [(frame,)] * g.breadth))
    kind = g.choose((np.int64, np.int32))
    length = g.integers(frame, kind) if window is None or g.chance(0.5) else None
    one_sided = 0 if complex_ else g.choose((None, 0, 1))
    return g.emit("STFT", [x, g.integers(step, kind), window, length], {"onesided": one_sided})


@recipe("HannWindow", "HammingWindow", "BlackmanWindow", kind=OTHER, weight=0.3)
def signal_window(g: Growth, op: str) -> Value:
    size = g.integers(g.choose((1, 5, 8)), g.choose((np.int64, np.int32)))
    kind = g.choose((None, FLOAT, FLOAT16, DOUBLE))
    y = g.emit(op, [size], {"periodic": g.choose((None, 0, 1)), "output_datatype": kind})
    # Numbers that are equal, or 0, but for rounding: of those nobody promises an order or a sign.
    numpy = {FLOAT16: np.float16, DOUBLE: np.float64}.get(kind, np.float32)
    hundred, one = (g.constant(np.array(number, numpy)) for number in (100, 1))
    return g.emit("Add", [g.emit("Round", [g.emit("Mul", [y, hundred])]), one])


@recipe("MelWeightMatrix", kind=OTHER, weight=0.3)
def mel_weights(g: Growth) -> Value:
    kind = g.choose((np.int64, np.int32))
    whole = [g.extents(g.choose(of), kind) for of in ((3, 8), (16, 17), (8000, 16000))]
    edges = [g.constant(np.array(edge, np.float32)) for edge in (0, g.choose((2000, 4000)))]
    attributes = {"output_datatype": g.choose((None, FLOAT, DOUBLE))}
    return g.emit("MelWeightMatrix", [*whole, *edges], attributes)


@recipe("CausalConvWithState", kind=OTHER)
def causal_convolution(g: Growth) -> Value:
    x = g.ranked(types("CausalConvWithState", g.opset), 3, 3)
    if not x.fixed(1) or not x.at(1)[0]:
        raise RefusedError
    channels, taps = x.at(1)[0], g.choose((1, 2, 4))
    w = g.fresh(x.dtype, [(channels, 1, taps)] * g.breadth)
    bias = maybe(g, lambda: g.fresh(x.dtype, [(channels,)] * g.breadth))
    past = maybe(g, lambda: g.fresh(x.dtype, along(x, (0,), channels, taps - 1)))
    activation = g.choose((None, "none", "silu", "swish"))
    operands = [x, w, bias, past]
    return g.emit("CausalConvWithState", operands, {"activation": activation}, outputs=2)


@recipe("LinearAttention", kind=OTHER)
def linear_attention(g: Growth) -> Value:
    dtype = g.choose((FLOAT, FLOAT, FLOAT16))
    shared, width, wide = g.choose((1, 2)), 4, g.choose((4, 8))
    heads = shared * g.choose((1, 2))
    batch, length = g.choose((1, 2)), g.choose((1, 3, 5))
    rule = g.choose((None, "linear", "gated", "delta", "gated_delta"))

    def fresh(*dims: int) -> Value:
        return g.fresh(dtype, [dims] * g.breadth)

    q, k = fresh(batch, length, heads * width), fresh(batch, length, shared * width)
    v = fresh(batch, length, shared * wide)
    past = fresh(batch, shared, width, wide) if g.chance(0.5) else None
    gated = rule in (None, "gated", "gated_delta")
    decay = fresh(batch, length, shared * g.choose((1, width))) if gated else None
    beta = (
        fresh(batch, length, g.choose((1, shared)))
        if rule in (None, "delta", "gated_delta")
        else None
    )
    attributes = {
        "q_num_heads": heads,
        "kv_num_heads": shared,
        "update_rule": rule,
        "scale": g.choose((None, 0.5)),
        "chunk_size": g.choose((None, 1)),
    }
    return g.emit("LinearAttention", [q, k, v, past, decay, beta], attributes, outputs=2)
