"""Extents that an operator demands and no name of a dim says: what onnxruntime refuses is refused, and the rest is what it gives."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, model_from_text, session

INTEGERS = {onnx.TensorProto.INT32: np.int32, onnx.TensorProto.INT64: np.int64}
Shapes = tuple[tuple[int, ...], ...]

DEMANDING: dict[str, tuple[str, list[Shapes], list[Shapes]]] = {
    "indices beside their axis": (
        "float[a, b] x, int64[c, d] i; float[e, f] y; y = GatherElements <axis = 0> (x, i)",
        [((3, 4), (5, 4)), ((3, 4), (2, 3)), ((3, 4), (3, 0))],
        [((3, 4), (2, 5)), ((3, 0), (1, 1))],
    ),
    "indices beside a middle axis": (
        "float[a, b, 2] x, int64[c, d, e] i; float[f, g, h] y; y = GatherElements <axis = -2> (x, i)",
        [((3, 4, 2), (2, 7, 1))],
        [((3, 4, 2), (3, 4, 3)), ((3, 4, 2), (4, 4, 2))],
    ),
    "an addend of more columns": (
        "float[m, k] x, float[l, n] z, float[c] u; float[e, f] y; y = Gemm (x, z, u)",
        [((3, 4), (4, 5), (5,)), ((3, 4), (4, 5), (1,)), ((3, 4), (4, 1), (1,))],
        [((3, 4), (4, 1), (5,)), ((3, 4), (4, 5), (4,))],
    ),
    "an addend of more rows": (
        "float[m, k] x, float[l, n] z, float[r, c] u; float[e, f] y; y = Gemm (x, z, u)",
        [((3, 4), (4, 5), (3, 1)), ((3, 4), (4, 5), (1, 5)), ((0, 4), (4, 5), (1, 1))],
        [((1, 4), (4, 5), (3, 5)), ((1, 4), (4, 5), (3, 1))],
    ),
    "a scale of more elements than rows": (
        "float[m, k] x, float[l] z, float[c] u; float[e, f] y; y = LayerNormalization (x, z, u)",
        [((3, 4), (4,), (4,)), ((3, 1), (1,), (1,))],
        [((3, 1), (4,), (4,)), ((3, 4), (3,), (3,))],
    ),
    "a scale of rows": (
        "float[b, m, k] x, float[r, l] z; float[d, e, f] y; y = LayerNormalization <axis = 1> (x, z)",
        [((2, 3, 4), (3, 4))],
        [((2, 1, 4), (3, 4)), ((2, 3, 1), (3, 4))],
    ),
    "labels of fewer rows": (
        "float[m, k] x, int64[l] i; float y; y = NegativeLogLikelihoodLoss (x, i)",
        [((3, 5), (3,)), ((1, 5), (1,))],
        [((1, 5), (3,)), ((3, 5), (4,))],
    ),
    "labels of fewer places": (
        "float[m, k, p] x, int64[l, q] i; float[e, f] y; y = SoftmaxCrossEntropyLoss <reduction = \"none\"> (x, i)",
        [((3, 5, 2), (3, 2))],
        [((3, 5, 1), (3, 2)), ((1, 5, 2), (3, 2))],
    ),
    "a mask of more queries": (
        "float[b, h, s, d] q, float[c, g, t, e] k, float[f, i, u, w] v, float[m, n] z; float[o, p, r, x] y;"
        "y = Attention (q, k, v, z)",
        [((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)), ((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (3, 5))],
        [
            ((1, 2, 1, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)),
            ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 6)),
            ((1, 2, 3, 4), (1, 1, 5, 4), (1, 2, 5, 4), (3, 5)),
            ((1, 2, 3, 4), (1, 2, 5, 4), (1, 1, 5, 4), (3, 5)),
        ],
    ),
    "a bias of one number": (
        "float[b, m, k] x, float[c] z; float[d, e, f] y; y = com.microsoft.BiasGelu (x, z)",
        [((2, 3, 4), (4,)), ((2, 3, 1), (1,)), ((2, 0, 4), (4,))],
        [((2, 3, 4), (1,)), ((2, 3, 1), (4,))],
    ),
    "a skip connection of fewer rows": (
        "float[b, m, k] x, float[r, l] z, float[c] w, float[e] u; float[d, f, g] y;"
        "y = com.microsoft.SkipLayerNormalization (x, z, w, u)",
        [((2, 3, 4), (3, 4), (4,), (4,))],
        [((2, 3, 4), (1, 4), (4,), (4,)), ((2, 3, 4), (3, 1), (4,), (4,)), ((2, 3, 4), (3, 4), (1,), (4,)), ((2, 3, 4), (3, 4), (4,), (1,))],
    ),
    "segments of fewer words": (
        "int32[b, s] i, int32[c, t] j; float[d, e, f] y;"
        "v = Constant <value = float[2, 4] {1, 2, 3, 4, 5, 6, 7, 8}> () w = Concat <axis = 0> (v, v, v)"
        "u = Constant <value = float[4] {1, 2, 3, 4}> () y, kept = com.microsoft.EmbedLayerNormalization (i, j, w, w, w, u, u)",
        [((2, 3), (2, 3)), ((1, 1), (1, 1))],
        [((2, 3), (2, 1)), ((2, 3), (1, 3)), ((1, 3), (2, 3))],
    ),
    "a bias of projections": (
        "float[b, s, k] x, float[l, n] w, float[c] z; float[d, e, f] y;"
        "y = com.microsoft.Attention <num_heads = 2> (x, w, z)",
        [((2, 3, 4), (4, 12), (12,))],
        [((2, 3, 4), (4, 12), (1,)), ((2, 3, 4), (4, 1), (12,))],
    ),
    "biases of queries, keys and values": (
        "float[b, s, k] q, float[c, t, l] x, float[d, u, m] v, float[n] z; float[e, f, g] y;"
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, x, v, z)",
        [((1, 3, 4), (1, 5, 4), (1, 5, 6), (14,))],
        [((1, 3, 4), (1, 5, 4), (1, 5, 4), (13,)), ((1, 3, 4), (1, 5, 4), (1, 5, 4), (24,))],
    ),
    "values of other places than keys": (
        "float[b, s, k] q, float[c, t, l] x, float[d, u, m] v, float[f, n, o, p] z; float[e, r, g] y;"
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, x, v,,, z)",
        [((1, 3, 4), (1, 5, 4), (1, 5, 4), (1, 2, 3, 5))],
        [((1, 3, 4), (1, 1, 4), (1, 5, 4), (1, 2, 3, 5)), ((1, 1, 4), (1, 5, 4), (1, 5, 4), (1, 2, 3, 5))],
    ),
    "keys of other places than queries": (
        "float[b, s, k] q, float[c, t, l] x, float[d, u, m] v, float[b1, h1, p1, e1] z, float[b2, h2, p2, e2] w; float[e, r, g] y;"
        "lengths = Constant <value = int32[1] {4}> () total = Constant <value = int32 {5}> ()"
        "y, new_keys, new_values = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, x, v, z, w, lengths, total)",
        [((1, 3, 16), (1, 3, 8), (1, 3, 8), (1, 1, 2, 8), (1, 1, 2, 8))],
        [
            ((1, 1, 16), (1, 3, 8), (1, 3, 8), (1, 1, 2, 8), (1, 1, 2, 8)),
            ((1, 3, 16), (1, 3, 8), (1, 3, 8), (1, 1, 1, 8), (1, 1, 2, 8)),
            ((1, 3, 16), (1, 3, 8), (1, 3, 8), (1, 1, 2, 8), (1, 1, 2, 1)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEMANDING)
def test_extents_that_do_not_fit_are_refused(name: str) -> None:
    inputs, outputs, nodes = DEMANDING[name][0].split(";")
    domains = '"" : 23, "com.microsoft" : 1'
    model = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{domains}]> g ({inputs}) => ({outputs}) {{ {nodes} }}"
    )
    reference, compiled = session(model), dvm_graph.optimize(model)
    generator = np.random.default_rng(0)

    def fed(shapes: Shapes) -> dict[str, Array]:
        pairs = zip(model.graph.input, shapes, strict=True)
        return {
            value.name: generator.integers(0, 3, shape).astype(
                INTEGERS[value.type.tensor_type.elem_type]
            )
            if value.type.tensor_type.elem_type in INTEGERS
            else generator.standard_normal(shape, np.float32)
            for value, shape in pairs
        }

    for shapes in DEMANDING[name][1]:
        feeds = fed(shapes)
        expected, actual = reference.run(None, feeds), compiled.run(feeds)
        assert [y.shape for y in actual] == [y.shape for y in expected], shapes
        assert_all_close(actual, expected, 64)
    for shapes in DEMANDING[name][2]:
        feeds = fed(shapes)
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            reference.run(None, feeds)
        with pytest.raises(dvm_graph.DvmError):
            compiled.run(feeds)


LABELLED: dict[str, tuple[str, list[int], bool]] = {
    "behind all classes": ("", [0, 3, 1], False),
    "from the end": ("", [0, -1, 1], True),
    "before all classes": ("", [0, -4, 1], False),
    "ignored": ("<ignore_index = 7>", [0, 7, 1], True),
    "ignored, and behind all classes": ("<ignore_index = 7>", [0, 7, 3], False),
    "ignored, of negative numbers": ("<ignore_index = -100>", [-100, 2, 1], True),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("name", LABELLED)
def test_labels_are_of_a_class(name: str, op: str, weighted: bool) -> None:
    attributes, labels, fits = LABELLED[name]
    operands = "x, i, w" if weighted else "x, i"
    model = model_from_text(
        f"g (float[n, 3] x, int64[m] i) => (float y) <float[3] w = {{1, 2, 4}}> {{ y = {op} {attributes} ({operands}) }}"
    )
    feeds = {"x": np.arange(9, dtype=np.float32).reshape(3, 3) / 7, "i": np.array(labels, np.int64)}
    if fits:
        assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds), 8)
        return
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        session(model).run(None, feeds)
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(model).run(feeds)


@pytest.mark.parametrize("body", ["y = Clip (x, zero)", "y = Clip (x,, zero)", "y = Clip (x)"])
def test_no_limit_is_no_limit(body: str) -> None:
    """onnxruntime takes the ends of the type for limits that are not there."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[m] y) <float zero = {{0.0}}> {{ {body} }}'
    )
    feeds = {"x": np.array([-np.inf, -1, 1, np.inf], np.float32)}
    expected = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(dvm_graph.optimize(model).run(feeds)[0], expected[0])


INDEXING: dict[str, tuple[str, list[object], list[object]]] = {
    "elements": (
        "GatherElements <axis = 0> (x, i)",
        [[[2, -3, -1, 0]], [[0], [1], [2]]],
        [[[0, 3, 1, 2]], [[0, 0, 0, -4]]],
    ),
    "points": ("GatherND (x, i)", [[[2, -4]], [[0, 3]]], [[[3, 0]], [[0, 4]], [[-4, 0]], [[0, -5]]]),
    "rows": ("Gather (x, i)", [[2, -3]], [[3], [-4]]),
    "sequences": ("ReverseSequence (x, i)", [[0, 1, 2, 3]], [[0, 4, 1, 1], [0, -1, 1, 1]]),
}  # fmt: skip


@pytest.mark.parametrize("extents", ["n, m", "3, 4"])
@pytest.mark.parametrize("name", INDEXING)
def test_indices_that_are_known_are_inside(name: str, extents: str) -> None:
    """What is known of them is known before a kernel would look at them."""
    nodes, inside, outside = INDEXING[name]
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    for index in (*inside, *outside):
        model = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 21]> g (float[{extents}] x) => (float y) {{ y = {nodes} }}'
        )
        model.graph.output[0].type.tensor_type.ClearField("shape")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(index), "i"))
        if index in inside:
            expected = session(model).run(None, feeds)
            np.testing.assert_array_equal(dvm_graph.optimize(model).run(feeds)[0], expected[0])
            continue
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session(model).run(None, feeds)
        with pytest.raises(dvm_graph.DvmError):
            dvm_graph.optimize(model).run(feeds)


def test_indices_that_extents_tell_are_inside() -> None:
    model = model_from_text(
        """g (float[n, m] x) => (float[k] y) <int64 two = {2}, int64[1] front = {0}> {
            s = Shape (x) d = Sub (s, two) i = Unsqueeze (d, front) y = GatherND (x, i)
        }"""
    )
    compiled, reference = dvm_graph.optimize(model), session(model)
    for shape in ((3, 4), (2, 2), (1, 1)):
        feeds = {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}
        np.testing.assert_array_equal(compiled.run(feeds)[0], reference.run(None, feeds)[0])
    with pytest.raises(dvm_graph.ShapeError, match="inside its axis"):
        compiled.run({"x": np.zeros((0, 4), np.float32)})


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_may_lie_anywhere(upper: int, given: bool) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for k in (0, -3, 4, 2**31, -(2**31), 2**63 - 1, -(2**63)):
        diagonal = np.array(k, np.int64)
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n, m] x{", int64 k" if given else ""}) => (float[p, q] y) {{
                y = Trilu <upper = {upper}> (x, k)
            }}"""
        )
        if not given:
            model.graph.initializer.append(onnx.numpy_helper.from_array(diagonal, "k"))
        near = int(np.clip(k, -9, 9))
        expected = np.triu(x, near) if upper else np.tril(x, near)
        feeds = {"x": x, "k": diagonal} if given else {"x": x}
        np.testing.assert_array_equal(dvm_graph.optimize(model).run(feeds)[0], expected)
