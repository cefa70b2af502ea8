"""Saved files that are not as they were saved: refused, whatever became of them, and never a wrong answer."""

from __future__ import annotations

import functools
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.errors import DamagedError, DvmError, UnsupportedError
from dvm_graph.feeds import random_feeds
from dvm_graph.saving import saved_file
from models import tiny_path
from tests.end_to_end.reference import assert_same_bits
from tests.fuzz.check import Finding, Kind, Phase, Report
from tests.fuzz.workers import run
from tests.saving.test_saving import ROWS, large

Feeds = dict[str, Any]


@functools.cache
def base(name: str) -> tuple[bytes, Feeds, tuple[bytes, ...]]:
    """A saved file, feeds, and what they give."""
    model = dvm_graph.optimize(tiny_path(name), cores=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.dvm"
        model.save(path)
        feeds = random_feeds(model, {}, 0)
        return path.read_bytes(), feeds, tuple(result.tobytes() for result in model.run(feeds))


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The file after something that happens to files."""
    at, other = sorted(rng.randrange(len(data)) for _ in range(2))
    size = min(rng.choice((1, 2, 8, 64, 4096)), len(data) - at)
    kind = rng.randrange(7)
    if kind <= 1:  # a bit
        return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
    if kind == 2:
        return data[:at] + rng.randbytes(size) + data[at + size :]
    if kind == 3:
        return data[:at] + bytes(size) + data[at + size :]
    if kind == 4:
        return data[: rng.choice((at, len(data) - size))]
    if kind == 5:
        return data[:at] + rng.randbytes(size) + data[at:]
    return data[:at] + data[other:] + data[at:other]


def resealed(rng: random.Random, data: bytes) -> bytes:
    """The file with something else in its header, and the digest of that."""
    magic, version, zero, at, _, _, _ = saved_file._PREAMBLE.unpack_from(data)
    header = json.loads(data[at:])
    parent, key = header, rng.choice(sorted(header.keys() - {"version", "checksums"}))
    while isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.9:
        parent = parent[key]
        key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
    value = parent[key]
    if isinstance(parent, list) and rng.random() < 0.3:
        parent[:] = rng.choice(
            (parent[:key], parent[key:], [*parent, value], parent[:key] + parent[key + 1 :])
        )
    elif isinstance(value, bool | int) and rng.random() < 0.9:
        parent[key] = rng.choice(
            (value + 1, value - 1, -1, 0, 1, 1 << 31, -(1 << 62), 1 << 64, not value)
        )
    else:
        parent[key] = rng.choice((None, "", "x", [], {}, 1.5, -1, "f32", [value], value))
    text = json.dumps(header).encode()
    digested = saved_file._PREAMBLE.pack(magic, version, zero, at, len(text), at + len(text), b"")
    digested = digested[: saved_file._DIGESTED]
    return digested + saved_file._digest(digested, text) + data[len(digested) + 24 : at] + text


def outcome(name: str, mutant: bytes) -> str:
    """The class of the error, or whether the results are right."""
    _, feeds, expected = base(name)
    with tempfile.NamedTemporaryFile(suffix=".dvm") as file:
        file.write(mutant)
        file.flush()
        try:
            results = dvm_graph.load(file.name).run(feeds)
        except DvmError as error:
            return type(error).__name__
    same = tuple(result.tobytes() for result in results) == expected
    return "right" if same else "wrong"


def findings(
    name: str, change: Callable[[random.Random, bytes], bytes], count: int, wrong: tuple[str, ...]
) -> list[tuple[int, Report]]:
    """What happens to mutants in child processes, but for what may."""
    data, _, _ = base(name)

    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        phase(Phase.RUN)
        mutant = change(random.Random(f"{name}:{index}"), data)
        if mutant == data:
            return None
        got = outcome(name, mutant)
        return Finding(Kind.MISMATCH, got, ()) if got in wrong else None

    reports = run([range(count)], work)
    return [(index, report) for index, report in reports if report is not None]


@pytest.mark.parametrize("name", ["mmoe", "nonzero"])
def test_every_change_is_noticed(name: str) -> None:
    """Also one that would not have changed results: no byte is without a checksum."""
    assert findings(name, damaged, 1000, ("wrong", "right")) == []


@pytest.mark.parametrize("name", ["mmoe", "nonzero"])
def test_headers_that_somebody_made_end_no_process(name: str) -> None:
    """They may change what a model means, as an ONNX file may."""
    assert findings(name, resealed, 200, ()) == []


def test_mapped_weights_are_checked_by_the_first_run(tmp_path: Path) -> None:
    path = tmp_path / "model.dvm"
    model = dvm_graph.optimize(large())
    model.save(path)
    data = bytearray(path.read_bytes())
    for at in (64, 4095, 4096, 300_000, len(data) // 2):
        changed = bytearray(data)
        changed[at] ^= 4
        path.write_bytes(changed)
        loaded = dvm_graph.load(path)
        for _ in range(2):
            with pytest.raises(DamagedError, match=r"bytes \d+ to \d+ are not what was saved"):
                loaded.run({"x": ROWS})
        with pytest.raises(DamagedError):
            dvm_graph.load(path, private_weights=True)
    path.write_bytes(data)
    assert_same_bits(dvm_graph.load(path).run({"x": ROWS}), model.run({"x": ROWS}))


@pytest.mark.parametrize("what", ["__version__", "FORMAT"])
def test_other_versions_are_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(saved_file, what, type(getattr(saved_file, what))(99))
        dvm_graph.optimize(tiny_path("mmoe")).save(tmp_path / "model.dvm")
    with pytest.raises(UnsupportedError, match=r"99.*save the model again"):
        dvm_graph.load(tmp_path / "model.dvm")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 4096])
def test_short_files(size: int, tmp_path: Path) -> None:
    data, _, _ = base("mmoe")
    path = tmp_path / "model.dvm"
    path.write_bytes(data[:size])
    with pytest.raises(DamagedError, match=r"is no model that dvm_graph saved|was saved with"):
        dvm_graph.load(path)


def test_an_onnx_model_is_no_saved_one() -> None:
    with pytest.raises(DamagedError, match="is no model that dvm_graph saved"):
        dvm_graph.load(tiny_path("mmoe"))


def test_checksums_are_crc32c() -> None:
    """The check value of the standard, RFC 3720's vectors, and every length of a rest."""
    from dvm_graph._core import checksums

    def crc(data: bytes, block: int = 1 << 10, threads: int = 2) -> list[int]:
        return np.frombuffer(checksums(memoryview(data), block, threads), np.uint32).tolist()

    assert crc(b"123456789") == [0xE3069283]
    assert crc(bytes(32)) == [0x8A9136AA]
    assert crc(b"\xff" * 32) == [0x62A8AB43]
    assert crc(bytes(range(32))) == [0x46DD794E]
    data = np.random.default_rng(0).bytes(3000)
    for size in (*range(40), 1023, 1024, 1025, 2999):
        blocks = [data[:size][at : at + 64] for at in range(0, size, 64)]
        assert crc(data[:size], 64) == [crc(block)[0] for block in blocks]
        assert crc(data[:size], 64, 1) == [by_bits(block) for block in blocks]


def by_bits(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    "text", [b"{", b"[1]", b"\xff", b"[" * 100_000, b"{}", None], ids=lambda text: repr(text)[:12]
)
def test_headers_that_are_none_but_have_their_digest(text: bytes | None, tmp_path: Path) -> None:
    data = base("mmoe")[0]
    magic, version, zero, at, *_ = saved_file._PREAMBLE.unpack_from(data)
    if text is None:
        text = json.dumps({**json.loads(data[at:]), "checksums": 3}).encode()
    preamble = saved_file._PREAMBLE.pack(magic, version, zero, at, len(text), at + len(text), b"")[
        : saved_file._DIGESTED
    ]
    path = tmp_path / "model.dvm"
    path.write_bytes(
        preamble + saved_file._digest(preamble, text) + data[len(preamble) + 24 : at] + text
    )
    with pytest.raises((DamagedError, UnsupportedError), match=r"model\.dvm.*save the model again"):
        dvm_graph.load(path)
