"""Models of machines: shipped tables, detection, users' files, measurements, and what they lead to."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import dvm_graph
from dvm_graph import _core
from dvm_graph.npu import calibration, machine
from dvm_graph.npu.cpu import Cpu, cache_sizes, cpu_in, this_cpu

FAMILIES = machine.families()
ZEN4 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\n\nvendor_id\t: other\n"
GRAVITON = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Neither the environment nor measurements of whoever runs the tests."""
    monkeypatch.delenv(machine.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    machine._machine.cache_clear()
    machine.read_toml.cache_clear()
    yield
    machine._machine.cache_clear()
    machine.read_toml.cache_clear()


def test_the_families_that_users_are_promised_are_there() -> None:
    promised = {
        "zen2",
        "zen4",
        "zen5",
        "icelake-server",
        "sapphire-rapids",
        "cascadelake",
        "client-avx2",
        "neoverse",
    }
    generic = {"generic", "generic-x86-64-v3", "generic-x86-64-v4"}
    assert set(FAMILIES) == promised | generic


@pytest.mark.parametrize("name", FAMILIES)
def test_every_number_of_a_shipped_table_is_there_with_unit_and_source(name: str) -> None:
    table = machine._toml(machine.SPECS / f"{name}.toml")
    assert table["name"] == name
    entries = {**table["caches"], **table["costs"]}
    assert entries.keys() == machine.fields().keys()
    for key, entry in entries.items():
        assert entry["unit"] == machine.fields()[key].unit, key
        assert entry["source"] and set(entry["source"]) <= set(table["sources"]), key
    assert machine.family(name).numbers.keys() == entries.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_nearer_memory_is_no_slower_in_a_shipped_table(name: str) -> None:
    numbers = {key: number.value for key, number in machine.family(name).numbers.items()}
    rates = ("private_read", "shared_read", "memory_read")
    assert sorted((numbers[rate] for rate in rates), reverse=True) == [numbers[r] for r in rates]
    assert numbers["first_bytes"] < numbers["private_bytes"] < numbers["shared_bytes"]
    assert numbers["first_bytes"] % numbers["first_ways"] == 0


@pytest.mark.parametrize(
    ("cpu", "family"),
    [
        (cpu_in(ZEN4), "zen4"),
        (cpu_in(GRAVITON), "neoverse"),
        (Cpu("AuthenticAMD", 23, 49), "zen2"),
        (Cpu("AuthenticAMD", 25, 1), "zen2"),
        (Cpu("AuthenticAMD", 26, 2), "zen5"),
        (Cpu("GenuineIntel", 6, 106), "icelake-server"),
        (Cpu("GenuineIntel", 6, 207), "sapphire-rapids"),
        (Cpu("GenuineIntel", 6, 85), "cascadelake"),
        (Cpu("GenuineIntel", 6, 158), "client-avx2"),
    ],
)
def test_a_cpu_finds_its_family(cpu: Cpu, family: str) -> None:
    assert machine.table_of(cpu) == family


def test_a_cpu_that_nobody_knows_gets_the_table_of_its_level() -> None:
    name = machine.table_of(Cpu("CyrixInstead", 5, 2))
    assert name in (*(f"generic-{level}" for level in _core.simd_levels()[:2]), "generic")


def test_every_family_is_found_by_some_cpu() -> None:
    rows = machine._toml(machine.SPECS / "families.toml")
    assert {row.get("table", name) for name, row in rows.items()} == {
        name for name in FAMILIES if not name.startswith("generic")
    }


def test_a_cpu_is_read_from_what_the_system_says() -> None:
    assert cpu_in(ZEN4) == Cpu("AuthenticAMD", 25, 17, "AMD EPYC 9B14")
    assert cpu_in(GRAVITON) == Cpu("0x41", 0, 0xD0C)
    assert cpu_in("") == Cpu()


def test_caches_are_read_from_what_the_system_says(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1280K"), ("3", "Unified", "49152K")]
    ):  # fmt: skip
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in {
            "level": level,
            "type": kind,
            "size": size,
            "ways_of_associativity": "12",
        }.items():
            (folder / name).write_text(f"{text}\n")
    kib = 1024
    assert cache_sizes(tmp_path) == {
        "first_bytes": 48 * kib,
        "first_ways": 12,
        "private_bytes": 1280 * kib,
        "shared_bytes": 49152 * kib,
    }
    assert cache_sizes(tmp_path / "nowhere") == {}


def test_a_named_family_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, "zen2")
    assert machine.this_machine() == machine.family("zen2")


def test_a_users_file_comes_before_everything_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = machine.this_machine()
    path = tmp_path / "mine.toml"
    path.write_text(
        "[costs]\nmemory_read = 5e9\n[caches]\nfirst_ways = { value = 16, unit = 'lines' }\n"
    )
    monkeypatch.setenv(machine.VARIABLE, str(path))
    mine = machine.this_machine()
    changed = {"memory_read": 5e9, "first_ways": 16}
    assert mine.name == "mine"
    for name, number in mine.numbers.items():
        assert number.value == changed.get(name, plain.numbers[name].value), name
        assert ("mine.toml" in number.source) == (name in changed)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[costs]\nmemory_reed = 1e9\n", "costs.memory_reed is no number of a machine"),
        ("[caches]\nmemory_read = 1e9\n", "caches.memory_read is no number of a machine"),
        ("[speeds]\nmemory_read = 1e9\n", "unknown section 'speeds'"),
        ("costs = 3\n", "costs has to be a table"),
        ("[costs]\nmemory_read = { value = 10, unit = 'GB/s' }\n", "costs.memory_read is 10"),
        ("[costs]\nmemory_read = { value = 1e10, unit = 'GB/s' }\n", "is in 'GB/s', but has to be in B/s"),
        ("[costs]\nmemory_read = -1e9\n", "costs.memory_read is -1e+09, but has to lie between"),
        ("[costs]\nmemory_read = nan\n", "costs.memory_read is nan, but has to be a number"),
        ("[costs]\nmemory_read = 'fast'\n", "costs.memory_read is 'fast', but has to be a number"),
        ("[costs]\nmemory_read = true\n", "costs.memory_read is True, but has to be a number"),
        ("[costs]\nmemory_read = { unit = 'B/s' }\n", "costs.memory_read is None"),
        ("[costs\n", "cannot be read"),
        ("[caches]\nline_bytes = 64.5\n", "caches.line_bytes is 64.5, but has to be a whole number"),
        ("[caches]\nfirst_bytes = 4096\nfirst_ways = 64\nline_bytes = 1024\n", "first_bytes is 4096, too few for"),
        ("sources = 3\n[costs]\nmemory_read = { value = 1e10, source = ['a'] }\n", "sources has to be a table"),
    ],
)  # fmt: skip
def test_a_users_file_that_makes_no_sense_is_an_error_that_names_the_field(
    text: str, complaint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    monkeypatch.setenv(machine.VARIABLE, str(path))
    with pytest.raises(dvm_graph.DvmError) as error:
        machine.this_machine()
    assert complaint in str(error.value)
    assert "mine.toml" in str(error.value)


def test_a_machine_that_is_neither_file_nor_family_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(machine.VARIABLE, "zen9")
    with pytest.raises(dvm_graph.DvmError, match=r"zen9.*one of cascadelake"):
        machine.this_machine()


MEASURED = {"multiply_adds": 5e10, "memory_read": 7e9}


def test_measurements_are_kept_for_the_user_and_cpu() -> None:
    family = machine.this_machine()
    path = calibration.store(this_cpu(), MEASURED)
    machine._machine.cache_clear()
    measured = machine.this_machine()
    assert path.is_file() and path.parent.name == "dvm_graph"
    clock = 5e10 / family.numbers["multiply_adds"].value
    for name, number in measured.numbers.items():
        before = family.numbers[name].value
        if name in MEASURED:
            assert number == machine.Number(MEASURED[name], "measured")
        elif name in machine._PER_CYCLE:
            seconds = machine.fields()[name].unit == "s"
            assert number.value == pytest.approx(before / clock if seconds else before * clock)
        else:
            assert number.value == before, name


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"version": 1}',
        json.dumps({"version": 0, "cpu": this_cpu().key, "numbers": MEASURED}),
        json.dumps({"version": 1, "cpu": "another", "numbers": MEASURED}),
        json.dumps({"version": 1, "cpu": this_cpu().key, "numbers": {"memory_read": 7e9}}),
        json.dumps({"version": 1, "cpu": this_cpu().key, "numbers": {**MEASURED, "speed": 1}}),
        json.dumps({"version": 1, "cpu": this_cpu().key, "numbers": {**MEASURED, "memory_read": 0}}),
        json.dumps({"version": 1, "cpu": this_cpu().key, "numbers": {**MEASURED, "memory_read": "7"}}),
    ],
    ids=lambda content: content[:24],
)  # fmt: skip
def test_measurements_of_no_use_fall_back_to_the_family_with_one_warning(content: str) -> None:
    family = machine.this_machine()
    path = calibration.file_of(this_cpu())
    path.parent.mkdir(parents=True)
    path.write_text(content)
    machine._machine.cache_clear()
    with pytest.warns(machine.MachineWarning, match="calibrate") as caught:
        assert machine.this_machine() == family
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert machine.this_machine() == family


def test_without_a_home_there_are_no_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/proc/nobody")
    assert calibration.load(this_cpu()) is None


def test_measuring_gives_numbers_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, path = machine.calibrate_machine()
    assert path.is_file() and measured.name.endswith("calibrated")
    sources = {name for name, number in measured.numbers.items() if number.source == "measured"}
    assert {
        "multiply_adds",
        "private_read",
        "shared_read",
        "memory_read",
        "memory_latency",
    } <= sources
    assert machine.this_machine() == measured
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    with pytest.raises(dvm_graph.DvmError, match="cannot write"):
        machine.calibrate_machine()


def test_measurements_without_a_home_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(_core, "measure_rates", lambda *_: MEASURED)
    with pytest.raises(dvm_graph.DvmError, match="determine home directory"):
        machine.calibrate_machine()


def test_cache_sizes_of_the_system_that_contradict_the_table_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"first_bytes": 32 << 10, "first_ways": 64, "line_bytes": 1024}
    monkeypatch.setattr(machine, "cache_sizes", lambda: sizes)
    assert machine._described() == machine.family(machine.table_of(this_cpu()))


def test_absurd_measurements_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _core, "measure_rates", lambda *_: {"multiply_adds": 1e10, "memory_read": 1.0}
    )
    with pytest.raises(dvm_graph.DvmError, match="memory_read was measured as 1"):
        machine.calibrate_machine()
    assert not calibration.file_of(this_cpu()).exists()


def test_the_core_refuses_what_it_does_not_know() -> None:
    values = {name: number.value for name, number in machine.family("zen4").numbers.items()}
    with pytest.raises(ValueError, match="unknown field speed"):
        _core.Machine("broken", {**values, "speed": 1})
    del values["memory_read"]
    with pytest.raises(ValueError, match="no number for memory_read"):
        _core.Machine("broken", values)


def test_importing_the_package_reads_no_table() -> None:
    script = "import dvm_graph, sys; assert not {'tomllib', 'tomli'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
