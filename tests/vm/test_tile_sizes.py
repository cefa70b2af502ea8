"""What tiles of vector kernels have room for."""

from __future__ import annotations

import re

from onnx import parser

import dvm_graph
from dvm_graph.npu.machine import this_machine


def tile_of(results: str, body: str) -> int:
    """Elements in a tile of the last kernel."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n] x) => (uint8[n] y{results}) {{ {body} }}""")
    model = dvm_graph.optimize(proto, strict=True, cores=1, local_bytes=1 << 17)
    *_, last = model.listings({"n": 400_000})
    (elements,) = re.findall(r"tiles of (\d+)", last.text)
    return int(elements)


def test_scalars_take_no_room_that_grows_with_the_tile() -> None:
    """Quantising by a scale that the kernel computes has as large tiles as by one that is known."""
    known = """s = Constant<value_float = 0.1>()
        z = Constant<value = uint8 {3}>()
        y = QuantizeLinear(x, s, z)"""
    computed = tile_of(", float s, uint8 z", "y, s, z = DynamicQuantizeLinear(x)")
    assert computed == tile_of("", known)


def _tile_bytes(dtype: str, size: int, body: str, result: str = "") -> int:
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({dtype}[n] x, {dtype}[n] z) => ({result or dtype}[m] y) {{ {body} }}""")
    model = dvm_graph.optimize(proto, strict=True, cores=1)
    *_, last = model.listings({"n": 4_000_000})
    (elements,) = re.findall(r"tiles of (\d+)", last.text)
    return size * int(elements)


def test_what_instructions_leave_to_the_next_fits_the_first_level_cache() -> None:
    """One instruction, and those that join, leave nothing in memory: their tiles are larger."""
    chain = "a = Mul(x, z) b = Add(a, z) y = Max(b, z)"
    first = this_machine().numbers["first_bytes"].value
    for dtype, size in (("int64", 8), ("double", 8), ("uint8", 1)):
        assert _tile_bytes(dtype, size, chain) <= first / 2
        assert _tile_bytes(dtype, size, "y = Mul(x, z)") > first
    assert _tile_bytes("float", 4, chain) > first / 2
    widened = _tile_bytes(
        "int8", 4, "y = Cast <to = 7> (x)", "int64"
    )  # to registers, and from them
    assert widened <= first / 2
    assert _tile_bytes("int8", 4, "y = Cast <to = 1> (x)", "float") > first / 2  # at once
