"""Extents that models of the zoo and programs are tested at: each dim has its own, whatever the model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from models import tiny_path

EXTENTS = {
    "batch": (1, 3, 2),
    "height": (64, 47, 33),
    "width": (64, 97, 50),
    "depth": (8, 5, 9),
    "frames": (40, 17, 96),
    "samples": (800, 1999, 501),
    "seq": (5, 19, 1),
}


def names(model: str) -> list[str]:
    """The dims of the inputs of the tiny export of `model`."""
    graph = onnx.load(tiny_path(model), load_external_data=False).graph
    found = (dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim)
    return list(dict.fromkeys(name for name in found if name))


def grid(model: str) -> Iterator[dict[str, int]]:
    """Three shapes, and the first one again."""
    dims = names(model)
    for index in (0, 1, 2, 0):
        yield {name: EXTENTS[name][index] for name in dims}
