"""Products and convolutions of bytes run in kernels, and are those of onnxruntime bit by bit.

The references are onnxruntime's integer operators, for the QDQ pattern, too: its default session makes such operators
of it where activations are uint8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import dvm_graph
from dvm_graph import _core
from dvm_graph.import_ import cuts_sums_of_bytes
from tests.end_to_end.reference import Array, assert_all_close, assert_same_bits
from tests.tolerances import tolerance

GENERATOR = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def begun_anew() -> None:
    """What a test draws does not hang on which tests ran before it."""
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state


def integers(dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights(*shape: int) -> Array:
    """int8 whose products by uint8 the reference sums exactly: of 7 bits where it cuts sums of two to 16."""
    return integers("int8", *shape) >> cuts_sums_of_bytes()


def model_with(text: str, constants: Mapping[str, Any]) -> onnx.ModelProto:
    """`constants` become initializers of the graph of a text."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def check(
    model: onnx.ModelProto,
    *feeds: Mapping[str, Array],
    simd: str | None = None,
    like: onnx.ModelProto | None = None,
    instruction: str = "",
) -> None:
    """In kernels alone, and with the same bits as a default session of onnxruntime, maybe of another model."""
    compiled = dvm_graph.optimize(model, strict=True, simd=simd, check=True)
    assert instruction in compiled.disassemble(feeds[0])
    source = (like or model).SerializeToString()
    reference = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    for feed in feeds:
        wanted = reference.run(None, dict(feed))
        assert_same_bits(compiled.run(feed), wanted)


def unoptimised(model: onnx.ModelProto) -> ort.InferenceSession:
    """onnxruntime, computing floats where the model has floats."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


SHAPES = [(1, 1, 1), (1, 7, 33), (5, 64, 48), (3, 130, 17), (61, 257, 96), (1, 1024, 512)]
"""Of m, k and n: bundles and panels that are whole, and others."""


@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["uint8", "int8"])
def test_sums_are_exact(left: str, right: str) -> None:
    """Of whole bytes, which onnxruntime does not sum exactly on every CPU."""
    for m, k, n in SHAPES:
        constants = {"b": integers(right, k, n), "z": integers(left), "y": integers(right, n)}
        text = f"g ({left}[m, {k}] a) => (int32[m, {n}] c) {{ c = MatMulInteger(a, b, z, y) }}"
        compiled = dvm_graph.optimize(model_with(text, constants), strict=True, check=True)
        assert "m_matmul_bundles" in compiled.disassemble({"a": integers(left, 4, k)})
        factor = constants["b"] - constants["y"].astype(np.int64)
        for a in (integers(left, m, k), integers(left, 4, k)):
            sums = (a - constants["z"].astype(np.int64)) @ factor
            assert_same_bits(compiled.run({"a": a}), [sums.astype(np.int32)])


@pytest.mark.parametrize("level", _core.simd_levels())
def test_extreme_bytes_do_not_saturate(level: str) -> None:
    k = 515
    b = np.full((k, 40), -128, np.int8)
    text = f"g (uint8[m, {k}] a) => (int32[m, 40] c) {{ c = MatMulInteger(a, b) }}"
    model = dvm_graph.optimize(model_with(text, {"b": b}), strict=True, simd=level, check=True)
    a = np.full((9, k), 255, np.uint8)
    np.testing.assert_array_equal(model.run({"a": a})[0], a.astype(np.int32) @ b.astype(np.int32))


def test_what_is_quantised_at_the_run() -> None:
    constants = {
        "w": weights(96, 40), "scale": np.float32(0.02), "bias": integers("int8", 40).astype(np.float32),
    }  # fmt: skip
    text = """g (float[b, n, 96] x) => (float[b, n, 40] y) {
        q, s, z = DynamicQuantizeLinear(x)
        sums = MatMulInteger(q, w, z)
        wide = Cast<to = 1>(sums)
        factor = Mul(s, scale)
        scaled = Mul(wide, factor)
        y = Add(scaled, bias)
    }"""
    model = model_with(text, constants)
    compiled = dvm_graph.optimize(model, strict=True)
    for shape in ((1, 1, 96), (2, 7, 96), (3, 33, 96)):
        x = GENERATOR.standard_normal(shape).astype(np.float32)
        reference = ort.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        got, wanted = compiled.run({"x": x})[0], reference.run(None, {"x": x})[0]
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())


def qdq(kind: str) -> dict[str, Array]:
    zero = np.array(7 if kind == "uint8" else -9, kind)
    return {"xs": np.float32(0.02), "xz": zero, "ys": np.float32(0.4), "yz": np.array(3, kind)}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_dequantised_products(kind: str) -> None:
    constants = {
        "w": weights(70, 33), "ws": np.linspace(0.01, 0.03, 33, dtype=np.float32),
        "wz": np.zeros(33, np.int8), **qdq(kind),
    }  # fmt: skip
    text = f"""g ({kind}[n, 70] q) => ({kind}[n, 33] y) {{
        x = DequantizeLinear(q, xs, xz)
        m = DequantizeLinear<axis = 1>(w, ws, wz)
        p = MatMul(x, m)
        y = QuantizeLinear(p, ys, yz)
    }}"""
    integer = f"""g ({kind}[n, 70] q) => ({kind}[n, 33] y) {{
        y = QLinearMatMul(q, xs, xz, w, ws, wz, ys, yz)
    }}"""
    feeds = [{"q": integers(kind, n, 70)} for n in (1, 6, 50)]
    for like in {"uint8": (None, integer), "int8": (integer,)}[kind]:
        like = like and model_with(like, constants)
        check(model_with(text, constants), *feeds, like=like, instruction="m_matmul_quantize")


CONVOLUTIONS = {
    "plain": (8, 8, 3, 1, "pads = [1, 1, 1, 1]"),
    "strided": (8, 12, 3, 1, "pads = [0, 1, 1, 0], strides = [2, 2]"),
    "points": (16, 20, 1, 1, "strides = [1, 1]"),
    "few channels": (3, 16, 3, 1, "pads = [1, 1, 1, 1], strides = [2, 2]"),
    "groups": (8, 12, 3, 2, "pads = [1, 1, 1, 1], group = 2"),
    "by channels": (8, 8, 3, 8, "pads = [1, 1, 1, 1], group = 8"),
}


def test_products_of_what_products_leave() -> None:
    """Both in one kernel, the sums of each quantised in passing."""
    constants = {
        "v": weights(70, 24), "vs": np.linspace(0.01, 0.03, 24, dtype=np.float32),
        "w": weights(24, 33), "ws": np.linspace(0.02, 0.04, 33, dtype=np.float32),
        "vz": np.zeros(24, np.int8), "wz": np.zeros(33, np.int8),
        "us": np.float32(0.7), "uz": np.uint8(120), **qdq("uint8"),
    }  # fmt: skip
    text = """g (uint8[n, 70] q) => (uint8[n, 33] y) {
        x = DequantizeLinear(q, xs, xz)
        a = DequantizeLinear<axis = 1>(v, vs, vz)
        p = MatMul(x, a)
        u = QuantizeLinear(p, us, uz)
        f = DequantizeLinear(u, us, uz)
        b = DequantizeLinear<axis = 1>(w, ws, wz)
        r = MatMul(f, b)
        y = QuantizeLinear(r, ys, yz)
    }"""
    integer = """g (uint8[n, 70] q) => (uint8[n, 33] y) {
        u = QLinearMatMul(q, xs, xz, v, vs, vz, us, uz)
        y = QLinearMatMul(u, us, uz, w, ws, wz, ys, yz)
    }"""
    feeds = [{"q": integers("uint8", n, 70)} for n in (1, 6, 50, 300)]
    model = model_with(text, constants)
    check(model, *feeds, like=model_with(integer, constants))
    listing = dvm_graph.optimize(model, strict=True).disassemble(feeds[-1])
    assert listing.count("m_matmul_quantize") == 2 and "v_round" not in listing


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("case", ["plain", "strided", "points", "few channels"])
def test_integer_convolutions(case: str, kind: str) -> None:
    inputs, outputs, kernel, groups, attributes = CONVOLUTIONS[case]
    constants = {
        "w": integers("uint8", outputs, inputs // groups, kernel, kernel) // 3 + 80,
        "z": integers(kind), "v": np.uint8(128),
    }  # fmt: skip
    text = f"""g ({kind}[n, {inputs}, h, 9] q) => (int32[n, {outputs}, k, l] y) {{
        y = ConvInteger<{attributes}>(q, w, z, v)
    }}"""
    # onnxruntime has ConvInteger for uint8 alone; int8 is the uint8 that is 128 higher.
    like = text.replace("int8", "uint8") if kind == "int8" else text
    higher = {**constants, "z": (constants["z"].astype(int) + 128).astype(np.uint8)}
    reference = unoptimised(model_with(like, higher if kind == "int8" else constants))
    mine = dvm_graph.optimize(model_with(text, constants), strict=True)
    for n, h in ((1, 9), (2, 6)):
        q = integers(kind, n, inputs, h, 9)
        fed = (q.astype(int) + 128).astype(np.uint8) if kind == "int8" else q
        assert_same_bits(mine.run({"q": q}), reference.run(None, {"q": fed}))


@pytest.mark.parametrize("kernel", [(3,), (1, 1), (3, 3), (2, 3, 3)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zero", [0, 9])
def test_convolutions_by_weights_with_zero_points(
    kernel: tuple[int, ...], groups: int, zero: int
) -> None:
    """Differences that are no bytes, over so many channels that float32 would take transforms, and past what it counts."""
    axes, inputs, outputs = len(kernel), 48, 32
    constants = {
        "w": integers("uint8", outputs, inputs // groups, *kernel), "z": np.uint8(zero), "v": np.uint8(113),
    }  # fmt: skip
    dims, sizes = (", ".join(f"{name}{axes}" for name in names[:axes]) for names in ("dhw", "klm"))
    pads = [1] * axes + [size // 2 for size in kernel]
    text = f"""g (uint8[n, {inputs}, {dims}] q) => (int32[n, {outputs}, {sizes}] y) {{
        y = ConvInteger<group = {groups}, pads = {pads}>(q, w, z, v)
    }}"""
    model = model_with(text, constants)
    shapes = (
        (1, inputs, *(16, 17, 9)[-axes:]),
        (3, inputs, *(1, 2, 13)[-axes:]),
        (0, inputs, *(3, 4, 5)[-axes:]),
    )
    check(model, *({"q": integers("uint8", *shape)} for shape in shapes))


@pytest.mark.parametrize("kernel", [(3,), (5, 4), (1, 31), (3, 2, 3)])
@pytest.mark.parametrize(
    ("channels", "zero", "point"), [(17, 0, 0), (2, 9, 0), (96, 255, 0), (5, 9, 113), (33, None, 0)]
)
def test_channels_convolved_by_themselves_stay_bytes(
    kernel: tuple[int, ...], channels: int, zero: int | None, point: int
) -> None:
    """Around images is a zero point of theirs, which may be known only at the run, and weights may have one, too."""
    axes = len(kernel)
    kind = "int8" if point == 0 else "uint8"
    filters = weights(channels, 1, *kernel) if point == 0 else integers(kind, channels, 1, *kernel)
    constants = {"w": filters, "v": filters.dtype.type(point)}
    if zero is not None:
        constants["z"] = np.uint8(zero)
    dims, sizes = (", ".join(f"{name}{axes}" for name in names[:axes]) for names in ("dhw", "klm"))
    pads = [1] * axes + [size // 2 for size in kernel]
    more = ", uint8 z" if zero is None else ""
    text = f"""g (uint8[n, {channels}, {dims}] q{more}) => (int32[n, {channels}, {sizes}] y) {{
        y = ConvInteger<group = {channels}, pads = {pads}, strides = {[1] * (axes - 1) + [2]}>(q, w, z, v)
    }}"""
    around = [size - 1 for size in kernel]
    shapes = [(n, channels, *np.add(around, room)) for n, room in ((2, 7), (1, 0), (0, 3))]
    given = {"z": np.array(200, np.uint8)} if zero is None else {}
    feeds = [{"q": integers("uint8", *shape), **given} for shape in shapes]
    check(model_with(text, constants), *feeds, instruction="d_depthwise_bytes")


def test_sums_of_windows_that_float32_does_not_count() -> None:
    inputs = 65801
    constants = {"w": integers("uint8", 2, inputs, 1, 1), "v": np.uint8(113)}
    text = f"""g (uint8[n, {inputs}, h, 1] q, uint8 z) => (int32[n, 2, k, l] y) {{
        y = ConvInteger(q, w, z, v)
    }}"""
    compiled = dvm_graph.optimize(model_with(text, constants), strict=True)
    q = np.full((1, inputs, 2, 1), 255, np.uint8)
    factor = constants["w"].astype(np.int64).sum(axis=(1, 2, 3)) - 113 * inputs
    wanted = np.broadcast_to(255 * factor[:, None, None], (1, 2, 2, 1)).astype(np.int32)
    assert_same_bits(compiled.run({"q": q, "z": np.array(0, np.uint8)}), [wanted])


def test_sums_over_channels_are_exact_whatever_the_run_computes() -> None:
    """Zero points of weights that are no constants: no transform of float32 rounds what is whole numbers."""
    constants = {"w": integers("uint8", 32, 24, 3, 3)}
    text = """g (uint8[n, 24, h, w2] q, uint8 z, uint8 v) => (int32[n, 32, k, l] y) {
        y = ConvInteger<pads = [1, 1, 1, 1]>(q, w, z, v)
    }"""
    model = model_with(text, constants)
    feed = {"q": integers("uint8", 1, 24, 32, 32), "z": np.array(9, np.uint8)}
    feed["v"] = np.array(113, np.uint8)
    assert_same_bits(dvm_graph.optimize(model).run(feed), unoptimised(model).run(None, feed))


NOTHING = {
    "ConvInteger": ("uint8[n, 0, h, 5] a, int8[3, 0, 3, 3] b", "int32[n, 3, k, l]", (2, 3, 4, 3)),
    "MatMulInteger": ("uint8[n, 0] a, int8[0, 3] b", "int32[n, 3]", (2, 3)),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("operator", NOTHING)
def test_sums_over_nothing_are_0(operator: str, constant: bool) -> None:
    """onnxruntime leaves them unwritten."""
    operands, result, shape = NOTHING[operator]
    b = np.zeros((3, 0, 3, 3) if operator == "ConvInteger" else (0, 3), np.int8)
    if constant:
        operands = operands.split(", int8")[0]
    text = f"g ({operands}) => ({result} y) {{ y = {operator}(a, b) }}"
    model = dvm_graph.optimize(model_with(text, {"b": b} if constant else {}), strict=True)
    a = np.zeros((2, 0, 6, 5) if operator == "ConvInteger" else (2, 0), np.uint8)
    for _ in range(2):
        y = model.run({"a": a} if constant else {"a": a, "b": b})[0]
        np.testing.assert_array_equal(y, np.zeros(shape, np.int32), strict=True)


def test_beside_weights_with_scales_of_blocks_the_other_operand_stays_as_it_is() -> None:
    """onnxruntime would round it to 8 bits by itself."""
    constants = {
        "w": integers("int8", 64, 48) >> 4, "s": np.linspace(0.01, 0.03, 96, dtype=np.float32).reshape(2, 48),
    }  # fmt: skip
    constants["w"] = constants["w"].astype(ml_dtypes.int4)
    text = """g (float[n, 64] x) => (float[n, 48] y) {
        m = DequantizeLinear<axis = 0, block_size = 32>(w, s)
        y = MatMul(x, m)
    }"""
    model = model_with(text, constants)
    mine = dvm_graph.optimize(model)
    assert not mine.report().vendor_operators
    exact = constants["w"].astype(np.float64) * np.repeat(constants["s"], 32, axis=0)
    bound = tolerance(np.dtype(np.float32), 64)
    for n in (1, 5):
        x = GENERATOR.standard_normal((n, 64), dtype=np.float32)
        np.testing.assert_allclose(
            mine.run({"x": x})[0], x @ exact, rtol=bound.relative, atol=bound.absolute
        )


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_dequantised_convolutions(case: str, kind: str) -> None:
    inputs, outputs, kernel, groups, attributes = CONVOLUTIONS[case]
    scales = np.linspace(0.01, 0.03, outputs, dtype=np.float32)
    constants = {
        "w": weights(outputs, inputs // groups, kernel, kernel), "ws": scales,
        "wz": np.zeros(outputs, np.int8), "b": integers("int16", outputs).astype(np.int32),
        "bs": scales * np.float32(0.02), "bz": np.zeros(outputs, np.int32), **qdq(kind),
    }  # fmt: skip
    text = f"""g ({kind}[n, {inputs}, h, 9] q) => ({kind}[n, {outputs}, k, l] y) {{
        x = DequantizeLinear(q, xs, xz)
        m = DequantizeLinear<axis = 0>(w, ws, wz)
        a = DequantizeLinear<axis = 0>(b, bs, bz)
        p = Conv<{attributes}>(x, m, a)
        y = QuantizeLinear(p, ys, yz)
    }}"""
    integer = f"""g ({kind}[n, {inputs}, h, 9] q) => ({kind}[n, {outputs}, k, l] y) {{
        y = QLinearConv<{attributes}>(q, xs, xz, w, ws, wz, ys, yz, b)
    }}"""
    feeds = [{"q": integers(kind, n, inputs, h, 9)} for n, h in ((1, 9), (2, 6))]
    without = {name: array for name, array in constants.items() if name not in ("bs", "bz")}
    reference = model_with(integer, without)
    check(reference, *feeds)
    check(model_with(text, constants), *feeds, like=reference)


ADDENDS = {
    "zeros of another scale": (0, np.float32(0.3)),
    "of another scale": (1, np.float32(0.003)),
    "of scales of channels": (1, np.linspace(0.001, 0.2, 20, dtype=np.float32)),
    "of floats": (1, None),
}


@pytest.mark.parametrize("case", ADDENDS)
def test_convolutions_of_bytes_with_another_addend(case: str) -> None:
    """As quantising tools leave one that several convolutions share: the sums are exact, and the addend is a float."""
    some, scale = ADDENDS[case]
    b = integers("int16", 20).astype(np.int32) * some
    constants = {
        "w": weights(20, 8, 3, 3), "ws": np.linspace(0.01, 0.03, 20, dtype=np.float32),
        "wz": np.zeros(20, np.int8), "b": b, "xs": np.float32(0.02), "xz": np.uint8(7),
        **({"f": b.astype(np.float32) / 100} if scale is None else {"bs": scale}),
    }  # fmt: skip
    addend = "a = Identity(f)" if scale is None else "a = DequantizeLinear<axis = 0>(b, bs)"
    text = f"""g (uint8[n, 8, h, 9] q) => (float[n, 20, k, l] y) {{
        x = DequantizeLinear(q, xs, xz)
        m = DequantizeLinear<axis = 0>(w, ws, wz)
        {addend}
        y = Conv<pads = [1, 1, 1, 1]>(x, m, a)
    }}"""
    model = model_with(text, constants)
    mine = dvm_graph.optimize(model, strict=True, check=True)
    feed = {"q": integers("uint8", 2, 8, 6, 9)}
    assert "m_matmul_bundles" in mine.disassemble(feed)
    assert_all_close(mine.run(feed), unoptimised(model).run(None, feed), reduction_length=72)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("of_channels", [False, True])
def test_weights_that_the_model_quantises_are_bytes(of_channels: bool, kind: str) -> None:
    """As training for quantisation leaves them, with addends of floats."""
    channels = np.ones(20, np.float32) if of_channels else np.float32(1)
    constants = {
        "w": GENERATOR.standard_normal((20, 8, 3, 3), np.float32),
        "ws": channels * np.float32(0.03), "wz": np.zeros(np.shape(channels), np.int8),
        "xs": np.float32(0.02), "xz": np.array(3, kind),
        "a": GENERATOR.standard_normal(20, np.float32),
    }  # fmt: skip
    axis = "<axis = 0>" if of_channels else ""
    text = f"""g ({kind}[n, 8, h, 9] q) => (float[n, 20, k, l] y) {{
        x = DequantizeLinear(q, xs, xz)
        b = QuantizeLinear{axis}(w, ws, wz)
        m = DequantizeLinear{axis}(b, ws, wz)
        y = Conv<pads = [1, 1, 1, 1]>(x, m, a)
    }}"""
    model = model_with(text, constants)
    mine = dvm_graph.optimize(model, strict=True, check=True)
    feed = {"q": integers(kind, 2, 8, 6, 9)}
    assert "m_matmul_bundles" in mine.disassemble(feed)
    assert_all_close(mine.run(feed), unoptimised(model).run(None, feed), reduction_length=72)


@pytest.mark.parametrize("image", ["float", "bytes"])
def test_dequantised_weights_of_convolutions_of_floats_are_arranged_once(image: str) -> None:
    """Where the other operand is no byte of a moderate scale."""
    constants = {
        "w": weights(20, 8, 3, 3), "ws": np.linspace(0.01, 0.03, 20, dtype=np.float32),
        "xs": np.float32(1e-30), "xz": np.uint8(7),
    }  # fmt: skip
    of_bytes = image == "bytes"
    source, way = ("uint8", "DequantizeLinear(q, xs, xz)") if of_bytes else ("float", "Identity(q)")
    text = f"""g ({source}[n, 8, h, 9] q) => (float[n, 20, k, l] y) {{
        x = {way}
        m = DequantizeLinear<axis = 0>(w, ws)
        y = Conv<pads = [1, 1, 1, 1]>(x, m)
    }}"""
    model = model_with(text, constants)
    mine = dvm_graph.optimize(model, strict=True, check=True)
    assert not any(subgraph.is_constant for subgraph in mine.report().subgraphs)
    x = integers("uint8", 2, 8, 6, 9)
    feed = {"q": x if of_bytes else x.astype(np.float32)}
    assert_all_close(mine.run(feed), unoptimised(model).run(None, feed), reduction_length=72)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("kernel", [(3,), (3, 3), (1, 1), (2, 3, 3), (3, 1, 1)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_convolutions_of_integers_are_left_to_nobody(
    kernel: tuple[int, ...], groups: int, kind: str
) -> None:
    """Of any number of axes, also where nothing asks for it."""
    axes = len(kernel)
    parameters = qdq(kind)
    constants = {
        "w": weights(12, 6 // groups, *kernel), "ws": np.linspace(0.01, 0.03, 12, dtype=np.float32),
        "wz": np.zeros(12, np.int8), "b": integers("int16", 12).astype(np.int32), **parameters,
    }  # fmt: skip
    dims, sizes = ("d, h, w"[-3 * axes + 2 :], ", ".join("klm"[:axes]))
    pads = [1] * axes + [size // 2 for size in kernel]
    text = f"""g ({kind}[n, 6, {dims}] q) => ({kind}[n, 12, {sizes}] y) {{
        y = QLinearConv<group = {groups}, pads = {pads}, strides = {[2, *[1] * (axes - 1)]}>(
            q, xs, xz, w, ws, wz, ys, yz, b)
    }}"""
    model = model_with(text, constants)
    assert not dvm_graph.optimize(model).report().vendor_operators
    shapes = ((1, 6, *(7, 5, 11)[:axes]), (3, 6, *(1, 2, 13)[:axes]), (0, 6, *(3, 4, 5)[:axes]))
    check(model, *({"q": integers(kind, *shape)} for shape in shapes))


CHOOSERS = {
    "pool": "MaxPool<kernel_shape = [3, 2], pads = [1, 0, 1, 1], strides = [2, 1]>(x)",
    "pool with a last window": "MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)",
    "pool of dilated windows": "MaxPool<kernel_shape = [2, 2], dilations = [3, 3], pads = [1, 1, 1, 1]>(x)",
    "larger image": "Resize<coordinate_transformation_mode = 'asymmetric'>(x, , scales)",
    "part of an image": "Resize<coordinate_transformation_mode = 'tf_crop_and_resize',"
    " extrapolation_value = 7.5>(x, box, scales)",
}


@pytest.mark.parametrize("scale", [0.05, -0.05, 1e-40])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("chooser", CHOOSERS)
def test_bytes_are_chosen_as_the_floats_they_stand_for(
    chooser: str, kind: str, scale: float
) -> None:
    constants = {
        "xs": np.float32(scale), "xz": np.array(3, kind), "ys": np.float32(0.03), "yz": np.array(1, kind),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "box": np.array([0, 0, 0, -0.5, 1, 1, 1, 1], np.float32),
    }  # fmt: skip
    text = f"""g ({kind}[n, 5, h, w] q) => (float[n, 5, k, l] p, {kind}[n, 5, k, l] y) {{
        x = DequantizeLinear(q, xs, xz)
        p = {CHOOSERS[chooser].replace("'", '"')}
        y = QuantizeLinear(p, ys, yz)
    }}"""
    model = model_with(text, constants)
    mine = dvm_graph.optimize(model, check=True)
    for shape in ((1, 5, 4, 3), (2, 5, 7, 8)):
        feed = {"q": integers(kind, *shape)}
        assert_same_bits(mine.run(feed), unoptimised(model).run(None, feed))


QUANTISED = "y = QLinearConv(q, xs, xz, w, ws, wz, ys, yz)"


def test_quantised_convolutions_by_weights_with_zero_points() -> None:
    constants = {
        "w": integers("uint8", 3, 40, 3, 3), "ws": np.float32(0.02),
        "wz": np.array([0, 128, 255], np.uint8), **qdq("uint8"),
    }  # fmt: skip
    text = f"g (uint8[n, 40, h, w2] q) => (uint8[n, 3, k, l] y) {{ {QUANTISED} }}"
    check(model_with(text, constants), {"q": integers("uint8", 2, 40, 5, 4)})


def test_convolutions_whose_sums_would_be_rounded_are_left_to_onnxruntime() -> None:
    """Zero points of weights that are no constants."""
    constants = {"w": integers("uint8", 3, 40, 3, 3), "ws": np.float32(0.02), **qdq("uint8")}
    text = f"g (uint8[n, 40, h, w2] q, uint8[3] wz) => (uint8[n, 3, k, l] y) {{ {QUANTISED} }}"
    model = model_with(text, constants)
    compiled = dvm_graph.optimize(model)
    assert len(compiled.report().vendor_operators) == 1
    feed = {"q": integers("uint8", 2, 40, 5, 4), "wz": np.array([0, 128, 255], np.uint8)}
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_same_bits(compiled.run(feed), reference.run(None, feed))


WILD = [0.0, -0.0, 1e-45, 1e-40, 2e-38, 3e36, 1e38, np.inf, -np.inf, np.nan]
"""Scales by which whole numbers are no longer whole numbers of float32, and 0, which stands for none."""


@pytest.mark.parametrize("scale", [*WILD, 1e-30, -0.1])
def test_bytes_come_back_only_by_moderate_scales(scale: float) -> None:
    constants = {"s": np.float32(scale), "z": np.uint8(3)}
    text = """g (uint8[n] q) => (uint8[n] y) {
        x = DequantizeLinear(q, s, z)
        y = QuantizeLinear(x, s, z)
    }"""
    model = model_with(text, constants)
    feed = {"q": np.arange(256, dtype=np.uint8)}
    assert_same_bits(
        dvm_graph.optimize(model, strict=True).run(feed), unoptimised(model).run(None, feed)
    )


@pytest.mark.parametrize("scale", WILD)
@pytest.mark.parametrize("wild", ["xs", "ws", "ys"])
def test_products_of_wild_scales_are_those_of_floats(wild: str, scale: float) -> None:
    constants = {
        "w": weights(40, 9), "ws": np.float32(0.02), "wz": np.int8(0), **qdq("uint8"),
        wild: np.float32(scale),
    }  # fmt: skip
    text = """g (uint8[n, 40] q) => (float[n, 9] p, uint8[n, 9] y) {
        x = DequantizeLinear(q, xs, xz)
        m = DequantizeLinear(w, ws, wz)
        p = MatMul(x, m)
        y = QuantizeLinear(p, ys, yz)
    }"""
    model = model_with(text, constants)
    feed = {"q": integers("uint8", 5, 40)}
    got, quantised = dvm_graph.optimize(model, strict=True).run(feed)
    wanted, reference = unoptimised(model).run(None, feed)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * largest)
    np.testing.assert_allclose(quantised.astype(int), reference.astype(int), atol=1)
