"""Image classifiers as model libraries have them; dims batch, height and width.

Input is a `Size`; output an `ExportCase`. The base sizes follow the papers: MobileNet-V3-Large, EfficientNet-B0,
ShuffleNet-V2 1x, SqueezeNet 1.1, DenseNet-121, RegNetX-400MF; Inception is one block of each kind of Inception-V3.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, Size
from models.families.layers import Chain, Classifier, Gated, convolution, image_case


class MobileBlock(nn.Module):
    """Widen, convolve each channel apart, gate, narrow (Howard et al. 2019, Tan and Le 2019)."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        kernel: int,
        stride: int,
        then: type[nn.Module],
        gated: nn.Module | None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(convolution(inputs, hidden, 1, then=then()))
        layers.append(convolution(hidden, hidden, kernel, stride, groups=hidden, then=then()))
        layers += [gated] if gated is not None else []
        layers.append(convolution(hidden, outputs, 1))
        self.branch = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        narrowed: torch.Tensor = self.branch(image)
        return image + narrowed if self.residual else narrowed


MOBILE_ROWS = (
    *(
        (3, 16, 16, False, nn.ReLU, 1),
        (3, 64, 24, False, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 1),
    ),
    *(
        (5, 72, 40, True, nn.ReLU, 2),
        (5, 120, 40, True, nn.ReLU, 1),
        (5, 120, 40, True, nn.ReLU, 1),
    ),
    *((3, 240, 80, False, nn.Hardswish, 2), (3, 200, 80, False, nn.Hardswish, 1)),
    *((3, 184, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1)),
    *((3, 480, 112, True, nn.Hardswish, 1), (3, 672, 112, True, nn.Hardswish, 1)),
    *((5, 672, 160, True, nn.Hardswish, 2), (5, 960, 160, True, nn.Hardswish, 1)),
    (5, 960, 160, True, nn.Hardswish, 1),
)
"""Kernel, hidden and output channels, gate, activation, stride: the blocks of MobileNet-V3-Large."""
_TINY_MOBILE_ROWS = (
    (3, 8, 8, False, nn.ReLU, 1),
    (5, 24, 12, True, nn.ReLU, 2),
    (3, 36, 12, True, nn.Hardswish, 1),
)


def mobile_v3_block(
    inputs: int, row: tuple[int, int, int, bool, type[nn.Module], int]
) -> MobileBlock:
    """A block of MobileNet-V3, whose gate is a HardSigmoid."""
    kernel, hidden, outputs, gated, then, stride = row
    gate = Gated(hidden, max(8, hidden // 4), nn.ReLU(), nn.Hardsigmoid()) if gated else None
    return MobileBlock(inputs, hidden, outputs, kernel, stride, then, gate)


def mobilenet_v3(size: Size) -> ExportCase:
    """HardSwish and squeeze-and-excite gates."""
    tiny = size is Size.TINY
    rows, channels = (_TINY_MOBILE_ROWS, 8) if tiny else (MOBILE_ROWS, 16)
    body: list[nn.Module] = [convolution(3, channels, 3, 2, then=nn.Hardswish())]
    for row in rows:
        body.append(mobile_v3_block(channels, row))
        channels = row[2]
    last, wide = (48, 64) if tiny else (960, 1280)
    body += [convolution(channels, last, 1, then=nn.Hardswish()), nn.AdaptiveAvgPool2d(1)]
    body += [nn.Conv2d(last, wide, 1), nn.Hardswish()]
    return image_case(Classifier(body, wide, 10 if tiny else 1000))


def efficientnet(size: Size) -> ExportCase:
    """SiLU and gates of four times fewer channels than the narrow ends."""
    tiny = size is Size.TINY
    rows = (
        ((1, 8, 1, 1, 3), (6, 12, 2, 2, 5))
        if tiny
        else (
            *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
            *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
        )
    )
    channels = 8 if tiny else 32
    body: list[nn.Module] = [convolution(3, channels, 3, 2, then=nn.SiLU())]
    for expansion, outputs, blocks, stride, kernel in rows:
        for block in range(blocks):
            hidden = channels * expansion
            gate = Gated(hidden, max(2, channels // 4), nn.SiLU(), nn.Sigmoid())
            step = stride if block == 0 else 1
            body.append(MobileBlock(channels, hidden, outputs, kernel, step, nn.SiLU, gate))
            channels = outputs
    last = 32 if tiny else 1280
    body.append(convolution(channels, last, 1, then=nn.SiLU()))
    return image_case(Classifier(body, last, 10 if tiny else 1000))


class ShuffleBlock(nn.Module):
    """Half of the channels pass through; both halves are shuffled (Ma et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        entering = inputs if stride > 1 else half
        self.aside = (
            nn.Sequential(
                convolution(inputs, inputs, 3, stride, groups=inputs),
                convolution(inputs, half, 1, then=nn.ReLU()),
            )
            if stride > 1
            else None
        )
        self.branch = nn.Sequential(
            convolution(entering, half, 1, then=nn.ReLU()),
            convolution(half, half, 3, stride, groups=half),
            convolution(half, half, 1, then=nn.ReLU()),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        if self.aside is None:
            kept, entering = image.chunk(2, 1)
        else:
            kept, entering = self.aside(image), image
        joined = torch.cat((kept, self.branch(entering)), 1)
        return nn.functional.channel_shuffle(joined, 2)


def shufflenet(size: Size) -> ExportCase:
    """Channel splits and shuffles."""
    tiny = size is Size.TINY
    channels = 8 if tiny else 24
    body = [convolution(3, channels, 3, 2, then=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    for outputs, blocks in ((16, 2), (32, 2)) if tiny else ((116, 4), (232, 8), (464, 4)):
        for block in range(blocks):
            body.append(ShuffleBlock(channels, outputs, 2 if block == 0 else 1))
            channels = outputs
    last = 32 if tiny else 1024
    body.append(convolution(channels, last, 1, then=nn.ReLU()))
    return image_case(Classifier(body, last, 10 if tiny else 1000))


class Fire(nn.Module):
    """A narrow 1x1 convolution, then 1x1 and 3x3 ones beside each other (Iandola et al. 2016)."""

    def __init__(self, inputs: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, narrow, 1)
        self.small = nn.Conv2d(narrow, wide, 1)
        self.large = nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, 2 * wide, height, width]."""
        squeezed = torch.relu(self.squeeze(image))
        return torch.cat((torch.relu(self.small(squeezed)), torch.relu(self.large(squeezed))), 1)


def squeezenet(size: Size) -> ExportCase:
    """Concats of convolutions without normalisation, pools that round up."""
    tiny = size is Size.TINY
    groups = (
        (((4, 8),), ((8, 16),))
        if tiny
        else (((16, 64),) * 2, ((32, 128),) * 2, ((48, 192),) * 2 + ((64, 256),) * 2)
    )
    channels = 8 if tiny else 64
    body: list[nn.Module] = [nn.Conv2d(3, channels, 3, 2), nn.ReLU()]
    for group in groups:
        body.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for narrow, wide in group:
            body.append(Fire(channels, narrow, wide))
            channels = 2 * wide
    classes = 10 if tiny else 1000
    head = (nn.Conv2d(channels, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return image_case(Chain(*body, *head))


class DenseLayer(nn.Module):
    """Normalise, convolve, and append to what there is (Huang et al. 2017)."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            convolution(inputs, 4 * growth, 1, then=nn.ReLU()),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, inputs + growth, height, width]."""
        return torch.cat((image, self.layers(image)), 1)


def densenet(size: Size) -> ExportCase:
    """Concats that grow, normalisation in front of convolutions."""
    tiny = size is Size.TINY
    growth, channels, blocks = (4, 8, (2, 2)) if tiny else (32, 64, (6, 12, 24, 16))
    body = [convolution(3, channels, 7, 2, then=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    for index, layers in enumerate(blocks):
        if index > 0:
            half = channels // 2
            narrow = nn.Conv2d(channels, half, 1, bias=False)
            body += [nn.BatchNorm2d(channels), nn.ReLU(), narrow, nn.AvgPool2d(2)]
            channels = half
        for _ in range(layers):
            body.append(DenseLayer(channels, growth))
            channels += growth
    body += [nn.BatchNorm2d(channels), nn.ReLU()]
    return image_case(Classifier(body, channels, 10 if tiny else 1000))


class Branches(nn.Module):
    """Branches over one image, concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to the sum of the branches' channels."""
        return torch.cat([branch(image) for branch in self.branches], 1)


def _chain(channels: int, *layers: tuple[int, int | tuple[int, int], int]) -> nn.Sequential:
    """Convolutions, each with its channels, kernel and stride."""
    made = []
    for outputs, kernel, stride in layers:
        made.append(convolution(channels, outputs, kernel, stride, then=nn.ReLU()))
        channels = outputs
    return nn.Sequential(*made)


def _square(inputs: int, width: int) -> Branches:
    """1x1, 5x5, two 3x3, and a mean, of 4 * width channels."""
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), _chain(inputs, (width // 2, 1, 1)))
    large = _chain(inputs, (width, 1, 1), (width, 5, 1))
    double = _chain(inputs, (width, 1, 1), (width, 3, 1), (3 * width // 2, 3, 1))
    return Branches(_chain(inputs, (width, 1, 1)), large, double, pool)


def _narrow(inputs: int, width: int) -> Branches:
    """1x7 and 7x1 convolutions, of 4 * width channels."""
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), _chain(inputs, (width, 1, 1)))
    long = _chain(inputs, (width, 1, 1), (width, (1, 7), 1), (width, (7, 1), 1))
    longer = _chain(
        inputs, (width, 1, 1), (width, (7, 1), 1), (width, (1, 7), 1), (width, (7, 1), 1)
    )
    return Branches(_chain(inputs, (width, 1, 1)), long, longer, pool)


def _shrink(inputs: int, width: int) -> Branches:
    """Half the image, `width` channels more."""
    strided = _chain(inputs, (width // 2, 1, 1), (width, 3, 2))
    return Branches(strided, nn.MaxPool2d(3, 2, 1))


def inception(size: Size) -> ExportCase:
    """Branches of many kernels, oblong ones among them, joined by concats."""
    stem, square, shrink, narrow = (8, 8, 16, 8) if size is Size.TINY else (64, 64, 384, 160)
    channels = 4 * square
    body: list[nn.Module] = [
        convolution(3, stem // 2, 3, 2, then=nn.ReLU()),
        convolution(stem // 2, stem, 3, then=nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
        _square(stem, square),
        _square(channels, square),
        _shrink(channels, shrink),
        _narrow(channels + shrink, narrow),
        _narrow(4 * narrow, narrow),
        _shrink(4 * narrow, shrink),
        _square(4 * narrow + shrink, square),
    ]
    return image_case(Classifier(body, channels, 10 if size is Size.TINY else 1000))


class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3, 1x1 around a shortcut (Radosavovic et al. 2020)."""

    def __init__(self, inputs: int, outputs: int, group: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            convolution(inputs, outputs, 1, then=nn.ReLU()),
            convolution(outputs, outputs, 3, stride, groups=outputs // group, then=nn.ReLU()),
            convolution(outputs, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        return torch.relu(self.branch(image) + self.shortcut(image))


def regnet(size: Size) -> ExportCase:
    """Grouped convolutions of 16 channels a group."""
    tiny = size is Size.TINY
    rows = ((8, 1), (16, 2)) if tiny else ((32, 1), (64, 2), (160, 7), (400, 12))
    channels, group = (8, 4) if tiny else (32, 16)
    body: list[nn.Module] = [convolution(3, channels, 3, 2, then=nn.ReLU())]
    for outputs, blocks in rows:
        for block in range(blocks):
            body.append(GroupedBottleneck(channels, outputs, group, 2 if block == 0 else 1))
            channels = outputs
    return image_case(Classifier(body, channels, 10 if tiny else 1000))
