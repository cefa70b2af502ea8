"""Whole models over a grid of dims: BERT, GPT-2, ViT, MMoE, Llama and Qwen3 (prefill and one token), four convolutional nets.

Out: `Workload`s over the base exports. FLOPs are counted over the graph; a model whose weights alone take longer to
read than its FLOPs to do (a single token) is measured against the read ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.flops import count_work
from benchmarks.workload import Dims, Feeds, Point, Source, Workload
from models import base_path, random_feeds


def _grid(names: str, *points: tuple[int, ...]) -> tuple[Dims, ...]:
    return tuple(dict(zip(names.split(), point, strict=True)) for point in points)


_TOKENS = _grid("batch seq", (1, 32), (1, 128), (3, 77))
_CACHES = _grid("batch past_seq", (1, 16), (1, 127), (1, 512), (4, 16), (4, 127), (4, 512))
_IMAGES = _grid("batch height width", (1, 224, 224), (1, 288, 352), (3, 160, 192), (4, 224, 224))

GRIDS: Mapping[str, Sequence[Dims]] = {
    "bert": _grid("batch seq", (1, 32), (1, 128), (2, 128), (4, 128), (8, 128), (1, 512), (3, 77)),
    "gpt2": _grid("batch seq", (1, 32), (1, 128), (2, 128), (1, 512), (3, 77)),
    "vit": _grid("batch", (1,), (2,), (3,)),
    "mmoe": _grid("batch", (1,), (64,), (333,), (1024,)),
    "llama": _TOKENS,
    "qwen3": _TOKENS,
    "llama_decode": _CACHES,
    "qwen3_decode": _CACHES,
    "resnet": _IMAGES,
    "mobilenet": _IMAGES,
    "convnext": _IMAGES,
    "unet": _IMAGES,
}


def workload(name: str, seed: int, quick: bool) -> Workload:
    """`quick` leaves three points."""
    grid = GRIDS[name]
    chosen = (*grid[:2], grid[-1]) if quick else grid
    points = tuple(_point(name, dims, seed) for dims in chosen)
    source = Source(str(base_path(name)), family=name)
    return Workload("models", name, source, points, len(points), False)


def _point(name: str, dims: Dims, seed: int) -> Point:
    def feeds() -> Feeds:
        return random_feeds(base_path(name), dims, seed)

    work = count_work(base_path(name), dims)
    cache = sum(array.nbytes for array in feeds().values()) if "past_seq" in dims else 0
    return Point(dims, feeds, work.flops, work.weight_bytes + cache)
