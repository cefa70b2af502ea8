"""What the system grants, and files of weights: limits of memory and cores, and files that change."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph import _core
from models import random_feeds, tiny_path
from tests.runtime.children import in_child

COUNT = 1 << 20


def model_beside_weights(folder: Path) -> tuple[Path, Path]:
    """y = x + w, with the ones of w in a file of their own."""
    weights = folder / "w.bin"
    np.ones(COUNT, np.float32).tofile(weights)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[COUNT])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [COUNT]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx", weights


def resident() -> int:
    """Bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def run(model: dvm_graph.Model) -> np.ndarray[Any, Any]:
    return model.run({"x": np.zeros(COUNT, np.float32)})[0]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_weights_that_change_are_noticed(change: str, cold: bool, tmp_path: Path) -> None:
    path, weights = model_beside_weights(tmp_path)
    model = dvm_graph.optimize(path)
    private = dvm_graph.optimize(path, private_weights=True)
    if not cold:
        assert (run(model) == 1).all()
    os.utime(weights, ns=(0, 0))  # however coarse the clock of the file system is
    if change == "truncate":
        os.truncate(weights, 0)
    else:
        np.full(COUNT, 7, np.float32).tofile(weights)
    for _ in range(2):
        with pytest.raises(dvm_graph.ExternalDataError, match=r"w\.bin.*changed"):
            run(model)
    assert (run(private) == 1).all()


def test_weights_that_are_replaced_are_another_file(tmp_path: Path) -> None:
    path, weights = model_beside_weights(tmp_path)
    model = dvm_graph.optimize(path)
    np.full(COUNT, 7, np.float32).tofile(tmp_path / "new.bin")
    os.replace(tmp_path / "new.bin", weights)
    assert (run(model) == 1).all()


@pytest.mark.parametrize("cores", [2047, 5000])
def test_more_cores_than_there_can_be_use_for(cores: int) -> None:
    with pytest.raises(dvm_graph.InputError, match=f"cores is {cores}.*at most"):
        dvm_graph.optimize(tiny_path("bert"), cores=cores)
    most = 8 * _core.available_cores()
    assert dvm_graph.optimize(tiny_path("bert"), cores=min(most, 12)).cores == min(most, 12)


def test_cores_that_do_not_spin() -> None:
    feeds = random_feeds("bert", {"batch": 2, "seq": 17})
    expected = dvm_graph.optimize(tiny_path("bert"), cores=2).run(feeds)
    model = dvm_graph.optimize(tiny_path("bert"), cores=2, spin=False)
    for _ in range(20):
        for actual, wanted in zip(model.run(feeds), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)


def test_less_and_less_memory() -> None:
    """Under a limit on addresses, whatever runs out says so, and the model runs once there is enough."""
    in_child(
        """
        import resource

        model, feeds, right = bert()
        right()
        large = random_feeds("bert", {"batch": 24, "seq": 170})
        results = model.run(large)
        sizes = [r.nbytes for r in results]
        del results
        small = random_feeds("bert", {"batch": 1, "seq": 3})
        failures = 0
        for extra in [0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200]:
            model = dvm_graph.optimize(tiny_path("bert"))
            gc.collect()
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + (extra << 18), resource.RLIM_INFINITY))
            for work in (lambda: model.run(large), lambda: dvm_graph.optimize(tiny_path("mmoe"))):
                kept = None
                try:
                    kept = work()
                except dvm_graph.OutOfMemoryError as error:
                    failures += 1
                kept = None  # dropping results takes no memory
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            assert model.run(small)[0].shape[0] == 1
        assert failures > 3 and right()
        """
    )


def test_states_that_cores_keep_apart_are_asked_for() -> None:
    """A limit of a control group ends the process where memory is taken that nobody has asked for."""
    in_child(
        """
        import resource

        inputs = [h.make_tensor_value_info("x", 1, [4, "n", 1])]
        outputs = [h.make_tensor_value_info("y", 1, [1, "n", 4])]
        weights = [onnx.numpy_helper.from_array(np.full(shape, 0.25, np.float32), name)
                   for name, shape in (("w", [1, 4, 1]), ("r", [1, 4, 4]))]
        node = h.make_node("RNN", ["x", "w", "r"], ["", "y"], hidden_size=4)
        graph = h.make_graph([node], "g", inputs, outputs, weights)
        content = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]).SerializeToString()
        model = dvm_graph.optimize(content, cores=2, strict=True)
        x = np.ones((4, 4_500_000, 1), np.float32)
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        said = []
        for extra in range(0, 1 << 30, 24 << 20):
            resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))
            try:
                model.run({"x": x})
                break
            except dvm_graph.OutOfMemoryError as error:
                said.append(str(error))
        assert any("states of" in text for text in said), said
        """
    )


def test_short_rows_that_grow_have_room_for_few_elements() -> None:
    """A row of a few bytes takes no line of the cache to itself: there may be millions of them."""
    in_child(
        """
        import resource
        import onnx.parser

        text = '''<ir_version: 8, opset_import: ["": 18]>
        g (int64 n, bool[b, k] q, bool[b, 1] x) => (bool[b, l] y) {
          y = Loop (n, "", q) <
            body = turn (int64 i, bool go, bool[b, p] s) => (bool on, bool[b, r] t) {
              on = Identity(go)
              e = Not(x)
              t = Concat<axis = 1>(s, e)
            }
          >
        }'''
        model = dvm_graph.optimize(onnx.parser.parse_model(text), cores=1, strict=True)
        odd = np.arange(1 << 22).reshape(-1, 1) % 2 == 1
        model.run({"n": np.array(3), "q": odd[:5], "x": odd[:5]})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        (y,) = model.run({"n": np.array(3), "q": odd, "x": odd})
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        assert np.array_equal(y, np.concatenate([odd, ~odd, ~odd, ~odd], 1))
        assert taken < 8 * y.nbytes, taken
        """
    )


def test_states_grow_without_room_for_more_where_there_is_none() -> None:
    in_child(
        """
        import resource
        import onnx.parser

        text = '''<ir_version: 8, opset_import: ["": 18]>
        g (int64 n, float[b, 1000] x, float[k, 1000] q) => (float[l, 1000] y) {
          y = Loop (n, "", q) <
            body = turn (int64 i, bool go, float[p, 1000] s) => (bool on, float[r, 1000] t) {
              on = Identity(go)
              e = Neg(x)
              t = Concat<axis = 0>(s, e)
            }
          >
        }'''
        model = dvm_graph.optimize(onnx.parser.parse_model(text), cores=1, strict=True)
        x, q, larger = (np.ones((rows, 1000), np.float32) for rows in (2, 50_000, 75_000))
        model.run({"n": np.array(3), "x": x, "q": q[:5]})
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + q.nbytes * 5 // 4, resource.RLIM_INFINITY))
        (y,) = model.run({"n": np.array(1), "x": x, "q": q})
        assert y.shape == (50_002, 1000) and y[:50_000].min() == 1 and y[50_000:].max() == -1
        del y
        try:
            model.run({"n": np.array(1), "x": x, "q": larger})
        except dvm_graph.OutOfMemoryError:
            pass
        else:
            raise AssertionError("there was memory enough")
        (y,) = model.run({"n": np.array(1), "x": x, "q": q[:7]})
        assert y.shape == (9, 1000)
        """
    )


def test_parsing_without_memory_is_no_truncated_model() -> None:
    in_child(
        """
        import resource

        tensor = onnx.numpy_helper.from_array(np.zeros(40_000_000, np.float32), "w")
        graph = h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "g",
                             [h.make_tensor_value_info("x", 1, ["n"])],
                             [h.make_tensor_value_info("y", 1, ["n"])], [tensor])
        content = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]).SerializeToString()
        del graph, tensor
        from dvm_graph.process import load_compiler
        load_compiler()  # not what is to fail
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20), resource.RLIM_INFINITY))
        try:
            dvm_graph.optimize(content)
        except dvm_graph.OutOfMemoryError as error:
            assert "truncated" not in str(error)
        else:
            raise AssertionError("there was memory enough")
        """
    )


def test_branches_share_what_is_packed_of_a_constant(tmp_path: Path) -> None:
    width = 2048  # 16 MiB of weights
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (bool c, float[n, {width}] x) => (float[n, {width}] y)
      <float[{width}, {width}] w> {{
        y = If (c) < then_branch = t () => (float[n, {width}] a) {{ a = MatMul(x, w) }},
                     else_branch = e () => (float[n, {width}] b) {{ b1 = MatMul(x, w) b2 = ReduceMax(b1) b = Sub(b1, b2) }} >
      }}"""
    proto = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32)
    del proto.graph.initializer[:]
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    x = np.ones((3, width), np.float32)

    in_child(  # where no other test has left memory that may be had again
        f"""
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        path = {str(tmp_path / "model.onnx")!r}
        kept = [dvm_graph.optimize(path)]  # what is loaded once is there now
        before = resident()
        kept += [dvm_graph.optimize(path) for _ in range(3)]
        grown = resident() - before
        assert grown < 3 * 1.5 * {weights.nbytes}, grown
        """
    )
    model = dvm_graph.optimize(tmp_path / "model.onnx")
    for taken in (True, False):
        (y,) = model.run({"c": np.array(taken), "x": x})
        wanted = x @ weights
        np.testing.assert_allclose(y, wanted if taken else wanted - wanted.max(), atol=1e-2)


@pytest.mark.parametrize("told", [True, False], ids=["told how many", "until it ends"])
def test_room_that_rows_outgrew_is_not_kept(told: bool) -> None:
    """Of a loop's results as much as one run has of them may wait for the next one."""
    turns, elements = 100, 1 << 18  # 100 MiB of rows
    most = "m" if told else ""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (int64 m, bool c, float[n] x) => (float[n] last, float[t, n] rows)
      <int64 one = {{1}}> {{
        last, rows = Loop ({most}, c, x) <body = b (int64 i, bool on, float[n] s) => (bool go, float[n] next, float[n] row) {{
          next = Add(s, x) row = Neg(next) j = Add(i, one) go = Less(j, m) }}>
      }}"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text))
    feeds = {"m": np.array(turns), "c": np.array(True), "x": np.ones(elements, np.float32)}
    model.run(feeds | {"m": np.array(3)})
    before = resident()
    for _ in range(3):
        rows = model.run(feeds)[1]
        assert rows.shape == (turns, elements)
        assert rows[-1, -1] == -turns - 1
        del rows
    assert resident() - before < 1.5 * 4 * turns * elements
