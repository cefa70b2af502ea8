"""The standard's extension for Fourier transforms: numpy's."""

from __future__ import annotations

import numpy as np

from dvm_graph.xp.array import Array, Device, DTypeObject
from dvm_graph.xp.buffer import compute_on_host, of_numpy
from dvm_graph.xp.promotion import converted, dtype_of

fft = of_numpy(np.fft.fft)
ifft = of_numpy(np.fft.ifft)
fftn = of_numpy(np.fft.fftn)
ifftn = of_numpy(np.fft.ifftn)
rfft = of_numpy(np.fft.rfft)
irfft = of_numpy(np.fft.irfft)
rfftn = of_numpy(np.fft.rfftn)
irfftn = of_numpy(np.fft.irfftn)
hfft = of_numpy(np.fft.hfft)
ihfft = of_numpy(np.fft.ihfft)
fftshift = of_numpy(np.fft.fftshift)
ifftshift = of_numpy(np.fft.ifftshift)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeObject | None = None, device: Device | None = None
) -> Array:
    target = dtype_of(np.float64 if dtype is None else dtype, device)
    found: Array = compute_on_host(np.fft.fftfreq, n, d, why="what counts is small")
    return converted(found, target)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeObject | None = None, device: Device | None = None
) -> Array:
    target = dtype_of(np.float64 if dtype is None else dtype, device)
    found: Array = compute_on_host(np.fft.rfftfreq, n, d, why="what counts is small")
    return converted(found, target)


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip
