"""Coverage by proof: what is shown holds for numbers, and what does not hold is not shown."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dvm_graph
from dvm_graph.errors import CompileError, ShapeError
from dvm_graph.ir import Dim
from dvm_graph.kernels import verify
from dvm_graph.kernels.coverage import Coverage, check_at_run, prove_coverage
from dvm_graph.kernels.plan import Access, KernelPlan
from dvm_graph.kernels.regions import Box, Regions
from dvm_graph.kernels.verify import verify_plan
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from dvm_graph.symbolic import Facts, Symbols, add, floordiv, mul, product, substitute
from dvm_graph.symbolic.dims import equal
from models import tiny_path
from tests.end_to_end.reference import assert_all_close, model_from_text
from tests.kernels.test_verify import JOINED, SOFTMAX, edited

MODELS = ["bert", "llama_decode", "mmoe", "mobilenet", "nonzero", "unet", "vit"]


@pytest.mark.parametrize("options", [Options(), Options(fuse=False)], ids=["fused", "apart"])
@pytest.mark.parametrize("name", MODELS)
def test_every_access_of_real_models_is_proven(name: str, options: Options) -> None:
    compiled = compile_model(tiny_path(name), options)
    coverage = prove_coverage(compiled.plan, compiled.facts)
    assert coverage.accesses > 5
    assert coverage.open == []


# -- boxes against their elements

SYMBOLS = Symbols()
A, B = SYMBOLS.get("a"), SYMBOLS.get("b")
DIMS: list[Dim] = [1, 2, 3, A, B, add(A, 1), mul(A, B), floordiv(add(A, 1), 2)]


def elements(box: Box, values: dict[Dim, int]) -> list[int]:
    """Each as often as the box has it."""

    def number(dim: Dim) -> int:
        return int(substitute(dim, values))

    ranges = [range(number(extent)) for extent, _ in box.steps]
    strides = [number(stride) for _, stride in box.steps]
    at = [number(box.offset) + int(np.dot(point, strides)) for point in itertools.product(*ranges)]
    return sorted(at)


dims = st.sampled_from(DIMS)
steps = st.lists(st.tuples(dims, st.one_of(dims, dims.map(lambda d: mul(-1, d)))), max_size=3)
extents = st.fixed_dictionaries({A: st.integers(0, 4), B: st.integers(0, 4)})


@settings(max_examples=300, deadline=None)
@given(steps=steps, offset=st.one_of(st.just(0), dims), size=dims, values=extents)
def test_what_lies_within_a_value_does_at_all_extents(
    steps: list[tuple[Dim, Dim]], offset: Dim, size: Dim, values: dict[Dim, int]
) -> None:
    regions = Regions(Facts(SYMBOLS))
    box = regions.read(offset, steps)
    if regions.within(box, size):
        assert set(elements(box, values)) <= set(range(int(substitute(size, values))))


@settings(max_examples=200, deadline=None)
@given(shape=st.lists(dims, min_size=1, max_size=4), data=st.data(), values=extents)
def test_a_tensor_stored_in_parts_and_any_order_is_whole(
    shape: list[Dim], data: st.DataObject, values: dict[Dim, int]
) -> None:
    """Two parts along some axis, each stored along permuted axes: shown to be whole, and each element once."""
    regions = Regions(Facts(SYMBOLS))
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = [shape[axis], data.draw(dims)]
    whole = [*shape[:axis], add(*parts), *shape[axis + 1 :]]
    strides = [product(whole[at + 1 :]) for at in range(len(whole))]
    order = data.draw(st.permutations(range(len(whole))))
    boxes = []
    for start, extent in zip((0, parts[0]), parts, strict=True):
        own = [*shape[:axis], extent, *shape[axis + 1 :]]
        boxes.append(
            regions.stored(mul(start, strides[axis]), [(own[at], strides[at]) for at in order])
        )
    (joined,) = regions.union(boxes)
    assert regions.covers(joined, product(whole))
    size = int(substitute(product(whole), values))
    assert sorted(at for box in boxes for at in elements(box, values)) == list(range(size))


def test_parts_in_order_are_joined_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector joins what it found of each class: to compare all pairs, again after each joint, takes minutes."""
    symbols = Symbols()
    sizes = [symbols.get(f"found{part}") for part in range(40)]
    regions = Regions(Facts(symbols))
    offset: Dim = 0
    boxes = []
    for size in sizes:
        boxes.append(regions.stored(mul(offset, 4), [(size, 4), (4, 1)]))
        offset = add(offset, size)
    compared = []
    side_by_side = Regions._side_by_side

    def counted(self: Regions, first: Box, second: Box) -> Box | None:
        compared.append((first, second))
        return side_by_side(self, first, second)

    monkeypatch.setattr(Regions, "_side_by_side", counted)
    (joined,) = regions.union(boxes)
    assert regions.covers(joined, mul(offset, 4))
    assert len(compared) < 2 * len(boxes)


def test_what_is_stored_twice_or_in_part_is_not_whole() -> None:
    regions = Regions(Facts(SYMBOLS))
    assert not regions.covers(regions.stored(0, [(3, 0), (A, 1)]), A)
    assert not regions.covers(regions.stored(0, [(A, B), (B, 1)]), mul(A, add(B, 1)))
    assert not regions.covers(regions.stored(1, [(A, 1)]), A)
    halves = [regions.stored(0, [(A, 1)]), regions.stored(add(A, 1), [(A, 1)])]
    (hole,) = regions.union(halves)
    assert not regions.covers(hole, mul(2, A))
    assert not regions.covers(hole, add(mul(2, A), 1))


def test_a_kernel_whose_guard_never_holds_says_nothing() -> None:
    """Two equal dims that each may be, but not both: its fallback is all that runs."""
    text = """g (float[1, 1, N, "N + 1"] x) => (float[2, 2, 3, P, Q] y) <int64[5] rows = {2, 2, 3, 1, 1}> {
        e = Expand(x, rows) t = Transpose<perm = [0, 1, 3, 2]>(x) s = Shape(t) y = Expand(e, s) }"""
    compiled = compile_model(model_from_text(text), Options())
    assert prove_coverage(compiled.plan, compiled.facts).open == []
    model = dvm_graph.optimize(model_from_text(text))
    assert model.run({"x": np.ones((1, 1, 0, 1), np.float32)})[0].shape == (2, 2, 3, 0, 0)
    broken = edited(
        compiled.plan, lambda plan: replace(plan, accesses=tuple(map(shifted, plan.accesses)))
    )
    assert prove_coverage(broken, compiled.facts).open
    regions = Regions(Facts(SYMBOLS))
    assert regions.where(mul(equal(A, B), equal(add(A, 1), B))) is None
    assert regions.where(equal(A, B)) is not None


def test_a_box_without_elements_lies_in_any_value() -> None:
    """Two extents multiply to 0, as a product's axes say: that there are elements contradicts it."""
    text = """g (float[s, s, 1] x, int64[1] t, float[1, 0] w) => (float[a, b] y)
    <int64[3] starts = {0, 5, 0}, int64[3] stops = {-1, 9, 0}, int64[3] steps = {1, 1, 3}, int64[2] to = {-1, 0}> {
        ends = Add(stops, t) c = Slice(x, starts, ends, "", steps) r = Reshape(c, to)
        y = Gemm<transA = 1, transB = 1>(r, w) }"""
    compiled = compile_model(model_from_text(text), Options())
    assert prove_coverage(compiled.plan, compiled.facts).open == []


# -- plans that are wrong


def shifted(access: Access) -> Access:
    """Along the last axis by the stride of the first."""
    return replace(access, strides=(*access.strides[:-1], access.strides[0]))


def without_offset(access: Access) -> Access:
    return replace(access, offset=-1)


@pytest.mark.parametrize(("text", "edit"), [(SOFTMAX, shifted), (JOINED, without_offset)])
def test_nothing_is_shown_about_wrong_accesses(text: str, edit: object) -> None:
    compiled = compile_model(model_from_text(text), Options())
    assert callable(edit)

    def kernel(plan: KernelPlan) -> KernelPlan:
        return replace(plan, accesses=tuple(edit(access) for access in plan.accesses))

    wrong = edited(compiled.plan, kernel)
    assert prove_coverage(wrong, compiled.facts).open
    with pytest.raises(CompileError):
        verify_plan(wrong, compiled.facts)


def test_what_is_not_shown_is_counted_at_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown: the numbers of a right model say nothing, those of a wrong one stop the run."""
    monkeypatch.setattr(Regions, "covers", lambda regions, box, size: False)
    model = dvm_graph.optimize(model_from_text(JOINED))
    feeds = {"x": np.ones((2, 3), np.float32), "w": np.ones((4, 3), np.float32)}
    (result,) = model.run(feeds)
    wanted = np.vstack([feeds["x"], np.tanh(feeds["w"])])
    assert_all_close([result], [wanted])
    (nothing,) = model.run({name: array[:0] for name, array in feeds.items()})
    assert nothing.shape == (0, 3)

    def one_more(plan: object, coverage: Coverage) -> None:
        coverage.unfilled = {value: add(n, 1) for value, n in coverage.unfilled.items()}
        check_at_run(plan, coverage)  # what `verify` hands on

    monkeypatch.setattr(verify, "check_at_run", one_more)
    wrong = dvm_graph.optimize(model_from_text(JOINED))
    with pytest.raises(ShapeError, match=r"what the compiler made: kernels write .* elements of y"):
        wrong.run(feeds)
