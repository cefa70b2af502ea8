"""Mathematics, logic, comparisons, activations and casts against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from tests.decompose.evaluate import evaluate
from tests.decompose.reference import Case, Tensor, check, decomposed, vendor_operators

X = Tensor(("n", "m"))
POSITIVE = Tensor(("n", "m"), low=0.1, high=4)
UNIT = Tensor(("n", "m"), low=-0.95, high=0.95)
ROW = Tensor(("m",))
INTEGERS = Tensor(("n", "m"), "int64", -9, 9)
NONZERO = Tensor(("m",), "int64", 1, 9)
FLAGS = Tensor(("n", "m"), "bool")


def scalar(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


UNARY = [
    *(Case(op, [X]) for op in ("Abs", "Neg", "Sign", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh")),
    *(Case(op, [X]) for op in ("Cosh", "Asinh", "Erf", "Tanh", "Sigmoid", "Floor", "Ceil")),
    *(Case(op, [X]) for op in ("Round", "IsNaN", "Identity", "Reciprocal")),
    *(Case(op, [POSITIVE]) for op in ("Sqrt", "Log")),
    *(Case(op, [UNIT]) for op in ("Asin", "Acos", "Atanh")),
    Case("Acosh", [Tensor(("n", "m"), low=1.1, high=4)]),
    Case("Not", [FLAGS]),
    Case("BitwiseNot", [INTEGERS]),
    Case("Abs", [INTEGERS], label="Abs-int64"),
    Case("Neg", [INTEGERS], label="Neg-int64"),
    Case("Sign", [INTEGERS], label="Sign-int64"),
]
BINARY = [
    *(Case(op, [X, ROW]) for op in ("Add", "Sub", "Mul", "Div")),
    *(Case(op, [INTEGERS, NONZERO], label=f"{op}-int64") for op in ("Add", "Sub", "Mul", "Div")),
    *(Case(op, [FLAGS, FLAGS]) for op in ("And", "Or", "Xor", "Equal")),
    *(Case(op, [INTEGERS, NONZERO]) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(
        Case(op, [INTEGERS, NONZERO])
        for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    ),
    Case("Mod", [INTEGERS, Tensor(("m",), "int64", -9, -1)]),
    Case("Mod", [INTEGERS, NONZERO], {"fmod": 1}),
    Case("Mod", [X, Tensor(("m",), low=0.5, high=2)], {"fmod": 1}),
    Case("BitShift", [Tensor(("n",), "uint8", 0, 99), Tensor(("n",), "uint8", 0, 4)],
         {"direction": "LEFT"}),
    Case("BitShift", [Tensor(("n",), "uint32", 0, 99), Tensor(("n",), "uint32", 0, 4)],
         {"direction": "RIGHT"}),
    *(Case("Pow", [POSITIVE, scalar(e)], label=f"Pow-{e}") for e in (0.5, 1, 2, 3, -1, 2.5)),
    Case("Pow", [POSITIVE, Tensor(("m",), low=-2, high=2)]),
    Case("Pow", [Tensor(("n", "m"), "int64", 0, 5), scalar(4, "int64")], label="Pow-int64"),
    Case("Pow", [POSITIVE, scalar(2, "int64")], label="Pow-mixed"),
    Case("PRelu", [X, ROW]),
    *(Case("PRelu", [X, scalar(slope)], label=f"PRelu-{slope}") for slope in (0.25, 1.5, -0.5)),
    Case("Where", [FLAGS, X, ROW]),
]  # fmt: skip
VARIADIC = [
    *(Case(op, [X, ROW, X]) for op in ("Max", "Min", "Sum", "Mean")),
    *(Case(op, [X]) for op in ("Max", "Mean")),
]
ACTIVATIONS = [
    *(Case(op, [X]) for op in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid")),
    *(Case(op, [X]) for op in ("HardSwish", "Mish", "Softplus", "Softsign", "ThresholdedRelu")),
    *(Case(op, [X], {"alpha": 0.7}) for op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")),
    Case("Softplus", [Tensor(("n",), low=-200, high=200)]),
    Case("Shrink", [X], {"lambd": 1.5, "bias": 0.5}),
    Case("Gelu", [X]),
    Case("Gelu", [X], {"approximate": "tanh"}),
    Case("Clip", [X, scalar(-1), scalar(1)]),
    Case("Clip", [X, None, scalar(1)]),
    Case("Clip", [INTEGERS, scalar(2, "int64")]),
    Case("Clip", [X], {"min": -1.0, "max": 0.5}, opset=7),
]
CASTS = [
    *(Case("Cast", [Tensor(("n",), low=-9, high=9)], {"to": to}) for to in (1, 6, 7, 9, 10, 11)),
    *(Case("Cast", [Tensor(("n",), "int32", 0, 99)], {"to": to}) for to in (1, 2, 3, 7, 9)),
    Case("Cast", [FLAGS], {"to": 1}),
    Case("CastLike", [X, scalar(0, "int32")]),
    Case("QuantizeLinear", [X, scalar(0.03), scalar(10, "uint8")]),
    Case("QuantizeLinear", [Tensor((2, "n")), np.float32([0.03, 0.02]), np.int8([1, 2])],
         {"axis": 0}),
    Case("DequantizeLinear", [Tensor(("n",), "uint8", 0, 255), scalar(0.1), scalar(7, "uint8")]),
    Case("DequantizeLinear", [Tensor(("n", 3), "int8", -99, 99), np.float32([0.1, 0.2, 0.3])]),
]  # fmt: skip


@pytest.mark.parametrize("case", UNARY + BINARY + VARIADIC + ACTIVATIONS + CASTS, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("negative", [0, 1])
def test_is_inf_tells_signs_apart(positive: int, negative: int) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0, 1], np.float32)
    case = Case("IsInf", [values], {"detect_positive": positive, "detect_negative": negative})
    check(case)


def test_uint64_is_computed_natively_only_where_the_sign_bit_does_not_matter() -> None:
    big = Tensor(("n",), "uint64", 1, 99)
    check(Case("Add", [big, np.array([2**64 - 3], np.uint64)]))
    for op in ("Div", "Less", "Max"):
        case = Case(op, [big, np.array([2**64 - 3], np.uint64)])
        assert vendor_operators(decomposed(case.model())) == [op]
        check(case, native=False)


def test_a_mask_that_always_holds_is_not_computed() -> None:
    text = """
        <ir_version: 9, opset_import: ["" : 20]>
        agraph (int64[s] ids, bool[b, s] mask) => (bool[b, s] y)
        <int64 zero = {0}, int64 one = {1}, bool yes = {1}> {
            size = Size(ids)
            positions = Range(zero, size, one)
            valid = GreaterOrEqual(positions, zero)
            both = And(yes, valid)
            y = And(both, mask)
        }
    """
    graph = decomposed(onnx.parser.parse_model(text))
    assert not graph.needed_nodes()
    mask = np.array([[True, False], [False, True]])
    (y,) = evaluate(graph, {"ids": np.zeros(2, np.int64), "mask": mask})
    np.testing.assert_array_equal(y, mask)
