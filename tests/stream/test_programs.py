"""Random programs on a stream: values as numpy has them, kernels as the static fuser makes them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dvm_graph import _core
from dvm_graph.cluster import cluster, split_clusters
from dvm_graph.options import Options
from dvm_graph.passes import absorb_views, eliminate_dead
from dvm_graph.stream import open_stream
from tests.stream.programs import Program, as_graph, gated_program, on_stream, random_program

SEEDS = 300


@pytest.fixture(scope="module")
def stream() -> _core.Stream:
    return open_stream()


@pytest.mark.parametrize("chunk", range(10))
def test_values_are_those_of_numpy(stream: _core.Stream, chunk: int) -> None:
    for seed in range(chunk, SEEDS, 10):
        program = random_program(seed)
        for index, value in on_stream(program, stream).items():
            expected = program.values[index]
            np.testing.assert_array_equal(value.numpy(), expected, f"seed {seed}, value {index}")


Kernels = Counter[tuple[str, tuple[str, ...]]]
"""Kind and operators of each kernel, but for those of reshapes alone: whether such is a copy is no matter of fusion."""


def static_kernels(program: Program) -> Kernels:
    graph, facts = as_graph(program)
    absorb_views(graph, facts)
    eliminate_dead(graph)  # views that became part of others
    fused = split_clusters(cluster(graph), facts, Options())
    kernels = Counter(
        (s.kind.value, tuple(sorted(f"{n.op} {list(n.output.shape or ())}" for n in s.nodes)))
        for part in fused.subgraphs.values()
        for s in part
        if s.kind.is_kernel
    )
    return _but_reshapes(kernels)


def stream_kernels(program: Program, stream: _core.Stream) -> Kernels:
    held = on_stream(program, stream)
    stream.record(True)
    stream.flush()
    kernels: Kernels = Counter()
    for flush in stream.take_record():
        for kernel in flush["kernels"]:
            kernels[kernel["kind"], tuple(sorted(kernel["operators"]))] += 1
    stream.record(False)
    assert not any(value.pending for value in held.values())
    return _but_reshapes(kernels)


def _but_reshapes(kernels: Kernels) -> Kernels:
    found = kernels.items()
    return Counter({k: n for k, n in found if not all(op.startswith("reshape") for op in k[1])})


@pytest.mark.parametrize("chunk", range(10))
def test_kernels_are_those_of_the_static_fuser(stream: _core.Stream, chunk: int) -> None:
    for seed in range(chunk, SEEDS, 10):
        program = random_program(seed)
        if any(step.op == "concat" for step in program.steps):
            continue  # preparing a graph puts the copies into a concat last, where ties end otherwise
        assert stream_kernels(program, stream) == static_kernels(program), f"seed {seed}"


def test_products_of_the_same_rows_are_as_in_numpy_and_in_the_static_fuser(
    stream: _core.Stream,
) -> None:
    several = 0
    for seed in range(100):
        program = gated_program(seed)
        for index, value in on_stream(program, stream).items():
            np.testing.assert_array_equal(value.numpy(), program.values[index], f"seed {seed}")
        kernels = static_kernels(program)
        assert stream_kernels(program, stream) == kernels, f"seed {seed}"
        several += any(" ".join(ops).count("matmul") > 1 for _, ops in kernels)
    assert several > 50
