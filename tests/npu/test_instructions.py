"""Every element-wise instruction of `vm/isa.def`, each dtype, each level of this CPU, against numpy.

Operands: infinities, NaN, zeros of both signs, denormals, the ends of each integer type and what stands
beside them, every pair of them for instructions of two operands. The reference of what IEEE 754 rounds
once is numpy's arithmetic in the type itself and has to match to the bit; of functions, numpy's in
float64. A row of the table that is neither here nor named in `ELSEWHERE` fails a test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph import _core
from dvm_graph.ir import DType
from dvm_graph.kernels.plan import KernelKind, KernelPlan, PlanNode
from dvm_graph.options import Options
from dvm_graph.runtime.assemble import assemble
from tests.runtime.plans import PlanBuilder, call
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]
LEVELS = _core.simd_levels()
ISA = Path(dvm_graph.__file__).parent / "vm" / "isa.def"
OF_BYTES = ["v_neg", "v_sign", "v_bitwise_not", "v_add", "v_sub", "v_mul", "v_min", "v_max"]
"""What in b8 is of bytes, not of booleans."""
BYTES = (DType.UINT8, DType.INT8)
DTYPES = {
    "f32": DType.FLOAT32, "f64": DType.FLOAT64, "i32": DType.INT32, "i64": DType.INT64,
    "b8": DType.BOOL, "f16": DType.FLOAT16, "bf16": DType.BFLOAT16, "i8": DType.INT8,
    "u8": DType.UINT8, "i16": DType.INT16, "u16": DType.UINT16, "u32": DType.UINT32,
    "u64": DType.UINT64,
}  # fmt: skip
LISTS = {
    "REGISTER": "f32 f64 i32 i64 b8", "NUMBER": "f32 f64 i32 i64", "FLOATS": "f32 f64",
    "INTEGERS": "i32 i64", "BITS": "i32 i64 b8", "B8": "b8", "I64": "i64",
    "NARROW": "f16 bf16 i8 i16 u8 u16 u32",
    "WHOLE": "f32 f64 i32 i64 b8 i8", "SIGNED": "f32 f64 i32 i64 i8", "ORDERED": "f32 f64 i32 i64 b8 i8",
    "NUMBER_F16": "f32 f64 i32 i64", "REGISTER_F16": "f32 f64 i32 i64 b8", "MOVED": "f32 f64 i32 i64 b8",
}  # fmt: skip
"""Of the host: what parts do in 16 bits, `test_halves.py` holds to numpy."""
ELSEWHERE = {
    "v_copy": "tests/cpp/npu/test_elementwise.cpp", "v_broadcast": "tests/cpp/npu/test_elementwise.cpp",
    "v_cast_from_f32": "tests/npu/test_halves.py", "v_iota": "tests/cpp/npu/test_elementwise.cpp",
    "v_check_index": "tests/cpp/npu/test_elementwise.cpp",
    "v_reduce_sum": "tests/cpp/npu/test_reduce.cpp", "v_reduce_prod": "tests/cpp/npu/test_reduce.cpp",
    "v_reduce_max": "tests/cpp/npu/test_reduce.cpp", "v_reduce_min": "tests/cpp/npu/test_reduce.cpp",
}  # fmt: skip
"""Rows of the vector unit that a plan's operators do not name, or that fold."""

Function = Callable[..., Array]


@dataclass(frozen=True)
class Meaning:
    """What an instruction does, in numpy. `exact`: computed in the type itself, the same bits."""

    function: Function
    exact: bool = True


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return _wrapped((int(math.copysign(1, x) * math.copysign(1, y)) * (abs(x) // abs(y)) if y else 0
                     for x, y in pairs), a)  # fmt: skip


def _remainder(a: Array, b: Array) -> Array:
    """Of the sign of the divisor."""
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return _wrapped((x % y if y else 0 for x, y in zip(a.tolist(), b.tolist(), strict=True)), a)


def _c_remainder(a: Array, b: Array) -> Array:
    """Of the sign of the dividend."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return _wrapped(((abs(x) % abs(y)) * (-1 if x < 0 else 1) if y else 0 for x, y in pairs), a)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a, b)

    def power(x: int, y: int) -> int:
        if y >= 0:
            return pow(x, y, 1 << 64)
        return int(x == 1) or (-1 if y % 2 else 1) * int(x == -1)

    return _wrapped((power(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), a)


def _shift_left(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return _wrapped((x << y if 0 <= y < bits else 0 for x, y in pairs), a)


def _shift_right(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return _wrapped((x >> (y if 0 <= y < bits else bits) for x, y in pairs), a)


def _wrapped(numbers: Any, like: Array) -> Array:
    bits = 8 * like.dtype.itemsize
    unsigned = np.array([n % (1 << bits) for n in numbers], np.uint64)
    return unsigned.astype(f"u{like.dtype.itemsize}").view(like.dtype)


def _sign(x: Array) -> Array:
    return np.where(np.isnan(x), x, (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.tolist()], np.float64)


def to_integer(dtype: DType) -> Function:
    """Truncates; what does not fit is the least number."""

    def cast(x: Array) -> Array:
        if x.dtype.kind != "f":
            return x.astype(dtype.numpy)
        limits = np.iinfo(dtype.numpy)
        wide = x.astype(np.float64)
        inside = (wide > limits.min - 1.0) & (wide < limits.max + 1.0)
        return np.where(inside, np.trunc(np.where(inside, wide, 0)), limits.min).astype(dtype.numpy)

    return cast


def _of(name: str) -> Meaning:
    function: Function = getattr(np, name)
    return Meaning(function, exact=False)


MEANINGS: dict[str, Meaning] = {
    "v_abs": Meaning(np.abs), "v_neg": Meaning(np.negative), "v_sign": Meaning(_sign),
    "v_sqrt": Meaning(np.sqrt), "v_reciprocal": Meaning(lambda x: 1 / x),
    "v_rsqrt": Meaning(lambda x: 1 / np.sqrt(x), exact=False),
    "v_exp": _of("exp"), "v_log": _of("log"), "v_log1p": _of("log1p"), "v_sin": _of("sin"),
    "v_cos": _of("cos"), "v_tan": _of("tan"), "v_asin": _of("arcsin"), "v_acos": _of("arccos"),
    "v_atan": _of("arctan"), "v_sinh": _of("sinh"), "v_cosh": _of("cosh"), "v_tanh": _of("tanh"),
    "v_asinh": _of("arcsinh"), "v_acosh": _of("arccosh"), "v_atanh": _of("arctanh"),
    "v_erf": Meaning(_erf, exact=False), "v_sigmoid": Meaning(_sigmoid, exact=False),
    "v_floor": Meaning(np.floor), "v_ceil": Meaning(np.ceil), "v_round": Meaning(np.rint),
    "v_trunc": Meaning(np.trunc), "v_isnan": Meaning(np.isnan), "v_isinf": Meaning(np.isinf),
    "v_isfinite": Meaning(np.isfinite), "v_logical_not": Meaning(np.logical_not),
    "v_bitwise_not": Meaning(np.invert),
    "v_cast_to_f32": Meaning(lambda x: x.astype(np.float32)),
    "v_cast_to_f64": Meaning(lambda x: x.astype(np.float64)),
    "v_cast_to_i32": Meaning(to_integer(DType.INT32)),
    "v_cast_to_i64": Meaning(to_integer(DType.INT64)),
    "v_cast_to_b8": Meaning(lambda x: x != 0),
    "v_narrow": Meaning(lambda x: x),  # its dtype does it
    "v_add": Meaning(np.add), "v_sub": Meaning(np.subtract), "v_mul": Meaning(np.multiply),
    "v_div": Meaning(_quotient), "v_mod": Meaning(_remainder), "v_fmod": Meaning(_c_remainder),
    "v_pow": Meaning(_power, exact=False), "v_min": Meaning(np.minimum), "v_max": Meaning(np.maximum),
    "v_bitwise_and": Meaning(np.bitwise_and), "v_bitwise_or": Meaning(np.bitwise_or),
    "v_bitwise_xor": Meaning(np.bitwise_xor), "v_shift_left": Meaning(_shift_left),
    "v_shift_right": Meaning(_shift_right), "v_eq": Meaning(np.equal), "v_ne": Meaning(np.not_equal),
    "v_lt": Meaning(np.less), "v_le": Meaning(np.less_equal), "v_gt": Meaning(np.greater),
    "v_ge": Meaning(np.greater_equal), "v_select": Meaning(np.where),
}  # fmt: skip
EITHER_ZERO = frozenset({"v_min", "v_max", "v_mod"})
"""Where the sign of a zero is anybody's choice."""


@dataclass(frozen=True)
class Row:
    name: str
    form: str
    dtypes: str

    def __str__(self) -> str:
        return self.name


def rows() -> list[Row]:
    """Those of the vector unit."""
    text = ISA.read_text(encoding="utf-8")
    found = re.findall(r"^DVM_INSN\((\w+), vector, (\w+), (\w+),", text, re.MULTILINE)
    return [Row(*columns) for columns in found]


TESTED = [row for row in rows() if row.name in MEANINGS]


def test_every_row_has_a_meaning() -> None:
    names = [row.name for row in rows()]
    assert len(names) > 60
    assert sorted(names) == sorted([*MEANINGS, *ELSEWHERE])


def values(dtype: DType) -> Array:
    """The special ones of a register type."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        ends = [
            float(info.max),
            float(info.tiny),
            float(info.smallest_subnormal),
            1 + float(info.eps),
        ]
        plain = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 0.1, 88.5, 1e-3, 1e-40, 2.0**24 + 2, 2.0**31]
        numbers = [*plain, *ends, 2.0**63, math.inf]
        return np.array([*numbers, *(-n for n in numbers), math.nan], dtype.numpy)
    info = np.iinfo(dtype.numpy)
    low, high = int(info.min), int(info.max)
    numbers = [0, 1, 2, 3, 7, 31, 32, 63, 64, 255, 256, 65536, high, high - 1, high // 2 + 1]
    every = [*numbers, *(-n for n in numbers[1:]), low, low + 1]
    return np.array([n for n in every if low <= n <= high], dtype.numpy)


def compute(op: str, operands: Sequence[Array], result: DType, simd: str, **more: Any) -> Array:
    """One operator of a plan over vectors."""
    b = PlanBuilder()
    types = [DType(array.dtype.name) for array in operands]
    inputs = [b.input(f"x{i}", ("n",), dtype) for i, dtype in enumerate(types)]
    output = b.output("y", ("n",), result)
    # Bytes are numbers of 32 bits that the core finds to need no more.
    held = [dtype.register if dtype in BYTES else dtype for dtype in (*types, result)]
    nodes = (
        *(PlanNode("load", dtype, 1, access=i) for i, dtype in enumerate(held[:-1])),
        PlanNode(op, held[-1], 1, tuple(range(len(types))), **more),
        PlanNode("store", held[-1], 1, (len(types),), access=len(types)),
    )
    accesses = tuple(b.access(value, (0,), 1) for value in (*inputs, output))
    plan = KernelPlan(op, KernelKind.VECTOR, (b.slot("n"),), nodes, accesses)
    b.launch([call(plan)])
    program = assemble(b.plan, Options(cores=1, simd=simd))
    return program.run({f"x{i}": array for i, array in enumerate(operands)})[0]


def operands_of(row: Row, dtype: DType) -> list[Array]:
    x = values(dtype)
    if row.form in ("binary", "compare", "select"):
        pairs = [grid.reshape(-1).copy() for grid in np.meshgrid(x, x)]
        if row.form != "select":
            return pairs
        return [np.arange(pairs[0].size) % 3 == 0, *pairs]
    return [np.tile(x, 3)]  # whole vectors, and what is left


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("row", TESTED, ids=str)
def test_special_values(row: Row, simd: str) -> None:
    meaning = MEANINGS[row.name]
    for short in LISTS[row.dtypes].split():
        dtype = DType.UINT8 if short == "b8" and row.name in OF_BYTES else DTYPES[short]
        if row.form == "narrow":
            check_narrow(dtype, simd)
            continue
        operands = operands_of(row, dtype)
        result, op = dtype, row.name.removeprefix("v_")
        if row.form in ("compare", "test"):
            result = DType.BOOL
        elif row.form.startswith("cast"):
            result, op = DTYPES[op.removeprefix("cast_to_")], "cast"
            if result is dtype:
                continue
        actual = compute(op, operands, result, simd)
        with np.errstate(all="ignore"):
            exact = meaning.exact or not dtype.is_float
            wide = operands if exact else [x.astype(np.float64) for x in operands]
            expected = np.asarray(meaning.function(*wide)).astype(result.numpy)
        if exact:
            check_bits(row.name, actual, expected)
        else:
            assert_close(actual, expected)
            finite = np.isfinite(expected)
            np.testing.assert_array_equal(actual[~finite], expected[~finite])


def check_bits(name: str, actual: Array, expected: Array) -> None:
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind == "f" and name not in EITHER_ZERO:
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))


def check_narrow(dtype: DType, simd: str) -> None:
    """Rounds half to even and keeps NaN; integers wrap."""
    register = dtype.register
    x = values(register)
    if dtype.is_float:  # and the middles between neighbours
        halves = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(dtype.numpy).astype(np.float32)
        halves = halves[np.isfinite(halves)]
        middle = halves[:-1] / 2 + halves[1:] / 2
        x = np.concatenate([x, halves, middle, np.nextafter(middle, np.float32(0))])
    actual = compute("narrow", [x], register, simd, narrow_to=dtype)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype.numpy).astype(register.numpy)
    np.testing.assert_array_equal(actual, expected)
