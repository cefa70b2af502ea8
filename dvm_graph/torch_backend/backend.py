"""torch.compile's graphs on dvm_graph: forward and backward, with symbolic extents.

In: the graph of operators that torch traced, and the tensors it was traced with. Out: a callable that torch runs
in place of it. torch's own passes come first (ahead-of-time autograd, functionalisation, decompositions to the core
of its operators); what `operators.py` translates is cut out of the graph in as few pieces as there must be (`partition.py`),
each of which becomes a program for any extents. The rest stays in torch.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._guards import detect_fake_mode
from torch._prims.rng_prims import run_with_rng_state
from torch.fx import GraphModule, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from dvm_graph.errors import DvmError, InputError, RescueWarning
from dvm_graph.options import Options
from dvm_graph.process import load_compiler
from dvm_graph.runtime.recipe import multiplies_bf16
from dvm_graph.torch_backend.decompositions import DECOMPOSED
from dvm_graph.torch_backend.freezing import Frozen, Run, kept_tensors
from dvm_graph.torch_backend.operators import is_operator, is_supported
from dvm_graph.torch_backend.partition import fuse_pieces, is_filled, is_seeded
from dvm_graph.torch_backend.piece import ORDER, Order, compile_piece, inverse, order_of
from dvm_graph.torch_backend.resizing import WHOLE, whole
from dvm_graph.torch_backend.results import hold_apart, own_results
from dvm_graph.torch_backend.sizes import Sizes

aten = torch.ops.aten

_KEPT = "dvm_kept"
"""Among what a node of torch's graph knows: its name, as that of an argument of the backward pass."""
_SAME = (aten.alias.default, aten.detach.default)
"""Views of a whole tensor as it is."""
_COPIES = (aten.clone.default, aten.lift_fresh_copy.default)


def dvm(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(..., backend="dvm")` calls for each graph.

    Args:
        module: the graph.
        inputs: tensors and sizes that it was traced with.
        options: single fields of `dvm_graph.Options` (`options={"cores": 1}`); `"freezing": True` takes parameters and
            buffers of graphs that infer for constants (`freezing.py`), which compiles them when they are called.
        mode: torch passes it on; there are none.

    Raises:
        InputError: an option that there is not, or whose value makes no sense.
    """
    del mode
    load_compiler()
    fields = dict(options or {})
    freezing = fields.pop("freezing", False)
    if not isinstance(freezing, bool):
        raise InputError(f"option freezing is {freezing!r:.50}, but has to be True or False")
    chosen = Options().changed(fields)
    if "precision" not in fields and multiplies_bf16(chosen):
        chosen = chosen.changed({"precision": "stored"})

    orders: dict[str, Order] = {}

    def forward(graph: GraphModule, _inputs: Sequence[Any]) -> Run:
        _mark_kept(graph)
        return _compile(graph, chosen, orders, own=own_results())

    def inference(graph: GraphModule, _inputs: Sequence[Any]) -> Run:
        own = own_results()

        def compiled(constants: Mapping[int, torch.Tensor]) -> Run:
            copied = GraphModule(graph, copy.deepcopy(graph.graph))
            return _compile(copied, chosen, {}, own=own, constants=constants)

        kept = kept_tensors(_placeholders(graph)) if freezing else ()
        return Frozen(compiled, kept) if kept else compiled({})

    def backward(graph: GraphModule, _inputs: Sequence[Any]) -> Run:
        _keep_what_is_read()
        laid = _lie_as_kept(graph, orders)
        return _compile(graph, chosen, orders, laid)

    decompositions = {**core_aten_decompositions(), **DECOMPOSED}
    for operator in WHOLE:
        decompositions.pop(operator, None)
    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=decompositions,
    )
    # Attention as its products and softmax, which fuse; the fused kernels of torch are opaque.
    with sdpa_kernel(SDPBackend.MATH), whole():
        compiled: Callable[..., Any] = compiler(module, inputs)
    return compiled


def _mark_kept(graph: GraphModule) -> None:
    """What the forward pass gives to the backward pass alone is marked with its name."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return
    (results,) = graph.graph.output_node().args
    own = context.fw_metadata.num_forward
    for result in {*results[own:]} - {*results[:own]}:
        if isinstance(result, Node):
            result.meta[_KEPT] = result.name


def _keep_what_is_read() -> None:
    """Nothing that the backward pass reads is given away: it may run again."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _lie_as_kept(graph: GraphModule, orders: Mapping[str, Order]) -> dict[int, Order]:
    """Tells the arguments of the backward pass how the forward pass leaves them. Where some operator looks at memory, they are to be
    laid out as torch traced them: which, and in what order.
    """
    given = _placeholders(graph)
    if any(map(_looks_at_memory, graph.graph.nodes)):
        return {at: order_of(node) for at, node in enumerate(given) if node.name in orders}
    for node in given:
        if node.name in orders:
            node.meta[ORDER] = orders[node.name]
    return {}


def _looks_at_memory(node: Node) -> bool:
    """Whether what an operator gives hangs on the order in which elements of its operands lie."""
    if node.target is run_with_rng_state:
        return is_seeded(node.args[1])
    return is_seeded(node.target) or node.target is aten.as_strided.default


def _tell_what_is_drawn_again(graph: GraphModule) -> None:
    """Random numbers of the forward pass that torch draws a second time, for want of what it did not keep: it does not say what they are."""
    for node in graph.graph.nodes:
        if node.target is run_with_rng_state and "val" not in node.meta:
            _, target, *operands = (_known(argument) for argument in node.args)
            named = {name: _known(argument) for name, argument in node.kwargs.items()}
            with detect_fake_mode(operands) or nullcontext():
                node.meta["val"] = target(*operands, **named)


def _known(argument: Any) -> Any:
    return torch.fx.map_arg(argument, lambda node: node.meta["val"])


def _compile(
    graph: GraphModule,
    options: Options,
    orders: dict[str, Order],
    laid: Mapping[int, Order] | None = None,
    own: Collection[int] = (),
    constants: Mapping[int, torch.Tensor] | None = None,
) -> Run:
    """`orders` gets those of the axes of what is kept for the backward pass, by name, where they are not as torch traced them;
    `laid`: arguments to be laid out in an order; `own`: results that are to be no views; `constants`: arguments that are the
    same tensors in each run.
    """
    _tell_what_is_drawn_again(graph)
    _read_in_any_order(graph)
    Sizes(graph).compute_from_arguments()
    _scatter_in_place(graph)
    cut = fuse_pieces(graph, is_supported, _computes)
    given = _placeholders(cut)
    known = {given[at]: tensor for at, tensor in (constants or {}).items()}
    sizes = Sizes(cut)
    for node in list(cut.graph.nodes):
        if node.op != "call_module":
            continue
        inner = cut.get_submodule(node.target)
        sizes.give(node, inner)
        _tell_orders(node, inner)
        free = {at: result for at, result in _results(node) if _is_free(result)}
        try:
            piece = compile_piece(inner, options, free, _taken(known, node, inner))
        except DvmError as error:
            warnings.warn(f"not compiled, torch runs it: {error}", RescueWarning, stacklevel=2)
            continue
        setattr(cut, node.target, piece)
        for at, result in free.items():
            _note_order(result, piece.orders[at], orders)
    cut.recompile()

    def run(arguments: list[Any]) -> Any:
        for at, order in (laid or {}).items():
            arguments[at] = arguments[at].permute(order).contiguous().permute(inverse(order))
        results = cut(*arguments)
        arguments.clear()
        return hold_apart(results, own)

    run._boxed_call = True  # type: ignore[attr-defined]  # torch asks for it
    return run


def _read_in_any_order(graph: GraphModule) -> None:
    """A tensor need not lie as it did when torch traced how it is read."""
    for node in graph.graph.nodes:
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default


def _results(call: Node) -> Iterator[tuple[int, Node]]:
    """Of the call of a piece: numbers, and what stands for them in the graph."""
    if isinstance(call.meta["val"], torch.Tensor):
        yield 0, call
        return
    for user in call.users:
        yield user.args[1], user


def _is_free(result: Node) -> bool:
    """Whether only those read it who are told how it lies: other pieces, and the backward pass."""
    return all(
        user.op == "call_module"
        or (user.op == "output" and _KEPT in result.meta)
        or (user.target in _SAME and _is_free(user))
        for user in result.users
    )


def _note_order(result: Node, order: Order, orders: dict[str, Order]) -> None:
    """Of a free result, and of what is the same tensor."""
    result.meta[ORDER] = order
    if _KEPT in result.meta:
        orders[result.meta[_KEPT]] = order
    for user in result.users:
        if user.target in _SAME:
            _note_order(user, order, orders)


def _tell_orders(call: Node, piece: GraphModule) -> None:
    for placeholder, argument in zip(_placeholders(piece), call.args, strict=True):
        if ORDER in argument.meta:
            placeholder.meta[ORDER] = argument.meta[ORDER]


def _taken(
    constants: Mapping[Node, torch.Tensor], call: Node, piece: GraphModule
) -> dict[Node, torch.Tensor]:
    """The constants among the arguments of a piece, by its placeholders."""
    arguments = zip(_placeholders(piece), call.args, strict=True)
    return {placeholder: constants[given] for placeholder, given in arguments if given in constants}


def _placeholders(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _scatter_in_place(graph: GraphModule) -> None:
    """What is added to rows of one number (zeros, for the gradient of a table) is added where those lie, if nobody else reads them."""
    for node in graph.graph.nodes:
        if (
            node.target is aten.index_put.default
            and is_filled(node.args[0])
            and len(node.args[0].users) == 1
        ):
            node.target = aten.index_put_.default


def _computes(node: Node) -> bool:
    """Whether a piece of such nodes is worth a call."""
    return is_operator(node) and node.target not in _COPIES
