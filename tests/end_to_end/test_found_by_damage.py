"""Small models that random damage once led to, kept so that they stay right."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

import dvm_graph
from dvm_graph.runtime.ort_values import from_ort
from tests.end_to_end.reference import Array, assert_all_close, assert_same_bits, session


def optimized(model: onnx.ModelProto) -> dvm_graph.Model:
    """Nothing of it rests in the net under the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        return dvm_graph.optimize(model)


def test_a_constant_that_only_bodies_read_at_an_old_opset() -> None:
    """The partition had the version of the format in which constants had to be inputs as well."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 8]> g (bool c, float[n, 2, 6, 6] x) => (float[k, 2, 2, 2] y)
        <float[2, 5] r = {0, 0, 0, 3, 3, 0, 1, 2, 5, 5}> {
            y = If (c) <
              then_branch = p () => (float[k, 2, 2, 2] a) { a = MaxRoiPool <pooled_shape = [2, 2]> (x, r) },
              else_branch = q () => (float[k, 2, 2, 2] b) { b = MaxRoiPool <pooled_shape = [2, 2], spatial_scale = 0.5> (x, r) }
            >
        }"""
    )
    x = np.random.default_rng(0).standard_normal((3, 2, 6, 6)).astype(np.float32)
    mine, reference = optimized(model), session(model)
    assert mine.report().vendor_operators
    for c in (True, False):
        feeds = {"c": np.array(c), "x": x}
        np.testing.assert_array_equal(mine.run(feeds)[0], reference.run(None, feeds)[0])


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
g (float[n, 3, 4] x, bool c) => (float[n, 3, 4] y, float[n, 3] z) {
    t = f.outer (x)
    y = If (c) <
      then_branch = p () => (float[i, j, k] a) { a = f.outer (t) },
      else_branch = q () => (float[i, j, k] b) { b = Neg (t) }
    >
    z = f.sum <axis = -1> (t)
}
<domain: "f", opset_import: ["" : 11, "f" : 1]> inner (x) => (y) { y = Softmax (x) }
<domain: "f", opset_import: ["" : 11, "f" : 1]> outer (x) => (y) { y = f.inner (x) }
<domain: "f", opset_import: ["" : 12]> sum <axis> (x) => (y) {
    s = ReduceSum <axes = [-1], keepdims = 0> (x) y = Softmax <axis: int = @axis> (s)
}
"""


def flat_softmax(x: Array) -> Array:
    """As before opset 13: over all axes but the first."""
    rows = np.exp(x - x.max((1, 2), keepdims=True), dtype=np.float32)
    return np.asarray(rows / rows.sum((1, 2), keepdims=True))


def test_functions_of_other_operator_sets_mean_what_they_meant() -> None:
    """Nodes of functions were converted by the inliner, which knows few changes, and crashed on some."""
    x = np.random.default_rng(0).standard_normal((5, 3, 4)).astype(np.float32)
    mine = optimized(onnx.parser.parse_model(FUNCTIONS))
    t = flat_softmax(x)
    sums = np.exp(t.sum(-1))
    for condition in (False, True):
        got = mine.run({"x": x, "c": np.array(condition)})
        want = [flat_softmax(t) if condition else -t, sums / sums.sum(-1, keepdims=True)]
        assert_all_close(got, want, 12)


UNTYPED = {
    "an input": "g (x) => (float[i, j] y) { y = EyeLike <dtype = 1> (x) }",
    "a string": 'g (x) => (y) { y = RegexFullMatch <pattern = "a"> (x) }',
    "a call's result": """g (float[n] x) => (float[i, j] y, z) { y = EyeLike <dtype = 1> (z) z = f.two (x) }
        <domain: "f", opset_import: ["" : 18, "f" : 1]> one (x) => (y) { y = Neg (x) }
        <domain: "f", opset_import: ["" : 18, "f" : 1]> two (x) => (y) { y = f.one (x) }""",
}


@pytest.mark.parametrize("what", UNTYPED)
def test_operators_that_read_what_has_no_type(what: str) -> None:
    """onnx's inference, alone or inside its inliner, ended the process."""
    head = '<ir_version: 10, opset_import: ["" : 21, "f" : 1]>'
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(onnx.parser.parse_model(head + UNTYPED[what]))


def test_a_body_that_reads_what_onnx_cannot_type() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n, m] x, bool c) => (float[i, j] y) {
            y = If (c) <
              then_branch = p () => (float[i, j] a) {
                u = com.microsoft.Gelu (x)
                a = EyeLike <dtype = 1> (u)
              },
              else_branch = q () => (float[i, j] b) { b = Neg (x) }
            >
        }"""
    )
    x = np.ones((2, 3), np.float32)
    (y,) = optimized(model).run({"x": x, "c": np.array(True)})
    np.testing.assert_array_equal(y, np.eye(2, 3, dtype=np.float32))


@pytest.mark.parametrize("shape", [(1, 2, 3, 1), (2, 1, 1, 5)])
@pytest.mark.parametrize("opset", [7, 11, 13, 21])
@pytest.mark.parametrize("dims", ["a, b, c, d", "static"])
def test_squeezing_no_axes_squeezes_all_of_one_element(
    dims: str, opset: int, shape: tuple[int, ...]
) -> None:
    dims = ", ".join(map(str, shape)) if dims == "static" else dims
    axes = "<axes: ints = []> (x)" if opset < 13 else "(x, none)"
    model = onnx.parser.parse_model(
        f"""<ir_version: 7, opset_import: ["" : {opset}]>
        g (float[{dims}] x) => (float[] y) <int64[0] none = {{}}> {{ s = Squeeze {axes} y = Neg (s) }}"""
    )
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    assert_same_bits(optimized(model).run(feeds), session(model).run(None, feeds))


def test_the_default_domain_by_its_long_name() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 20]>
        g (float[n] x, int64[1] k) => (int64[i, j] y, float[m] z) {
            y = ai.onnx.NonZero (x)
            z = ai.onnx.Slice (x, k, k)
        }"""
    )
    feeds = {"x": np.array([0, 1, 2], np.float32), "k": np.array([1], np.int64)}
    assert_same_bits(optimized(model).run(feeds), session(model).run(None, feeds))


def test_nodes_without_results_are_nobodys() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 20]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
    )
    model.graph.node.add()
    feeds = {"x": np.array([0, 1, 2], np.float32)}
    assert_same_bits(optimized(model).run(feeds), session(model).run(None, feeds))


ODD_WORDS = {
    "loss": "y = SoftmaxCrossEntropyLoss <reduction = 'meal'> (x, t)",
    "likelihood": "y = NegativeLogLikelihoodLoss <reduction = 'meal'> (x, t)",
    "gelu": "y = Gelu <approximate = 'tan'> (x)",
    "pads": "y = AveragePool <kernel_shape = [2], auto_pad = 'SAME'> (x)",
    "depth": "y = DepthToSpace <blocksize = 1, mode = 'CRR'> (x)",
    "pad": "y = Pad <mode = 'const'> (x, p)",
    "resize": "s = Constant <value_floats = [1.0, 1.0, 2.0]> () y = Resize <mode = 'near'> (x, , s)",
}


@pytest.mark.parametrize("what", ODD_WORDS)
def test_words_that_the_standard_does_not_list(what: str) -> None:
    """A reduction of another name was a mean here, and a sum on onnxruntime."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 20]>
        g (float[n, 3, k] x, int64[n, k] t, int64[6] p) => (float[] y) {{ {ODD_WORDS[what].replace("'", '"')} }}"""
    )
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32),
        "t": np.ones((2, 4), np.int64),
        "p": np.ones(6, np.int64),
    }
    try:
        expected = session(model).run(None, feeds)
    except Exception:  # of many kinds, one of which has to be ours as well
        with pytest.raises(dvm_graph.DvmError):
            optimized(model).run(feeds)
        return
    assert_all_close(optimized(model).run(feeds), expected, 12)


@pytest.mark.parametrize(
    "op", ["Clip <min = -1.0, max = 1.0>", "Pad <pads = [0, 1], value = -1.0>"]
)
def test_bounds_that_a_wrong_type_does_not_hold(op: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 10]> g (uint64[n] x) => (uint64[m] y) {{ y = {op} (x) }}'
    )
    with pytest.raises((dvm_graph.ModelError, dvm_graph.UnsupportedError)):
        dvm_graph.optimize(model)


class NoElements:
    """It breaks when it is asked for them."""

    def __array__(self, *_: object, **__: object) -> Array:
        raise RuntimeError("no elements")


@pytest.mark.parametrize("feed", [NoElements(), [["a"], ["a", "b"]], {1: 2}, None, [NoElements()]])
@pytest.mark.parametrize("kind", ["string", "float", "float8e4m3fn"])
def test_feeds_that_make_no_array(kind: str, feed: object) -> None:
    """Those of types that only onnxruntime computes with passed unseen, and whatever they raised came out."""
    text = f"g ({kind}[n, m] x) => ({kind}[m, n] y) {{ y = Transpose <perm = [1, 0]> (x) }}"
    model = dvm_graph.optimize(
        onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')
    )
    with pytest.raises(dvm_graph.DvmError):
        model.run({"x": feed})


def test_pads_beyond_all_memory() -> None:
    """Addresses of the verifier's samples left the 64 bits of its arrays."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 12]>
        g (uint8[n, 8, 4, k] x) => (uint8[] y)
        <int64[8] pads = {0, 0, 1, -1, 0, 1099511627776, 2147483647, 2}> { y = Pad (x, pads) }"""
    )
    with pytest.raises(dvm_graph.OutOfMemoryError):
        dvm_graph.optimize(model).run({"x": np.ones((3, 8, 4, 3), np.uint8)})


@pytest.mark.parametrize("dim", [-(2**31), "-7"])
def test_negative_dims_are_unknown(dim: int | str) -> None:
    """onnx's inference, shown such a dim of a type that only onnxruntime computes with, ended the process."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT8E5M2, ["n", dim])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT8E5M2, None)
    ends = [
        onnx.numpy_helper.from_array(np.array([end]), name) for end, name in ((0, "b"), (9, "e"))
    ]
    axes = onnx.numpy_helper.from_array(np.array([1]), "a")
    node = onnx.helper.make_node("Slice", ["x", "b", "e", "a"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [*ends, axes])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    assert isinstance(dvm_graph.optimize(model).get_inputs()[0].shape[1], str)


@pytest.mark.parametrize(
    "size", ["strides = [2147483648]", "dilations = [2147483648], kernel_shape = [1]"]
)
def test_windows_that_move_further_than_kernels_count(size: str) -> None:
    """A kernel was made all the same, and every run failed on it."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 13]> g (float[n, 1, w] x) => (float[n, 3, v] y)
        <float[3, 1, 1] f = {{3, 1, 2}}> {{ y = Conv <{size}> (x, f) }}"""
    )
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 1, 5)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_a_device_whose_name_is_too_long_for_a_file() -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> g (float[n] x) => (float[n] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text)
    with pytest.raises(dvm_graph.InputError, match="has to be a spec file"):
        dvm_graph.optimize(model, device="x" * 5000)


@pytest.mark.parametrize("step", [2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**62)])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("product", ["MatMul (t, u)", "MatMul (u, t)"])
def test_products_of_slices_by_steps_beyond_32_bits(step: int, axis: int, product: str) -> None:
    """One element is left of the axis: how far it is to the next did not fit an instruction."""
    start, end = (0, 2**62) if step > 0 else (-1, -(2**62))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[b, n, n] x, float[b, n, n] w) => (float[i, j, k] y)
        <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{{axis}}}, int64[1] d = {{{step}}},
         int64[1] c = {{{3 - axis if axis else 0}}}> {{
            t = Slice (x, s, e, a, d)
            u = Slice (w, s, e, c, d)
            y = {product}
        }}"""
    )
    generator = np.random.default_rng(7)
    mine, reference = optimized(model), session(model)
    for shape in ((2, 5, 5), (1, 1, 1), (3, 18, 18)):
        feeds = {name: generator.standard_normal(shape, np.float32) for name in ("x", "w")}
        try:
            wanted = reference.run(None, feeds)
        except Exception:  # rows of one do not meet one column of the other
            continue
        assert_all_close(mine.run(feeds), wanted)


LOOP = """g ({turns} m, float[N] x) => (float[N] y) {{
    y = Loop<body = b (int64 i, bool c, float[N] s) => ({condition} d, float[N] t) {{
        d = Cast<to = {kind}>(c) t = Neg(s)
    }}>(m, "", x)
}}"""


@pytest.mark.parametrize("turns", ["bool", "int32"])
def test_numbers_of_turns_are_read_as_what_they_are(turns: str) -> None:
    """Of one byte, eight were read: so many turns that the run did not end."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        + LOOP.format(turns=turns, condition="bool", kind=9)
    )
    feeds = {"m": np.array(1, turns), "x": np.ones(3, np.float32)}
    (y,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_array_equal(y, -feeds["x"])


@pytest.mark.parametrize(
    ("turns", "condition", "kind", "error"),
    [
        ("float", "bool", 9, dvm_graph.UnsupportedError),
        ("int64", "float", 1, dvm_graph.ExecutionError),
    ],
)
def test_loops_over_other_types_are_refused(
    turns: str, condition: str, kind: int, error: type[Exception]
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        + LOOP.format(turns=turns, condition=condition, kind=kind)
    )
    feeds = {"m": np.array(2, {"float": "float32"}.get(turns, turns)), "x": np.ones(3, np.float32)}
    with pytest.raises(error):
        dvm_graph.optimize(model).run(feeds)


@pytest.mark.parametrize(
    "node",
    ["y = Compress<axis = 0>(s, c)", "y = Unique<axis = 0>(s)", "y, i = TopK<axis = 0>(s, k)"],
)
def test_a_scalar_has_no_axis_0(node: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (int64[n] x, bool[1] c) => (int64[a] y) <int64[1] k = {{1}}, int64[0] none = {{}}> {{
            s = Reshape(x, none) {node}
        }}"""
    )
    with pytest.raises(dvm_graph.ModelError, match="a scalar has no axis 0"):
        dvm_graph.optimize(model)


def test_an_optional_value_that_is_not_there_has_no_type() -> None:
    """onnxruntime ended the process when it was asked for it, in a partition over types that numpy lacks."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (bool c) => (optional(float[n]) y) {
            y = If(c) <then_branch = t () => (optional(float[n]) p) { x = Constant<value_floats = [1.0]>() p = Optional(x) },
                       else_branch = e () => (optional(float[n]) q) { q = Optional<type: type_proto = float[n]>() }>
        }"""
    )
    for there in (True, False):
        given = {"c": onnxruntime.OrtValue.ortvalue_from_numpy(np.array(there))}
        (value,) = session(model).run_with_ort_values(["y"], given, None)
        found = from_ort(value)
        assert found is None if not there else found.tolist() == [1]


def test_a_result_of_more_elements_than_the_format_counts() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 11]>
        g (uint8[n, 9223372036854775807] x) => (uint8[a, b] y) { y = Concat<axis = 1>(x, x) }"""
    )
    with pytest.raises(dvm_graph.DvmError, match="extent 3, expected 9223372036854775807"):
        dvm_graph.optimize(model).run({"x": np.zeros((2, 3), np.uint8)})


@pytest.mark.parametrize("keeps", [0, 1])
def test_what_is_folded_to_nothing_has_any_extents(keeps: int) -> None:
    """Of two axes that are reduced, one of nothing, the other one counts for nothing, however long it is."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 13]>
        g (float[n, m] x) => (float[] p, float[] s) <int64[3] shape = {{0, {2**62}, 0}}> {{
            r = Reshape(x, shape)
            p = ReduceProd<keepdims = {keeps}>(r)
            s = ReduceLogSumExp<keepdims = {keeps}, axes = [0, 1, 2]>(r)
        }}"""
    )
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([0, 2**62, 1]), "shape")
    )
    feeds = {"x": np.zeros((0, 3), np.float32)}
    assert_same_bits(optimized(model).run(feeds), session(model).run(None, feeds))


OF_OTHER_TYPES = {
    "a sequence for a place": """g (float[n] x, int64 i) => (float[m] y) {
        s = SequenceConstruct(x) t = SequenceInsert(s, x, s) y = SequenceAt(t, i) }""",
    "a tensor for a sequence": """g (float[n] x, int64 i) => (float[m] y) { y = SequenceAt(x, i) }""",
    "a sequence in a sequence": """g (float[n] x, int64 i) => (float[m] y) {
        s = SequenceConstruct(x) t = SequenceConstruct(s, s) y = SequenceAt(t, i) }""",
    "fewer parts than results": """g (float[6] x) => (float[m] y, float[k] z) <int64[1] sizes = {6}> {
        y, z = Split<axis = 0>(x, sizes) }""",
    "more parts than results": """g (float[6] x) => (float[m] y, float[k] z) <int64[3] sizes = {2, 2, 2}> {
        y, z = Split<axis = 0>(x, sizes) }""",
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("what", OF_OTHER_TYPES)
def test_operands_of_other_kinds_and_numbers_are_no_defect(what: str, strict: bool) -> None:
    """Decompositions took them for what the operator wants, and the compiler for its own mistake."""
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{head} {OF_OTHER_TYPES[what]}")
    with pytest.raises((Fail, InvalidGraph)):
        session(model)
    with pytest.raises(dvm_graph.DvmError) as caught:
        dvm_graph.optimize(model, strict=strict)
    assert not isinstance(caught.value, dvm_graph.CompileError)


@pytest.mark.parametrize("node", ["Reshape(x, target)", "Expand(x, target)"])
def test_a_target_of_more_axes_than_there_are(node: str) -> None:
    """A dim was made for each of 2^62."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x, int64[{2**62}] target) => (y) {{ y = {node} }}"""
    )
    feeds = {"x": np.ones(1, np.float32), "target": np.ones(1, np.int64)}
    with pytest.raises(dvm_graph.DvmError, match=f"expected {2**62}"):
        dvm_graph.optimize(model).run(feeds)
