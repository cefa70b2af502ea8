"""onnxruntime's own operators that nothing of ours stands for but the call, as `called` lists them.

Nothing of theirs is under test, but what stands around them: views of what they read, where what they write lies, and
what is inferred of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.called import CALLED, SOME, Called
from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.kernels import kernels, own
from tests.fuzz.operands import MICROSOFT, contrib, contrib_results, extents
from tests.fuzz.registry import CONTRIB, NAMES, recipe

TYPES = NAMES | {"tensor(string)": TensorProto.STRING}

Extents = dict[str, Any]
"""By the letter: of one environment."""


@recipe(*contrib(*CALLED), kind=CONTRIB, weight=0.4)
def called(g: Growth, op: str) -> Value:
    name = op.removeprefix(f"{MICROSOFT}.")
    form = g.choose(CALLED[name])
    return _Call(g, name, form).draw()


class _Call:
    """A node on its way."""

    def __init__(self, g: Growth, name: str, form: Called) -> None:
        self._g, self._name, self._form = g, name, form
        self._schema = own()[name]
        self._kernel = g.choose(kernels()[MICROSOFT, name])
        self._types: dict[str, int] = {}
        self._lead: list[Shape] = [()] * g.breadth
        if any(dims.startswith("...") for dims in form.operands.values() if isinstance(dims, str)):
            several = [g.dim()[1] for _ in range(g.choose((0, 1, 1, 2)))]
            self._lead = [tuple(extents[e] for extents in several) for e in range(g.breadth)]
        self._extents: list[Extents] = [{} for _ in range(g.breadth)]
        for letter, given in form.extents.items():
            self._bind(letter, given)

    def draw(self) -> Value:
        """The node; the first of its results."""
        operands = [self._operand(parameter) for parameter in self._schema.inputs]
        attributes = {n: self._attribute(given) for n, given in self._form.attributes.items()}
        results = [self._result(parameter, attributes) for parameter in self._schema.outputs]
        while results and results[-1] is None:
            results.pop()
        op = f"{MICROSOFT}.{self._name}"
        return contrib_results(self._g, op, operands, results, **attributes)[0]

    def _bind(self, letter: str, given: Sequence[Any] | str | None) -> None:
        """A letter, which is one of several things, or follows from others, or is the extent of some dim."""
        if given is None:
            _, found = self._g.dim()
        elif given == SOME:
            found = extents(self._g)
        elif isinstance(given, str):
            found = tuple(_value(given, known) for known in self._extents)
        else:
            found = (self._g.choose(given),) * self._g.breadth
        for known, value in zip(self._extents, found, strict=True):
            known[letter] = value

    def _operand(self, parameter: Any) -> Value | None:
        g, form = self._g, self._form
        key = next((k for k in form.operands if k.partition("?")[0] == parameter.name), None)
        if key is None or not self._given(key):
            return None
        if parameter.name in form.made:
            return self._made(parameter)
        dims = form.operands[key]
        shapes = self._shapes(dims if isinstance(dims, str) else g.choose(dims))
        dtype = self._type(parameter)
        low, high = form.limits.get(parameter.name, (None, None))
        if low is None:
            return _seen(g, dtype, shapes, Contents(positive=parameter.name in form.positive))
        ends = [tuple(int(_value(end, e)) for e in self._extents) for end in (low, high)]
        return _seen(g, dtype, shapes, Contents(low=ends[0], high=ends[1]))

    def _made(self, parameter: Any) -> Value:
        """What holds numbers that follow from extents, which are the same everywhere."""
        numbers = [_value(self._form.made[parameter.name], known) for known in self._extents]
        if any(other != numbers[0] for other in numbers):
            raise RefusedError
        kind = helper.tensor_dtype_to_np_dtype(self._type(parameter))
        return self._g.extents(numbers[0], kind)

    def _result(self, parameter: Any, attributes: Mapping[str, Any]) -> Any:
        form = self._form
        key = next((k for k in form.results if k.partition("?")[0] == parameter.name), None)
        if key is None or not self._given(key):
            return None
        dtype = self._type(parameter)
        if form.told is not None:
            attribute, types = form.told
            dtype = types[attributes[attribute]]
        return dtype, self._shapes(form.results[key])

    def _attribute(self, given: Sequence[Any] | str) -> Any:
        if isinstance(given, str):
            return _value(given, self._extents[0])
        return self._g.choose(given)

    def _given(self, key: str) -> bool:
        """Whether an operand or a result is there: always, by chance, or where a condition holds."""
        _, asked, condition = key.partition("?")
        if not asked:
            return True
        return self._g.chance(0.5) if not condition else bool(_value(condition, self._extents[0]))

    def _type(self, parameter: Any) -> int:
        """Of a kernel, and where that does not say of the schema: the one type of all that are called alike."""
        called = self._form.same.get(parameter.typeStr, parameter.typeStr)
        if called in TYPES:
            return TYPES[called]
        if called not in self._types:
            names = self._kernel.type_constraints.get(called) or sorted(parameter.types)
            found = self._form.types.get(called) or [TYPES[n] for n in names if n in TYPES]
            same = [d for d in self._types.values() if d in found]
            said = called in self._kernel.type_constraints
            self._types[called] = same[0] if same and not said else self._g.choose(found)
        return self._types[called]

    def _shapes(self, dims: str) -> list[Shape]:
        pairs = zip(self._lead, self._extents, strict=True)
        return [_shape(dims, lead, known) for lead, known in pairs]


def _shape(dims: str, lead: Shape, extents: Extents) -> Shape:
    found: list[int | None] = []
    for text in dims.split():
        if text == "...":
            found += lead
        elif text == "?":
            found.append(None)
        else:
            value = _value(text, extents)
            found += value if isinstance(value, list) else [value]
    if any(dim is not None and dim < 0 for dim in found):
        raise RefusedError
    return tuple(found)


def _value(text: str, extents: Extents) -> Any:
    return eval(text, dict(extents))  # of the table, and so as good as code


def _seen(g: Growth, dtype: int, shapes: Sequence[Shape], contents: Contents) -> Value:
    """A value of these shapes: new or computed, as it is or through a view; one there is, where one has them."""
    plain = contents.low is None and not contents.positive
    fitting = [v for v in g.values if v.dtype == dtype and v.known and list(v.shapes) == shapes]
    if fitting and plain and g.chance(0.5):
        return g.choose(fitting)
    rank = len(shapes[0])
    if rank < 2 or g.chance(0.6):
        value = g.fresh(dtype, shapes, contents)
        return (
            g.emit("Abs", [value])
            if plain and dtype == TensorProto.FLOAT and g.chance(0.3)
            else value
        )
    if g.chance(0.5):
        perm = g.rng.sample(range(rank), rank)
        turned = g.fresh(dtype, [tuple(s[axis] for axis in perm) for s in shapes], contents)
        return g.emit("Transpose", [turned], {"perm": np.argsort(perm).tolist()})
    longer = g.fresh(dtype, [((s[0] or 0) + 2, *s[1:]) for s in shapes], contents)
    return g.emit("Slice", [longer], params={"starts": [1], "ends": [-1], "axes": [0]})
