"""The table of basic operators against the instructions that carry them out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dvm_graph.ir import OPERATORS, DType, Kind

ISA = Path(__file__).parents[2] / "dvm_graph" / "vm" / "isa.def"
LISTS = {
    "FLOATS": "f32 f64",
    "INTEGERS": "i32 i64",
    "NUMBER": "f32 f64 i32 i64",
    "BITS": "i32 i64 b8",
    "B8": "b8",
    "I64": "i64",
    "REGISTER": "f32 f64 i32 i64 b8",
    "NUMBER_F16": "f32 f64 i32 i64 f16",
    "REGISTER_F16": "f32 f64 i32 i64 b8 f16",
    "WHOLE": "f32 f64 i32 i64 b8 i8",
    "SIGNED": "f32 f64 i32 i64 f16 i8",
    "ORDERED": "f32 f64 i32 i64 b8 f16 i8",
}
"""As isa.def's head has them."""
INT64_ALONE = {"iota", "check_index"}
"""No storage type but that of their register."""
OF_BYTES = {"abs", "neg", "sign", "bitwise_not", "add", "sub", "mul", "min", "max"}
"""Their b8 are integers of 8 bits (`vm/bytes.h`), no truths: ONNX has none of these operators of booleans."""
INSTRUCTIONS = dict(
    re.findall(
        r"^DVM_INSN\(v_(\w+), vector, \w+, (\w+),", ISA.read_text(encoding="utf-8"), re.MULTILINE
    )
)


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() & INSTRUCTIONS.keys() - INT64_ALONE))
def test_takes_what_its_instruction_computes_with(name: str) -> None:
    registers = set(LISTS[INSTRUCTIONS[name]].split()) - ({"b8"} if name in OF_BYTES else set())
    allowed = {d for d in DType if d is not DType.OPAQUE and d.register.short in registers}
    assert OPERATORS[name].takes - {DType.OPAQUE} == allowed


def test_instructions_are_found() -> None:
    kinds = (Kind.MAP, Kind.REDUCE)
    computing = {name for name, row in OPERATORS.items() if row.kind in kinds} - {"cast", "lookup"}
    assert computing <= INSTRUCTIONS.keys()
