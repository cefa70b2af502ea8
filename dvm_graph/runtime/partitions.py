"""Which model onnxruntime gets for a partition, found by trying.

In: the nodes of a `VendorStep`. Out: a `VendorPartition` over the first model of `partition_models` that
onnxruntime takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import onnxruntime

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_ import (
    cast_outputs,
    has_dilated_pools,
    lacks_zero_point,
    opset_probes,
    partition_models,
)
from dvm_graph.ir import Node, Value, read_from_around
from dvm_graph.kernels.plan import describe_nodes
from dvm_graph.runtime.vendor import (
    FAILURES,
    VendorPartition,
    foreign_ports,
    made_of_values,
    make_session,
)
from dvm_graph.runtime.vendor_model import VendorModel, VendorResult, VendorThreads

_Candidate = tuple[str | bytes, Sequence[str]]
_Candidates = Callable[[], Iterator[_Candidate]]


def make_partition(
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    threads: VendorThreads,
    *,
    optimise: bool = True,
    in_branch: bool = False,
) -> VendorPartition:
    """A session over the nodes.

    Inputs of its runs are what `read_from_around` finds, in that order. `optimise`: onnxruntime may
    rewrite the nodes to others, if it takes them then. `in_branch`: they may never run, and it is for runs to tell what
    does not fit.

    Raises:
        UnsupportedError: onnxruntime does not run these operators.
    """
    candidates = _candidates(nodes, outputs, in_branch)
    optimise = optimise and not has_dilated_pools(nodes)
    quantized = not lacks_zero_point(nodes)
    refusal: Exception | None = None
    for rewrites, number, (model, casts) in _attempts(candidates, optimise):
        try:
            session = make_session(model, threads, rewrites, quantized)
            foreign = foreign_ports(session.get_outputs())
            cast: tuple[str, ...] = ()
            if foreign and not made_of_values(session.get_inputs()) and isinstance(model, bytes):
                cast = tuple(foreign)
                session = make_session(cast_outputs(model, cast), threads, rewrites, quantized)
        except FAILURES as error:
            refusal = refusal or error
            continue
        found = VendorModel(
            describe_nodes(nodes),
            functools.partial(_candidate, candidates, number, cast),
            tuple(value.name for value in read_from_around(nodes)),
            tuple(VendorResult(v.name, v.dtype, v.computable) for v in outputs),
            foreign,
            tuple(casts),
            any(node.attrs.get("op") == "Loop" for node in nodes),
            rewrites,
            quantized,
        )
        return VendorPartition(found, threads, session)
    raise UnsupportedError(f"onnxruntime refuses {describe_nodes(nodes)}: {refusal}") from refusal


@functools.cache
def newest_opset() -> int:
    """The newest opset that the installed onnxruntime runs, found by trying."""
    for version, model in opset_probes():
        try:
            make_session(model, VendorThreads(1))
        except FAILURES:
            continue
        return version
    raise UnsupportedError(f"onnxruntime {onnxruntime.__version__} runs no ONNX model")


def _candidates(nodes: Sequence[Node], outputs: Sequence[Value], in_branch: bool) -> _Candidates:
    """Models of the partition, the plainest first, and the casts that they come with."""
    whole: str | bytes | None = nodes[0].attrs.get("model")  # it was not taken apart
    if whole is not None:
        alone = whole
        return lambda: iter([(alone, ())])
    inputs = read_from_around(nodes)
    return lambda: partition_models(nodes, inputs, outputs, newest_opset(), in_branch=in_branch)


def _attempts(candidates: _Candidates, optimise: bool) -> Iterator[tuple[bool, int, _Candidate]]:
    """Whether onnxruntime may rewrite the model, and the model with its number among the candidates.

    What it rewrites to it may refuse: in a branch that never runs it infers types of what it folded.
    """
    for rewrites in (True, False) if optimise else (False,):
        for number, candidate in enumerate(candidates()):
            yield rewrites, number, candidate


def _candidate(candidates: _Candidates, number: int, cast: Sequence[str]) -> str | bytes:
    """The one that onnxruntime took, made anew: weights are not kept twice for a session to come."""
    model, _ = next(islice(candidates(), number, None))
    return cast_outputs(model, cast) if cast and isinstance(model, bytes) else model
