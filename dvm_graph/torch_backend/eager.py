"""Eager operators of torch fused while they are called: `with eager(): ...` (docs/torch.md).

In: what torch's dispatcher hands to a mode, below autograd. Out: tensors whose operators wait in a stream; what the table of
translations does not take runs in torch, on values that are computed first. Nothing is cached but what operators give for
sizes and dtypes, which torch says.

Memory is what has to be right. A waiting operator reads either a value of the stream, which never changes, or a snapshot
of a tensor: torch copies memory on write (`_lazy_clone`), so that whoever writes to the tensor meanwhile, numpy too, leaves the snapshot
as it was; memory that torch does not own alone is copied at once. Tensors made here that share memory have one `Cell`: a
value, until somebody may write to a part of it or look at it from outside, then memory of torch's own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from dvm_graph._core import Stream, StreamValue
from dvm_graph.errors import CancelledError, ExecutionError, OutOfMemoryError, UnsupportedError
from dvm_graph.ir import Value
from dvm_graph.options import Options
from dvm_graph.process import load_compiler
from dvm_graph.stream import open_stream
from dvm_graph.torch_backend.decompositions import DECOMPOSED
from dvm_graph.torch_backend.layouts import inverse, is_row_major, order_of
from dvm_graph.torch_backend.operators import TABLE
from dvm_graph.torch_backend.stream_builder import StreamBuilder, Streamed, streamed
from dvm_graph.torch_backend.translation import DTYPES, UNSUPPORTED, Translation

aten = torch.ops.aten

_MOST_SNAPSHOTS = 64
"""That are kept to be found again; who has more to read takes them anew."""
_MOST_CALLS = 4096
"""Kinds of calls that are remembered."""
_CALLS: dict[Any, _Call | None] = {}
"""What was said of calls."""
_OF_A_RUN = (OutOfMemoryError, ExecutionError, CancelledError)
"""What a full buffer raises, which says nothing of the call that filled it."""
_LOCK = threading.RLock()
"""Of all buffers: tensors of one are operands of others."""
_RESHAPING = frozenset({"set_", "resize_", "resize_as_"})


@contextlib.contextmanager
def eager(*, options: Options | None = None) -> Iterator[None]:
    """Fuses the operators that this thread calls inside, where their tensors lie on the CPU and need no gradient.

    They run where a value is needed, and at the end, behind which there are ordinary tensors only.

    Raises:
        DvmError: what waited could not be run.
    """
    load_compiler()
    buffer = _Buffer(options)
    with _Mode(buffer):
        try:
            yield
        finally:
            with _disable_current_modes():
                buffer.settle()


def _translation(options: Options | None = None) -> Translation:
    return Translation(StreamBuilder(open_stream(options)))


@functools.cache
def _common_translation() -> Translation:
    """That of all who ask for no options."""
    return _translation()


class _Mode(TorchDispatchMode):
    def __init__(self, buffer: _Buffer) -> None:
        super().__init__()
        self.buffer = buffer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with _LOCK:
            call = self.buffer.call_of(func, args, kwargs)
            if call is not None:
                if call.function is not None:
                    with self:
                        found = call.function(*args, **kwargs)
                    return _run(func, args, kwargs) if found is NotImplemented else found
                try:
                    return self.buffer.capture(call, args, kwargs)
                except _Shared:
                    pass
                except UNSUPPORTED as error:
                    if not isinstance(error, _OF_A_RUN):
                        self.buffer.leave(func, args, kwargs)
            if func._schema.is_mutable:
                self.buffer.let_go()
        return _run(func, args, kwargs)


def _settle(made: _Waiting) -> None:
    """An ordinary tensor in its place, wherever the object is.

    Raises:
        RuntimeError: torch holds it as well.
    """
    plain = made.plain().detach()
    if made.grad_fn is not None or made._use_count() > 1:  # a graph's result, or a leaf of one
        raise RuntimeError("autograd holds it")
    if isinstance(made, torch.nn.Parameter):
        plain = torch.nn.Parameter(plain, made.requires_grad)
    plain.requires_grad_(made.requires_grad)
    plain.grad = made.grad
    plain.__dict__.update((k, v) for k, v in vars(made).items() if k not in ("cell", "value"))
    torch.utils.swap_tensors(made, plain)


class _Waiting(torch.Tensor):
    """A tensor made inside. Torch sees its sizes; whatever looks at its memory gets that of `plain`."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    cell: Cell
    value: StreamValue

    @staticmethod
    def __new__(
        cls: type[_Waiting], cell: Cell, value: StreamValue, like: torch.Tensor, offset: int
    ) -> _Waiting:
        made: _Waiting = torch.Tensor._make_wrapper_subclass(
            cls,
            like.shape,
            strides=like.stride(),
            storage_offset=offset,
            dtype=like.dtype,
            device="cpu",
        )
        made.cell, made.value = cell, value
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        return _DATA.__get__(self)

    @data.setter
    def data(self, given: torch.Tensor) -> None:
        _DATA.__set__(self, given)
        memory = given.plain() if isinstance(given, _Waiting) else given.detach()
        self.cell = Cell(self.cell.buffer, None, [])
        self.cell.real = memory

    def plain(self, own: bool = True) -> torch.Tensor:
        """The same as an ordinary tensor: `own` to be written to or given away, else only to be read meanwhile."""
        with _LOCK, _disable_current_modes(), torch.no_grad():
            base = self.cell.own() if own else self.cell.peek()
            if self.stride() != base.stride() or self.shape != base.shape or self.storage_offset():
                base = base.as_strided(self.shape, self.stride(), self.storage_offset())
            return base


_DATA: Any = torch._C.TensorBase.data


def _of_plain(name: str) -> Callable[..., Any]:
    def method(self: _Waiting, *args: Any, **kwargs: Any) -> Any:
        plain = self.plain().detach()
        with _disable_current_modes():
            if self.requires_grad:
                plain.requires_grad_()
            return getattr(plain, name)(*args, **kwargs)

    return method


for _name in (
    *("numpy", "tolist", "data_ptr", "untyped_storage", "storage", "is_shared", "share_memory_"),
    *("__array__", "__dlpack__", "__deepcopy__", "__reduce_ex__", "__repr__", "__format__"),
):
    setattr(_Waiting, _name, _of_plain(_name))


class Cell:
    """The memory of one or several tensors: a value of the stream, or what torch owns."""

    __slots__ = ("buffer", "order", "real", "shared", "value")

    def __init__(self, buffer: _Buffer, value: StreamValue | None, order: list[int]) -> None:
        self.buffer = buffer
        self.value = value
        self.order = order
        """Axes from the outermost in memory on."""
        self.real: torch.Tensor | None = None
        self.shared = False
        """More than one tensor was made of it."""

    def peek(self) -> torch.Tensor:
        if self.real is not None:
            return self.real
        assert self.value is not None
        order = self.order
        if order == sorted(order):
            return _computed(self.value)
        stored = self.buffer.stream.append("transpose", (self.value,), order)
        return _computed(stored).permute(inverse(order))

    def own(self) -> torch.Tensor:
        if self.real is None:
            self.real = self.peek().clone()
            self.value = None
        return self.real


def _reads_memory(operator: Any) -> Any:
    """An operator of torch that reads the memory of its second operand without a word to the mode: it gets some there."""

    def run(keys: Any, first: Any, second: Any, *rest: Any) -> Any:
        if isinstance(second, _Waiting):
            plain = second.plain()
            lies = plain.storage_offset(), plain.shape, plain.stride()
            give = aten.set_.source_Storage_storage_offset.redispatch
            give(_ON_MEMORY, second, plain.untyped_storage(), *lies)
        return operator.redispatch(keys & _BELOW, first, second, *rest)

    return run


_FIRST = torch._C.DispatchKey.PythonTLSSnapshot
"""Of the keys that tensors made here bring along: autograd comes after it."""
_BELOW = torch._C._dispatch_keyset_full_after(_FIRST)
_ON_MEMORY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_LIBRARY = torch.library.Library("aten", "IMPL")
for _operator in (
    aten.tensor_split.tensor_indices_or_sections,
    aten._has_compatible_shallow_copy_type.default,  # asked of what is to be the data of a tensor, which then shares memory with it
):
    _LIBRARY.impl(_operator, _reads_memory(_operator), _FIRST.name, with_keyset=True)


def _computed(value: StreamValue) -> torch.Tensor:
    tensor = torch.from_numpy(value.numpy())
    return tensor.view(torch.bfloat16) if value.dtype == "bfloat16" else tensor


@dataclass(frozen=True, slots=True)
class _Call:
    """What is to be done for calls of an operator on tensors of some sizes."""

    target: Any = None
    meta: Any = None
    """Of the results, on the device `meta`."""
    in_place: bool = False
    view: bool = False
    turn: bool = False
    """A view of a tensor takes its place."""
    function: Callable[..., Any] | None = None
    """Of torch, that breaks it down."""


class _Buffer:
    """What waits, and what has to be known of it: under `_LOCK`."""

    def __init__(self, options: Options | None) -> None:
        self._translation = _common_translation() if options is None else _translation(options)
        assert isinstance(self._translation.builder, StreamBuilder)
        self._builder = self._translation.builder
        self.stream: Stream = self._builder.stream
        self._snapshots: dict[Any, tuple[StreamValue, torch.Tensor]] = {}
        """By address: as long as the snapshot is here, nobody else writes there."""
        self._live: dict[int, weakref.ref[_Waiting]] = {}

    # -- what is captured

    def call_of(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Call | None:
        """None: torch runs it."""
        if not (args or kwargs) or torch._C._current_graph_task_id() != -1:
            return None
        try:
            key = (func, _key(args), _key(tuple(kwargs.items())))
            known = key in _CALLS
        except (TypeError, _NotHere):
            return None
        if not known:
            if len(_CALLS) >= _MOST_CALLS:
                _CALLS.clear()
            try:
                _CALLS[key] = _call(func, args, kwargs)
            except Exception:  # whatever is wrong, torch tells
                _CALLS[key] = None
        return _CALLS[key]

    def leave(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Calls of this kind are torch's from now on: what the table does not take hangs on nothing but what they are known by."""
        _CALLS[func, _key(args), _key(tuple(kwargs.items()))] = None

    def capture(self, call: _Call, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Raises what functions of the table raise for what they do not take."""
        if call.in_place and not self._replaceable(args[0]):
            raise _Shared("others share its memory")
        given, named = self._operand(args), self._operand(kwargs)
        made = self._translation.call(call.target, call.meta, given, named)
        if call.turn:
            args[0].value = self._held(made)
            offset = args[0].storage_offset() + call.meta.storage_offset()
            return _turned(args[0], call.meta, offset)
        if call.in_place:
            target = args[0]
            value = self._held(self._translation.value(made, DTYPES[target.dtype]))
            target.value = target.cell.value = value
            return target
        if isinstance(call.meta, torch.Tensor):
            return self._result(call, made, call.meta, args)
        several = [self._result(call, *pair, args) for pair in zip(made, call.meta, strict=True)]
        return several if isinstance(call.meta, list) else tuple(several)

    def _replaceable(self, target: Any) -> bool:
        """A tensor that alone has its memory, of a value."""
        if not isinstance(target, _Waiting):
            return False
        return not target.cell.shared and target.cell.value is not None

    def _result(self, call: _Call, made: Value, meta: torch.Tensor, args: Any) -> torch.Tensor:
        if made.shape != tuple(meta.shape):
            raise UnsupportedError(f"{call.target} gives {made.shape}")
        value = self._held(made)
        if not call.view:
            order = order_of(meta.shape, meta.stride())
            if order is None:
                raise UnsupportedError("a result with gaps")
            return self._tensor(Cell(self, value, order), value, meta, 0)
        base = args[0]
        offset = base.storage_offset() + meta.storage_offset()
        base.cell.shared = True
        return self._tensor(base.cell, value, meta, offset)

    def _tensor(self, cell: Cell, value: StreamValue, meta: torch.Tensor, offset: int) -> _Waiting:
        made = _Waiting(cell, value, meta, offset)
        key = id(made)
        self._live[key] = weakref.ref(made, lambda _: self._live.pop(key, None))
        return made

    def _held(self, made: Value) -> StreamValue:
        assert isinstance(made, Streamed)
        return self._builder.stored(made)

    # -- operands

    def _operand(self, item: Any) -> Any:
        if isinstance(item, _Waiting):
            if item.cell.value is None or item.cell.buffer is not self:
                return self._snapshot(item.plain())
            return streamed(item.value)
        if isinstance(item, torch.Tensor):
            return self._snapshot(item)
        if isinstance(item, list | tuple):
            return [self._operand(part) for part in item]
        if isinstance(item, dict):
            return {name: self._operand(part) for name, part in item.items()}
        return item

    def _snapshot(self, tensor: torch.Tensor) -> Streamed:
        """What a tensor holds now."""
        tensor = tensor.detach()
        ordinary = tensor.untyped_storage().resizable() and not tensor.is_shared()
        key = (_address(tensor), tensor.dtype, tensor.shape, tensor.stride())
        if ordinary and key in self._snapshots:
            return streamed(self._snapshots[key][0])
        # Where expanded, one element stands for all of an axis.
        narrow = [
            1 if step == 0 else extent
            for extent, step in zip(tensor.shape, tensor.stride(), strict=True)
        ]
        held = tensor.as_strided(narrow, tensor.stride())
        order = order_of(narrow, tensor.stride())
        if order is None:
            held, order, ordinary = held.contiguous().clone(), list(range(len(narrow))), False
        else:
            try:
                held = torch._lazy_clone(held) if ordinary else held.clone()
            except RuntimeError:  # memory that torch cannot copy on write
                held, ordinary = held.clone(), False
        value = self.stream.constant_at(
            _address(held),
            [narrow[axis] for axis in order],
            DTYPES[tensor.dtype].value,
            held,
        )
        if order != sorted(order):
            value = self.stream.append("transpose", (value,), inverse(order))
        if tuple(narrow) != tuple(tensor.shape):
            value = self.stream.append("broadcast_to", (value,), list(tensor.shape))
        if ordinary:
            if len(self._snapshots) >= _MOST_SNAPSHOTS:
                self._snapshots.clear()
            self._snapshots[key] = value, held
        return streamed(value)

    # -- what runs

    def let_go(self) -> None:
        """Runs what reads snapshots: who writes to their tensors next finds nobody else there, and copies nothing."""
        if self._snapshots:
            self._snapshots.clear()
            self.stream.flush()

    def settle(self) -> None:
        """Ordinary tensors in place of those made here, wherever their objects are."""
        with _LOCK:
            self._snapshots.clear()
            self.stream.flush()
            live = [made for ref in self._live.values() if (made := ref()) is not None]
            self._live.clear()  # a tensor with weak references cannot be swapped
            # Where torch holds one as well, it stays: an operator on it unwraps it. Views are newer than what they hold.
            while live:
                with contextlib.suppress(RuntimeError):
                    _settle(live.pop())


# -- calls


class _Shared(UnsupportedError):  # noqa: N818 - it is no error
    """A tensor that is to be written to, but not alone in its memory: another time it may be."""


class _NotHere(Exception):  # noqa: N818 - it is no error
    """A tensor that is not captured."""


def _address(tensor: torch.Tensor) -> int:
    """Of the first element, which is asked for without a right to write there (as `data_ptr` would)."""
    start: int = torch._C._data_address(tensor)
    offset: int = tensor.storage_offset() * tensor.element_size()
    return start + offset


def _key(item: Any) -> Any:
    """What a call's results hang on, values of tensors apart.

    Raises:
        _NotHere: torch runs it.
    """
    if isinstance(item, torch.Tensor):
        return _key_of_tensor(item)
    if isinstance(item, list | tuple):
        return tuple([_key(part) for part in item])
    return (item.__class__, item)


def _key_of_tensor(tensor: torch.Tensor) -> Any:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, _Waiting):
        raise _NotHere
    if tensor.device.type != "cpu" or tensor.dtype not in DTYPES or tensor.layout != torch.strided:
        raise _NotHere
    if tensor.is_neg() or tensor.numel() == 0 or (tensor.requires_grad and torch.is_grad_enabled()):
        raise _NotHere
    waits = type(tensor) is _Waiting
    return tensor.shape, tensor.stride(), tensor.dtype, waits


def _call(func: Any, args: Any, kwargs: dict[str, Any]) -> _Call | None:
    schema = func._schema
    device = kwargs.get("device")
    if (device is not None and torch.device(device).type != "cpu") or kwargs.get("pin_memory"):
        return None
    if kwargs.get("layout") not in (None, torch.strided):
        return None
    target, in_place = func, False
    if schema.is_mutable:
        target, in_place = _functional(func), True
        if target is None or type(args[0]) is not _Waiting:
            return None
    view = any(result.alias_info is not None for result in target._schema.returns)
    if view and type(args[0]) is not _Waiting:
        return None  # torch views what it owns
    if target not in TABLE:
        return _Call(function=DECOMPOSED[func]) if func in DECOMPOSED and not in_place else None
    tensors = [x for x in _flatten((args, kwargs)) if isinstance(x, torch.Tensor)]
    given = kwargs
    if "device" in kwargs or not tensors:
        kwargs = {**kwargs, "device": "meta"}
    metas = tree_map_only(torch.Tensor, _as_meta, (tuple(args), kwargs))
    if not all(map(is_row_major, tensors)) or len(target._schema.returns) > 1:
        # The device `meta` does not lay out all results as the CPU does where operands are laid out otherwise, nor has each of several the
        # CPU's type.
        metas = tree_map_only(torch.Tensor, _stand_in, (tuple(args), given))
    meta = target(*metas[0], **metas[1])
    results = meta if isinstance(meta, list | tuple) else [meta]
    if not all(isinstance(r, torch.Tensor) and r.numel() and r.dtype in DTYPES for r in results):
        return None
    if in_place and view:
        return _Call(target, meta, turn=True)
    if in_place:
        fits = torch.can_cast(meta.dtype, args[0].dtype) and meta.shape == args[0].shape
        return _Call(target, meta, in_place=True) if fits else None
    return _Call(target, meta, view=view)


def _turned(made: _Waiting, view: torch.Tensor, offset: int) -> _Waiting:
    """The tensor laid out as a view of it."""
    made.cell.shared = True
    with torch._C._DisableTorchDispatch():
        aten.as_strided_.default(made, view.shape, view.stride(), offset)
    return made


def _functional(func: Any) -> Any:
    """The operator that gives what another writes into its first operand; None: there is none."""
    name, overload = func._schema.name.split("::")[1], func._overloadname
    if not name.endswith("_") or func.namespace != "aten":
        return None
    return getattr(getattr(aten, name[:-1], None), overload, None)


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """Laid out as the tensor is. Integers are zeros: torch reads by some indices without a look at them."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if not made.dtype.is_floating_point:
        made.untyped_storage().fill_(0)
    return made


def _flatten(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        item = tuple(item.values())
    if isinstance(item, list | tuple):
        for part in item:
            yield from _flatten(part)
    else:
        yield item


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator in torch, on memory."""
    schema = func._schema
    own = schema.is_mutable or any(result.alias_info is not None for result in schema.returns)
    outer: dict[int, torch.Tensor] = {}
    inner: dict[int, torch.Tensor] = {}

    def plain(made: _Waiting) -> torch.Tensor:
        if id(made) not in inner:
            inner[id(made)] = made.plain(own)
            outer[id(inner[id(made)])] = made
        return inner[id(made)]

    if isinstance(args[0] if args else None, _Waiting) and schema.is_mutable:
        name = schema.name.split("::")[1]
        if name in _RESHAPING:
            raise UnsupportedError(
                f"{name} gives a tensor other memory, which a tensor made inside of eager() cannot have"
            )
        if torch.Tag.inplace_view in func.tags:
            with _disable_current_modes():
                view = args[0].plain().detach()
                func(view, *args[1:], **kwargs)
            return _turned(args[0], view, view.storage_offset())
    args, kwargs = tree_map_only(_Waiting, plain, (tuple(args), kwargs))
    result = func(*args, **kwargs)
    if not schema.is_mutable:
        return result
    return tree_map_only(torch.Tensor, lambda made: outer.get(id(made), made), result)
