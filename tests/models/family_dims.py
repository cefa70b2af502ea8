"""Extents at which the tiny exports of each family are run."""

from __future__ import annotations

from collections.abc import Mapping

SEQUENCES = tuple(
    {"batch": batch, "seq": seq}
    for batch, seq in ((1, 1), (3, 77), (8, 128), (2, 16), (1, 31), (5, 1), (1, 127))
)
BATCHES = tuple({"batch": batch} for batch in (1, 2, 7, 16, 33))
CACHES = tuple(
    {"batch": batch, "past_seq": past} for batch, past in ((1, 1), (4, 0), (2, 77), (8, 120))
)
IMAGES = tuple(
    {"batch": batch, "height": height, "width": width}
    for batch, height, width in ((1, 32, 32), (3, 33, 47), (2, 96, 64))
)
CUBOIDS = tuple(
    {"batch": batch, "seq": seq, "features": features}
    for batch, seq, features in ((1, 1, 1), (4, 17, 33), (2, 128, 64))
)
GRIDS: Mapping[str, tuple[dict[str, int], ...]] = {
    "bert": SEQUENCES,
    "gpt2": SEQUENCES,
    "vit": BATCHES,
    "llama": SEQUENCES,
    "llama_decode": CACHES,
    "qwen3": SEQUENCES,
    "qwen3_decode": CACHES,
    "mmoe": BATCHES,
    "resnet": IMAGES,
    "mobilenet": IMAGES,
    "convnext": IMAGES,
    "unet": IMAGES,
    "if_else_add": CUBOIDS,
    "nonzero": SEQUENCES,
}
