"""Networks that other people trained and ship in packages, at many shapes, against onnxruntime.

`make test-trained` installs the packages. Nothing of them is run but their models: `silero_vad` would want
torch, which `find_spec` does not load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import assert_all_close, session

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]

FOLDERS = {"rapidocr_onnxruntime": "models", "silero_vad": "data"}
TERMS = 1 << 16
"""Terms that one output sums, layer upon layer, to the order of magnitude: some 70 layers of up to 900."""
RATE = {"sr": np.array(16000)}


def _images(*shapes: tuple[int, int, int]) -> list[Shapes]:
    return [{"x": (batch, 3, height, width)} for batch, height, width in shapes]


def _voices(*shapes: tuple[int, int]) -> list[Shapes]:
    return [{"input": (batch, n), "state": (2, batch, 128)} for batch, n in shapes]


CASES: Mapping[str, list[Shapes]] = {
    "ch_PP-OCRv4_det_infer": _images((1, 64, 96), (2, 160, 320), (1, 96, 608), (1, 32, 32)),
    "ch_PP-OCRv4_rec_infer": _images((1, 48, 320), (3, 48, 77), (2, 48, 163), (6, 48, 48)),
    "ch_ppocr_mobile_v2.0_cls_infer": _images((1, 48, 192), (5, 48, 192), (2, 33, 47)),
    "silero_vad": _voices((1, 576), (3, 576), (16, 576)),
    "silero_vad_16k_op15": _voices((1, 576), (3, 576), (16, 576)),
    "silero_vad_half": _voices((1, 576), (3, 576), (16, 576)),
    "silero_vad_op18_ifless": _voices((1, 576), (3, 576), (16, 576)),
    "silero_vad_openvino_16k": _voices((1, 576)),
    "silero_vad_16k_sequence": [
        {"input": (length, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for length in (1, 5, 31)
    ],
}


def _shipped() -> Iterator[Path]:
    for package, folder in FOLDERS.items():
        spec = find_spec(package)
        assert spec is not None, f"{package} is not installed: make test-trained installs it"
        for root in spec.submodule_search_locations or ():
            yield from sorted(Path(root, folder).glob("*.onnx"))


MODELS = {path.stem: path for path in _shipped()}


def test_every_shipped_model_is_here() -> None:
    assert set(MODELS) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str) -> None:
    path = MODELS[name]
    model = dvm_graph.optimize(path)
    reference = session(str(path))
    wanted = {info.name for info in reference.get_inputs()}
    generator = np.random.default_rng(0)
    for shapes in (*CASES[name], CASES[name][0]):  # back to the first
        feeds: dict[str, Array] = {
            key: generator.standard_normal(shape).astype(np.float32) * 0.5
            for key, shape in shapes.items()
        }
        feeds |= {key: value for key, value in RATE.items() if key in wanted}
        expected = reference.run(None, feeds)
        assert_all_close(model.run(feeds), expected, TERMS)
