"""The cache of compiled models: what was compiled once is loaded, what is not the same any more is compiled."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dvm_graph
from dvm_graph import rescue
from dvm_graph.kernels import lower
from dvm_graph.saving import CACHE_VARIABLE, cache
from tests.end_to_end.reference import assert_same_bits, model_from_text, session
from tests.saving.test_saving import ROWS, large
from tests.test_imports import loaded_by
from tests.test_rescue import SOURCE, fail_at
from tests.test_variants import B, X, source

TEXT = "g (float[n, m] x) => (float[n, m] y) { a = Exp(x) y = Neg(a) }"
FEEDS = {"x": X}


class Compiler:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0
        self._build = rescue.build

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self._build(*arguments)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    counting = Compiler()
    monkeypatch.setattr(rescue, "build", counting)
    yield counting


def write(folder: Path, model: onnx.ModelProto, *, apart: bool = False) -> Path:
    path = folder / "model.onnx"
    (folder / "w.bin").unlink(missing_ok=True)  # it would be appended to
    more = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(model, path, **(more if apart else {}))
    return path


def expected(path: Path, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    results: list[np.ndarray[Any, Any]] = session(str(path)).run(None, feeds)
    return results


def test_a_second_start_needs_no_compiler(tmp_path: Path) -> None:
    path = write(tmp_path, model_from_text(TEXT))
    code = f"""
import dvm_graph, numpy
model = dvm_graph.optimize({str(path)!r}, cache={str(tmp_path / "kept")!r})
model.run({{"x": numpy.zeros((2, 3), numpy.float32)}})"""
    assert "onnx" in loaded_by(code)
    assert loaded_by(code) == {"ml_dtypes", "numpy"}


@pytest.mark.parametrize("apart", [False, True])
def test_weights_of_today(tmp_path: Path, compiler: Compiler, apart: bool) -> None:
    proto = large()
    weights = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    path = write(tmp_path, proto, apart=apart)
    feeds = {"x": ROWS}
    model = dvm_graph.optimize(path, cache=str(tmp_path))
    assert_same_bits(dvm_graph.optimize(path, cache=str(tmp_path)).run(feeds), model.run(feeds))
    assert compiler.calls == 1
    for row, column in ((383, 699), (200, 1)):
        weights[row, column] += 1
        proto = large()
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
        assert write(tmp_path, proto, apart=apart) == path
        calls = compiler.calls
        for _ in range(2):
            model = dvm_graph.optimize(path, cache=str(tmp_path))
            (result,), (other,) = model.run(feeds), expected(path, feeds)
            np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-4)
        assert compiler.calls == calls + 1


def test_files_of_weights_that_are_gone(tmp_path: Path) -> None:
    path = write(tmp_path, large(), apart=True)
    dvm_graph.optimize(path, cache=str(tmp_path))
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(dvm_graph.ExternalDataError, match=r"w\.bin"):
        dvm_graph.optimize(path, cache=str(tmp_path))
    (tmp_path / "w.bin").unlink()
    with pytest.raises(dvm_graph.ExternalDataError, match=r"w\.bin"):
        dvm_graph.optimize(path, cache=str(tmp_path))


def test_options_that_make_another_model(tmp_path: Path, compiler: Compiler) -> None:
    model = model_from_text(TEXT)
    kinds: list[dict[str, Any]] = [
        {}, {"fuse": False}, {"dims_by_name": False}, {"scalar_ranks": {"x": 0}}, {"dim_hints": {"n": (np.int64(1), 9)}},
        {"max_compile_seconds": np.float32(77)},
        {"disable_passes": frozenset({"simplify", "sink_concats", "absorb_views"})},
    ]  # fmt: skip
    for number, options in enumerate(kinds):
        for run_options in ({}, {"cores": 1}, {"local_bytes": 1 << 16, "spin": False}):
            made = dvm_graph.optimize(model, cache=str(tmp_path), **options, **run_options)
            assert compiler.calls == number + 1
            np.testing.assert_allclose(made.run(FEEDS)[0], -np.exp(X), rtol=1e-5)
            assert made.cores == (1 if "cores" in run_options else made.cores)
    assert len(list(tmp_path.iterdir())) == len(kinds)


def test_another_compiler(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    dvm_graph.optimize(model_from_text(TEXT), cache=str(tmp_path))
    parts = [name for name, _, _ in cache._compiler()]
    assert str(Path(rescue.__file__)) in parts
    assert str(Path(onnx.__file__)) in parts
    monkeypatch.setattr(cache, "_compiler", list)
    dvm_graph.optimize(model_from_text(TEXT), cache=str(tmp_path))
    assert compiler.calls == 2


@pytest.mark.parametrize("place", [0, 70, 5000, 200_000, -5])
def test_damaged_entries_are_made_anew(tmp_path: Path, compiler: Compiler, place: int) -> None:
    kept = tmp_path / "kept"
    model = dvm_graph.optimize(large(), cache=str(kept))
    (entry,) = kept.iterdir()
    contents = bytearray(entry.read_bytes())
    contents[place] ^= 1
    entry.write_bytes(contents)
    for _ in range(2):
        other = dvm_graph.optimize(large(), cache=str(kept))
        assert_same_bits(other.run({"x": ROWS}), model.run({"x": ROWS}))
    assert compiler.calls == 2
    entry.write_bytes(contents[:4000])
    dvm_graph.optimize(large(), cache=str(kept))
    assert compiler.calls == 3


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("no folder", encoding="utf-8")
    for folder in (taken, taken / "in it", "\0", "x" * 5000):
        with pytest.warns(dvm_graph.CacheWarning, match="not kept"):
            model = dvm_graph.optimize(model_from_text(TEXT), cache=str(folder))
        np.testing.assert_allclose(model.run(FEEDS)[0], -np.exp(X), rtol=1e-5)


def test_weights_that_lead_out_of_the_folder(tmp_path: Path) -> None:
    """As without a cache, though the contents are the same."""
    folder, elsewhere = tmp_path / "models", tmp_path / "w.bin"
    folder.mkdir()
    path = write(folder, large(), apart=True)
    dvm_graph.optimize(path, cache=str(tmp_path / "kept"))
    (folder / "w.bin").rename(elsewhere)
    (folder / "w.bin").symlink_to(elsewhere)
    with pytest.raises(dvm_graph.ExternalDataError, match="through a link"):
        dvm_graph.optimize(path, cache=str(tmp_path / "kept"))


def test_a_compiler_that_was_replaced_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max(written for _, _, written in cache._compiler())
    monkeypatch.setattr(cache, "_STARTED", newest - 1)
    dvm_graph.optimize(model_from_text(TEXT), cache=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_a_file_that_changes_meanwhile_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, model_from_text(TEXT))
    build = rescue.build

    def while_it_changes(*arguments: Any) -> Any:
        result = build(*arguments)
        onnx.save(model_from_text(TEXT.replace("Neg", "Abs")), path)
        return result

    monkeypatch.setattr(rescue, "build", while_it_changes)
    dvm_graph.optimize(path, cache=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_everything_else_works_as_on_what_was_compiled(tmp_path: Path, compiler: Compiler) -> None:
    path, kept = write(tmp_path, source()), str(tmp_path / "kept")
    model = dvm_graph.optimize(path, cache=kept)
    other = dvm_graph.optimize(path, cache=kept)
    assert compiler.calls == 1
    assert other.report() == model.report()
    assert other.compare(FEEDS).passed
    assert other.get_overridable_initializers() == model.get_overridable_initializers()
    more = {**FEEDS, "b": B * 2}  # compiled for it
    assert_same_bits(other.run(more), model.run(more))
    again = pickle.loads(pickle.dumps(other))
    assert_same_bits(again.run(FEEDS), model.run(FEEDS))
    other.save(tmp_path / "saved.dvm")
    assert_same_bits(dvm_graph.load(tmp_path / "saved.dvm").run(FEEDS), model.run(FEEDS))
    with pytest.raises(dvm_graph.InputError, match="is the ONNX model"):
        other.save(path)


def test_the_environment_names_a_folder(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, model_from_text(TEXT))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "kept"))
    for _ in range(2):
        (result,) = dvm_graph.InferenceSession(path).run(None, FEEDS)
        np.testing.assert_allclose(result, -np.exp(X), rtol=1e-5)
    assert compiler.calls == 1


def test_what_is_compiled_each_time(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models whose compiling is what matters, and those that needed the net under the compiler."""
    kept = tmp_path / "kept"
    for calls in (1, 2):
        dvm_graph.optimize(SOURCE, cache=str(kept), dump=str(tmp_path / "stages"))
        assert compiler.calls == calls
    monkeypatch.setenv("DVM_DUMP", str(tmp_path / "stages"))
    dvm_graph.optimize(SOURCE, cache=str(kept))
    monkeypatch.delenv("DVM_DUMP")
    assert not kept.exists()
    monkeypatch.setattr(lower, "lower_subgraph", fail_at("exp", dvm_graph.CompileError))
    for calls in (4, 5):
        with pytest.warns(dvm_graph.RescueWarning):
            dvm_graph.optimize(SOURCE, cache=str(kept))
        assert compiler.calls == calls
    assert not kept.exists()
