"""Golden bytecode of small kernels, on a device that is the same on every machine.

The baseline instruction-set level has 16-byte vectors everywhere; a local memory below two thirds of
any L1 cache sizes the tiles, and the number of cores is given.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dvm_graph
from dvm_graph import _core
from tests.golden_cases import LISTINGS, model

DEVICE = dvm_graph.Options(simd=_core.simd_levels()[-1], cores=2, local_bytes=16 << 10)


@pytest.mark.golden
@pytest.mark.parametrize("name", LISTINGS)
def test_disassembly(name: str, check_golden: Callable[[str, str], None]) -> None:
    dims = LISTINGS[name]
    listings = dvm_graph.optimize(model(name), DEVICE).listings(dims)
    head = ", ".join(f"{dim} = {extent}" for dim, extent in dims.items())
    kernels = "".join(f"; {listing.name}\n{listing.text}" for listing in listings)
    check_golden(f"disassembly/{name}.txt", f"; {head}\n{kernels}")
