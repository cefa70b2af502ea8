"""Golden bytecode of small kernels, on a device that is the same on every x86-64 machine.

The level that all of them have, a number of cores, a local memory that sizes the tiles, and the costs of one
machine. Other processors have other register blocks for the cube unit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dvm_graph
from dvm_graph import _core
from dvm_graph.npu.machine import VARIABLE
from tests.golden_cases import LISTINGS, STEPS, model

BASELINE = "x86-64"
DEVICE = dvm_graph.Options(simd=BASELINE, cores=2, local_bytes=16 << 10)


@pytest.mark.golden
@pytest.mark.skipif(BASELINE not in _core.simd_levels(), reason="another processor's bytecode")
@pytest.mark.parametrize("name", LISTINGS)
def test_disassembly(
    name: str, check_golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "zen4")
    dims = LISTINGS[name]
    listings = dvm_graph.optimize(model(name), DEVICE).listings(dims)
    head = ", ".join(f"{dim} = {extent}" for dim, extent in dims.items())
    kernels = "".join(map(str, listings))
    check_golden(f"disassembly/{name}.txt", f"; {head}\n{kernels}")


@pytest.mark.golden
@pytest.mark.skipif(BASELINE not in _core.simd_levels(), reason="another processor's bytecode")
@pytest.mark.parametrize("name", STEPS)
def test_tile_code(
    name: str, check_golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each step of the run-time compiler leaves to the next."""
    monkeypatch.setenv(VARIABLE, "zen4")
    listings = dvm_graph.optimize(model(name), DEVICE).listings(STEPS[name], steps=True)
    check_golden(f"tile_code/{name}.txt", "".join(f"; {k.name}\n{k.steps}" for k in listings))
