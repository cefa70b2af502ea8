"""What the fuzzer draws, and models without their regions."""

from __future__ import annotations

import collections
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from dvm_graph.decompose import block_quantized
from dvm_graph.pipeline import compile_model
from tests.fuzz.case import Favour, generate, nodes_of
from tests.fuzz.judge import (
    NOT_RUN,
    Reference,
)
from tests.fuzz.operators import EXCLUDED, names
from tests.fuzz.registry import GATHER, PRODUCT, REDUCTION, VIEW, WINDOW
from tests.fuzz.straight import REGIONS, straight


@pytest.mark.parametrize("index", range(0, 200, 20))
def test_a_graph_is_a_function_of_seed_and_index(index: int) -> None:
    one, other = generate(5, index), generate(5, index)
    assert one.data == other.data
    for left, right in zip(one.feeds, other.feeds, strict=True):
        assert {k: (v.dtype, v.shape, v.tobytes()) for k, v in left.items()} == {
            k: (v.dtype, v.shape, v.tobytes()) for k, v in right.items()
        }
    assert generate(5, index + 1).data != one.data


def test_most_graphs_run_on_onnxruntime_and_their_text_reads_back() -> None:
    ran = 0
    for index in range(40):
        case = generate(6, index)
        again = onnx.parser.parse_model(case.text)
        assert [n.op_type for n in again.graph.node] == [n.op_type for n in case.model.graph.node]
        try:
            Reference(case.model)
            ran += 1
        except Exception as error:
            assert "onnxruntime" in type(error).__module__
    assert ran > 32


def test_every_operator_of_the_standard_is_drawn_or_left_out_by_name() -> None:
    drawn = {op for opset in (7, 13, 21, 28) for op in names(opset)[0]}
    current = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    assert current <= drawn | set(EXCLUDED)
    for kind in (PRODUCT, REDUCTION, WINDOW, GATHER, VIEW):
        assert len(names(21, kind)[0]) >= 4


def test_regions_sequences_strings_and_narrow_types_are_drawn() -> None:
    drawn: collections.Counter[str] = collections.Counter()
    for index in range(400):
        graph = generate(9, index).model.graph
        drawn.update({node.domain or node.op_type for node in nodes_of(graph)})
        drawn.update(
            {"string" for v in graph.input if v.type.tensor_type.elem_type == TensorProto.STRING}
        )
    for ops in (["If"], ["Loop"], ["Scan"], ["SequenceAt"], ["string"], ["com.microsoft"]):
        assert sum(drawn[op] for op in ops) >= 2, (ops, drawn)
    assert drawn["Optional"] + drawn["SplitToSequence"] >= 2


def test_products_of_the_same_rows_and_by_weights_of_4_bits_share_kernels() -> None:
    products: collections.Counter[str] = collections.Counter()
    for index in range(150):
        try:
            with mock.patch.object(block_quantized, "FEW_WEIGHTS", 0):
                compiled = compile_model(
                    generate(5, index, Favour(PRODUCT)).data, dvm_graph.Options()
                )
        except dvm_graph.DvmError:
            continue
        for kernel in compiled.schedule.report.subgraphs:
            found = [node for node in kernel.nodes if node.op == "matmul"]
            packed = any(node.required(1).made_by("unpack_blocks") for node in found)
            beside = len(found) > len({node.required(0) for node in found})
            products["packed"] += packed
            products["beside"] += beside
            products["packed and beside"] += packed and beside
    assert products["packed"] >= 10
    assert products["beside"] >= 5
    assert products["packed and beside"] >= 2


def test_what_is_favoured_is_drawn() -> None:
    drawn: collections.Counter[str] = collections.Counter()
    for index in range(150):
        graph = generate(9, index, Favour("sequence", 18)).model.graph
        drawn.update(node.op_type for node in nodes_of(graph))
        for node in graph.node if index % 3 == 0 else ():
            given = [a.g for a in node.attribute if a.HasField("g")]
            inside = (v for g in given for v in (*g.input, *g.output))
            drawn.update(f"{node.op_type} {v.type.WhichOneof('value')}" for v in inside)
        graph = generate(9, index, Favour("region", 8)).model.graph
        drawn.update({f"{node.op_type} of 8" for node in nodes_of(graph)})
    for op in ("SequenceMap", "Loop sequence_type", "If sequence_type", "Scan of 8"):
        assert drawn[op] >= 2, (op, drawn)
    assert drawn["OptionalHasElement"] >= 2


def test_models_mean_the_same_without_their_regions() -> None:
    left: collections.Counter[str] = collections.Counter()
    met: collections.Counter[str] = collections.Counter()
    drawn = [generate(12, index) for index in range(700)]
    drawn += [generate(12, index, Favour("sequence")) for index in range(100)]
    for case in drawn:
        ops = {node.op_type for node in case.model.graph.node} & set(REGIONS)
        if not ops:
            continue
        feeds = case.feeds[0]
        try:
            wanted = Reference(case.model).run(feeds)
        except NOT_RUN:
            continue
        model = straight(case.model, lambda probe, feeds=feeds: Reference(probe).run(feeds))
        met.update(ops)
        left.update({node.op_type for node in model.graph.node} & set(REGIONS))
        np.testing.assert_equal(Reference(model).run(feeds), wanted)
    assert all(met[op] >= 5 and left[op] < met[op] / 2 for op in REGIONS), (met, left)


@pytest.mark.parametrize("lengths", ["", "n"])
def test_a_scan_of_opset_8_is_as_its_turns(lengths: str) -> None:
    read = "int64[2] n, " if lengths else ""
    text = f"""<ir_version: 8, opset_import: ["" : 8]>
    g ({read}float[2, 3] x, float[2, 4, 3] y, float[2, 4, 3] z) => (float[?, ?] u, float[?, ?, ?] v) {{
      u, v = Scan<num_scan_inputs = 2, directions = [1, 0],
        body = b (float[3] s, float[3] p, float[3] q) => (float[3] t, float[3] r) {{
          a = Add(s, p) t = Mul(a, q) r = Neg(t)
        }}>({lengths or '""'}, x, y, z)
    }}"""
    rng = np.random.default_rng(1)
    shapes = {"x": (2, 3), "y": (2, 4, 3), "z": (2, 4, 3)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if lengths:
        feeds["n"] = np.array([4, 2])
    model = onnx.parser.parse_model(text)
    found = straight(model, lambda probe: Reference(probe).run(feeds))
    assert "Scan" not in {node.op_type for node in found.graph.node}
    for one, other in zip(Reference(found).run(feeds), Reference(model).run(feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_feeds_fit_the_declared_inputs() -> None:
    for index in range(30):
        case = generate(8, index)
        for feeds in case.feeds:
            for value in case.model.graph.input:
                tensor = value.type.tensor_type
                assert helper.tensor_dtype_to_np_dtype(tensor.elem_type) == feeds[value.name].dtype
                assert len(tensor.shape.dim) == feeds[value.name].ndim
