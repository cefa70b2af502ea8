"""torch.compile on dvm_graph against torch itself: training steps over shapes, what is shared and kept, attention."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import dvm_graph
from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.piece import Piece, compile_piece
from tests.torch.closeness import close


def _bert(dropout: float) -> torch.nn.Module:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertModel(BertConfig(num_hidden_layers=2, vocab_size=100, **sizes, **drops))


def _gpt2(dropout: float) -> torch.nn.Module:
    drops = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    return GPT2Model(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=100, **drops, **ends))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("make", [_bert, _gpt2])
def test_training_steps_equal_torch_at_ten_shapes(
    make: Callable[[float], torch.nn.Module], dropout: float, pieces: list[Piece]
) -> None:
    """With dropout too: torch draws the same random numbers in the same order, and they cut no piece in two."""
    torch.manual_seed(0)
    mine = make(dropout).train()
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=dvm, dynamic=True)
    counts = []
    for step in range(10):
        ids = torch.randint(0, 100, (2 + step % 3, 5 + step))
        results = []
        for module in (compiled, theirs):
            torch.manual_seed(step)
            results.append(module(input_ids=ids).last_hidden_state)
        close(*results)
        for module, result in zip((mine, theirs), results, strict=True):
            module.zero_grad()
            result.square().mean().backward()
        gradients = [
            (a.grad, b.grad) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True)
        ]
        scale = max(float(b.abs().max()) for _, b in gradients if b is not None)
        for a, b in gradients:
            if b is not None:
                assert a is not None
                close(a, b, scale)
            else:  # of what the loss does not reach, graphs give zeros
                assert a is None or not a.any()
        counts.append(len(pieces))
    assert 2 <= counts[1] <= 5, "forward and backward have a piece each, and few more"
    assert counts[-1] == counts[1], "a new shape compiled something"


class _Images(torch.nn.Module):
    """A network of images of any size, which its layers halve."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.second = torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(16)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.first(x))), 3, 2, 1)
        return F.hardswish(self.norms[1](self.second(x))).mean((2, 3))


@pytest.mark.parametrize("train", [False, True])
def test_networks_of_images_of_any_size(pieces: list[Piece], train: bool) -> None:
    """Extents of what a piece reads are halves of halves: sizes of arguments tell what they were."""
    torch.manual_seed(0)
    mine = _Images().train(train)
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=dvm, dynamic=True)
    counts = []
    for step in range(5):
        x = torch.rand(2 + step % 3, 3, 33 + 5 * step, 40 + 3 * step)
        with torch.set_grad_enabled(train):
            results = [module(x) for module in (compiled, theirs)]
        close(*results)
        if train:
            for module, result in zip((mine, theirs), results, strict=True):
                module.zero_grad()
                result.square().mean().backward()
            for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                assert a.grad is not None and b.grad is not None
                close(a.grad, b.grad, 1.0)
            for a, b in zip(mine.buffers(), theirs.buffers(), strict=True):
                close(a, b)
        counts.append(len(pieces))
    assert counts[0] == 1 or train, "the forward pass is one piece"
    assert counts[-1] == counts[1], "a new shape compiled something"


RESULTS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "parts": lambda x: x.chunk(2, 1),
    "rows": lambda x: x.unbind(1),
    "a part, and what is computed of another": lambda x: (
        x.split([1, x.shape[0] - 1])[1],
        x.split([1, x.shape[0] - 1])[0] * 2,
    ),
    "views of parts": lambda x: tuple(part.t().unsqueeze(0) for part in x.chunk(2, 1)),
    "parts of results": lambda x: ((x * 2).chunk(2, 1)[1], *(x + 1).split(2, 1)),
    "a result and its parts": lambda x: (lambda y: (y, *y.chunk(2, 1)))(x.exp()),
}


@pytest.mark.parametrize("name", RESULTS)
def test_parts_among_results_share_memory(name: str) -> None:
    """With arguments and with each other, as without a compiler."""
    torch.compiler.reset()
    function = RESULTS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
    for rows in (5, 8):
        x = torch.randn(rows, 6)
        own = x.clone()
        mine, theirs = compiled(own), function(x)
        for a, b in zip(mine, theirs, strict=True):
            close(a, b)
            assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
            a.mul_(3), b.mul_(3)
        for a, b in zip((own, *mine), (x, *theirs), strict=True):
            close(a, b)


def test_what_is_not_translated_stays_in_torch(pieces: list[Piece]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x + 1) * 2

    x = torch.eye(3) + torch.rand(3, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    close(compiled(x), function(x))
    assert pieces


def test_tensors_of_another_type_than_torch_traced(pieces: list[Piece]) -> None:
    @torch.library.custom_op("dvm_tests::narrowed", mutates_args=())
    def narrowed(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float16)

    narrowed.register_fake(torch.empty_like)

    def function(x: torch.Tensor) -> torch.Tensor:
        return narrowed(x) * 2 + 1

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        assert torch.equal(compiled(x), function(x))
    assert pieces


def test_arguments_that_are_mutated_and_views_of_arguments(pieces: list[Piece]) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return x.t(), x + 1

    mine, theirs = torch.ones(2, 3), torch.ones(2, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for a, b in zip(compiled(mine), function(theirs), strict=True):
        close(a, b)
    close(mine, theirs)
    assert pieces


def test_tensors_whose_memory_is_not_what_they_hold(pieces: list[Piece]) -> None:
    """Negated by a bit, or zeros that have no memory."""
    torch.compiler.reset()
    x = torch.complex(torch.rand(3, 4), torch.rand(3, 4)).conj().imag
    nothing = torch._efficientzerotensor(3, 4)
    compiled = torch.compile(lambda x: x.exp() + 1, backend=dvm, dynamic=True)
    for each in (x, nothing, nothing.bfloat16()):
        close(compiled(each), each.exp() + 1)
    assert pieces


def test_dropout_of_what_lies_in_another_order(pieces: list[Piece]) -> None:
    """Torch draws in the order of memory."""
    function, x = torch.nn.Dropout(0.3), torch.randn(40, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    for tensor in (x.t(), x, images):
        torch.manual_seed(7)
        mine = compiled(tensor)
        torch.manual_seed(7)
        close(mine, function(tensor))
    assert pieces


def _hidden(x: torch.Tensor, all_of: bool = False) -> torch.Tensor:
    """Keys that are not there: of each row of a batch one more, or all."""
    kept = x.shape[1] - torch.arange(1, x.shape[0] + 1)[:, None]
    return torch.arange(x.shape[1]) >= (kept * 0 if all_of else kept)


def _later(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[1], x.shape[1]).triu(1).bool()


ATTENTION: dict[str, Callable[..., Any]] = {
    "a layer": lambda layer, of, x: layer(x),
    "a layer, keys hidden": lambda layer, of, x: layer(x, src_key_padding_mask=_hidden(x)),
    "a layer, later ones hidden": lambda layer, of, x: layer(x, src_mask=_later(x)),
    "a layer, both": lambda layer, of, x: layer(
        x, src_mask=_later(x), src_key_padding_mask=_hidden(x)
    ),
    "a layer, all keys hidden": lambda layer, of, x: layer(
        x, src_key_padding_mask=_hidden(x, all_of=True)
    ),
    "chances": lambda layer, of, x: of(x, x, x),
    "chances of each head": lambda layer, of, x: of(x, x, x, average_attn_weights=False),
    "no chances": lambda layer, of, x: of(x, x, x, need_weights=False)[:1],
    "other keys": lambda layer, of, x: of(x, x.cos(), x.cos()),
    "other values": lambda layer, of, x: of(x, x.cos(), x.sin(), key_padding_mask=_hidden(x)),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_modules_that_infer(name: str, pieces: list[Piece], stay: set[str]) -> None:
    """torch has operators for whole layers, which are broken down."""
    layers = [
        torch.nn.TransformerEncoderLayer(16, 2, 32, norm_first=first, batch_first=True).eval()
        for first in (True, False)
    ]
    of = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()

    def function(x: torch.Tensor) -> Any:
        results = [ATTENTION[name](layer, of, x) for layer in layers]
        return [each for y in results for each in (y if isinstance(y, tuple) else (y,))]

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    with torch.no_grad():
        for shape in ((9, 2, 16), (5, 3, 16)):
            x = torch.randn(shape).transpose(0, 1)
            for one, other in zip(compiled(x), function(x), strict=True):
                close(one, other, 1.0)
                assert one.stride() == other.stride()
    assert pieces and not stay


def test_what_is_drawn_again_in_the_backward_pass(pieces: list[Piece]) -> None:
    def kept(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x.exp().transpose(0, 1)).transpose(0, 1)
        return (F.dropout(F.gelu(x), 0.3) * noise).sin()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(kept, x, use_reentrant=False)

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x, gradients = torch.randn(rows, 4), []
        for called in (compiled, function):
            own = x.clone().requires_grad_()
            torch.manual_seed(rows)
            called(own).square().sum().backward()
            gradients.append(own.grad)
        assert gradients[0] is not None and gradients[1] is not None
        close(gradients[0], gradients[1])
    assert pieces


@pytest.mark.parametrize("others", [False, True])
def test_rows_that_are_added_to_nothing(pieces: list[Piece], others: bool) -> None:
    """The gradient of a table: in place where nobody else reads the nothing."""

    def function(i: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing = torch.zeros(10, rows.shape[1])
        first = nothing.index_put((i,), rows * 2, accumulate=True)
        return first, *((nothing.index_put((i,), rows), nothing + 1) if others else ())

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for count in (3, 7):
        i, rows = torch.arange(count) % 5, torch.rand(count, 4)
        for _ in range(2):
            for a, b in zip(compiled(i, rows), function(i, rows), strict=True):
                close(a, b)
    assert pieces


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_arguments_are_read_as_they_lie(order: tuple[int, ...]) -> None:
    """A tensor whose axes lie in another order than they count is not copied; one that lies otherwise in a run is right too."""

    def function(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(w) * x + w.sum(1, keepdim=True)

    x, w = torch.rand(6), torch.empty_strided((4, 5, 6), _strides((4, 5, 6), order))
    w.copy_(torch.rand(4, 5, 6))
    piece = compile_piece(make_fx(function, tracing_mode="symbolic")(w, x), dvm_graph.Options())
    assert next(known[1] for known in piece._inputs if known is not None) == order
    assert w.permute(order).is_contiguous()
    for other in (w, w.contiguous(), w[:, :2], w[:1].expand(4, 5, 6), w.flip(2)[..., ::2]):
        close(piece(other, x[: other.shape[2]]), function(other, x[: other.shape[2]]))


def _strides(sizes: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """Of a tensor whose axes lie in this order, outermost first."""
    return [
        math.prod(sizes[inner] for inner in order[order.index(axis) + 1 :])
        for axis in range(len(sizes))
    ]


def test_options_reach_the_compiler() -> None:
    torch._dynamo.reset()
    with pytest.raises(dvm_graph.InputError, match="no option"):
        dvm(torch.fx.symbolic_trace(torch.nn.ReLU()), [torch.ones(1)], options={"core": 1})
    compiled = torch.compile(torch.relu, backend="dvm", dynamic=True, options={"cores": 1})
    assert compiled(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]


def test_the_backward_pass_runs_again() -> None:
    """It still has what only the forward pass of sizes that vary kept for it."""
    torch._dynamo.reset()

    def waved(x: torch.Tensor) -> torch.Tensor:
        y = x[..., ::2].flip(-1)
        return (y * y.cos()).exp().mean(-1)

    compiled = torch.compile(waved, backend=dvm, dynamic=True)
    x, same = (torch.linspace(-2, 2, 24).reshape(2, 3, 4).requires_grad_() for _ in range(2))
    results = compiled(x), waved(same)
    for at in range(2):
        for result in results:
            result.sum().backward(retain_graph=at == 0)
        torch.testing.assert_close(x.grad, same.grad)
