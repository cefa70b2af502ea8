"""Models as onnxruntime's own tools leave them: fused, converted to half floats, quantised.

The reference is onnxruntime without optimisations, which computes what the model says; with them it rounds
quantised models elsewhere, and is apart from itself by several steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.capi import _pybind_state
from onnxruntime.transformers import optimizer

import dvm_graph
from dvm_graph.import_ import cuts_sums_of_bytes
from tests.end_to_end.reference import Array, assert_all_close, session
from tests.tolerances import assert_within_steps

TINY = Path(__file__).parents[2] / "models" / "tiny"
TOKENS = [{"batch": 2, "seq": 7}, {"batch": 1, "seq": 16}, {"batch": 3, "seq": 1}]
IMAGES = [{"batch": 2, "height": 32, "width": 32}, {"batch": 1, "height": 64, "width": 32}]
DOMAIN = "com.microsoft"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The tools warn of what they did not do."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def feeds_of(model: onnx.ModelProto, dims: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    feeds = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            feeds[info.name] = generator.standard_normal(shape).astype(dtype)
        elif "mask" in info.name:
            feeds[info.name] = np.ones(shape, dtype)
        else:
            feeds[info.name] = generator.integers(0, 30, shape).astype(dtype)
    return feeds


def runs(
    model: onnx.ModelProto, *, strict: bool = False
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Our results and onnxruntime's, at several shapes."""
    compiled, reference = dvm_graph.optimize(model, strict=strict), session(model)
    inputs = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    for dims in TOKENS if "seq" in inputs else IMAGES:
        feeds = feeds_of(model, dims)
        yield list(compiled.run(feeds)), reference.run(None, feeds)


def domains(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == DOMAIN}


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
@pytest.mark.parametrize(
    "name, kind", [("bert", "bert"), ("vit", "vit"), ("llama", "gpt2"), ("gpt2", "bert")]
)
def test_fused_by_the_optimizer_of_transformers(name: str, kind: str, half: bool) -> None:
    fused = optimizer.optimize_model(str(TINY / f"{name}.onnx"), model_type=kind, opt_level=0)
    if half:
        fused.convert_float_to_float16(keep_io_types=False)
    assert any("Skip" in op for op in domains(fused.model)), domains(fused.model)
    for actual, expected in runs(fused.model, strict=True):
        precision = np.dtype(np.float16) if half else None
        assert_all_close(actual, expected, reduction_length=100, precision=precision)


@pytest.mark.parametrize("name, kind", [("bert", "bert"), ("llama", "gpt2")])
def test_what_was_fused_fuses_as_the_operators_it_was_made_of(name: str, kind: str) -> None:
    path = TINY / f"{name}.onnx"
    fused = optimizer.optimize_model(str(path), model_type=kind, opt_level=0).model
    reports = [dvm_graph.optimize(source).report() for source in (path, fused)]
    assert reports[0].kernels == reports[1].kernels


class Calibration(quantization.CalibrationDataReader):  # untyped
    def __init__(self, model: onnx.ModelProto) -> None:
        inputs = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
        dims = (TOKENS if "seq" in inputs else IMAGES)[0]
        self._feeds = iter([feeds_of(model, dims, seed) for seed in range(3)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


@pytest.mark.parametrize("name", ["bert", "llama", "mobilenet", "vit"])
def test_quantized_dynamically(name: str, tmp_path: Path) -> None:
    path = tmp_path / "quantized.onnx"
    quantization.quantize_dynamic(
        TINY / f"{name}.onnx",
        path,
        weight_type=quantization.QuantType.QInt8,
        reduce_range=cuts_sums_of_bytes(),
    )
    model = onnx.load(path)
    assert any(node.op_type in ("MatMulInteger", "ConvInteger") for node in model.graph.node)
    for actual, expected in runs(model):
        assert_all_close(actual, expected, reduction_length=100)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "mobilenet", "unet"])
def test_quantized_statically(name: str, form: str, tmp_path: Path) -> None:
    path, source = tmp_path / "quantized.onnx", TINY / f"{name}.onnx"
    quantization.quantize_static(
        source,
        path,
        Calibration(onnx.load(source)),
        quant_format=getattr(quantization.QuantFormat, form),
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        reduce_range=cuts_sums_of_bytes(),
    )
    model = onnx.load(path)
    operators = {node.op_type for node in model.graph.node}
    assert operators & ({"QuantizeLinear"} if form == "QDQ" else {"QLinearMatMul", "QLinearConv"})
    steps = [step_of(model, info.name) for info in model.graph.output]
    for actual, expected in runs(model):
        for mine, theirs, step in zip(actual, expected, steps, strict=True):
            assert_within_steps(mine, theirs, step=step, reduction_length=100)


def step_of(model: onnx.ModelProto, output: str) -> float:
    """The scale of what an output was dequantised from; 0 if it was not."""
    producer = next(node for node in model.graph.node if output in node.output)
    scales = {t.name: t for t in model.graph.initializer}
    if producer.op_type != "DequantizeLinear":
        return 0.0
    return float(numpy_helper.to_array(scales[producer.input[1]]).max())


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_weights_of_four_bits(name: str, symmetric: bool) -> None:
    model = onnx.load(TINY / f"{name}.onnx")
    weights = {t.name: t for t in model.graph.initializer}
    replaced = 0
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            array = numpy_helper.to_array(weights[node.input[1]])
            of_few_bits(model, node, array, symmetric)
            replaced += 1
    assert replaced > 5
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    for actual, expected in runs(model):
        assert_all_close(actual, expected, reduction_length=100)


def of_few_bits(model: onnx.ModelProto, node: Any, weights: Array, symmetric: bool) -> None:
    """Makes a MatMul one of weights that onnxruntime packs to 4 bits."""
    (k, n), size = weights.shape, 32
    blocks = -(-k // size)
    packed = np.zeros((n, blocks, size // 2), np.uint8)
    scales = np.zeros(n * blocks, np.float32)
    points = np.zeros(n * -(-blocks // 2), np.uint8)
    _pybind_state.quantize_matmul_4bits(packed, weights, scales, points, size, n, k, symmetric)
    operands = {"packed": packed, "scales": scales} | ({} if symmetric else {"points": points})
    names = []
    for part, data in operands.items():
        names.append(f"{node.output[0]}.{part}")
        model.graph.initializer.append(numpy_helper.from_array(data, names[-1]))
    node.op_type, node.domain, node.input[1:] = "MatMulNBits", DOMAIN, names
    for key, value in {"K": k, "N": n, "bits": 4, "block_size": size}.items():
        node.attribute.append(helper.make_attribute(key, value))
