"""What tests of the torch backend look at."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dvm_graph.torch_backend import backend
from dvm_graph.torch_backend.piece import Piece


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """What is compiled in a test."""
    made: list[Piece] = []
    compile_piece = backend.compile_piece

    def noted(*arguments: Any) -> Piece:
        made.append(compile_piece(*arguments))
        return made[-1]

    monkeypatch.setattr(backend, "compile_piece", noted)
    torch._dynamo.reset()
    return made


@pytest.fixture
def stay(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Operators of torch that no piece takes."""
    found: set[str] = set()
    is_supported = backend.is_supported

    def watched(node: torch.fx.Node) -> bool:
        supported = is_supported(node)
        if not supported and isinstance(node.target, torch._ops.OpOverload):
            found.add(str(node.target))
        return supported

    monkeypatch.setattr(backend, "is_supported", watched)
    return found
