"""Small models that random damage once led to, kept so that they stay right."""

from __future__ import annotations

import warnings

import numpy as np
import onnx

import dvm_graph
from tests.end_to_end.reference import session


def optimized(model: onnx.ModelProto) -> dvm_graph.Model:
    """Nothing of it rests in the net under the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        return dvm_graph.optimize(model)


def test_a_constant_that_only_bodies_read_at_an_old_opset() -> None:
    """The partition had the version of the format in which constants had to be inputs as well."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 8]> g (bool c, float[n, 2, 1] x) => (float[n, 1, 2, 4] y) {
            y = If (c) <
              then_branch = p () => (float[n, 1, 2, 4] a) { a = RNN <hidden_size = 4> (x, w, r) },
              else_branch = q () => (float[n, 1, 2, 4] b) { b = RNN <hidden_size = 4, direction = "reverse"> (x, w, r) }
            >
        }"""
    )
    generator = np.random.default_rng(0)
    for name, shape in (("w", (1, 4, 1)), ("r", (1, 4, 4))):
        array = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feeds = {"c": np.array(True), "x": generator.standard_normal((3, 2, 1)).astype(np.float32)}
    (y,) = optimized(model).run(feeds)
    np.testing.assert_array_equal(y, session(model).run(None, feeds)[0])
