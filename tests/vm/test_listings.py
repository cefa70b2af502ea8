"""The text form of the programs of real models, held to the instruction table and to itself."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dvm_graph
from dvm_graph import _core
from models import tiny_path

MODELS = ("bert", "gpt2", "vit", "llama", "qwen3", "mmoe")
PREFIXES = {"scalar": "s_", "vector": "v_", "cube": "m_"}
"""By queue; those that move data begin with d_."""
_ROW = re.compile(r"^DVM_INSN\((\w+), (\w+), (\w+), (\w+),", re.MULTILINE)
_ISA = (Path(dvm_graph.__file__).parent / "vm" / "isa.def").read_text(encoding="utf-8")
_REGISTER = ["f32", "f64", "i32", "i64", "b8"]
_DTYPES = {
    "NONE": [],
    "B8": ["b8"],
    "I64": ["i64"],
    "F32": ["f32"],
    "BF16": ["bf16"],
    "BYTES": ["i32", "i8", "u8"],
    "TABLED": ["b8", "i8", "u8"],
    "I8": ["i8"],
    "BUNDLED": ["f32", "f16", "bf16", "i32", "i8", "u8"],
    "MULTIPLIED": ["bf16", "i8"],
    "HALVES": ["f16", "bf16"],
    "ROUNDED": ["f32", "f16", "bf16"],
    "FLOATS": ["f32", "f64"],
    "INTEGERS": ["i32", "i64"],
    "NUMBER": ["f32", "f64", "i32", "i64"],
    "BITS": ["i32", "i64", "b8"],
    "REGISTER": _REGISTER,
    "NUMBER_F16": ["f32", "f64", "i32", "i64", "f16"],
    "REGISTER_F16": [*_REGISTER, "f16"],
    "WHOLE": [*_REGISTER, "i8"],
    "SIGNED": ["f32", "f64", "i32", "i64", "f16", "i8"],
    "ORDERED": [*_REGISTER, "f16", "i8"],
    "MOVED": [*_REGISTER, "f16", "bf16"],
    "NARROW": ["f16", "bf16", "i8", "u8", "i16", "u16", "u32", "u64"],
    "STORAGE": [*_REGISTER, "f16", "bf16", "i8", "u8", "i16", "u16", "u32", "u64"],
}
ROWS = [match.groups() for match in _ROW.finditer(_ISA)]
DECLARED = {f"{name}_{d}" for name, _, _, dtypes in ROWS for d in _DTYPES[dtypes]} | {
    name for name, _, _, dtypes in ROWS if dtypes == "NONE"
}


@cache
def model_of(name: str) -> dvm_graph.Model:
    return dvm_graph.optimize(tiny_path(name))


def listings_of(name: str, extent: int) -> dict[str, str]:
    model = model_of(name)
    dims = dict.fromkeys(model.report().symbols, extent)
    return {listing.name: listing.text for listing in model.listings(dims)}


def programs_of(name: str) -> list[str]:
    """The programs for extents below, at and above the width of a vector."""
    texts = [text for extent in (1, 16, 37) for text in listings_of(name, extent).values()]
    return [part + "end\n" for text in texts for part in text.split("end\n") if part]


def test_names_in_the_instruction_table_are_unique_and_say_the_unit() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) > 60
    assert {row[1] for row in ROWS} == {*PREFIXES, "mte1", "mte2", "mte3", "fixp"}
    for name, queue, _, _ in ROWS:
        assert name.startswith(PREFIXES.get(queue, "d_")), name


@pytest.mark.parametrize("name", MODELS)
def test_every_instruction_is_in_the_table(name: str) -> None:
    for program in programs_of(name):
        body = program.split("body\n")[1].splitlines()[:-1]
        used = {line.split()[0] for line in body}
        assert used, program
        assert used <= DECLARED, program


@pytest.mark.parametrize("name", MODELS)
def test_every_register_is_declared(name: str) -> None:
    for program in programs_of(name):
        head, body = re.sub(";.*", "", program).split("body\n")
        declared = set(re.findall(r"^  ([ep]\d+) =", head, re.MULTILINE))
        used = set(re.findall(r"(?<![\w#.])([ep]\d+)\b", body))
        assert used <= declared, program


@pytest.mark.parametrize("name", MODELS)
def test_operands_start_inside_local_memory(name: str) -> None:
    for program in programs_of(name):
        size = int(re.findall(r" local (0x[0-9a-f]+)", program)[0], 16)
        places = [int(place, 16) for place in re.findall(r"\bl:(0x[0-9a-f]+)", program)]
        assert all(place < size for place in places), program


def test_loads_and_stores_name_their_values() -> None:
    text = "".join(listings_of("bert", 9).values())
    body = [
        line for program in programs_of("bert") for line in program.split("body\n")[1].splitlines()
    ]
    reads = {
        name
        for line in body
        if "<- " in line.partition(";")[2]
        for name in line.partition(";")[2].partition("<- ")[2].split(", ")
    }
    written = {line.partition(";")[2].partition("<-")[0].strip() for line in body} - {""}
    model = model_of("bert")
    assert {port.name for port in model.get_inputs()} <= reads
    assert {port.name for port in model.get_outputs()} <= written
    for name in re.findall(r"^  p\d+ = v\d+.*$", text, re.MULTILINE):
        assert " ; " in name
    for line in body:
        if re.search(r"(?<![\w.])p\d+\(", line.partition(";")[0]) and "_iota" not in line:
            assert ";" in line, line


def test_text_depends_on_nothing_but_the_dims() -> None:
    first = listings_of("bert", 9)
    assert listings_of("bert", 40) != first
    assert listings_of("bert", 9) == first


def test_disassembly_of_a_run_lists_the_same_programs() -> None:
    ids = np.ones((9, 9), np.int64)
    text = model_of("bert").disassemble({"input_ids": ids, "attention_mask": ids})
    assert text == "".join(f"; {name}\n{body}" for name, body in listings_of("bert", 9).items())


def test_kernels_of_unknown_dims_are_left_out() -> None:
    assert len(model_of("bert").listings({"batch": 2})) < len(listings_of("bert", 2))


def test_listings_say_what_is_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of other machines, some are predicted to be faster.
    monkeypatch.setenv("DVM_MACHINE", "zen5" if "portable" in _core.simd_levels() else "zen4")
    dims = {"batch": 2, "seq": 300}
    path = tiny_path("gpt2")
    model = dvm_graph.optimize(path)
    assert [listing.why for listing in model.listings(dims) if listing.why] == []
    assert all(f"; {listing.name}\n" in str(listing) for listing in model.listings(dims))
    fallbacks = {name for subgraph in model.report().subgraphs for name in subgraph.fallback}

    always = dvm_graph.optimize(path, fallbacks="always").listings(dims)
    taken = [listing for listing in always if listing.name in fallbacks]
    assert taken and {listing.why != "" for listing in taken} == {True}
    assert all(listing.why.startswith("in place of k") for listing in always if listing.why)
    assert f"; {taken[0].name} ({taken[0].why})\n" in str(taken[0])

    small = dvm_graph.optimize(path, local_bytes=16 << 10)
    reasons = [listing.why for listing in small.listings(dims) if listing.why]
    assert reasons and all("predicted to take longer" in r or "does not fit" in r for r in reasons)
    feeds = {name: np.ones((2, 300), np.int64) for name in (i.name for i in small.get_inputs())}
    assert "in place of k" in small.disassemble(feeds)

    apart = dvm_graph.optimize(path, fallbacks="operators").listings(dims)
    assert all("operator by operator" in listing.why for listing in apart if listing.text)
