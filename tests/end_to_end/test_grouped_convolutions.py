"""Convolutions of groups of few channels against onnxruntime: results of several groups are the lanes of vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dvm_graph
from dvm_graph import _core
from dvm_graph.decompose.convolution import MOST_LANES
from dvm_graph.options import Options
from dvm_graph.pipeline import stage_text
from dvm_graph.symbolic import Facts, Symbols
from dvm_graph.symbolic.transforms import transformed_slices
from tests.end_to_end.reference import assert_all_close, session
from tests.end_to_end.windows import check, one_node, weights_of, with_weights


@pytest.mark.parametrize("groups", [3, 20])
@pytest.mark.parametrize("each", [2, 3, 4, 8, 9, 16, 17])
def test_a_few_results_of_each_channel(groups: int, each: int) -> None:
    """No matrix products, whose columns would be as few."""
    generator = np.random.default_rng(each)
    weights = [weights_of(generator, groups * each, 1, 3, 3), weights_of(generator, groups * each)]
    attrs = {"group": groups, "pads": [1, 0, 0, 1], "strides": [2, 1]}
    model = one_node("Conv", 4, groups, attrs, weights)
    check(model, [(2, groups, 9, 14), (1, groups, 16, 5)], terms=9)
    dims = {"batch": 2, "height": 9, "width": 14}
    listings = "".join(map(str, dvm_graph.optimize(model).listings(dims)))
    lanes = each <= MOST_LANES
    assert ("d_depthwise" in listings) == lanes and ("m_matmul" in listings) != lanes


OF_GROUPS = [(2, 4, 4), (20, 2, 2), (3, 8, 8), (5, 2, 8), (6, 3, 4), (40, 4, 4)]
"""Groups, channels of each, results of each."""


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize(("groups", "channels", "results"), OF_GROUPS)
def test_groups_side_by_side(groups: int, channels: int, results: int, simd: str) -> None:
    """Results of several groups are a vector, which columns of one group's product would not fill; in each order of
    what follows, on whole images and on rows that slide.
    """
    outputs = groups * results
    generator = np.random.default_rng(groups)
    sizes = f"group = {groups}, pads = [1, 1, 1, 1]"
    model = with_weights(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n, {groups * channels}, h, w] x, float[{outputs}, {channels}, 3, 3] a, float[{outputs}] b,
          float[{outputs}, {channels}, 2, 3] c, float[5, {outputs}, 1, 1] d) =>
          (float[n, {outputs}, h, w] y, float[n, {outputs}, p, q] shuffled, float[n, 5, h, w] z) {{
            y = Conv<{sizes}>(x, a, b)
            r = Relu(y)
            z = Conv(r, d)
            s = Conv<{sizes}, strides = [2, 1], dilations = [1, 2]>(x, c)
            size = Shape(s)
            place = Constant<value_ints = [2, 3]>()
            rows = Gather(size, place)
            parts = Constant<value_ints = [0, 2, {outputs // 2}]>()
            all = Concat<axis = 0>(parts, rows)
            t = Reshape(s, all)
            u = Transpose<perm = [0, 2, 1, 3, 4]>(t)
            v = Reshape(u, size)
            shuffled = Neg(v)
        }}"""
    )
    reference = session(model)
    compiled = dvm_graph.optimize(model, strict=True, simd=simd)
    for shape in ((2, groups * channels, 9, 14), (1, groups * channels, 6, 5)):
        feeds = {"x": weights_of(generator, *shape)}
        wanted = reference.run(None, feeds)
        assert_all_close(compiled.run(feeds), wanted, reduction_length=channels * 9 * outputs)
    listed = "".join(map(str, compiled.listings({"n": 2, "h": 9, "w": 14})))
    assert "d_depthwise" in listed and "d_pack_patches" not in listed


@pytest.mark.parametrize(
    ("behind", "results"),
    [
        pytest.param("y = GlobalAveragePool(r)", "float[n, 96, 1, 1] y", id="means"),
        pytest.param("y = Identity(r)", "float[n, 96, p, q] y", id="channels first"),
        pytest.param(
            """
            parts = Constant<value_ints = [0, 2, 48, -1]>()
            size = Shape(r)
            s = Reshape(r, parts)
            t = Transpose<perm = [0, 2, 1, 3]>(s)
            y = Reshape(t, size)""",
            "float[n, 96, p, q] y",
            id="shuffled",
        ),
    ],
)
def test_tiles_of_groups_fill_vectors(behind: str, results: str) -> None:
    """Whatever follows: tiles of one result or of one window each would leave most lanes empty."""
    proto = with_weights(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 96, h, w] x, float[96, 8, 3, 3] k) => ({results}) {{
        c = Conv<group = 12, pads = [1, 1, 1, 1]>(x, k)
        r = Relu(c)
        {behind}
    }}""")
    model = dvm_graph.optimize(proto, strict=True)
    listed = model.listings({"n": 1, "h": 40, "w": 40})
    (text,) = [kernel.text for kernel in listed if "d_depthwise" in kernel.text]
    (tiles,) = re.findall(r"^  tiles (\d+) ", text.split("body")[0], re.MULTILINE)[:1]
    assert int(tiles) <= 40  # no more than rows: not one for each of 96 results, or 1600 windows
    x = weights_of(np.random.default_rng(2), 1, 96, 11, 13)
    assert_all_close(model.run({"x": x}), session(proto).run(None, {"x": x}), reduction_length=143)


@pytest.mark.parametrize("summed", ["z", "a"])
@pytest.mark.parametrize(("few", "many"), [(4, 8), (2, 16), (3, 6), (8, 16)])
def test_other_groups_that_meet(few: int, many: int, summed: str) -> None:
    """Kernels split the groups of the one by those of the other; the sum holds windows in a tile."""
    generator = np.random.default_rng(few)
    channels = many * 2
    proto = with_weights(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, {channels}, h, w] x, float[{channels}, {channels // few}, 1, 1] k,
      float[{channels}, {channels // many}, 3, 3] l) => (float[n, {channels}, h, w] z, float[n, {channels}] s) {{
        a = Conv<group = {few}>(x, k)
        b = Conv<group = {many}, pads = [1, 1, 1, 1]>(x, l)
        z = Add(a, b)
        axes = Constant<value_ints = [2, 3]>()
        s = ReduceSum<keepdims = 0>({summed}, axes)
    }}""")
    reference = session(proto)
    for options in ({}, {"cores": 1}, {"fuse": False}):
        compiled = dvm_graph.optimize(proto, strict=True, **options)
        for shape in ((1, channels, 1, 2), (2, channels, 5, 4), (1, channels, 14, 17)):
            feeds = {"x": weights_of(generator, *shape)}
            assert_all_close(compiled.run(feeds), reference.run(None, feeds), reduction_length=2000)


@pytest.mark.parametrize("each", [4, 16])
@pytest.mark.parametrize("rows", [6, 40])
def test_groups_keep_what_is_infinite(each: int, rows: int) -> None:
    """Nothing of one group is multiplied for another, not even by 0."""
    generator = np.random.default_rng(0)
    channels = 8 * each
    weights = weights_of(generator, channels, each, 3, 3)
    attrs = {"group": 8, "pads": [1] * 4}
    model = dvm_graph.optimize(one_node("Conv", 4, channels, attrs, [weights]))
    x = weights_of(generator, 1, channels, rows, 9)
    (finite,) = model.run({"x": x})
    x[:, each + 1] = np.inf
    (wild,) = model.run({"x": x})
    others = [channel for channel in range(channels) if channel // each != 1]
    np.testing.assert_array_equal(wild[:, others], finite[:, others])
    assert not np.isfinite(wild[:, each : 2 * each]).any()


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("groups", "channels", "results"), [(4, 16, 16), (3, 40, 12), (2, 9, 7)])
def test_groups_of_a_vector(
    groups: int, channels: int, results: int, dilation: int, simd: str
) -> None:
    """Products of a vector of columns at most, of which those at the borders are in the same blocks; a bias for each group."""
    generator = np.random.default_rng(groups)
    outputs = groups * results
    weights = [weights_of(generator, outputs, channels, 3, 3), weights_of(generator, outputs)]
    attrs = {"group": groups, "pads": [dilation] * 4, "dilations": [dilation] * 2}
    model = one_node("Conv", 4, groups * channels, attrs, weights)
    sizes = [(1, 7, 7), (2, 14, 13), (1, 1, 5), (3, 9, 30), (1, 4, 1)]
    shapes = [(n, groups * channels, h, w) for n, h, w in sizes]
    for options in ({}, {"winograd": False}):
        check(model, shapes, terms=9 * channels, simd=simd, **options)


@pytest.mark.parametrize(
    ("options", "product"),
    [({}, True), ({"winograd": False}, False), ({"device": "ascend910b2"}, False)],
)
def test_groups_of_16_are_products_where_those_may_take_transforms(
    options: dict[str, object], product: bool
) -> None:
    generator = np.random.default_rng(0)
    weights = [weights_of(generator, 64, 16, 3, 3)]
    model = one_node("Conv", 4, 64, {"group": 4, "pads": [1] * 4}, weights)
    text = stage_text(model, Options().changed(options), "decompose")
    assert ("matmul" in text, "depthwise" in text) == (product, not product)


@pytest.mark.parametrize(
    ("channels", "results", "some"),
    [(1024, 512, True), (1536, 64, True), (1536, 512, False), (2048, 64, False)],
)
def test_weights_of_many_channels_have_no_transforms(
    channels: int, results: int, some: bool
) -> None:
    """So few squares pass at a time that transforms are read too often; see `symbolic/transforms.py`."""
    window = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "size": (28, 28)}
    slices = transformed_slices(window, 1, 9 * channels, results, Facts(Symbols()))
    assert (slices > 0) == some
