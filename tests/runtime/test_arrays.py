"""Feeds in all manners that there are: those that are read where they lie, and those that are converted or refused."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph.errors import InputError

Array = NDArray[Any]
X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.float32(10)


@pytest.fixture(scope="module")
def model() -> dvm_graph.Model:
    text = '<ir_version: 9, opset_import: ["": 18]> g (float[m, n] x, float y) => (float[m, n] z) {z = Sub(x, y)}'
    return dvm_graph.optimize(onnx.parser.parse_model(text), strict=True)


def misaligned(array: Array) -> Array:
    """The same elements at an odd address."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(array.tobytes(), np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    assert not found.flags.aligned and found.flags.c_contiguous
    return found


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class Subclass(np.ndarray):
    pass


MANNERS: dict[str, Callable[[Array], Any]] = {
    "as it lies": lambda x: x,
    "read-only": read_only,
    "misaligned": misaligned,
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "in Fortran's order": np.asfortranarray,
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "of no rows": lambda x: x[:0],
    "of the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "of a subclass": lambda x: x.view(Subclass),
    "masked, but nothing is": lambda x: np.ma.MaskedArray(x),
    "lists": lambda x: x.tolist(),
    "a view of memory": lambda x: memoryview(np.ascontiguousarray(x)),
}


@pytest.mark.parametrize("manner", MANNERS)
def test_an_array_in_all_manners(model: dvm_graph.Model, manner: str) -> None:
    given = MANNERS[manner](X)
    (found,) = model.run({"x": given, "y": Y})
    np.testing.assert_array_equal(found, np.asarray(given) - Y)
    (found,) = model.run({"x": given, "y": np.asarray(Y)})
    np.testing.assert_array_equal(found, np.asarray(given) - Y)


@pytest.mark.parametrize(
    "mapping",
    [OrderedDict, types.MappingProxyType, lambda feeds: defaultdict(lambda: None, feeds)],
    ids=["ordered", "a proxy", "with a default"],
)
def test_mappings(model: dvm_graph.Model, mapping: Callable[[dict[str, Any]], Any]) -> None:
    (found,) = model.run(mapping({"".join(["x"]): X, "y": np.asarray(Y)}))
    np.testing.assert_array_equal(found, X - Y)


@pytest.mark.parametrize(
    ("feeds", "word"),
    [
        ({"x": X}, "missing input 'y'"),
        ({"x": X, "y": Y, "z": Y}, "unknown input 'z'"),
        ({"x": X, "z": Y}, "unknown input 'z'"),
        ({"x": X, 1: Y}, "unknown input 1"),
        ({"x": X.astype(np.float64), "y": Y}, "x is float64"),
        ({"x": X.astype(np.int32), "y": Y}, "x is int32"),
        ({"x": X.view("i4").view("V4"), "y": Y}, "x is"),
        ({"x": np.array([["a"]]), "y": Y}, "x is"),
        ({"x": np.ma.MaskedArray(X, X > 3), "y": Y}, "masked"),
        ({"x": None, "y": Y}, "x"),
        ({"x": X[0], "y": np.asarray(Y)}, "rank 1"),
        (defaultdict(lambda: Y, {"x": X}), "missing input 'y'"),
    ],
)
def test_what_is_refused(model: dvm_graph.Model, feeds: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        model.run(feeds)
    np.testing.assert_array_equal(model.run({"x": X, "y": Y})[0], X - Y)


def test_bits_are_no_bfloat16() -> None:
    text = (
        '<ir_version: 9, opset_import: ["": 18]> g (bfloat16[n] x) => (bfloat16[n] z) {z = Neg(x)}'
    )
    model = dvm_graph.optimize(onnx.parser.parse_model(text))
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(model.run({"x": x})[0], -x)
    with pytest.raises(InputError, match="x is uint16"):
        model.run({"x": x.view(np.uint16)})


@pytest.mark.parametrize("dtype", ["longlong", "long", "ulonglong", "bool", "float16", "int8"])
def test_types_by_their_names_in_c(dtype: str) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(np.dtype(dtype).name))
    node = onnx.helper.make_node("Identity", ["x"], ["z"])
    values = [onnx.helper.make_tensor_value_info(name, kind, ["n"]) for name in "xz"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    model = dvm_graph.optimize(
        onnx.helper.make_model(
            graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]
        )
    )
    x = np.array([0, 1, 1, 0], dtype)
    (found,) = model.run({"x": x})
    np.testing.assert_array_equal(found, x)
    assert found.dtype == x.dtype


def test_arrays_are_let_go(model: dvm_graph.Model) -> None:
    x, y = X.copy(), np.asarray(Y)
    held = sys.getrefcount(x), sys.getrefcount(y)
    for wrong in (None, X.astype(np.float64)):
        with pytest.raises(InputError):
            model.run({"x": x, "y": wrong})
        model.run({"x": x, "y": y})
        assert (sys.getrefcount(x), sys.getrefcount(y)) == held


def test_names_of_all_characters() -> None:
    """One that goes on behind a NUL is another one."""
    names = ["a\0b", "a", "\u00fc\U0001f600", " "]
    node = onnx.helper.make_node("Concat", names, ["z"], axis=0)
    inputs = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in names]
    result = onnx.helper.make_tensor_value_info("z", 1, [len(names)])
    graph = onnx.helper.make_graph([node], "g", inputs, [result])
    imports = [onnx.helper.make_opsetid("", 18)]
    compiled = dvm_graph.optimize(
        onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)
    )
    feeds = {name: np.array([i], np.float32) for i, name in enumerate(names)}
    np.testing.assert_array_equal(compiled.run(feeds)[0], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("bool", [1, 0, 1]),
        ("bool", [0.0, True]),
        ("int8", [1.0, -128, 127]),
        ("uint8", [255, False]),
        ("int64", [2**62, -1]),
        ("float16", [1, 2.5]),
        ("bool", []),
    ],
)
def test_python_numbers_of_another_kind(dtype: str, numbers: list[Any]) -> None:
    """As onnxruntime takes them, where they stay the numbers they are."""
    (found,), expected = _same(dtype, numbers), np.array(numbers).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("bool", [2]), ("int8", [300]), ("uint8", [-1]), ("int64", [1.9]), ("bool", ["a"])],
)
def test_python_numbers_that_are_none_of_a_type(dtype: str, numbers: list[Any]) -> None:
    with pytest.raises(InputError, match=r"does not fit|wants bool"):
        _same(dtype, numbers)


def _same(dtype: str, feed: object) -> list[Array]:
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({dtype}[n] x) => ({dtype}[n] z) {{z = Identity(x)}}'
    return dvm_graph.optimize(onnx.parser.parse_model(text)).run({"x": feed})
