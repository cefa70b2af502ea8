"""torch.compile's graphs on dvm_graph: forward and backward, with symbolic extents.

In: the graph of operators that torch traced, and the tensors it was traced with. Out: a callable that torch runs
in place of it. torch's own passes come first (ahead-of-time autograd, functionalisation, decompositions to the core
of its operators); what `operators.py` translates is cut out of the graph in pieces as large as torch's partitioner finds,
each of which becomes a program for any extents. The rest stays in torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn.attention import SDPBackend, sdpa_kernel

from dvm_graph.errors import DvmError, RescueWarning
from dvm_graph.options import Options
from dvm_graph.process import load_compiler
from dvm_graph.torch_backend import operators  # noqa: F401 - fills the table
from dvm_graph.torch_backend.decompositions import DECOMPOSED
from dvm_graph.torch_backend.piece import compile_piece
from dvm_graph.torch_backend.sizes import Sizes
from dvm_graph.torch_backend.translation import VIEWS, is_operator, is_supported

aten = torch.ops.aten


def dvm(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(..., backend="dvm")` calls for each graph.

    Args:
        module: the graph.
        inputs: tensors and sizes that it was traced with.
        options: single fields of `dvm_graph.Options` (`options={"cores": 1}`).
        mode: torch passes it on; there are none.

    Raises:
        InputError: an option that there is not, or whose value makes no sense.
    """
    del mode
    load_compiler()
    chosen = Options().changed(dict(options or {}))

    def compile_graph(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return _compile(graph, chosen)

    compiler = aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        decompositions={**core_aten_decompositions(), **DECOMPOSED},
    )
    # Attention as its products and softmax, which fuse; the fused kernels of torch are opaque.
    with sdpa_kernel(SDPBackend.MATH):
        compiled: Callable[..., Any] = compiler(module, inputs)
    return compiled


class _Support(OperatorSupportBase):  # type: ignore[misc, unused-ignore]  # torch is untyped here
    def is_node_supported(
        self, _modules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        return is_supported(node)


def _compile(graph: torch.fx.GraphModule, options: Options) -> Callable[..., Any]:
    Sizes(graph).compute_from_arguments()
    _give_each_its_views(graph)
    _scatter_in_place(graph)
    partitioner = CapabilityBasedPartitioner(
        graph, _Support(), allows_single_node_partition=True, non_compute_ops=tuple(VIEWS)
    )
    partitions = partitioner.propose_partitions()
    for partition in partitions:
        _leave_views_of_results(partition)
    cut = partitioner.fuse_partitions([p for p in partitions if any(map(_computes, p.nodes))])
    sizes = Sizes(cut)
    for node in list(cut.graph.nodes):
        if node.op != "call_module":
            continue
        inner = cut.get_submodule(node.target)
        sizes.give(node, inner)
        try:
            piece = compile_piece(inner, options)
        except DvmError as error:
            warnings.warn(f"not compiled, torch runs it: {error}", RescueWarning, stacklevel=2)
            inner.recompile()  # it has sizes for arguments, too
            continue
        setattr(cut, node.target, piece)
    cut.recompile()

    def run(arguments: list[Any]) -> Any:
        results = cut(*arguments)
        arguments.clear()
        return results

    run._boxed_call = True  # type: ignore[attr-defined]  # torch asks for it
    return run


def _give_each_its_views(graph: torch.fx.GraphModule) -> None:
    """Each reader of a view gets one of its own: what a piece reads by a view is read in place, and what torch
    reads by it does not become a result of the piece.
    """
    for node in reversed(graph.graph.nodes):
        if node.op != "call_function" or is_operator(node):
            continue
        for user in list(node.users)[1:]:
            with graph.graph.inserting_after(node):
                user.replace_input_with(node, graph.graph.node_copy(node, lambda operand: operand))


def _scatter_in_place(graph: torch.fx.GraphModule) -> None:
    """What is added to rows of one number (zeros, for the gradient of a table) is added where those lie, if nobody else reads them."""
    for node in graph.graph.nodes:
        if (
            node.target is aten.index_put.default
            and _is_filled(node.args[0])
            and len(node.args[0].users) == 1
        ):
            node.target = aten.index_put_.default


def _is_filled(node: torch.fx.Node) -> bool:
    return node.target is aten.full.default


def _computes(node: torch.fx.Node) -> bool:
    """Whether a piece of such nodes is worth a call."""
    return is_operator(node) and node.target is not aten.clone.default


def _leave_views_of_results(partition: Partition) -> None:
    """Views that only torch reads, which cost nothing there, and rows of one number that it is to write to."""
    for node in reversed(list(partition.nodes)):
        left = not is_operator(node) or _is_filled(node)
        if left and not any(user in partition.nodes for user in node.users):
            partition.remove_node(node)
