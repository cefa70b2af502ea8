"""What the compiler chooses on devices, as tables: a change of the cost model shows in review."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import dvm_graph
from dvm_graph import _core
from dvm_graph.npu.machine import family
from dvm_graph.npu.spec import find_spec
from tests.golden_cases import DEVICES, PARTS

REGISTERS = {
    "zen2": (32, 16, 6, 0),
    "zen4": (64, 32, 14, 0),
    "zen5": (64, 32, 14, 0),
    "icelake-server": (64, 32, 14, 0),
    "sapphire-rapids": (64, 32, 14, 16),
    "client-avx2": (32, 16, 6, 0),
    "neoverse": (16, 8, 12, 0),
}
"""Of the cube unit: bytes of a vector, columns of a panel, rows, rows of tiles that split."""
CORES = 4

PRODUCTS = [
    *((m, k, n, {"panels": 1}) for m, k, n in (
        (1, 768, 768), (16, 768, 3072), (77, 768, 768), (128, 768, 768), (128, 768, 3072), (128, 3072, 768),
        (512, 768, 768), (512, 3072, 768), (2048, 2048, 2048), (3136, 64, 64), (3136, 576, 64),
        (784, 1152, 128), (196, 2304, 256), (49, 4608, 512),
    )),
    (512, 768, 768, {"panels": 1, "epilogue_nodes": 8}),
    (128, 768, 1024, {"panels": 1, "rows_per_set": 14}),
    (128, 64, 128, {"batch": 12, "b_batch": 12, "pack_b": 1}),
    (1024, 128, 1024, {"pack_b": 1}),
    (16, 512, 2048, {"readable_b": 1}),
]  # fmt: skip
IMAGES = [
    ((1, 56, 56, 64), 64), ((1, 112, 112, 32), 32), ((1, 28, 28, 128), 128), ((1, 14, 14, 256), 256), ((1, 7, 7, 512), 512),
    ((8, 14, 14, 256), 256), ((1, 30, 40, 256), 512), ((1, 37, 53, 48), 96), ((1, 224, 224, 64), 64), ((4, 20, 20, 512), 64),
]  # fmt: skip
"""[images, height, width, channels], and results for each pixel."""
TILES = [
    ((1, 3072), 0),
    ((128, 768), 0),
    ((4096, 3072), 0),
    ((64, 1000), 0b10),
    ((8192, 768), 0b10),
    ((32, 64, 56, 56), 0),
    ((32, 512, 49), 0b100),
    ((7, 100003), 0b10),
]


def targets() -> Iterator[tuple[str, _core.Target]]:
    for name, registers in REGISTERS.items():
        yield name, _core.host_target(CORES, registers, family(name).core)
    yield "ascend910b2", find_spec("ascend910b2").target


def _block(target: _core.Target, m: int, k: int, n: int, more: Mapping[str, Any]) -> str:
    block = _core.choose_block(target, {"m": m, "k": k, "n": n, **more})
    if not block["rows"]:
        return "none fits"
    size = f"{block['rows']:.0f} x {block['columns']:.0f} by {block['k_block']:.0f}"
    flags = [flag for flag in ("rows_outer", "pack_a", "keep_a", "keep_b") if block[flag]]
    if block["pieces_of_k"]:
        flags.append(f"k in {block['pieces_of_k']:.0f}")
    return " ".join([size, *flags])


def _table(target: _core.Target, convolves: bool) -> str:
    lines = ["products m x k x n: rows x columns by k of a block"]
    for m, k, n, more in PRODUCTS:
        problem = " ".join(
            [f"{m} x {k} x {n}", *(f"{name}={value}" for name, value in more.items())]
        )
        lines.append(f"  {problem:<48} {_block(target, m, k, n, more)}")
    if convolves:
        lines.append("convolutions by 3 x 3 taps: windows x columns of a tile")
        for image, results in IMAGES:
            problem = f"{' x '.join(map(str, image))} to {results}"
            windows, columns, transformed = _core.choose_windows(target, image, results)
            way = "by transforms" if transformed else "in place"
            tile = f"{windows} x {columns} {way}" if windows else "patches"
            lines.append(f"  {problem:<48} {tile}")
    lines.append("vector kernels: extents, those summed in brackets: tile")
    for extents, reduced in TILES:
        shape = " ".join(f"[{e}]" if reduced >> i & 1 else str(e) for i, e in enumerate(extents))
        tile = " ".join(map(str, _core.choose_tile(target, extents, reduced)))
        lines.append(f"  {shape:<48} {tile}")
    return "\n".join(lines) + "\n"


@pytest.mark.golden
@pytest.mark.parametrize("name", DEVICES)
def test_choices(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"choices/{name}.txt", _table(dict(targets())[name], name in REGISTERS))


PART_PRODUCTS = [
    (1, 768, 768), (77, 768, 768), (128, 768, 3072), (512, 3072, 768), (1000, 4096, 4096),
    (2048, 2048, 2048), (4565, 8192, 28672), (8192, 4096, 11008), (8192, 1024, 64), (30000, 128, 512),
]  # fmt: skip
"""m, n, k"""
PART_GRAPHS = {
    "f16": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { o = MatMul(x, y) }",
    "f16, a matrix added": "g (float16[m,k] x, float16[k,n] y, float16[m,n] c) => (float16[m,n] o)"
    " { p = MatMul(x, y) o = Add(p, c) }",
    "f32": "g (float[m,k] x, float[k,n] y) => (float[m,n] o) { o = MatMul(x, y) }",
    "f16, A computed": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { s = Mul(x, x) o = MatMul(s, y) }",
    "f16, A computed and a matrix added": "g (float16[m,k] x, float16[k,n] y, float16[m,n] c) => (float16[m,n] o)"
    " { s = Mul(x, x) p = MatMul(s, y) o = Add(p, c) }",
}


@pytest.mark.golden
@pytest.mark.parametrize("part", PARTS)
def test_products_of_parts(part: str, check_golden: Callable[[str, str], None]) -> None:
    """Grids, shares and rings of products on cube units with local memories of their own."""
    if _core.simd_levels()[0] in ("x86-64", "portable"):
        pytest.skip("panels of this CPU's level are narrower, and tiles with them")
    shown = ("program", "grid", "regions", "ring", "lines", "pieces")
    lines = []
    for label, graph in PART_GRAPHS.items():
        source = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{graph}')
        model = dvm_graph.optimize(source, device=part)
        for m, n, k in PART_PRODUCTS:
            lines.append(f"{label}: {m} x {k} x {n}")
            kernel, *_ = model.listings({"m": m, "n": n, "k": k})
            lines += [
                f"  {s}" for s in map(str.strip, kernel.text.splitlines()) if s.startswith(shown)
            ]
    check_golden(f"choices/products_{part}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("graph", "extents"),
    [
        ("g (float[m,k] x, float[k,n] y) => (float[m,n] o) { o = MatMul(x, y) }", (307, 3584, 1024)),
        ("g (float[1,64,m,m] x, float[64,64,3,3] w) => (float[1,64,m,m] o) { o = Conv<pads = [1,1,1,1]>(x, w) }", (56,)),
    ],
)  # fmt: skip
def test_many_cores_share_more_tiles_than_there_are_cores(
    graph: str, extents: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of them is late as a rule, on a machine that others use: by a tile, which then is a small part."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{graph}')
    for weights in source.graph.input[1:] if "Conv" in graph else ():
        ones = np.ones((64, 64, 3, 3), np.float32)
        source.graph.initializer.append(numpy_helper.from_array(ones, weights.name))
    dims, cores = dict(zip("mkn", extents, strict=False)), 8
    kernels = dvm_graph.optimize(source, cores=cores, winograd=False).listings(dims)
    (product,) = [kernel.text for kernel in kernels if "m_matmul" in kernel.text]
    assert int(re.findall(r"^  tiles (\d+)", product, re.MULTILINE)[0]) >= 2 * cores


def test_another_device_gets_other_blocks() -> None:
    assert len({_table(target, False) for _, target in targets()}) == len(REGISTERS) + 1


@pytest.mark.parametrize("name", DEVICES)
def test_blocks_lie_inside_the_problem(name: str) -> None:
    target = dict(targets())[name]
    splits = name in REGISTERS and REGISTERS[name][3] > 0
    numbers = family(name).numbers if splits else {}
    least = numbers["multiply_adds"].value / numbers["split_multiply_adds"].value if splits else 1
    for m, k, n, more in PRODUCTS:
        block = _core.choose_block(target, {"m": m, "k": k, "n": n, **more})
        assert 0 < block["rows"] <= m and 0 < block["columns"] <= n and 0 < block["k_block"] <= k
        assert block["cost"] >= least * block["waves"] * block["rows"] * block["columns"] * k
