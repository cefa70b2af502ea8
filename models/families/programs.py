"""Modules with control flow of their own, scripted: recurrences over lists, branches, loops that end when data says so.

Input is a `Size`; output a scripted `ExportCase`. Loops become ONNX `Loop`, `if` becomes `If`, and lists sequences, as
people have them from TorchScript's exporter. Dims are batch, frames, samples or seq.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, InputKind, ModelInput, Size


class LoopedRecurrence(nn.Module):
    """A gated unit written as a loop over frames, whose results are collected in a list."""

    def __init__(self, bands: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(bands, 2 * hidden)
        self.again = nn.Linear(hidden, 2 * hidden)

    def forward(
        self, frames: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[frames, batch, bands] and state [batch, hidden] to [frames, batch, hidden] and the last state."""
        entered = self.enter(frames)
        found: list[torch.Tensor] = []
        for frame in range(frames.size(0)):
            gate, candidate = (entered[frame] + self.again(hidden)).chunk(2, 1)
            gate = torch.sigmoid(gate)
            hidden = gate * hidden + (1.0 - gate) * torch.tanh(candidate)
            found.append(hidden)
        return torch.stack(found), hidden


class VoiceBranch(nn.Module):
    """A voice detector at one sampling rate: short-time spectra by a convolution, an encoder, an LSTM with state."""

    def __init__(self, window: int, hidden: int) -> None:
        super().__init__()
        self.stride = window // 2
        self.bands = window // 2 + 1
        turns = torch.outer(torch.arange(self.bands), torch.arange(window)) * (
            2 * torch.pi / window
        )
        bases = torch.cat((turns.cos(), turns.sin())) * torch.hann_window(window)
        self.register_buffer("bases", bases.unsqueeze(1))
        self.encoder = nn.Sequential(
            nn.Conv1d(self.bands, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.recurrence = nn.LSTM(hidden, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(
        self, samples: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, samples] and state [2, batch, hidden] to a probability [batch, 1] and the next state."""
        padded = nn.functional.pad(samples.unsqueeze(1), (0, self.stride), mode="reflect")
        spectrum = nn.functional.conv1d(padded, self.bases, stride=self.stride)
        real, imaginary = spectrum[:, : self.bands], spectrum[:, self.bands :]
        features = self.encoder(torch.sqrt(real * real + imaginary * imaginary + 1e-6))
        states = (state[0].unsqueeze(0), state[1].unsqueeze(0))
        found, (hidden, cell) = self.recurrence(features.permute(2, 0, 1), states)
        probability = torch.sigmoid(self.head(torch.relu(found))).mean(0)
        return probability, torch.cat((hidden, cell))


class VoiceStream(nn.Module):
    """A detector for two sampling rates, with networks of their own, that is fed piece by piece."""

    def __init__(self, window: int, hidden: int) -> None:
        super().__init__()
        self.fast = VoiceBranch(window, hidden)
        self.slow = VoiceBranch(window // 2, hidden)

    def forward(
        self, samples: torch.Tensor, state: torch.Tensor, rate: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, samples], state [2, batch, hidden] and the rate to a probability [batch, 1] and the next state."""
        if rate == 16000:
            probability, after = self.fast(samples, state)
        else:
            probability, after = self.slow(samples, state)
        return probability, after


class BeamSearch(nn.Module):
    """A small recurrent decoder and the search for its likeliest texts: all that a step keeps grows or is chosen anew."""

    def __init__(self, vocabulary: int, width: int, beams: int) -> None:
        super().__init__()
        self.beams = beams
        self.vocabulary = vocabulary
        self.embed = nn.Embedding(vocabulary, width)
        self.cell = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def step(self, tokens: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, beams] and [batch, beams, width] to log-probabilities and the next state."""
        hidden = torch.tanh(self.cell(torch.cat((self.embed(tokens), hidden), -1)))
        return torch.log_softmax(4.0 * self.head(hidden), -1), hidden

    def forward(
        self, first: torch.Tensor, context: torch.Tensor, most: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """First tokens [batch, 1], state [batch, width] and a number of steps; texts [batch, beams, steps + 1], their
        scores, and the best score after each step [steps, batch].
        """
        logits, hidden = self.step(first, context.unsqueeze(1))
        scores, tokens = logits[:, 0].topk(self.beams)
        texts = torch.cat((first.unsqueeze(2).expand(-1, self.beams, 1), tokens.unsqueeze(2)), 2)
        hidden = hidden.expand(-1, self.beams, -1)
        ended = tokens == 0
        best = [scores[:, 0]]
        count = 1
        while count < int(most) and not bool(ended.all()):
            logits, after = self.step(tokens, hidden)
            # A text that has ended goes on with the token of the end, for nothing.
            ends = torch.full_like(logits, -1e4)
            ends[:, :, 0] = 0.0
            logits = torch.where(ended.unsqueeze(2), ends, logits)
            scores, places = (scores.unsqueeze(2) + logits).flatten(1).topk(self.beams)
            parents = places // self.vocabulary
            tokens = places % self.vocabulary
            texts = texts.gather(1, parents.unsqueeze(2).expand(-1, -1, texts.size(2)))
            texts = torch.cat((texts, tokens.unsqueeze(2)), 2)
            hidden = after.gather(1, parents.unsqueeze(2).expand(-1, -1, after.size(2)))
            ended = ended.gather(1, parents) | (tokens == 0)
            best.append(scores[:, 0])
            count += 1
        return texts, scores, torch.stack(best)


class Block(nn.Module):
    """A transformer's layer: attention and a perceptron, each added behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.enter = nn.Linear(width, 3 * width)
        self.leave = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[batch, seq, width], unchanged in shape."""
        batch, seq, width = hidden.size(0), hidden.size(1), hidden.size(2)
        parts = self.enter(self.norms[0](hidden)).view(
            batch, seq, 3, self.heads, width // self.heads
        )
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(query @ key.transpose(2, 3) * (width // self.heads) ** -0.5, -1)
        hidden = hidden + self.leave((weights @ value).transpose(1, 2).reshape(batch, seq, width))
        return hidden + self.perceptron(self.norms[1](hidden))


class EarlyExit(nn.Module):
    """A transformer with a classifier behind every layer; once they all agree enough, the layers behind are left out."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.exits = nn.ModuleList(nn.Linear(width, classes) for _ in range(layers))
        self.enough = 0.5

    def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, seq] tokens to class probabilities [batch, classes] and how many layers ran."""
        hidden = self.embed(input_ids)
        found = torch.zeros(1)
        used = torch.zeros(1, dtype=torch.int64)
        settled = False
        for layer, leave in zip(self.layers, self.exits):  # noqa: B905 - scripts know no `strict`
            if not settled:
                hidden = layer(hidden)
                found = torch.softmax(leave(hidden.mean(1)) * 3.0, -1)
                used = used + 1
                settled = bool(found.amax(-1).min() > self.enough)
        return found, used


def rnn_loop(size: Size) -> ExportCase:
    """A recurrence that is a `Loop` over frames, with a list of results."""
    bands, hidden = (6, 16) if size is Size.TINY else (80, 256)
    inputs = (
        ModelInput("frames", torch.zeros(5, 3, bands), {0: "frames", 1: "batch"}),
        ModelInput("hidden", torch.zeros(3, hidden), {0: "batch"}),
    )
    return ExportCase(LoopedRecurrence(bands, hidden), inputs, ("found", "last"), scripted=True)


def voice_stream(size: Size) -> ExportCase:
    """A detector with carried state whose network an `If` on the sampling rate chooses."""
    window, hidden = (32, 16) if size is Size.TINY else (256, 128)
    inputs = (
        ModelInput("samples", torch.zeros(3, 4 * window), {0: "batch", 1: "samples"}),
        ModelInput("state", torch.zeros(2, 3, hidden), {1: "batch"}),
        ModelInput("rate", torch.tensor(16000), {}, InputKind.CHOICE, "16000,8000"),
    )
    outputs = ("probability", "next_state")
    return ExportCase(VoiceStream(window, hidden), inputs, outputs, scripted=True)


def beam_search(size: Size) -> ExportCase:
    """A decoder inside its search: a `Loop` that ends when all texts have, over tensors that grow."""
    vocabulary, width, beams = (19, 16, 3) if size is Size.TINY else (8000, 256, 5)
    inputs = (
        ModelInput(
            "first",
            torch.ones(2, 1, dtype=torch.int64),
            {0: "batch"},
            InputKind.TOKEN,
            str(vocabulary),
        ),
        ModelInput("context", torch.zeros(2, width), {0: "batch"}),
        ModelInput("most", torch.tensor(6), {}, InputKind.CHOICE, "1,2,5,12"),
    )
    outputs = ("texts", "scores", "best")
    return ExportCase(BeamSearch(vocabulary, width, beams), inputs, outputs, scripted=True)


def early_exit(size: Size) -> ExportCase:
    """A transformer whose layers run while an `If` finds its classifiers unsure."""
    vocabulary, width, heads, layers = (50, 32, 2, 4) if size is Size.TINY else (8000, 256, 4, 8)
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    axes = {0: "batch", 1: "seq"}
    inputs = (ModelInput("input_ids", tokens, axes, InputKind.TOKEN, str(vocabulary)),)
    model = EarlyExit(vocabulary, width, heads, layers, 4)
    return ExportCase(model, inputs, ("probabilities", "layers_used"), scripted=True)
