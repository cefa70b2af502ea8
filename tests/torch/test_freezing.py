"""Graphs that infer with parameters for constants: what they give while parameters change in every way that torch counts."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from dvm_graph.errors import RescueWarning
from dvm_graph.torch_backend import freezing
from dvm_graph.torch_backend.freezing import Frozen
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

FREEZING = {"freezing": True}


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.first = nn.Conv1d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 5)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(self.table(ids).transpose(1, 2))).relu()
        return self.last(x.transpose(1, 2))


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 20, (batch, length))


def _frozen(module: nn.Module) -> Callable[..., Any]:
    return torch.compile(module, backend="dvm", dynamic=True, options=FREEZING)


def _packed() -> int:
    return sum(len(arrays) for _, arrays in freezing._packed)


def _step(module: nn.Module) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with torch.enable_grad():
        module(_ids(2, 3)).square().sum().backward()
    optimizer.step()


def _load(module: nn.Module) -> None:
    module.load_state_dict(
        {n: t * 1.5 + 0.25 for n, t in module.state_dict().items() if t.is_floating_point()},
        strict=False,
    )


def _replace(module: nn.Module) -> None:
    module.last.weight = nn.Parameter(module.last.weight.flip(0))


def _point_elsewhere(module: nn.Module) -> None:
    module.last.weight.data = module.last.weight.data.flip(0)


def _write_statistics(module: nn.Module) -> None:
    module.norm.running_mean += 1


CHANGES = (_step, _load, _replace, _point_elsewhere, _write_statistics)


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
def test_results_are_those_of_parameters_as_they_are(change: Callable[[nn.Module], None]) -> None:
    torch.manual_seed(0)
    module = _Network().eval()
    compiled = _frozen(module)
    for turn in range(40):
        ids = _ids(1 + turn % 3, 4 + turn % 5)
        close(compiled(ids), module(ids))
        if turn in (0, 1, 5, 20, 21):
            change(module)


@torch.no_grad()
def test_parameters_are_no_arguments(pieces: list[Piece]) -> None:
    module = _Network().eval()
    _frozen(module)(_ids(2, 7))
    (piece,) = pieces
    taken = [known for known in piece._inputs if known is not None]
    assert len(taken) == 1


@torch.no_grad()
def test_graphs_share_panels_as_long_as_there_is_a_module() -> None:
    """A batch of 1 is a graph of its own."""
    torch._dynamo.reset()
    gc.collect()  # modules of other tests
    before = _packed()
    module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 48)).eval()
    compiled = torch.compile(module, backend="dvm", dynamic=True, options={**FREEZING, "cores": 2})
    counts = []
    for x in (torch.rand(3, 32), torch.rand(1, 32)):
        close(compiled(x), module(x))
        counts.append(_packed())
    assert counts == [before + 2, before + 2]
    del module, compiled
    torch._dynamo.reset()
    gc.collect()
    assert _packed() == before


@torch.no_grad()
def test_results_that_are_constants_may_be_written_to(recwarn: pytest.WarningsRecorder) -> None:
    """Parameters, views and functions of them; of any rank, and without elements."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.rand(4, 4))
            self.scale = nn.Parameter(torch.tensor(2.5))
            self.nothing = nn.Parameter(torch.rand(0, 3))
            self.register_buffer("index", torch.arange(3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            functions = self.matrix * 2, self.scale + 1, self.nothing + 1, self.index + 1
            return x @ self.matrix, x * self.scale, *functions, self.matrix.t(), self.matrix

    module = Constants()
    compiled = _frozen(module)
    for rows in range(1, 12):
        x = torch.rand(rows, 4)
        results = compiled(x)
        for mine, theirs in zip(results, module(x), strict=True):
            close(mine, theirs)
        for result in results[-1:] if rows % 4 == 0 else results[2:-2]:
            result.add_(1)
    assert not [w for w in recwarn if issubclass(w.category, RescueWarning)]


@torch.no_grad()
def test_what_a_graph_writes_to_is_an_argument() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.weight = nn.Parameter(torch.rand(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.sum(0)
            return x @ self.weight + self.seen

    module = Sum()
    theirs = copy.deepcopy(module)
    compiled = _frozen(module)
    for rows in range(1, 9):
        x = torch.rand(rows, 4)
        close(compiled(x), theirs(x))
    close(module.seen, theirs.seen)


def test_training_takes_parameters_as_they_are() -> None:
    mine = _Network()
    theirs = copy.deepcopy(mine)
    compiled = _frozen(mine)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (mine, theirs)]
    for turn in range(3):
        ids = _ids(3, 6 + turn)
        for module, optimizer in zip((compiled, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            module(ids).square().mean().backward()
            optimizer.step()
    ids = _ids(2, 5)
    with torch.no_grad():
        close(compiled.eval()(ids), theirs.eval()(ids))


def test_tensors_whose_writes_nobody_counts_are_arguments() -> None:
    with torch.inference_mode():
        module = _Network().eval()
        compiled = _frozen(module)
        for _ in range(3):
            ids = _ids(2, 5)
            close(compiled(ids), module(ids))
            module.last.weight.mul_(2)


@torch.no_grad()
def test_threads_share_a_graph() -> None:
    module = _Network().eval()
    compiled = _frozen(module)
    batches = [_ids(1 + turn % 4, 3 + turn % 7) for turn in range(60)]
    compiled(batches[0])
    with ThreadPoolExecutor(4) as pool:
        for given, result in zip(batches, pool.map(compiled, batches), strict=True):
            close(result, module(given))


def test_an_option_of_another_kind_is_refused() -> None:
    module = torch.compile(nn.Linear(2, 2), backend="dvm", options={"freezing": 1})
    with pytest.raises(Exception, match="option freezing is 1, but has to be True or False"):
        module(torch.rand(2, 2))


class _Compiled:
    """Notes which arguments graphs were compiled with for constants, and gives these."""

    def __init__(self) -> None:
        self.constants: list[list[int]] = []

    def __call__(self, constants: Mapping[int, torch.Tensor]) -> Callable[[list[Any]], Any]:
        self.constants.append(sorted(constants))
        return lambda _arguments: sorted(constants)


def test_what_changes_is_thawed_until_it_is_calm() -> None:
    """Argument 1 changes at each call from the third to the twelfth, argument 0 at the twentieth."""
    compiled = _Compiled()
    frozen = Frozen(compiled, [0, 1])
    arguments = [torch.rand(2), torch.rand(2), torch.rand(2)]
    given = []
    for call in range(48):
        if 2 <= call < 12:
            arguments[1] += 1
        if call == 19:
            arguments[0] += 1
        given.append(frozen(arguments))
    assert given[:12] == [[0, 1]] * 2 + [[]] * 4 + [[0]] * 6
    assert given[18] == [0] and given[19] == [] and given[-1] == [0, 1]
    assert compiled.constants == [[0, 1], [], [0], [0, 1]]


def test_what_never_is_calm_is_compiled_once() -> None:
    compiled = _Compiled()
    frozen = Frozen(compiled, [0])
    x = torch.rand(2)
    for _ in range(200):
        frozen([x])
        x += 1
    assert compiled.constants == [[0], []]


def test_modules_that_share_a_graph_have_constants_of_their_own() -> None:
    compiled = _Compiled()
    frozen = Frozen(compiled, [0])
    modules = [torch.rand(2) for _ in range(3)]
    for _ in range(8):
        given = [frozen([x]) for x in modules]
    assert given == [[0]] * 3 and compiled.constants == [[0], [], [0], [0]]
    for _ in range(20):  # a new tensor at each call
        assert frozen([torch.rand(2)]) == []
    assert len(frozen._modules) == 3


@torch.no_grad()
@pytest.mark.parametrize("read", ["strides", "dtype"])
def test_memory_that_is_read_otherwise_is_another_constant(read: str) -> None:
    class Kept(nn.Module):
        def __init__(self, kept: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("kept", kept)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.kept.float()

    whole = torch.rand(8, 8)
    kept = torch.rand(8, 4)
    kept.data = whole[:, :4] if read == "strides" else whole.bfloat16()[:, :4]
    module = Kept(kept)
    compiled = _frozen(module)
    x = torch.rand(5, 8)
    close(compiled(x), module(x))
    if read == "strides":
        module.kept.data = whole.view(-1)[:32].view(8, 4)
    else:
        module.kept.data = module.kept.data.view(torch.float16)
    close(compiled(x), module(x), scale=float(module(x).nan_to_num().abs().max()))


@torch.no_grad()
def test_constants_go_with_their_module() -> None:
    module = nn.Linear(64, 64).eval()
    compiled = _frozen(module)
    x = torch.rand(4, 64)
    close(compiled(x), module(x))
    gone = weakref.ref(module.weight)
    before = _packed()
    assert before > 0
    del module, compiled
    gc.collect()
    assert gone() is None and _packed() == before - 1
