"""Networks over volumes: a video classifier and a U-Net; dims batch, depth, height and width.

Input is a `Size`; output an `ExportCase`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import interpolate

from models.case import ExportCase, Size
from models.families.layers import Chain, image_case

_DIMS = ("batch", "", "depth", "height", "width")


def _volume(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm3d(outputs))


class VideoBlock(nn.Module):
    """Two convolutions over space and time around a shortcut (Tran et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _volume(inputs, outputs, stride), nn.ReLU(), _volume(outputs, outputs)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(
                nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs)
            )
        )

    def forward(self, volume: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, depth, height, width] to `outputs` channels, extents over `stride`."""
        return torch.relu(self.branch(volume) + self.shortcut(volume))


def video(size: Size) -> ExportCase:
    """An R3D-like classifier: convolutions with three spatial axes, strided and not."""
    tiny = size is Size.TINY
    channels = 4 if tiny else 16
    stem = nn.Conv3d(3, channels, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    body: list[nn.Module] = [stem, nn.BatchNorm3d(channels), nn.ReLU()]
    for outputs, stride in ((4, 1), (8, 2)) if tiny else ((16, 1), (32, 2), (64, 2), (128, 2)):
        body.append(VideoBlock(channels, outputs, stride))
        channels = outputs
    body += [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, 10 if tiny else 400)]
    return image_case(Chain(*body), "logits", (3, 3, 8, 32, 48), _DIMS)


class VolumeSegmenter(nn.Module):
    """Down by maxima and up by a transposed convolution and by resizing, joined at each scale."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        c1, c2, c3 = channels, 2 * channels, 4 * channels
        self.first = nn.Sequential(_volume(1, c1), nn.ReLU(), _volume(c1, c1), nn.ReLU())
        self.second = nn.Sequential(_volume(c1, c2), nn.ReLU(), _volume(c2, c2), nn.ReLU())
        self.third = nn.Sequential(_volume(c2, c3), nn.ReLU())
        self.pool = nn.MaxPool3d(2)
        self.widen = nn.ConvTranspose3d(c3, c2, 2, 2)
        self.join_second = nn.Sequential(_volume(2 * c2, c2), nn.ReLU())
        self.join_first = nn.Sequential(_volume(c2 + c1, c1), nn.ReLU())
        self.head = nn.Conv3d(c1, classes, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 1, depth, height, width] to `classes` channels."""
        first = self.first(pixel_values)
        second = self.second(self.pool(first))
        wide = self.widen(self.third(self.pool(second)))
        wide = interpolate(wide, second.shape[2:])
        second = self.join_second(torch.cat((second, wide), 1))
        wide = interpolate(second, first.shape[2:])
        logits: torch.Tensor = self.head(self.join_first(torch.cat((first, wide), 1)))
        return logits


def unet_3d(size: Size) -> ExportCase:
    """Convolutions, maxima, transposed convolutions and resizing with three spatial axes."""
    model = VolumeSegmenter(4 if size is Size.TINY else 16, 3)
    return image_case(model, "logits", (3, 1, 8, 24, 16), _DIMS)
