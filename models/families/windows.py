"""Transformers over images beside ViT: Swin's shifted windows, and DETR's queries over a convolutional body.

Input is a `Size`; output an `ExportCase`. Swin has the dim batch; DETR batch, height and width.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, Size
from models.families.classifiers import GroupedBottleneck
from models.families.layers import convolution, image_case


class ShiftedWindows(nn.Module):
    """Attention within windows of [batch, side, side, width], half a window further every other time (Liu et al. 2021)."""

    def __init__(self, side: int, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.first = nn.LayerNorm(width)
        self.enter = nn.Linear(width, 3 * width)
        self.leave = nn.Linear(width, width)
        self.places = nn.Parameter(0.1 * torch.randn(heads, window * window, window * window))
        self.second = nn.LayerNorm(width)
        self.forth = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        parts = torch.zeros(1, side, side, 1)
        if shift:
            for row, rows in enumerate(
                (slice(-window), slice(-window, -shift), slice(-shift, None))
            ):
                for column, columns in enumerate(
                    (slice(-window), slice(-window, -shift), slice(-shift, None))
                ):
                    parts[:, rows, columns] = 3 * row + column
        parts = self._split(parts).squeeze(2)
        self.register_buffer("hidden", -100.0 * (parts[:, None, :] != parts[:, :, None]).float())

    def _split(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, side, side, width] to [batch * windows, window * window, width]."""
        count = image.shape[1] // self.window
        split = image.unflatten(2, (count, self.window)).unflatten(1, (count, self.window))
        return split.transpose(2, 3).reshape(-1, self.window * self.window, image.shape[3])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, side, side, width], unchanged in shape."""
        batch, side, _, width = image.shape
        moved = torch.roll(self.first(image), (-self.shift, -self.shift), (1, 2))
        windows = self._split(moved)
        entered = self.enter(windows).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = entered[0], entered[1], entered[2]
        scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5 + self.places
        count = side // self.window
        if self.shift:
            apart = scores.unflatten(0, (batch, count * count)) + self.hidden[:, None]
            scores = apart.flatten(0, 1)
        found = (scores.softmax(3) @ value).transpose(1, 2).flatten(2)
        joined = self.leave(found).reshape(batch, count, count, self.window, self.window, width)
        back = joined.transpose(2, 3).reshape(batch, side, side, width)
        image = image + torch.roll(back, (self.shift, self.shift), (1, 2))
        return image + self.forth(self.second(image))


class Merge(nn.Module):
    """Four neighbours as one, of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.narrow = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, side, side, width] to [batch, side / 2, side / 2, 2 * width]."""
        parts = [image[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        merged: torch.Tensor = self.narrow(self.norm(torch.cat(parts, 3)))
        return merged


class Swin(nn.Module):
    """Patches, then stages of shifted windows with mergers between them."""

    def __init__(
        self, side: int, width: int, depths: tuple[int, ...], window: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.norm = nn.LayerNorm(width)
        layers: list[nn.Module] = []
        side //= 4
        for stage, depth in enumerate(depths):
            for index in range(depth):
                shift = window // 2 if index % 2 else 0
                layers.append(ShiftedWindows(side, width, max(1, width // 32), window, shift))
            if stage < len(depths) - 1:
                layers.append(Merge(width))
                side, width = side // 2, 2 * width
        self.stages = nn.Sequential(*layers)
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, side, side] to [batch, classes]."""
        image = self.norm(self.patches(pixel_values).permute(0, 2, 3, 1))
        logits: torch.Tensor = self.head(self.last(self.stages(image)).mean((1, 2)))
        return logits


def swin(size: Size) -> ExportCase:
    """Windows cut out, shifted and masked; dim batch."""
    tiny = size is Size.TINY
    model = Swin(32, 16, (2, 1), 4, 10) if tiny else Swin(224, 96, (2, 2, 2), 7, 1000)
    side = 32 if tiny else 224
    return image_case(model, "logits", (3, 3, side, side), ("batch", "", "", ""))


class QueryDetector(nn.Module):
    """A body, sines of its places, an encoder, and a decoder of learned queries (Carion et al. 2020)."""

    def __init__(self, channels: int, width: int, layers: int, queries: int, classes: int) -> None:
        super().__init__()
        c1, c2, c3 = channels, 2 * channels, 4 * channels
        self.body = nn.Sequential(
            convolution(3, c1, 7, 2, then=nn.ReLU()),
            nn.MaxPool2d(3, 2, 1),
            GroupedBottleneck(c1, c1, c1, 1),
            GroupedBottleneck(c1, c2, c2, 2),
            GroupedBottleneck(c2, c3, c3, 2),
            nn.Conv2d(c3, width, 1),
        )
        heads = max(1, width // 32)
        options = {"dropout": 0.0, "batch_first": True}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, **options) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, **options) for _ in range(layers)
        )
        self.queries = nn.Parameter(torch.randn(1, queries, width))
        rates = 10000 ** (-torch.arange(0, width // 2, 2) / (width // 2))
        self.register_buffer("rates", rates)
        self.classes = nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def _places(self, height: int, width: int) -> torch.Tensor:
        """[height * width, model width]: sines and cosines of rows, then of columns."""

        def waves(count: int) -> torch.Tensor:
            angles = (torch.arange(count)[:, None] + 0.5) / count * 6.2832 * self.rates
            return torch.cat((angles.sin(), angles.cos()), 1)

        rows = waves(height)[:, None].expand(-1, width, -1)
        columns = waves(width)[None].expand(height, -1, -1)
        return torch.cat((rows, columns), 2).flatten(0, 1)

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, 3, height, width] to classes and boxes of each query."""
        image = self.body(pixel_values)
        memory = image.flatten(2).transpose(1, 2) + self._places(image.shape[2], image.shape[3])
        for layer in self.encoder:
            memory = layer(memory)
        found = self.queries.expand(image.shape[0], -1, -1)
        for layer in self.decoder:
            found = layer(found, memory)
        return self.classes(found), self.boxes(found).sigmoid()


def detr(size: Size) -> ExportCase:
    """Places made of the image's extents, attention across; dims batch, height and width."""
    tiny = size is Size.TINY
    model = QueryDetector(8, 16, 1, 5, 3) if tiny else QueryDetector(64, 256, 2, 100, 91)
    model.eval()
    case = image_case(model)
    return ExportCase(case.module, case.inputs, ("logits", "boxes"))
