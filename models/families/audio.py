"""Networks over sound: a Conformer, wav2vec's feature extractor, a voice detector with state, a vocoder.

Input is a `Size`; output an `ExportCase`. Dims are batch and frames, or batch and samples.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, ModelInput, Size
from models.families.layers import Chain, Recurrence, image_case, keep_scale


class FeedForward(nn.Module):
    """Two linear layers with SiLU between them, half of which is added (Gulati et al. 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[batch, frames, width], unchanged in shape."""
        return frames + 0.5 * self.layers(frames)


class ConvolutionModule(nn.Module):
    """A gated linear unit, a convolution of each channel along the frames, SiLU."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[batch, frames, width], unchanged in shape."""
        added: torch.Tensor = self.layers(self.norm(frames).transpose(1, 2))
        return frames + added.transpose(1, 2)


class Attention(nn.Module):
    """Self-attention of a few heads, added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, 3 * width)
        self.leave = nn.Linear(width, width)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[batch, frames, width], unchanged in shape."""
        entered = self.enter(self.norm(frames)).unflatten(2, (3, self.heads, -1))
        query, key, value = entered.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        added: torch.Tensor = self.leave(found.transpose(1, 2).flatten(2))
        return frames + added


class Conformer(nn.Module):
    """Log-mel frames through two strided convolutions and blocks of attention and convolution."""

    def __init__(self, mels: int, width: int, heads: int, blocks: int, kernel: int) -> None:
        super().__init__()
        self.shrink = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1, groups=width),
            nn.Conv2d(width, width, 1),
            nn.ReLU(),
        )
        self.enter = nn.Linear(width * (mels // 4), width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    FeedForward(width),
                    Attention(width, heads),
                    ConvolutionModule(width, kernel),
                    FeedForward(width),
                    nn.LayerNorm(width),
                )
                for _ in range(blocks)
            )
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, frames, mels] to [batch, frames / 4, width]."""
        image = self.shrink(pixel_values.unsqueeze(1)).transpose(1, 2).flatten(2)
        features: torch.Tensor = self.blocks(self.enter(image))
        return features


def conformer(size: Size) -> ExportCase:
    """One channel in front, then attention, gated linear units and convolutions along frames."""
    model = Conformer(16, 16, 2, 1, 7) if size is Size.TINY else Conformer(80, 256, 4, 4, 31)
    mels = 16 if size is Size.TINY else 80
    return image_case(model, "features", (3, 96, mels), ("batch", "frames", ""))


def wav2vec(size: Size) -> ExportCase:
    """wav2vec 2.0's feature extractor: strided convolutions along samples, normalised over them, and GELU."""
    width = 16 if size is Size.TINY else 512
    layers: list[nn.Module] = []
    channels = 1
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
        layers.append(nn.Conv1d(channels, width, kernel, stride, bias=False))
        layers += [nn.GroupNorm(width, width)] if channels == 1 else []
        layers.append(nn.GELU())
        channels = width
    return image_case(Chain(*layers), "features", (3, 1, 4000), ("batch", "", "samples"))


class VoiceDetector(nn.Module):
    """Convolutions along frames, then an LSTM whose state enters and leaves."""

    def __init__(self, bands: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(bands, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden // 2, 3, 2, 1),
            nn.ReLU(),
            nn.Conv1d(hidden // 2, hidden, 3, padding=1),
            nn.ReLU(),
        )
        self.recurrence = Recurrence(hidden, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(
        self, bands: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[batch, bands, frames] and state [1, batch, hidden] to probabilities [batch, frames / 2, 1] and state."""
        frames = self.encoder(bands).permute(2, 0, 1)
        found, hidden, cell = self.recurrence(frames, hidden, cell)
        return torch.sigmoid(self.head(found)).transpose(0, 1), hidden, cell


def vad(size: Size) -> ExportCase:
    """A recurrence over frames with its state as inputs and outputs."""
    bands, hidden = (5, 8) if size is Size.TINY else (129, 128)
    # The states are two tensors: what is one tensor becomes one input of the graph.
    inputs = (
        ModelInput("bands", torch.zeros(3, bands, 40), {0: "batch", 2: "frames"}),
        ModelInput("hidden", torch.zeros(1, 3, hidden), {1: "batch"}),
        ModelInput("cell", torch.zeros(1, 3, hidden), {1: "batch"}),
    )
    model = keep_scale(VoiceDetector(bands, hidden))
    return ExportCase(model, inputs, ("probability", "next_hidden", "next_cell"))


class Dilated(nn.Module):
    """Convolutions along samples, ever more dilated, each added (Kong et al. 2020)."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.1),
                nn.Conv1d(channels, channels, kernel, 1, "same", dilation=dilation),
                nn.LeakyReLU(0.1),
                nn.Conv1d(channels, channels, kernel, 1, "same"),
            )
            for dilation in (1, 3, 5)
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """[batch, channels, samples], unchanged in shape."""
        for layer in self.layers:
            signal = signal + 0.3 * layer(signal)
        return signal


def vocoder(size: Size) -> ExportCase:
    """A HiFi-GAN-like vocoder: transposed convolutions along samples, dilated ones, LeakyReLU."""
    tiny = size is Size.TINY
    mels, channels = (8, 16) if tiny else (80, 128)
    layers: list[nn.Module] = [nn.Conv1d(mels, channels, 7, padding=3)]
    for kernel, stride in ((8, 4), (3, 2)) if tiny else ((16, 8), (16, 8), (4, 2), (4, 2)):
        half = channels // 2
        up = nn.ConvTranspose1d(channels, half, kernel, stride, (kernel - stride) // 2)
        layers += [nn.LeakyReLU(0.1), up, Dilated(half, 3)]
        channels = half
    layers += [nn.LeakyReLU(0.1), nn.Conv1d(channels, 1, 7, padding=3), nn.Tanh()]
    dims = ("batch", "", "frames")
    return image_case(Chain(*layers), "signal", (3, mels, 40), dims)
