"""External data: mapped where it is right, refused where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from dvm_graph.errors import ExternalDataError
from tests.import_.models import load, parse

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def write_model(folder: Path, **entries: str) -> Path:
    """A model whose weight lies in external data as `entries` say."""
    model = parse("g (float[n, 3] x) => (float[n, 4] y) { y = MatMul(x, w) }")
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "w", onnx.TensorProto.FLOAT
    tensor.dims.extend(WEIGHT.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weight_of(path: Path) -> np.ndarray:
    value = next(iter(load(path).nodes)).inputs[1]
    assert value is not None and value.data is not None
    return value.data


@pytest.mark.parametrize("offset", [0, 4, 3, 4096])
def test_mapped_read_only(tmp_path: Path, offset: int) -> None:
    path = write_model(tmp_path, location="w.bin", offset=str(offset), length="48")
    (tmp_path / "w.bin").write_bytes(b"\xaa" * offset + WEIGHT.tobytes() + b"\xaa" * 5)
    weight = weight_of(path)
    np.testing.assert_array_equal(weight, WEIGHT)
    assert not weight.flags.writeable and weight.flags.aligned


def test_length_may_be_left_out_and_folders_are_fine(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="data/w.bin")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(WEIGHT.tobytes())
    np.testing.assert_array_equal(weight_of(path), WEIGHT)


@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "/etc/passwd",
        "data/../../w.bin",
        "..\\w.bin",
        "C:\\w.bin",
        "C:w.bin",
        "\\\\h\\w",
    ],
)
def test_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ExternalDataError, match=r"outside|absolute"):
        load(write_model(tmp_path / "model", location=location))


def test_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    path = write_model(tmp_path / "model", location="w.bin")
    (path.parent / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ExternalDataError, match="link"):
        load(path)


def test_linked_folder_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.bin").write_bytes(WEIGHT.tobytes())
    path = write_model(tmp_path / "model", location="data/w.bin")
    (path.parent / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExternalDataError, match="link"):
        load(path)


def test_link_inside_the_folder_is_fine(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin")
    (tmp_path / "real.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "w.bin").symlink_to("real.bin")
    np.testing.assert_array_equal(weight_of(path), WEIGHT)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ExternalDataError, match=r"'w'.*'w\.bin' is missing"):
        load(write_model(tmp_path, location="w.bin"))


def test_missing_location(tmp_path: Path) -> None:
    with pytest.raises(ExternalDataError, match="without a location"):
        load(write_model(tmp_path, offset="0"))


def test_what_nothing_reads_may_be_missing(tmp_path: Path) -> None:
    path = write_model(tmp_path, offset="0")
    model = onnx.load(path, load_external_data=False)
    del model.graph.node[:]
    model.graph.node.append(onnx.helper.make_node("Identity", ["x"], ["y"]))
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    path.write_bytes(model.SerializeToString())
    onnxruntime.InferenceSession(path)
    assert [node.op for node in load(path).nodes] == ["Identity"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_is_not_read(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin")
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ExternalDataError, match="regular file"):
        load(path)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"length": "44"}, "shape and type need 48"),
        ({"length": "52"}, "shape and type need 48"),
        ({"offset": "1"}, "past the end"),
        ({"offset": "99999999999"}, "past the end"),
        ({"offset": "-4"}, "not a valid number"),
        ({"offset": "9" * 30}, "not a valid number"),
        ({"offset": "four"}, "not a valid number"),
        ({"length": "1e3"}, "not a valid number"),
    ],
)
def test_sizes_that_do_not_fit(tmp_path: Path, entries: dict[str, str], problem: str) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ExternalDataError, match=problem):
        load(write_model(tmp_path, location="w.bin", **entries))


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").touch()
    with pytest.raises(ExternalDataError, match="past the end"):
        load(write_model(tmp_path, location="w.bin"))


def test_model_without_a_folder(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin")
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ExternalDataError, match="pass the path"):
        load(path.read_bytes())
    np.testing.assert_array_equal(weight_of(path), WEIGHT)  # usable after the error
