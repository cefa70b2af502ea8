"""What the convolutional families share: convolutions with their normalisation, gates over channels, weights, cases."""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, ModelInput


def convolution(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    *,
    groups: int = 1,
    dilation: int = 1,
    then: nn.Module | None = None,
) -> nn.Sequential:
    """Convolution that keeps the image size at stride 1, batch normalisation, and an activation."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (dilation * (height - 1) // 2, dilation * (width - 1) // 2)
    layer = nn.Conv2d(
        inputs, outputs, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )
    layers = [layer, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers if then is None else (*layers, then))


class Gated(nn.Module):
    """Scales channels by what two 1x1 convolutions make of their means (Hu et al. 2018)."""

    def __init__(self, channels: int, hidden: int, inner: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, hidden, 1),
            inner,
            nn.Conv2d(hidden, channels, 1),
            gate,
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, channels, height, width], unchanged in shape."""
        scaled: torch.Tensor = image * self.scale(image)
        return scaled


class Chain(nn.Sequential):
    """Layers one after the other, of the input that `image_case` names."""

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Whatever the layers make of it."""
        result: torch.Tensor = super().forward(pixel_values)
        return result


class Recurrence(nn.Module):
    """An LSTM over [places, batch, inputs], which the exporter would unroll; it becomes the operator of that name."""

    def __init__(self, inputs: int, hidden: int, *, both_ways: bool = False) -> None:
        super().__init__()
        self.layer = nn.LSTM(inputs, hidden, bidirectional=both_ways)
        self.direction = "bidirectional" if both_ways else "forward"
        suffixes = ("", "_reverse") if both_ways else ("",)
        for name in ("weight_ih", "weight_hh"):
            parts = [self._reordered(f"{name}_l0{suffix}") for suffix in suffixes]
            self.register_buffer(name, torch.stack(parts))
        biases = [
            torch.cat([self._reordered(f"{name}_l0{suffix}") for name in ("bias_ih", "bias_hh")])
            for suffix in suffixes
        ]
        self.register_buffer("bias", torch.stack(biases))

    def _reordered(self, name: str) -> torch.Tensor:
        """Gates in the order of ONNX: input, output, forget, cell."""
        enter, forget, cell, leave = getattr(self.layer, name).detach().chunk(4)
        return torch.cat((enter, leave, forget, cell))

    def forward(
        self, places: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Results [places, batch, directions * hidden], and the last state, [directions, batch, hidden] each."""
        if not torch.compiler.is_exporting():
            found, (hidden, cell) = self.layer(places, (hidden, cell))
            return found, hidden, cell
        count, batch, _ = places.shape
        directions, _, size = hidden.shape
        found, hidden, cell = torch.onnx.ops.symbolic_multi_out(
            "LSTM",
            (places, self.weight_ih, self.weight_hh, self.bias, None, hidden, cell),
            {"hidden_size": size, "direction": self.direction},
            dtypes=(places.dtype,) * 3,
            shapes=([count, directions, batch, size], hidden.shape, cell.shape),
            version=18,
        )
        return found.transpose(1, 2).flatten(2), hidden, cell


class Classifier(nn.Module):
    """A convolutional body, the mean over the image, and a linear layer."""

    def __init__(self, body: list[nn.Module], channels: int, classes: int) -> None:
        super().__init__()
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
        self.layers = nn.Sequential(*body, *head)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, classes]."""
        logits: torch.Tensor = self.layers(pixel_values)
        return logits


def keep_scale(model: nn.Module) -> nn.Module:
    """Weights under which activations neither vanish nor grow from layer to layer, so that every layer shows in the result."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            nn.init.uniform_(module.weight, 0.5, 1.0)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
    return model


def image_case(
    model: nn.Module,
    output: str = "logits",
    shape: tuple[int, ...] = (3, 3, 64, 96),
    dims: tuple[str, ...] = ("batch", "", "height", "width"),
) -> ExportCase:
    """A model of one image (or signal, or volume); `dims` names the axes that are dynamic."""
    axes = {axis: name for axis, name in enumerate(dims) if name}
    source = ModelInput("pixel_values", torch.zeros(shape), axes)
    return ExportCase(keep_scale(model), (source,), (output,))
