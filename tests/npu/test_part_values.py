"""Values on a simulated part: programs for its memories and queues compute what the host does.

The host is held to onnxruntime elsewhere; here a part is held to the host within the tolerance table, and
its queues, run as early or as late as flags permit, to the bits of one instruction after the other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from dvm_graph.errors import InputError, UnsupportedError
from models import random_feeds, tiny_path
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]
PART = "ascend910b2"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
GRAPHS = {
    "add": "g (float16[m,n] x, float16[m,n] y) => (float16[m,n] o) { o = Add(x, y) }",
    "matmul_f16": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { o = MatMul(x, y) }",
    "matmul_f32": "g (float[b,m,k] x, float[k,n] y) => (float[b,m,n] o) { o = MatMul(x, y) }",
    "addmm": "g (float16[m,k] x, float16[n,k] y, float16[n] c) => (float16[m,n] o) {"
    " o = Gemm<transB=1>(x, y, c) }",
    "turned": "g (float16[k,m] x, float16[k,n] y) => (float16[m,n] o) { o = Gemm<transA=1>(x, y) }",
    "relu": "g (float16[m,k] x, float16[k,n] y, float16[n] c) => (float16[m,n] o) {"
    " p = MatMul(x, y) s = Add(p, c) o = Relu(s) }",
    "gelu": "g (float[m,k] x, float[k,n] y, float[n] c) => (float[m,n] o) {"
    " p = MatMul(x, y) s = Add(p, c) e = Erf(s) t = Mul(e, s) o = Add(t, s) }",
    "matrix": "g (float16[m,k] x, float16[k,n] y, float16[m,n] c) => (float16[m,n] o) {"
    " p = MatMul(x, y) o = Add(p, c) }",
    "computed_gelu": "g (float[m,k] x, float[k,n] y, float[n] c, float[m,n] r) => (float[m,n] o) {"
    " h = Tanh(x) p = MatMul(h, y) s = Add(p, c) e = Erf(s) t = Mul(e, s) o = Add(t, r) }",
    "computed": "g (float[m,k] x, float[k,n] y) => (float[m,n] o) { e = Tanh(x) o = MatMul(e, y) }",
    "cast": "g (float[b,m,k] x, float16[k,n] y) => (float16[b,m,n] o) {"
    " e = Relu(x) h = Cast<to=10>(e) o = MatMul(h, y) }",
    "gated": "g (float16[m,k] x, float16[m,k] z, float16[k,n] y, float16[n] c) => (float16[m,n] o) {"
    " s = Sigmoid(x) t = Mul(x, s) g = Mul(t, z) p = MatMul(g, y) o = Add(p, c) }",
    "normed": "g (float[m,k] x, float[k] w, float[k] d, float[k,n] y, float[n] c) => (float[m,n] o) {"
    " e = LayerNormalization<axis=-1>(x, w, d) p = MatMul(e, y) s = Add(p, c) o = Relu(s) }",
    "weights": "g (float16[b,m,k] x, float16[b,k,n] y) => (float16[b,m,n] o) {"
    " e = Softmax<axis=-1>(x) o = MatMul(e, y) }",
    "sunk_weights": "g (float[b,m,k] x, float[b,k,20] y) => (float[b,m,20] o) {"
    " e = Softmax<axis=-1>(x) o = MatMul(e, y) }",
    "guarded_weights": "g (float[b,m,k] x, float[b,k,20] y, float[20] c) => (float[b,m,20] o) {"
    " e = Softmax<axis=-1>(x) w = IsNaN(e) z = Constant<value_float=0.0>() s = Where(w, z, e) p = MatMul(s, y) o = Add(p, c) }",
    "attention_f32": "g (float[b,m,64] q, float[b,n,64] c, float[b,n,64] v, float[b,m,n] k) => (float[b,m,64] o) {"
    " t = Transpose<perm=[0,2,1]>(c) p = MatMul(q, t) s = Add(p, k) e = Softmax<axis=-1>(s) o = MatMul(e, v) }",
    "attention": "g (float16[b,m,64] q, float16[b,n,64] c, float16[b,n,64] v, float16[b,m,n] k) => (float16[b,m,64] o) {"
    " t = Transpose<perm=[0,2,1]>(c) p = MatMul(q, t) s = Add(p, k) e = Softmax<axis=-1>(s) o = MatMul(e, v) }",
    "normed_gelu": "g (float[m,k] x, float[k] w, float[k,n] y, float[m,n] r) => (float[m,n] o) {"
    " s = Mul(x, x) q = ReduceMean<axes=[-1]>(s) v = Sqrt(q) d = Div(x, v) e = Mul(d, w) p = MatMul(e, y) t = Erf(p) o = Add(t, r) }",
    "scores": "g (float[b,m,k] x, float[b,n,k] y) => (float[b,m,n] o) {"
    " t = Transpose<perm=[0,2,1]>(y) p = MatMul(x, t) o = Softmax<axis=-1>(p) }",
    "norm": "g (float[m,n] x, float[n] w, float[n] c) => (float[m,n] o) {"
    " o = LayerNormalization<axis=-1>(x, w, c) }",
    "doubles": "g (double[m,k] x, double[k,n] y) => (double[m,n] o) { o = MatMul(x, y) }",
}
PAIRED = ("matrix", "gelu", "computed_gelu")
FED = (
    *("computed", "cast", "gated", "normed", "weights", "sunk_weights", "guarded_weights"),
    *("normed_gelu", "computed_gelu"),
)
FED_AND_PAIRED = ("normed_gelu", "computed_gelu")
"""Their left operands may be computed beside the products, and what follows as well."""
DIMS = ({"b": 2, "m": 45, "n": 53, "k": 150}, {"b": 3, "m": 1, "n": 300, "k": 17})
LARGE = {"m": 2100, "n": 1030, "k": 40}
"""More blocks than a ring has places."""
ON_THE_CUBE = ("matmul_f16", "matmul_f32", "addmm", "turned", "relu", "scores", *FED, *PAIRED)


@functools.cache
def model(name: str, device: str = "", queues: str = "in_order") -> dvm_graph.Model:
    source = parser.parse_model(HEAD + GRAPHS[name])
    return dvm_graph.optimize(source, device=device, queues=queues)


def feeds(name: str, dims: Mapping[str, int]) -> dict[str, Array]:
    random = np.random.default_rng(7)
    graph = parser.parse_model(HEAD + GRAPHS[name]).graph
    types = {1: np.float32, 10: np.float16, 11: np.float64}
    return {
        value.name: random.standard_normal(
            [
                dims[dim.dim_param] if dim.dim_param else dim.dim_value
                for dim in value.type.tensor_type.shape.dim
            ]
        ).astype(types[value.type.tensor_type.elem_type])
        for value in graph.input
    }


@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_part_computes_what_the_host_does(name: str, dims: Mapping[str, int]) -> None:
    given = feeds(name, dims)
    (expected,) = model(name).run(given)
    (actual,) = model(name, PART).run(given)
    least = min((array.dtype for array in given.values()), key=lambda dtype: dtype.itemsize)
    assert_close(actual, expected, least, dims["k"])
    (queued,) = model(name, PART, "adversarial").run(given)
    np.testing.assert_array_equal(queued, actual)


@pytest.mark.parametrize("name", [*PAIRED, "matmul_f16", "relu", "norm", "add"])
def test_a_part_with_one_place_and_one_size_of_tiles(name: str, tmp_path: Path) -> None:
    """What ablations compare with computes the same."""
    number = 'source = ["A"], confidence = "low"'
    (tmp_path / "plain.toml").write_text(
        'name = "plain"\nbase = "ascend910b2"\n[sources]\nA = "here"\n[target]\n'
        f"places = {{ value = 1, {number} }}\nlargest_tiles = {{ value = true, {number} }}\n",
        encoding="utf-8",
    )
    given = feeds(name, DIMS[0])
    (expected,) = model(name).run(given)
    (actual,) = model(name, str(tmp_path / "plain.toml"), "adversarial").run(given)
    least = min((array.dtype for array in given.values()), key=lambda dtype: dtype.itemsize)
    assert_close(actual, expected, least, DIMS[0]["k"])


@pytest.mark.parametrize("name", ON_THE_CUBE)
def test_products_go_through_the_cube_unit(name: str) -> None:
    text = model(name, PART).disassemble(feeds(name, DIMS[0]))
    assert "m_mmad" in text and "d_store_l0c" in text
    assert "prefetch" not in text
    assert not re.search(r"\{[^}]*(joined|rows)", text)


@pytest.mark.parametrize("name", PAIRED)
def test_vector_cores_go_on_with_blocks_of_a_product(name: str) -> None:
    given = feeds(name, LARGE)
    part = model(name, PART)
    text = part.disassemble(given)
    assert text.count("between_cores") == 4 and "ring" in text
    (expected,) = model(name).run(given)
    (actual,) = part.run(given)
    least = min((array.dtype for array in given.values()), key=lambda dtype: dtype.itemsize)
    assert_close(actual, expected, least, LARGE["k"])
    for _ in range(3):  # another core of each pair goes first
        (queued,) = model(name, PART, "adversarial").run(given)
        np.testing.assert_array_equal(queued, actual)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A part on which one more stage takes so long that whatever can be computed beside a product is."""
    path = tmp_path_factory.mktemp("specs") / "beside.toml"
    path.write_text(
        'name = "beside"\nbase = "ascend910b2"\n[sources]\nA = "here"\n[costs]\n'
        'stage_start = { value = 0.05, unit = "s", source = ["A"], confidence = "low" }\n',
        encoding="utf-8",
    )
    return str(path)


def check_rows(name: str, dims: Mapping[str, int], part: str) -> None:
    given = feeds(name, dims)
    text = model(name, part).disassemble(given)
    rings = ["rows", "sums"] if name in FED_AND_PAIRED else ["rows"]
    assert [ring for ring in ("rows", "sums") if f"ring {ring}" in text] == rings
    assert text.count("between_cores") == 4 * len(rings)
    (expected,) = model(name).run(given)
    (actual,) = model(name, part).run(given)
    least = min((array.dtype for array in given.values()), key=lambda dtype: dtype.itemsize)
    assert_close(actual, expected, least, dims["k"])
    for _ in range(3):  # another core of each pair goes first
        (queued,) = model(name, part, "adversarial").run(given)
        np.testing.assert_array_equal(queued, actual)


@pytest.mark.parametrize("name", FED)
@pytest.mark.parametrize("dims", [{"m": 3100, "n": 530, "k": 72, "b": 2}, *DIMS], ids=str)
def test_vector_cores_compute_rows_of_a_product(
    name: str, dims: Mapping[str, int], beside: str
) -> None:
    """Several lines for a core, fewer than lanes have rows, and a single row."""
    check_rows(name, dims, beside)


@pytest.mark.parametrize("name", FED)
def test_no_flag_of_a_pair_is_spare(name: str, beside: str) -> None:
    """Without any one wait the verifier refuses the programs, and its set is needed for nothing else."""
    given = feeds(name, {"m": 1900, "n": 70, "k": 40, "b": 1})
    audited = model(name, beside, "audited")
    audited.run(given)
    flags = audited.flags
    assert flags.waits == flags.unbalanced == flags.unordered > 8
    assert flags.seen >= 0.75 * flags.waits


@pytest.mark.parametrize("name", ["attention", "attention_f32"])
def test_attention_is_two_pairs(name: str, beside: str) -> None:
    """The scores with a mask added, then their softmax beside the product with the values."""
    given = feeds(name, {"b": 3, "m": 200, "n": 333})
    text = model(name, beside).disassemble(given)
    assert text.count("program mix") + text.count("program cube") == 2
    assert text.count("program vector") == 2 and "ring sums" in text and "ring rows" in text
    (expected,) = model(name).run(given)
    (actual,) = model(name, beside).run(given)
    assert_close(actual, expected, given["q"].dtype, 333)
    (queued,) = model(name, beside, "adversarial").run(given)
    np.testing.assert_array_equal(queued, actual)


def test_rows_without_a_key_are_zero_before_the_product_too(beside: str) -> None:
    given = feeds("guarded_weights", {"b": 2, "m": 60, "k": 90})
    given["x"][1, 17] = -np.inf
    given["x"][0, 3, 20:] = -np.inf
    (expected,) = model("guarded_weights").run(given)
    (actual,) = model("guarded_weights", beside).run(given)
    assert_close(actual, expected, reduction_length=90)
    np.testing.assert_array_equal(actual[1, 17], given["c"])


def test_rows_that_local_memory_holds_in_part(beside: str) -> None:
    check_rows("gated", {"m": 37, "n": 50, "k": 14000}, beside)
    text = model("normed", beside).disassemble(feeds("normed", {"m": 37, "n": 50, "k": 60000}))
    assert "ring" not in text  # its sums are of whole rows


def test_each_of_several_cores_computes_the_rows_that_it_needs(beside: str) -> None:
    """A line for all of them: its rows come anew to each."""
    dims = {"m": 16, "n": 3000, "k": 64, "b": 1}
    check_rows("cast", dims, beside)
    check_rows("normed_gelu", dims, beside)


def test_the_worked_example_of_the_paper() -> None:
    text = model("add", "ascend910b3").disassemble(feeds("add", {"m": 32, "n": 1024}))
    assert "grid d0: 40 tiles of 832 in 32768" in text
    assert 32768 - 39 * 832 == 320


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mmoe"])
def test_models_on_a_part(name: str) -> None:
    dims = {"mmoe": {"batch": 5}}.get(name, {"batch": 2, "seq": 9})
    path = tiny_path(name)
    host = dvm_graph.optimize(path)
    given = random_feeds(path, dims)
    expected = host.run(given)
    for queues in ("in_order", "adversarial"):
        found = dvm_graph.optimize(path, device=PART, queues=queues).run(given)
        for array, like in zip(found, expected, strict=True):
            assert_close(array, like, reduction_length=4096)


def test_what_a_part_cannot_do() -> None:
    with pytest.raises(InputError, match="spec file"):
        model("add", "no_such_part")
    with pytest.raises(UnsupportedError, match="cannot be saved"):
        model("add", PART).save("part.dvm")
