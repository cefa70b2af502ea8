"""Every case of the decomposition tests once more, compiled and run, against onnxruntime.

There the decomposition is evaluated by numpy; here it goes through fusion, the compiler and the
device, fused and unfused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.decompose.reference import Case, Tensor, session
from tests.decompose.test_block_quantized import CASES as BLOCK_QUANTIZED
from tests.decompose.test_contrib_attention import CASES as CONTRIB_ATTENTION
from tests.decompose.test_contrib_fused import CASES as CONTRIB_FUSED
from tests.decompose.test_elementwise import ACTIVATIONS, BINARY, CASTS, UNARY, VARIADIC
from tests.decompose.test_matrix import ATTENTIONS, PRODUCTS, ROTARY
from tests.decompose.test_reductions import LOSSES, NORMALIZATIONS, REDUCTIONS, SOFTMAX
from tests.decompose.test_shapes import INDEXING, PADS, SLICES, SOURCES, VIEWS
from tests.end_to_end.reference import Array, assert_all_close

CASES: list[Case] = [
    *UNARY, *BINARY, *VARIADIC, *ACTIVATIONS, *CASTS, *PRODUCTS, *ROTARY, *REDUCTIONS, *SOFTMAX,
    *LOSSES, *NORMALIZATIONS, *VIEWS, *SLICES, *PADS, *INDEXING, *SOURCES,
    *CONTRIB_FUSED, *CONTRIB_ATTENTION, *BLOCK_QUANTIZED,
]  # fmt: skip


def feeds_of(case: Case, dims: Mapping[str, int], seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        f"x{index}": value.draw(generator, dims)
        for index, value in enumerate(case.operands)
        if isinstance(value, Tensor)
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    proto = case.model()
    models = [dvm_graph.optimize(proto, fuse=fuse) for fuse in (True, False)]
    reference = session(proto)
    for seed, dims in enumerate(case.extents()):
        feeds = feeds_of(case, dims, seed)
        expected = reference.run(None, feeds)
        for model in models:
            assert_all_close(model.run(feeds), expected, reduction_length=100)


@pytest.mark.parametrize("case", ATTENTIONS, ids=str)
def test_attention_equals_the_onnx_reference(case: Case) -> None:
    """onnxruntime does not have all of it."""
    proto = case.model()
    models = [dvm_graph.optimize(proto, fuse=fuse) for fuse in (True, False)]
    reference = ReferenceEvaluator(proto)
    several = {name: 2 + index for index, name in enumerate(case.symbols)}
    many = {name: 16 + index for index, name in enumerate(case.symbols)}
    for seed, dims in enumerate((several, many, dict.fromkeys(case.symbols, 1))):
        feeds = feeds_of(case, dims, seed)
        expected = reference.run(None, feeds)
        for model in models:
            actual = model.run(feeds)
            wanted = [np.asarray(e, a.dtype) for e, a in zip(expected, actual, strict=True)]
            assert_all_close(actual, wanted, reduction_length=100)
