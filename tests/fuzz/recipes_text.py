"""Strings: moved about, compared, joined, and read as numbers."""

from __future__ import annotations

from onnx import TensorProto

from tests.fuzz.growth import Growth, RefusedError, Value
from tests.fuzz.registry import TEXT, recipe

STRING = TensorProto.STRING


@recipe("StringNormalizer", "StringConcat", "RegexFullMatch", kind=TEXT)
def text(g: Growth, op: str) -> Value:
    x = g.pick((STRING,)) if g.chance(0.8) else _written(g)
    for _ in range(g.choose((0, 1, 2))):
        x = g.view(x)
    way = g.rng.random()
    if way < 0.3 and op != "StringNormalizer":
        if op == "RegexFullMatch":
            return g.emit(op, [x], {"pattern": g.choose(("[0-9]+", ".*1.*"))})
        return g.emit(op, [x, g.partner(x)])
    if way < 0.4 and x.rank == 1 and op == "StringNormalizer":
        attributes = {
            "stopwords": g.choose((None, ["0", "17", "1E3"])),
            "case_change_action": g.choose((None, "UPPER", "LOWER", "NONE")),
            "is_case_sensitive": g.choose((None, 0, 1)),
            "locale": g.choose((None, "C")),
        }
        return g.emit(op, [x], attributes)
    if way < 0.55:
        return g.emit("Equal", [x, g.partner(x)])
    if way < 0.65:
        condition = g.fresh(TensorProto.BOOL, g.part(x.shapes))
        return g.emit("Where", [condition, x, g.partner(x)])
    if way < 0.75:
        return g.emit("Concat", [x, x], {"axis": g.rng.randrange(x.rank) if x.rank else 0})
    if way < 0.9:
        return g.emit("Cast", [x], {"to": TensorProto.FLOAT})
    return x


def _written(g: Growth) -> Value:
    """Numbers as strings: integers, since onnxruntime has its own way to write others."""
    x = g.pick((TensorProto.INT64, TensorProto.INT32))
    return g.emit("Cast", [x], {"to": STRING})


@recipe("StringSplit", kind=TEXT, weight=0.5)
def string_split(g: Growth) -> Value:
    x = g.pick((STRING,))
    if not x.known or not x.rank:
        raise RefusedError
    pieces, counts = g.emit_all(
        "StringSplit",
        [x],
        {"delimiter": g.choose((".", "1")), "maxsplit": g.choose((None, 1, 2))},
        outputs=2,
    )
    return counts if g.chance(0.7) else pieces
