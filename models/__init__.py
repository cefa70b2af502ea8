"""Real models as ONNX files with dynamic dims, for tests, demo and benchmarks.

`tiny_path` and `random_feeds` need no torch; `export` imports it. See `models/README.md`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from models.case import InputKind, Size
from models.feeds import random_feeds
from models.registry import FAMILIES, MODELS, PROGRAMS, ZOO, family

__all__ = [
    "FAMILIES",
    "MODELS",
    "PROGRAMS",
    "ZOO",
    "InputKind",
    "Size",
    "base_path",
    "export",
    "random_feeds",
    "tiny_path",
]

_ROOT = Path(__file__).resolve().parent


def tiny_path(name: str) -> Path:
    """Where the checked-in tiny export of `name` lies."""
    family(name)
    return _ROOT / "tiny" / f"{name}.onnx"


def base_path(name: str) -> Path:
    """Where `make models-base` writes the base export of `name`."""
    family(name)
    return _ROOT.parent / "build" / "models" / f"{name}.onnx"


def export(
    name: str, size: Size, path: Path | None = None, *, dims: Collection[str] | None = None
) -> Path:
    """Exports `name` to `path` (default: its usual place) with the given dims dynamic (default: all)."""
    from models.exporting import build_case, export_case
    from models.quantizing import quantize

    if size not in family(name).sizes:
        raise ValueError(f"model {name!r} has no size {size.value!r}")
    target = path or (tiny_path(name) if size is Size.TINY else base_path(name))
    case = build_case(name, size)
    if family(name).quantized:
        with TemporaryDirectory() as folder:
            plain = Path(folder) / "plain.onnx"
            export_case(case, plain, dims=dims, single=True)
            quantize(plain, target)
    else:
        export_case(case, target, dims=dims, single=size is Size.TINY)
    return target
