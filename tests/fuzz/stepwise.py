"""A model run node by node on onnxruntime, with what `differences` documents in place of its answers.

What is documented as open is filled with one thing or another, so that whatever hangs on it differs from
run to run. Regions run as parts of their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.differences import DIFFERENCES
from tests.fuzz.documented import RefusedError, Step, fill, shake, turn
from tests.fuzz.growth import names_read
from tests.fuzz.straight import without_shape

Session = Callable[[onnx.ModelProto], Callable[[dict[str, Any]], list[Any]]]
"""Makes of a model what runs it."""


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what onnx infers of its values; as it is where onnx refuses what onnxruntime runs."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model


class Stepwise:
    """A model that contains an operator of `DIFFERENCES`."""

    def __init__(self, model: onnx.ModelProto, session: Session) -> None:
        self._model, self._session = model, session
        typed = inferred(model)
        infos = (*typed.graph.input, *typed.graph.value_info, *typed.graph.output)
        self._types = {info.name: info for info in infos}
        self._runs: dict[int, Callable[[dict[str, Any]], list[Any]]] = {}
        self.met = False
        """Whether a difference was met in a run."""

    def run(self, feeds: dict[str, Any], number: int = 0) -> list[Any]:
        graph = self._model.graph
        values = dict(feeds)
        constants = {tensor.name: tensor for tensor in graph.initializer}
        for place, node in enumerate(graph.node):
            results = self._results(place, node, values, constants, number)
            values.update(zip((name for name in node.output if name), results, strict=True))
        for name, tensor in constants.items():
            values.setdefault(name, onnx.numpy_helper.to_array(tensor))
        return [values[value.name] for value in graph.output]

    def _results(
        self,
        place: int,
        node: onnx.NodeProto,
        values: dict[str, Any],
        constants: dict[str, onnx.TensorProto],
        number: int,
    ) -> Sequence[Any]:
        read = list(dict.fromkeys(name for name in names_read(node) if name in values))
        if place not in self._runs:
            kept = [
                constants[name] for name in dict.fromkeys(names_read(node)) if name in constants
            ]
            self._runs[place] = self._session(self._part(node, {n: values[n] for n in read}, kept))
        results = self._runs[place]({name: values[name] for name in read})
        difference = DIFFERENCES.get(node.op_type)
        if difference is None:
            return results

        def operand(name: str) -> Any:
            return (
                onnx.numpy_helper.to_array(constants[name]) if name in constants else values[name]
            )

        def again(
            operands: Sequence[Any], others: Mapping[str, Any] | None = None
        ) -> Sequence[Any]:
            names = [name for name, given in zip(node.input, operands, strict=False) if name]
            given = {  # of no axes, what numpy computes is no array
                n: np.asarray(o) if isinstance(o, np.generic) else o
                for n, o in zip(node.input, operands, strict=False)
                if n
            }
            part = onnx.NodeProto.FromString(node.SerializeToString())
            del part.input[len(operands) :]
            if others:
                same = [a for a in part.attribute if a.name not in others]
                del part.attribute[:]
                part.attribute.extend(same)
                part.attribute.extend(helper.make_attribute(n, v) for n, v in others.items())
            kept = [t for n, t in constants.items() if n in names and given[n] is not None]
            kept = [
                t for t in kept if node.op_type in ("Resize", "Upsample") and t.name != names[0]
            ]
            shown = [n for n in names if n not in {t.name for t in kept}]
            fed = {n: given[n] for n in shown}
            return self._session(self._part(part, fed, kept))(fed)

        operands = [operand(name) if name else None for name in node.input]
        step = Step(node, self._model.opset_import[0].version, operands, results, again)
        try:
            with np.errstate(all="ignore"):
                documented = difference(step)
        except RefusedError:
            self.met = True
            raise
        if documented is None:
            return results
        found = [
            result if mask is None else fill(result, mask, place, number)
            for result, mask in zip(documented.results, documented.open, strict=True)
        ]
        for at, spread in enumerate(documented.spread):
            found[at] = shake(found[at], spread, place, number)
            self.met |= bool(spread.any())
        for at, mask in enumerate(documented.unsigned):
            if mask is not None:
                found[at] = turn(found[at], mask, place, number)
                self.met |= bool(mask.any())
        pairs = zip(documented.results, results, strict=True)
        self.met |= any(mask is not None and mask.any() for mask in documented.open) or not all(
            np.array_equal(_bits(one), _bits(other)) for one, other in pairs
        )
        return found

    def _part(
        self, node: onnx.NodeProto, feeds: dict[str, Any], constants: Sequence[onnx.TensorProto]
    ) -> onnx.ModelProto:
        inputs = [self._port(name, value) for name, value in feeds.items()]
        outputs = [
            without_shape(self._types.get(name, onnx.ValueInfoProto(name=name)))
            for name in node.output
            if name
        ]
        graph = helper.make_graph([node], "part", inputs, outputs, constants)
        return helper.make_model(
            graph, ir_version=self._model.ir_version, opset_imports=self._model.opset_import
        )

    def _port(self, name: str, value: Any) -> onnx.ValueInfoProto:
        """Arrays as they are: bodies of Scan want to know their shapes."""
        known = self._types.get(name)
        if known is not None and known.type.HasField("optional_type"):
            return known
        if not isinstance(value, np.ndarray):
            return self._types[name]
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(name, kind, value.shape)


def _bits(array: Any) -> Any:
    """The array, with all NaN alike."""
    wide = np.asarray(array)
    return wide if wide.dtype.kind in "iub" else np.nan_to_num(wide.astype(np.float64), nan=1e300)
