"""Contents of shape tensors that do not fit their types, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import assert_agrees, model_from_text

WRAPPING: dict[str, tuple[str, list[int]]] = {
    "a negative extent as int8": ("m = Neg (s) c = Cast <to = 3> (m)", [3, 128, 129, 200]),
    "a negative extent as int16": ("m = Neg (s) c = Cast <to = 5> (m)", [3, 32768, 32769, 40000]),
    "a difference as int8": ("m = Sub (few, s) c = Cast <to = 3> (m)", [3, 138, 139, 300]),
    "an extent as int8": ("c = Cast <to = 3> (s)", [3, 127, 128, 300]),
    "an extent as uint8": ("c = Cast <to = 2> (s)", [3, 255, 256]),
    "a rest as int8": ("m = Mod (s, few) n = Neg (m) c = Cast <to = 3> (n)", [3, 10, 139]),
    "a negative rest as uint8": ("m = Mod (s, few) n = Neg (m) c = Cast <to = 2> (n)", [3, 10, 139]),
    "a product of int8": ("m = Mod (s, few) n = Cast <to = 3> (m) o = Mul (n, n) p = Mul (o, n) c = Neg (p)", [3, 9]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPING)
def test_contents_of_narrow_types_wrap(name: str) -> None:
    body, extents = WRAPPING[name]
    text = f"""g (float[n] x) => (int64[m] y) <int64 few = {{10}}> {{
        s = Shape (x) {body} y = Cast <to = 7> (c)
    }}"""
    assert_agrees(text, *({"x": (extent,)} for extent in extents))


EXCEEDING: dict[str, tuple[str, list[tuple[int, int]], list[tuple[int, int]]]] = {
    "a product": ("c = Mul (a, b)", [(3, 4), (0, 70000), (32768, 65535)], [(32768, 65536)]),
    "a negative product": ("d = Neg (a) c = Mul (d, b)", [(3, 4), (32768, 65536)], [(32768, 65537)]),
    "a sum": ("c = Add (a, most)", [(7, 1), (0, 1)], [(8, 1), (9, 1)]),
    "a difference": ("c = Sub (least, a)", [(8, 1), (0, 1)], [(9, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCEEDING)
def test_contents_of_32_bits_are_checked(name: str) -> None:
    body, fitting, others = EXCEEDING[name]
    text = f"""g (int8[n] x, int8[m] z) => (int64[k] y) <int32 most = {{2147483640}}, int32 least = {{-2147483640}}> {{
        s = Shape (x) t = Shape (z) a = Cast <to = 6> (s) b = Cast <to = 6> (t) {body} y = Cast <to = 7> (c)
    }}"""
    fed = [
        [{"x": np.zeros(n, np.int8), "z": np.zeros(m, np.int8)} for n, m in runs]
        for runs in (fitting, others)
    ]
    assert_agrees(text, *fed[0])
    model = dvm_graph.optimize(model_from_text(text))
    for feeds in fed[1]:
        with pytest.raises(dvm_graph.ShapeError, match="int32"):
            model.run(feeds)
