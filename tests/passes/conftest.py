"""The graph that a test builds."""

from __future__ import annotations

import pytest

from tests.passes.sketch import Sketch


@pytest.fixture
def sketch() -> Sketch:
    return Sketch()
