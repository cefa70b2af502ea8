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
