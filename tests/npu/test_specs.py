"""Device spec files: every number has a value, a known source and a confidence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dvm_graph
from dvm_graph import _core

tomllib = pytest.importorskip("tomllib")  # in the standard library from Python 3.11 on

SPECS = sorted((Path(dvm_graph.__file__).parent / "npu" / "specs").glob("*.toml"))
CONFIDENCES = {"high", "medium", "low"}


def load(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        spec: dict[str, Any] = tomllib.load(file)
    return spec


def numbers(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section, entries in spec.items():
        if section in ("name", "sources"):
            continue
        for key, entry in entries.items():
            yield f"{section}.{key}", entry


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_number_has_a_source(path: Path) -> None:
    spec = load(path)
    assert spec["name"] == path.stem
    for name, entry in numbers(spec):
        assert "value" in entry, name
        assert entry["source"] and set(entry["source"]) <= set(spec["sources"]), name
        assert entry["confidence"] in CONFIDENCES, name


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_derived_numbers_agree(path: Path) -> None:
    spec = load(path)
    cores, cube = spec["cores"], spec["cube"]
    multiply_adds = cube["tile"]["value"] ** 3
    peak = cores["cube"]["value"] * 2 * multiply_adds * cores["frequency"]["value"]
    assert peak == pytest.approx(cube["peak_bf16"]["value"], rel=0.01)
    assert spec["target"]["local_bytes"]["value"] <= spec["memory"]["vector_local"]["value"]
    assert spec["target"]["cores"]["value"] == cores["vector"]["value"]
    rates = spec["vector"]["bytes_per_cycle"]["value"] / 4 * cores["frequency"]["value"]
    assert spec["costs"]["vector_elements"]["value"] == pytest.approx(rates)
    assert spec["costs"]["stage_start"]["value"] == spec["startup"]["vector_kernel"]["value"]
    products = multiply_adds * cores["frequency"]["value"] * cores["cube"]["value"]
    together = spec["costs"]["multiply_adds"]["value"] * cores["vector"]["value"]
    assert together == pytest.approx(products)
    share = spec["bandwidth"]["hbm"]["value"] / cores["vector"]["value"]
    assert spec["costs"]["memory_read"]["value"] == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_targets_have_every_field_within_its_bounds(path: Path) -> None:
    spec = load(path)
    known = {name: (unit, low, high) for _, name, unit, low, high, _ in _core.target_fields()}
    entries = {**spec["target"], **spec["costs"]}
    assert entries.keys() == known.keys()
    for name, entry in entries.items():
        unit, low, high = known[name]
        assert low <= entry["value"] <= high, name
        assert entry.get("unit", unit) == unit, name


def test_the_reference_device_is_described() -> None:
    assert "ascend910b2" in [path.stem for path in SPECS]
