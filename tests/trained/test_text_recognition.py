"""A pipeline that was written for onnxruntime reads the same with `dvm_graph.InferenceSession` in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rapidocr_onnxruntime
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime.utils import infer_engine

import dvm_graph

LINES = {
    (640, 240): ("Dynamic shapes 2026", "Tile by tile: 41 us", "No cache, no padding"),
    (900, 150): ("Cores share what is left", "of 1,024 rows"),
    (333, 401): ("Vector", "Cube", "Scalar", "DMA"),
}


def _page(size: tuple[int, int], lines: tuple[str, ...]) -> np.ndarray[Any, Any]:
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        draw.text((30, 20 + 70 * row), line, fill="black", font=ImageFont.load_default(36))
    return np.array(image)


def test_reads_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = rapidocr_onnxruntime.RapidOCR()
    monkeypatch.setattr(infer_engine, "InferenceSession", dvm_graph.InferenceSession)
    ours = rapidocr_onnxruntime.RapidOCR()
    assert isinstance(ours.text_det.infer.session, dvm_graph.InferenceSession)
    for size, lines in LINES.items():
        page = _page(size, lines)
        expected, _ = theirs(page)
        actual, _ = ours(page)
        assert [text for _, text, _ in actual] == [text for _, text, _ in expected]
        assert {text.replace(" ", "") for _, text, _ in actual} == {
            line.replace(" ", "") for line in lines
        }
