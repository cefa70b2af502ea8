"""How near results have to be to torch's."""

from __future__ import annotations

import numpy as np
import torch

from tests.tolerances import tolerance

BOUND = tolerance(np.dtype(np.float32), 4096)


def close(mine: torch.Tensor, theirs: torch.Tensor, scale: float | None = None) -> None:
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    if not mine.is_floating_point():
        assert torch.equal(mine, theirs)
        return
    scale = float(theirs.detach().abs().max()) if scale is None and theirs.numel() else scale or 1
    atol = BOUND.absolute * max(1.0, scale)
    torch.testing.assert_close(mine, theirs, rtol=BOUND.relative, atol=atol, equal_nan=True)
