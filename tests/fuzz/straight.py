"""Models without regions: what they run for these feeds stands in their place.

Names are unlike in all graphs of a model (`growth`), so that only those of turns have to be told apart.
What a Loop collects over no turns has no shape that follows: such a Loop stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

REGIONS = ("If", "Loop", "Scan", "SequenceMap")
MOST_TURNS = 128

Run = Callable[[onnx.ModelProto], Sequence[Any]]
"""The outputs of a model for the feeds at hand."""


def straight(model: onnx.ModelProto, run: Run) -> onnx.ModelProto:
    """The model with what its regions do, turn by turn; as far as `run` tells what they do."""
    kept: set[tuple[str, ...]] = set()
    while True:
        nodes = (n for n in model.graph.node if n.op_type in REGIONS)
        node = next((n for n in nodes if tuple(n.output) not in kept), None)
        if node is None:
            return model
        found = _Straightened(model, node).build(run)
        if found is None or not _loads(found, run):
            kept.add(tuple(node.output))
        else:
            model = found


def _loads(model: onnx.ModelProto, run: Run) -> bool:
    """What onnxruntime accepts in a body it may refuse outside."""
    try:
        run(model)
    except Exception:  # as in `build`
        return False
    return True


class _Straightened:
    """A copy of the model without one node."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        self._model, self._node = model, node
        self._attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self._version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._infos: list[onnx.ValueInfoProto] = []

    def build(self, run: Run) -> onnx.ModelProto | None:
        builds = zip(REGIONS, (self._branch, self._loop, self._scan, self._map), strict=True)
        try:
            if not dict(builds)[self._node.op_type](run):
                return None
        except Exception:  # whatever the reference raises of the question
            return None
        result = onnx.ModelProto.FromString(self._model.SerializeToString())
        graph = result.graph
        del graph.node[:]
        for node in self._model.graph.node:
            graph.node.extend(self._nodes if node.output == self._node.output else [node])
        graph.initializer.extend(self._constants)
        graph.value_info.extend(self._infos)
        return result

    # -- what the node does

    def _branch(self, run: Run) -> bool:
        (taken,) = self._asked(run, [self._node.input[0]])
        branch = self._attributes["then_branch" if np.all(taken) else "else_branch"]
        results = self._instance(branch, (), "")
        for name, result in zip(results, self._node.output, strict=True):
            self._copied(name, result)
        return True

    def _loop(self, run: Run) -> bool:
        body: onnx.GraphProto = self._attributes["body"]
        _, start, *states = self._node.input
        turns = self._turns(run)
        collected = self._node.output[len(states) :]
        if turns > MOST_TURNS or (turns == 0 and any(collected)):
            return False
        go_on = start or self._constant(np.array(True))
        rows: list[list[str]] = [[] for _ in collected]
        for turn in range(turns):
            number = self._constant(np.array(turn, np.int64))
            results = self._instance(body, (number, go_on, *states), f"@{turn}")
            go_on, states = results[0], results[1 : 1 + len(states)]
            for row, name in zip(rows, results[1 + len(states) :], strict=True):
                row.append(name)
        for name, result in zip(states, self._node.output, strict=False):
            self._copied(name, result)
        for row, result in zip(rows, collected, strict=True):
            self._stacked(row, result, 0)
        return True

    def _scan(self, run: Run) -> bool:
        if self._version < 9:
            return self._scan_of_batches(run)
        body: onnx.GraphProto = self._attributes["body"]
        count = self._attributes["num_scan_inputs"]
        states, scanned = self._node.input[:-count], self._node.input[-count:]
        collected = self._node.output[len(states) :]
        axes = self._attributes.get("scan_input_axes") or [0] * count
        backwards = self._attributes.get("scan_input_directions") or [0] * count
        shapes = self._asked(run, scanned, "Shape")
        turns = int(shapes[0][axes[0]])
        if turns > MOST_TURNS or turns == 0:
            return False
        rows: list[list[str]] = [[] for _ in collected]
        for turn in range(turns):
            parts = []
            for name, axis, turned in zip(scanned, axes, backwards, strict=True):
                at = self._constant(np.array(turns - 1 - turn if turned else turn, np.int64))
                parts.append(f"{name}.{self._node.output[0]}@{turn}")
                self._add("Gather", [name, at], parts[-1], axis=axis)
            results = self._instance(body, (*states, *parts), f"@{turn}")
            states = results[: len(states)]
            for row, name in zip(rows, results[len(states) :], strict=True):
                row.append(name)
        for name, result in zip(states, self._node.output, strict=False):
            self._copied(name, result)
        none = [0] * len(collected)
        places = self._attributes.get("scan_output_axes") or none
        turned = self._attributes.get("scan_output_directions") or none
        for row, result, axis, back in zip(rows, collected, places, turned, strict=True):
            self._stacked(row[::-1] if back else row, result, axis)
        return True

    def _scan_of_batches(self, run: Run) -> bool:
        """As it was in opset 8: sequence by sequence, what is missing of a row filled up with zeros."""
        body: onnx.GraphProto = self._attributes["body"]
        count = self._attributes["num_scan_inputs"]
        lengths, *operands = self._node.input
        backwards = self._attributes.get("directions") or [0] * count
        shapes = self._asked(run, operands[-count:], "Shape")
        batch, most = (int(extent) for extent in shapes[0][:2])
        rows = self._asked(run, [lengths])[0].tolist() if lengths else [most] * batch
        if not batch or not most or batch * most > MOST_TURNS or not all(rows):
            return False
        results = self._asked(run, self._node.output)
        zeros = [self._constant(np.zeros((), result.dtype)) for result in results]
        collected: list[list[str]] = [[] for _ in self._node.output]
        for sequence, length in enumerate(rows):
            at = self._number(sequence)
            given = [f"{name}.{self._node.output[0]}/{sequence}" for name in operands]
            for name, part in zip(operands, given, strict=True):
                self._add("Gather", [name, at], part, axis=0)
            states, scanned = given[:-count], given[-count:]
            made: list[list[str]] = [[] for _ in self._node.output[len(states) :]]
            for turn in range(length):
                parts = []
                for name, turned in zip(scanned, backwards, strict=True):
                    place = length - 1 - turn if turned else turn
                    parts.append(f"{name}@{turn}")
                    self._add("Gather", [name, self._number(place)], parts[-1], axis=0)
                given_back = self._instance(body, (*states, *parts), f"/{sequence}@{turn}")
                states = list(given_back[: len(states)])
                for row, name in zip(made, given_back[len(states) :], strict=True):
                    row.append(name)
            for place, row in enumerate(made):
                zero, extents = f"{row[0]}.zero", f"{row[0]}.shape"
                self._add("Shape", [row[0]], extents)
                self._add("Expand", [zeros[len(states)], extents], zero)
                states.append(f"{self._node.output[0]}.{place}/{sequence}")
                self._stacked([*row, *[zero] * (most - length)], states[-1], 0)
            for known, name in zip(collected, states, strict=True):
                known.append(name)
        for found, result in zip(collected, self._node.output, strict=True):
            self._stacked(found, result, 0)
        return True

    def _map(self, run: Run) -> bool:
        body: onnx.GraphProto = self._attributes["body"]
        operands = self._asked(run, self._node.input)
        mapped = [isinstance(value, list) for value in operands]
        turns = len(operands[0])
        if turns > MOST_TURNS or turns == 0:
            return False
        rows: list[list[str]] = [[] for _ in self._node.output]
        for turn in range(turns):
            parts = list(self._node.input)
            for place in (place for place, of_many in enumerate(mapped) if of_many):
                parts[place] = f"{parts[place]}.{self._node.output[0]}@{turn}"
                self._add("SequenceAt", [self._node.input[place], self._number(turn)], parts[place])
            for row, name in zip(rows, self._instance(body, parts, f"@{turn}"), strict=True):
                row.append(name)
        for row, result in zip(rows, self._node.output, strict=True):
            if result:
                self._add("SequenceConstruct", row, result)
        return True

    # -- asking

    def _asked(self, run: Run, names: Sequence[str], op: str = "Identity") -> Sequence[Any]:
        probe = onnx.ModelProto.FromString(self._model.SerializeToString())
        del probe.graph.output[:]
        for place, name in enumerate(names):
            probe.graph.node.append(helper.make_node(op, [name], [f"asked{place}"]))
            probe.graph.output.append(onnx.ValueInfoProto(name=f"asked{place}"))
        return run(probe)

    def _turns(self, run: Run) -> int:
        """How many turns the Loop takes: what it would collect of their numbers."""
        probe = onnx.ModelProto.FromString(self._model.SerializeToString())
        node = next(n for n in probe.graph.node if n.output == self._node.output)
        body = next(a.g for a in node.attribute if a.name == "body")
        body.node.append(helper.make_node("Identity", [body.input[0].name], ["turn.asked"]))
        body.output.append(helper.make_tensor_value_info("turn.asked", TensorProto.INT64, []))
        node.output.append("turns.asked")
        del probe.graph.output[:]
        probe.graph.output.append(onnx.ValueInfoProto(name="turns.asked"))
        return len(run(probe)[0])

    # -- building

    def _instance(
        self, body: onnx.GraphProto, operands: Sequence[str], suffix: str
    ) -> tuple[str, ...]:
        """Adds the nodes of a body for some operands; the names of its results."""
        names = {name: f"{name}{suffix}" for name in _defined(body)}
        names |= {value.name: name for value, name in zip(body.input, operands, strict=True)}
        for tensor in body.initializer:
            copy = onnx.TensorProto.FromString(tensor.SerializeToString())
            copy.name = names[tensor.name]
            self._constants.append(copy)
        for info in (*body.value_info, *body.output):
            copy = without_shape(info)
            copy.name = names.get(info.name, info.name)
            self._infos.append(copy)
        self._nodes.extend(_renamed(node, names) for node in body.node)
        return tuple(names.get(value.name, value.name) for value in body.output)

    def _stacked(self, rows: Sequence[str], result: str, axis: int) -> None:
        if not result:
            return
        parts = [f"{result}.{place}" for place in range(len(rows))]
        for row, part in zip(rows, parts, strict=True):
            if self._version < 13:
                self._add("Unsqueeze", [row], part, axes=[axis])
            else:
                self._add("Unsqueeze", [row, self._constant(np.array([axis]))], part)
        self._add("Concat", parts, result, axis=axis)

    def _copied(self, name: str, result: str) -> None:
        if result:
            self._add("Identity", [name], result)

    def _add(self, op: str, operands: Sequence[str], result: str, **attributes: Any) -> None:
        self._nodes.append(helper.make_node(op, operands, [result], **attributes))

    def _number(self, number: int) -> str:
        return self._constant(np.array(number, np.int64))

    def _constant(self, array: Any) -> str:
        name = f"{self._node.output[0] or self._node.output[-1]}.constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name


def _defined(graph: onnx.GraphProto) -> Iterator[str]:
    """What a body names, bodies inside included."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from filter(None, node.output)
        for attribute in node.attribute:
            yield from _defined(attribute.g)


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.ClearField("name")
    for field in (copy.input, copy.output):
        renamed = [names.get(name, name) for name in field]
        del field[:]
        field.extend(renamed)
    for graph in (attribute.g for attribute in copy.attribute if attribute.HasField("g")):
        inner = [_renamed(item, names) for item in graph.node]
        del graph.node[:]
        graph.node.extend(inner)
        for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            item.name = names.get(item.name, item.name)
    return copy


def without_shape(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """As in a loop, where that may be another one every turn."""
    copy = onnx.ValueInfoProto.FromString(info.SerializeToString())
    if copy.type.HasField("tensor_type"):
        copy.type.tensor_type.ClearField("shape")
    return copy
