"""Convolutional nets with batch, height and width all dynamic: residual, depth-wise separable, ConvNeXt, and U-Net.

Input is a `Size`; output an `ExportCase`. The base sizes are ResNet-50 and MobileNet-V2 as their papers describe them,
ConvNeXt-T from transformers, and a U-Net of half the channels of its paper.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import ConvNextConfig, ConvNextForImageClassification

from models.case import ExportCase, ModelInput, Size
from models.families.layers import Classifier, convolution


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut (He et al. 2015)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            convolution(inputs, width, 1),
            nn.ReLU(),
            convolution(width, width, 3, stride),
            nn.ReLU(),
            convolution(width, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, 4 * width, height / stride, width / stride]."""
        return torch.relu(self.branch(image) + self.shortcut(image))


class InvertedResidual(nn.Module):
    """Widen, convolve each channel apart, narrow (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widen = [convolution(inputs, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        self.branch = nn.Sequential(
            *widen,
            convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            convolution(hidden, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        narrowed: torch.Tensor = self.branch(image)
        return image + narrowed if self.residual else narrowed


class Expand(nn.Module):
    """Twice the size, to that of an image from the way down; then both as one (Ronneberger et al. 2015).

    By a transposed convolution, or linearly and by a convolution (Odena et al. 2016).
    """

    def __init__(self, inputs: int, outputs: int, transposed: bool) -> None:
        super().__init__()
        self.transposed = transposed
        self.widen: nn.Module = (
            nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
            if transposed
            else convolution(inputs, outputs, 3)
        )
        self.join = _double(2 * outputs, outputs)

    def forward(self, image: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height / 2, width / 2] to [batch, outputs, height, width] of `skipped`."""
        height, width = skipped.shape[2:]
        if self.transposed:
            wide = self.widen(image)[:, :, :height, :width]
        else:
            size = (height, width)
            wide = self.widen(nn.functional.interpolate(image, size, mode="bilinear"))
        joined: torch.Tensor = self.join(torch.cat((skipped, wide), 1))
        return joined


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        convolution(inputs, outputs, 3), nn.ReLU(), convolution(outputs, outputs, 3), nn.ReLU()
    )


class Segmenter(nn.Module):
    """A U-Net; the lowest of the ways up is linear, the others are transposed convolutions."""

    def __init__(self, channels: list[int], classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _double(inputs, outputs)
            for inputs, outputs in zip([3, *channels], channels, strict=False)
        )
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        steps = list(zip(channels[1:], channels, strict=False))
        self.up = nn.ModuleList(
            Expand(inputs, outputs, transposed=index < len(steps) - 1)
            for index, (inputs, outputs) in enumerate(steps)
        )
        self.head = nn.Conv2d(channels[0], classes, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, classes, height, width]."""
        image = self.down[0](pixel_values)
        skipped = []
        for layers in self.down[1:]:
            skipped.append(image)
            image = layers(self.pool(image))
        for expand, aside in zip(reversed(self.up), reversed(skipped), strict=True):
            image = expand(image, aside)
        logits: torch.Tensor = self.head(image)
        return logits


def _case(model: nn.Module) -> ExportCase:
    axes = {0: "batch", 2: "height", 3: "width"}
    image = torch.zeros(3, 3, 64, 96)
    return ExportCase(model, (ModelInput("pixel_values", image, axes),), ("logits",))


def resnet(size: Size) -> ExportCase:
    """ResNet-50 (or a two-stage miniature); dims batch, height and width."""
    tiny = size is Size.TINY
    stages = [(8, 1), (16, 1)] if tiny else [(64, 3), (128, 4), (256, 6), (512, 3)]
    channels = 16 if tiny else 64
    body: list[nn.Module] = [
        convolution(3, channels, 7, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for stage, (width, blocks) in enumerate(stages):
        for block in range(blocks):
            body.append(Bottleneck(channels, width, 2 if block == 0 and stage > 0 else 1))
            channels = 4 * width
    return _case(Classifier(body, channels, 10 if tiny else 1000))


def mobilenet(size: Size) -> ExportCase:
    """MobileNet-V2 (or a miniature of it); dims batch, height and width."""
    tiny = size is Size.TINY
    rows = (
        [(1, 8, 1, 1), (6, 16, 2, 2)]
        if tiny
        else [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]
    )
    channels, last = (8, 64) if tiny else (32, 1280)
    body: list[nn.Module] = [convolution(3, channels, 3, 2), nn.ReLU6()]
    for expansion, outputs, blocks, stride in rows:
        for block in range(blocks):
            step = stride if block == 0 else 1
            body.append(InvertedResidual(channels, outputs, expansion, step))
            channels = outputs
    body += [convolution(channels, last, 1), nn.ReLU6()]
    return _case(Classifier(body, last, 10 if tiny else 1000))


def convnext(size: Size) -> ExportCase:
    """ConvNeXt-T (or a two-stage miniature); dims batch, height and width."""
    tiny = {"num_stages": 2, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 10}
    # The default layer scale of 1e-6 would hide the blocks of an untrained model from any comparison.
    config = ConvNextConfig(
        **(tiny if size is Size.TINY else {"num_labels": 1000}), layer_scale_init_value=0.5
    )
    return _case(ConvNextForImageClassification(config))


def unet(size: Size) -> ExportCase:
    """A U-Net of 32 to 512 channels (or of 8 to 32); dims batch, height and width."""
    tiny = size is Size.TINY
    return _case(Segmenter([8, 16, 32] if tiny else [32, 64, 128, 256, 512], 3 if tiny else 21))
