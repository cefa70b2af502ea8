"""Saved models: what comes back is what was saved, bit for bit, and needs none of the compiler."""

from __future__ import annotations

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph._core import simd_levels
from dvm_graph.errors import CompileError, ExternalDataError, InputError, ModelError, ShapeError
from dvm_graph.feeds import random_feeds
from models import PROGRAMS, ZOO, tiny_path
from models import random_feeds as model_feeds
from tests.end_to_end.reference import assert_same_bits, model_from_text
from tests.models.family_dims import GRIDS
from tests.models.zoo_dims import grid
from tests.test_imports import loaded_by
from tests.test_variants import X, source

ROWS = np.linspace(-1, 1, 5 * 384, dtype=np.float32).reshape(5, 384)


def large() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((384, 700), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 384])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 700])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(model: dvm_graph.Model, folder: Path, **options: Any) -> dvm_graph.Model:
    path = folder / "model.dvm"
    model.save(path)
    return dvm_graph.load(path, **options)


@pytest.mark.parametrize("name", [*GRIDS, *ZOO, *PROGRAMS])
def test_tiny_models(name: str, tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path(name))
    loaded = saved(model, tmp_path)
    for seed, dims in enumerate(list(GRIDS.get(name) or grid(name))[:2]):
        feeds = model_feeds(name, dims, seed)
        assert_same_bits(loaded.run(feeds), model.run(feeds))
    assert loaded.get_inputs() == model.get_inputs()
    assert loaded.get_outputs() == model.get_outputs()
    assert loaded.get_modelmeta() == model.get_modelmeta()
    assert loaded.table_rows() == model.table_rows()
    assert loaded.report() == model.report()
    assert loaded.disassemble(feeds) == model.disassemble(feeds)


def test_loading_and_running_needs_no_compiler(tmp_path: Path) -> None:
    vendor = {"vendor_nodes": {"node_NonZero_1"}}
    needs: list[tuple[str, dict[str, Any], set[str]]] = [
        ("bert", {}, set()), ("nonzero", {}, set()), ("nonzero", vendor, {"onnxruntime"}),
    ]  # fmt: skip
    for name, options, library in needs:
        path, feeds = tmp_path / f"{name}.dvm", tmp_path / "feeds.npz"
        model = dvm_graph.optimize(tiny_path(name), **options)
        model.save(path)
        np.savez(feeds, **random_feeds(model, {}, 0))
        code = f"import dvm_graph, numpy; dvm_graph.load({str(path)!r}).run(numpy.load({str(feeds)!r}))"
        assert loaded_by(code) == {"ml_dtypes", "numpy"} | library


def test_what_a_model_answers_survives(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("bert"))
    loaded = saved(model, tmp_path)
    feeds = random_feeds(model, {}, 0)
    profile, expected = loaded.profile(feeds, repeats=1), model.profile(feeds, repeats=1)
    assert profile.shares().keys() == expected.shares().keys()
    loaded.visualize(tmp_path / "bert.svg", profile=profile)
    assert "bert.onnx" in (tmp_path / "bert.svg").read_text(encoding="utf-8")
    assert loaded.listings({"batch": 1, "seq": 3}) == model.listings({"batch": 1, "seq": 3})
    assert str(loaded) == str(model)


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    model = dvm_graph.optimize(large())
    loaded = saved(model, tmp_path)
    path = tmp_path / "model.dvm"
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(path) in maps
    assert_same_bits(loaded.run({"x": ROWS}), model.run({"x": ROWS}))
    private = dvm_graph.load(path, private_weights=True)
    os.utime(path)
    assert_same_bits(private.run({"x": ROWS}), model.run({"x": ROWS}))
    with pytest.raises(ExternalDataError, match="changed since the model was loaded"):
        loaded.run({"x": ROWS})


def test_reports_of_a_file_that_was_cut_since(tmp_path: Path) -> None:
    """Pages that a file no longer has are not touched: that would end the process."""
    loaded = saved(dvm_graph.optimize(large()), tmp_path)
    os.truncate(tmp_path / "model.dvm", 4096)
    for ask in (
        loaded.report,
        lambda: loaded.run({"x": ROWS}),
        lambda: loaded.profile({"x": ROWS}),
    ):
        with pytest.raises(ExternalDataError, match="changed since the model was loaded"):
            ask()


def test_a_file_may_be_replaced(tmp_path: Path) -> None:
    model = dvm_graph.optimize(large())
    loaded = saved(model, tmp_path)
    model.save(tmp_path / "model.dvm")
    assert_same_bits(loaded.run({"x": ROWS}), model.run({"x": ROWS}))
    assert [path.name for path in tmp_path.iterdir()] == ["model.dvm"]


@pytest.mark.parametrize("of", simd_levels())
@pytest.mark.parametrize("to", simd_levels())
def test_panels_are_packed_anew_for_another_device(of: str, to: str, tmp_path: Path) -> None:
    path = tmp_path / "model.dvm"
    for made in (large(), onnx.load(tiny_path("llama")), halves(), doubles(), convolution()):
        model = dvm_graph.optimize(made, simd=of)
        model.save(path)
        expected = dvm_graph.optimize(made, simd=to)
        feeds = random_feeds(expected, {}, 0)
        assert_same_bits(dvm_graph.load(path, simd=to).run(feeds), expected.run(feeds))


def halves() -> onnx.ModelProto:
    return products(TensorProto.FLOAT16, np.float16)


def doubles() -> onnx.ModelProto:
    return products(TensorProto.DOUBLE, np.float64)


def products(kind: int, dtype: Any) -> onnx.ModelProto:
    """A product by a batch of matrices of odd sizes."""
    weights = np.random.default_rng(0).standard_normal((3, 37, 53)).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [3, "n", 37])],
        [helper.make_tensor_value_info("y", kind, [3, "n", 53])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def convolution() -> onnx.ModelProto:
    """By weights with transforms, of which those of one result are too large for them."""
    weights = np.random.default_rng(0).standard_normal((70, 64, 3, 3), np.float32)
    weights[24] *= 2.0**20
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 40, 36])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 70, 40, 36])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_options(tmp_path: Path) -> None:
    model = dvm_graph.optimize(large(), cores=2, dim_hints={"n": (1, 5)})
    path = tmp_path / "model.dvm"
    model.save(path)
    assert dvm_graph.load(path).cores == 2
    assert dvm_graph.load(path, cores=1, spin=False).cores == 1
    with pytest.raises(ShapeError, match=r"n is in 1\.\.5"):
        dvm_graph.load(path).run({"x": np.zeros((6, 384), np.float32)})
    with pytest.raises(InputError, match="fuse was settled when the model was compiled"):
        dvm_graph.load(path, fuse=False)
    with pytest.raises(InputError, match="did you mean 'cores'"):
        dvm_graph.load(path, core=1)
    with pytest.raises(InputError, match="simd is 'mmx'"):
        dvm_graph.load(path, simd="mmx")


def test_copies_and_pickles_load_the_file(tmp_path: Path) -> None:
    model = dvm_graph.optimize(large())
    model.save(tmp_path / "model.dvm")
    loaded = dvm_graph.load(tmp_path / "model.dvm", cores=1)
    for other in (copy.copy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert other.cores == 1
        assert_same_bits(other.run({"x": ROWS}), loaded.run({"x": ROWS}))


def test_sessions_open_saved_models(tmp_path: Path) -> None:
    import onnxruntime

    model = dvm_graph.optimize(large())
    model.save(tmp_path / "model.dvm")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = dvm_graph.InferenceSession(str(tmp_path / "model.dvm"), options)
    assert session.model.cores == 1
    assert [info.shape for info in session.get_inputs()] == [["n", 384]]
    assert_same_bits(session.run(None, {"x": ROWS}), model.run({"x": ROWS}))


def test_what_needs_the_onnx_model(tmp_path: Path) -> None:
    model = dvm_graph.optimize(source())
    loaded = saved(model, tmp_path)
    assert_same_bits(loaded.run({"x": X}), model.run({"x": X}))
    assert loaded.get_overridable_initializers() == model.get_overridable_initializers()
    with pytest.raises(InputError, match=r"'w' is an initializer.*fed_initializers"):
        loaded.run({"x": X, "w": np.zeros((5, 3), np.float32)})
    with pytest.raises(InputError, match="no ONNX model to compare with"):
        loaded.compare({"x": X})
    with pytest.raises(InputError, match="saved already"):
        loaded.save(tmp_path / "again.dvm")
    with pytest.raises(InputError, match=r"a saved model.*dvm_graph\.load"):
        dvm_graph.optimize(tmp_path / "model.dvm")


def test_constants_that_only_vendor_operators_see(tmp_path: Path) -> None:
    proto = model_from_text(
        """agraph (string[n] x, float[m] z) => (bool[n] e, string[2] w, float[m] y) {
            w = Constant <value_strings = ["a", "bc"]> ()
            v = Constant <value_strings = ["bc"]> ()
            e = Equal (x, v)
            y = Exp (z)
        }"""
    )
    model = dvm_graph.optimize(proto)
    loaded = saved(model, tmp_path)
    feeds = {"x": np.array(["a", "bc", "é"], object), "z": np.ones(3, np.float32)}
    for mine, theirs in zip(loaded.run(feeds), model.run(feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_models_that_run_on_onnxruntime_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights beside the model, which come along."""

    def fail(*_: Any) -> Any:
        raise CompileError("on purpose")

    path = tmp_path / "model.onnx"
    onnx.save_model(large(), path, save_as_external_data=True, location="weights", size_threshold=0)
    monkeypatch.setattr("dvm_graph.rescue.compile_model", fail)
    with pytest.warns(dvm_graph.RescueWarning):
        model = dvm_graph.optimize(path)
    loaded = saved(model, tmp_path)
    expected = model.run({"x": ROWS})
    path.unlink()
    (tmp_path / "weights").unlink()
    assert_same_bits(loaded.run({"x": ROWS}), expected)
    assert loaded.report().rescued == model.report().rescued


def test_files_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("mmoe"))
    with pytest.raises(InputError, match="there is no folder"):
        model.save(tmp_path / "none" / "model.dvm")
    with pytest.raises(InputError, match="it is a folder"):
        model.save(tmp_path)
    with pytest.raises(ModelError, match="No such file"):
        dvm_graph.load(tmp_path / "model.dvm")
    with pytest.raises(ModelError, match="cannot read"):
        dvm_graph.load(tmp_path)
    for path in (None, b"model.dvm", "model\0.dvm"):
        with pytest.raises(InputError, match="a path"):
            model.save(path)
        with pytest.raises(InputError, match="a path"):
            dvm_graph.load(path)
    own = tmp_path / "own.onnx"
    own.write_bytes(tiny_path("mmoe").read_bytes())
    with pytest.raises(InputError, match="is the ONNX model"):
        dvm_graph.optimize(own).save(tmp_path / "." / "own.onnx")
    assert own.read_bytes() == tiny_path("mmoe").read_bytes()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="neither a file nor a new one"):
        model.save(tmp_path / "fifo")
    assert (tmp_path / "fifo").is_fifo()


def test_threads_may_save_to_one_file(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("mmoe"), cores=1)
    path = tmp_path / ("m" * 251 + ".dvm")  # as long as names may be
    with ThreadPoolExecutor(8) as threads:
        for saved in [threads.submit(model.save, path) for _ in range(32)]:
            saved.result()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    feeds = random_feeds(model, {}, 0)
    assert_same_bits(dvm_graph.load(path, cores=1).run(feeds), model.run(feeds))


def test_weights_of_a_kernel_and_a_vendor_operator(tmp_path: Path) -> None:
    """Packed for the one, they are still there for the other."""
    weights = np.random.default_rng(1).standard_normal((16, 16), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="ours"),
            helper.make_node("MatMul", ["p", "w"], ["y"], name="theirs"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = dvm_graph.optimize(proto, vendor_nodes={"theirs"})
    x = np.random.default_rng(2).standard_normal((3, 16), np.float32)
    (y,) = saved(model, tmp_path).run({"x": x})
    np.testing.assert_allclose(y, x @ weights @ weights, rtol=1e-4, atol=1e-4)
