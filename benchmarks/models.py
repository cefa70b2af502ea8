"""Whole models over a grid of dims: those that the compiler was tuned on, and a zoo of varied architectures.

Out: `Workload`s over the base exports. FLOPs are counted over the graph; a model whose weights alone take longer to
read than its FLOPs to do (a single token) is measured against the read ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.flops import count_work
from benchmarks.workload import Dims, Feeds, Point, Source, Workload
from models import base_path, random_feeds
from models.registry import family

INT8_TOLERANCE = 0.1
"""Engines round to int8 at different places, and a step of one layer may become several of the last."""


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

_SMALL_IMAGES = _grid("batch height width", (1, 224, 224), (1, 288, 352), (4, 160, 192))
_SCENES = _grid("batch height width", (1, 320, 320), (1, 384, 640), (2, 256, 320))
_TILES = _grid("batch height width", (1, 120, 160), (1, 96, 101), (2, 64, 128))
_ROWS = _grid("batch", (1,), (64,), (512,))

ZOO: Mapping[str, Sequence[Dims]] = {
    "mobilenet_v3": _SMALL_IMAGES,
    "efficientnet": _SMALL_IMAGES,
    "shufflenet": _SMALL_IMAGES,
    "squeezenet": _SMALL_IMAGES,
    "densenet": _SMALL_IMAGES,
    "inception": _SMALL_IMAGES,
    "regnet": _SMALL_IMAGES,
    "yolo": _SCENES,
    "deeplab": _grid("batch height width", (1, 224, 224), (1, 320, 416), (2, 160, 192)),
    "text_detector": _SCENES,
    "crnn": _grid("batch width", (1, 100), (1, 320), (6, 160)),
    "super_resolution": _TILES,
    "fsrcnn": _grid("batch height width", (1, 180, 240), (1, 240, 321), (2, 120, 160)),
    "style_transfer": _grid("batch height width", (1, 224, 224), (1, 160, 256), (2, 128, 128)),
    "conformer": _grid("batch frames", (1, 200), (1, 500), (4, 300)),
    "wav2vec": _grid("batch samples", (1, 16000), (1, 8000), (2, 12345)),
    "vad": _grid("batch frames", (1, 50), (1, 400), (8, 50)),
    "vocoder": _grid("batch frames", (1, 50), (1, 100), (2, 33)),
    "dlrm": _ROWS,
    "deepfm": _ROWS,
    "wide_deep": _ROWS,
    "swin": _grid("batch", (1,), (2,), (3,)),
    "detr": _grid("batch height width", (1, 224, 224), (1, 320, 384), (2, 192, 160)),
    "video": _grid("batch depth height width", (1, 8, 112, 112), (2, 8, 64, 80), (1, 16, 96, 96)),
    "unet_3d": _grid("batch depth height width", (1, 16, 64, 64), (1, 24, 48, 80), (2, 8, 40, 56)),
    "resnet_int8": _SMALL_IMAGES,
    "mobilenet_v3_int8": _SMALL_IMAGES,
    "yolo_int8": _SCENES,
    "vit_int8": _grid("batch", (1,), (2,), (3,)),
}


def workload(name: str, seed: int, quick: bool) -> Workload:
    """`quick` leaves three points."""
    part, grid = ("zoo", ZOO[name]) if name in ZOO else ("models", GRIDS[name])
    chosen = (*grid[:2], grid[-1]) if quick else grid
    points = tuple(_point(name, dims, seed) for dims in chosen)
    quantized = family(name).quantized
    source = Source(str(base_path(name)), family="" if quantized else name)
    tolerance = INT8_TOLERANCE if quantized else 0.0
    return Workload(part, name, source, points, len(points), False, tolerance)


def _point(name: str, dims: Dims, seed: int) -> Point:
    def feeds() -> Feeds:
        return random_feeds(base_path(name), dims, seed)

    work = count_work(base_path(name), dims)
    cache = sum(array.nbytes for array in feeds().values()) if "past_seq" in dims else 0
    return Point(dims, feeds, work.flops, work.weight_bytes + cache)
