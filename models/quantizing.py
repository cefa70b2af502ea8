"""Static int8 versions of exported models, as onnxruntime's tools write them: QDQ, weights by channel.

Input: a float model and a path. Output: the file, activations u8 and weights s8, ranges from a few random feeds. Invariants:
kinds of inputs stay in `metadata_props`; the same model gives the same file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from models.feeds import random_feeds

_FEEDS = 4
_DIMS = {"batch": 2, "height": 96, "width": 64}


class _Feeds(CalibrationDataReader):
    def __init__(self, path: Path) -> None:
        self._feeds: Iterator[dict[str, Any]] = (
            random_feeds(path, _DIMS, seed) for seed in range(_FEEDS)
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def quantize(source: Path, target: Path) -> None:
    """Writes the int8 version of `source` to `target`, in one file."""
    metadata = onnx.load(source, load_external_data=False).metadata_props
    partial = target.with_suffix(".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    quantize_static(
        str(source),
        str(partial),
        _Feeds(source),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    model = onnx.load(partial)
    known = {entry.key for entry in model.metadata_props}
    model.metadata_props.extend(entry for entry in metadata if entry.key not in known)
    onnx.save(model, partial)
    os.replace(partial, target)
