"""Networks that answer with images, boxes or text; dims batch, height and width (a text line: batch and width).

Input is a `Size`; output an `ExportCase`. The base sizes are those of small versions as people deploy them.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import interpolate

from models.case import ExportCase, Size
from models.families.classifiers import GroupedBottleneck, mobile_v3_block
from models.families.layers import Chain, Recurrence, convolution, image_case


class Split(nn.Module):
    """Half of the channels through a chain, every link of which is kept (YOLO's C2f block)."""

    def __init__(self, inputs: int, outputs: int, depth: int) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = convolution(inputs, outputs, 1, then=nn.SiLU())
        self.links = nn.ModuleList(
            nn.Sequential(
                convolution(half, half, 3, then=nn.SiLU()),
                convolution(half, half, 3, then=nn.SiLU()),
            )
            for _ in range(depth)
        )
        self.leave = convolution(half * (2 + depth), outputs, 1, then=nn.SiLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height, width]."""
        parts = list(self.enter(image).chunk(2, 1))
        for link in self.links:
            parts.append(parts[-1] + link(parts[-1]))
        joined: torch.Tensor = self.leave(torch.cat(parts, 1))
        return joined


class Pyramid(nn.Module):
    """Three maxima over ever larger windows, joined (YOLO's SPPF block)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = convolution(channels, channels // 2, 1, then=nn.SiLU())
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.leave = convolution(channels * 2, channels, 1, then=nn.SiLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, channels, height, width], unchanged in shape."""
        parts = [self.enter(image)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        joined: torch.Tensor = self.leave(torch.cat(parts, 1))
        return joined


class Detector(nn.Module):
    """A YOLO-like detector: three scales, down and up again by resizing and concats, boxes and classes of each."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        w1, w2, w3, w4 = (width * factor for factor in (2, 4, 8, 16))

        def down(inputs: int, outputs: int) -> nn.Sequential:
            return convolution(inputs, outputs, 3, 2, then=nn.SiLU())

        self.stem = nn.Sequential(down(3, width), down(width, w1), Split(w1, w1, depth))
        self.fine = nn.Sequential(down(w1, w2), Split(w2, w2, depth))
        self.middle = nn.Sequential(down(w2, w3), Split(w3, w3, depth))
        self.coarse = nn.Sequential(down(w3, w4), Split(w4, w4, depth), Pyramid(w4))
        self.up_middle = Split(w4 + w3, w3, depth)
        self.up_fine = Split(w3 + w2, w2, depth)
        self.shrink_fine = down(w2, w2)
        self.down_middle = Split(w2 + w3, w3, depth)
        self.shrink_middle = down(w3, w3)
        self.down_coarse = Split(w3 + w4, w4, depth)
        self.boxes = nn.ModuleList(self._head(inputs, w2, 64) for inputs in (w2, w3, w4))
        self.classes = nn.ModuleList(self._head(inputs, w2, classes) for inputs in (w2, w3, w4))
        self.register_buffer("bins", torch.arange(16.0))

    @staticmethod
    def _head(inputs: int, width: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            convolution(inputs, width, 3, then=nn.SiLU()),
            convolution(width, width, 3, then=nn.SiLU()),
            nn.Conv2d(width, outputs, 1),
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, 4 + classes, boxes]: expected distances, and probabilities."""
        fine = self.fine(self.stem(pixel_values))
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        wide = torch.cat((interpolate(coarse, middle.shape[2:]), middle), 1)
        middle = self.up_middle(wide)
        fine = self.up_fine(torch.cat((interpolate(middle, fine.shape[2:]), fine), 1))
        middle = self.down_middle(torch.cat((self.shrink_fine(fine), middle), 1))
        coarse = self.down_coarse(torch.cat((self.shrink_middle(middle), coarse), 1))
        scales = (fine, middle, coarse)
        boxes = [head(scale).flatten(2) for head, scale in zip(self.boxes, scales, strict=True)]
        classes = [head(scale).flatten(2) for head, scale in zip(self.classes, scales, strict=True)]
        bins = torch.cat(boxes, 2).unflatten(1, (4, 16)).softmax(2)
        distances = (bins * self.bins[:, None]).sum(2)
        return torch.cat((distances, torch.cat(classes, 2).sigmoid()), 1)


def yolo(size: Size) -> ExportCase:
    """SiLU, splits and concats over three scales, nearest resizing, maxima over windows of stride 1."""
    tiny = size is Size.TINY
    return image_case(Detector(2 if tiny else 16, 1, 5 if tiny else 80), "detections")


class Segmenter(nn.Module):
    """Dilated convolutions beside each other over one image (DeepLab-V3, Chen et al. 2017)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.body = nn.Sequential(
            convolution(3, channels, 3, 2, then=nn.ReLU()),
            GroupedBottleneck(channels, channels, channels, 2),
            GroupedBottleneck(channels, 2 * channels, 2 * channels, 2),
            convolution(2 * channels, wide, 3, dilation=2, then=nn.ReLU()),
            convolution(wide, wide, 3, dilation=4, then=nn.ReLU()),
        )
        self.branches = nn.ModuleList(
            [convolution(wide, channels, 1, then=nn.ReLU())]
            + [
                convolution(wide, channels, 3, dilation=dilation, then=nn.ReLU())
                for dilation in (6, 12, 18)
            ]
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, channels, 1), nn.ReLU())
        self.join = convolution(5 * channels, channels, 1, then=nn.ReLU())
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, classes, height, width]."""
        image = self.body(pixel_values)
        parts = [branch(image) for branch in self.branches]
        parts.append(interpolate(self.whole(image), image.shape[2:], mode="bilinear"))
        logits = self.head(self.join(torch.cat(parts, 1)))
        return interpolate(logits, pixel_values.shape[2:], mode="bilinear")


def deeplab(size: Size) -> ExportCase:
    """Dilated convolutions, and linear resizing to the size of the input."""
    tiny = size is Size.TINY
    return image_case(Segmenter(8 if tiny else 64, 3 if tiny else 21))


class TextDetector(nn.Module):
    """A mobile body, its scales resized and joined, and two transposed convolutions (DBNet, Liao et al. 2020)."""

    def __init__(self, scales: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = convolution(3, scales[0], 3, 2, then=nn.Hardswish())
        self.stages = nn.ModuleList()
        for inputs, outputs in pairwise(scales):
            first = mobile_v3_block(inputs, (5, 3 * inputs, outputs, True, nn.Hardswish, 2))
            second = mobile_v3_block(outputs, (3, 3 * outputs, outputs, False, nn.Hardswish, 1))
            self.stages.append(nn.Sequential(first, second))
        self.same = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in scales[1:])
        quarter = width // 4
        self.narrow = nn.ModuleList(nn.Conv2d(width, quarter, 3, padding=1) for _ in scales[1:])
        self.head = nn.Sequential(
            convolution(quarter * (len(scales) - 1), quarter, 3, then=nn.ReLU()),
            nn.ConvTranspose2d(quarter, quarter, 2, 2),
            nn.BatchNorm2d(quarter),
            nn.ReLU(),
            nn.ConvTranspose2d(quarter, 1, 2, 2),
            nn.Sigmoid(),
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to the probability of text, [batch, 1, height, width] (rounded up to fours)."""
        image = self.stem(pixel_values)
        scales = []
        for stage, same in zip(self.stages, self.same, strict=True):
            image = stage(image)
            scales.append(same(image))
        for index in reversed(range(len(scales) - 1)):
            scales[index] = scales[index] + interpolate(scales[index + 1], scales[index].shape[2:])
        size = scales[0].shape[2:]
        parts = [
            interpolate(narrow(scale), size)
            for narrow, scale in zip(self.narrow, scales, strict=True)
        ]
        text: torch.Tensor = self.head(torch.cat(parts, 1))
        return text


def text_detector(size: Size) -> ExportCase:
    """Mobile blocks, resized sums, concats, transposed convolutions and a sigmoid."""
    tiny = size is Size.TINY
    model = TextDetector((8, 8, 12) if tiny else (16, 24, 40, 112, 160), 16 if tiny else 96)
    return image_case(model, "probability")


class LineReader(nn.Module):
    """Convolutions that keep the width, a recurrence both ways along it, and a class for each place (Shi et al. 2015)."""

    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        c1, c2, c3, c4 = (channels * factor for factor in (1, 2, 4, 8))
        self.body = nn.Sequential(
            nn.Conv2d(1, c1, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(c1, c2, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            convolution(c2, c3, 3, then=nn.ReLU()),
            convolution(c3, c3, 3, then=nn.ReLU()),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            convolution(c3, c4, 3, then=nn.ReLU()),
            convolution(c4, c4, 3, then=nn.ReLU()),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            nn.Conv2d(c4, c4, 2),
            nn.ReLU(),
        )
        self.first = Recurrence(c4, hidden, both_ways=True)
        self.second = Recurrence(2 * hidden, hidden, both_ways=True)
        self.hidden = hidden
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 1, 32, width] to [width / 4 + 1, batch, classes]."""
        places = self.body(pixel_values).squeeze(2).permute(2, 0, 1)
        state = places.new_zeros(2, places.shape[1], self.hidden)
        places = self.first(places, state, state)[0]
        logits: torch.Tensor = self.head(self.second(places, state, state)[0])
        return logits


def crnn(size: Size) -> ExportCase:
    """One channel, strides that differ by axis, an LSTM both ways."""
    tiny = size is Size.TINY
    model = LineReader(4, 16, 11) if tiny else LineReader(64, 256, 37)
    return image_case(model, "logits", (3, 1, 32, 96), ("batch", "", "", "width"))


class Upscaler(nn.Module):
    """Residual blocks without normalisation, then channels become pixels (EDSR, Lim et al. 2017)."""

    def __init__(self, channels: int, blocks: int, factor: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.leave = nn.Sequential(
            nn.Conv2d(channels, channels * factor * factor, 3, padding=1),
            nn.PixelShuffle(factor),
            nn.Conv2d(channels, 3, 3, padding=1),
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, 3, factor * height, factor * width]."""
        image = first = self.enter(pixel_values)
        for block in self.blocks:
            image = image + 0.1 * block(image)
        large: torch.Tensor = self.leave(image + first)
        return large


def super_resolution(size: Size) -> ExportCase:
    """Convolutions at full size, channels that become pixels."""
    model = Upscaler(8, 1, 2) if size is Size.TINY else Upscaler(48, 4, 2)
    return image_case(model, "large")


def fsrcnn(size: Size) -> ExportCase:
    """One channel, PReLU, and a transposed convolution whose stride does not divide its kernel (Dong et al. 2016)."""
    wide, narrow, depth = (8, 4, 1) if size is Size.TINY else (56, 12, 4)
    layers: list[nn.Module] = [nn.Conv2d(1, wide, 5, padding=2), nn.PReLU(wide)]
    layers += [nn.Conv2d(wide, narrow, 1), nn.PReLU(narrow)]
    for _ in range(depth):
        layers += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
    layers += [nn.Conv2d(narrow, wide, 1), nn.PReLU(wide)]
    layers.append(nn.ConvTranspose2d(wide, 1, 9, 2, padding=4, output_padding=1))
    return image_case(Chain(*layers), "large", (3, 1, 64, 96))


def style_transfer(size: Size) -> ExportCase:
    """Reflected pads, instance normalisation, transposed convolutions of stride 2 (Johnson et al. 2016)."""
    channels, depth = (4, 1) if size is Size.TINY else (16, 3)

    def block(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        pad = nn.ReflectionPad2d(kernel // 2)
        norm = nn.InstanceNorm2d(outputs, affine=True)
        return [pad, nn.Conv2d(inputs, outputs, kernel, stride), norm, nn.ReLU()]

    layers = [*block(3, channels, 9, 1), *block(channels, 2 * channels, 3, 2)]
    layers += block(2 * channels, 4 * channels, 3, 2)
    for _ in range(2 * depth):
        layers += block(4 * channels, 4 * channels, 3, 1)
    for inputs in (4 * channels, 2 * channels):
        layers.append(nn.ConvTranspose2d(inputs, inputs // 2, 3, 2, 1, output_padding=1))
        layers += [nn.InstanceNorm2d(inputs // 2, affine=True), nn.ReLU()]
    layers += [nn.ReflectionPad2d(4), nn.Conv2d(channels, 3, 9), nn.Tanh()]
    return image_case(Chain(*layers), "styled")
