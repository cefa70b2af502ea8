"""Operators of image and audio models, each alone, against onnxruntime: those that read images at points, the suppression
of boxes, windows over few channels, Fourier transforms, ensembles of trees, pipelines of scikit-learn, norms of groups between convolutions, and element-wise functions.

`python -m benchmarks.units.alone [--threads 2] [--rounds 20] [--only deform]`

Both engines take turns, in processes of their own, which are stopped meanwhile. What is shown is onnxruntime's median time
over ours. `_FAST_FROM` and `_CHIRP_FROM` of `dvm_graph/decompose/spectral.py` are where Fourier transforms as products
cost what onnxruntime's do: ours are products here, whatever their length.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from rich.console import Console
from rich.table import Table

from benchmarks.units.pipelines import pipelines
from benchmarks.units.recurrent import Feeds, Party, medians
from dvm_graph import Options

_RANDOM = np.random.default_rng(1)
_Case = tuple[str, str | onnx.ModelProto, Feeds]
"""A name, a model, maybe as text, and what it is fed."""


def _normal(*shape: int) -> NDArray[np.float32]:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _within(low: float, high: float, *shape: int) -> NDArray[np.float32]:
    return _RANDOM.uniform(low, high, shape).astype(np.float32)


def _graph(inputs: str, body: str, constants: str = "", opset: int = 20) -> str:
    held = f"<{constants}>" if constants else ""
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    return f"{head} g ({inputs}) => (y) {held} {{ {body} }}"


def grid_samples() -> Iterator[_Case]:
    for name, channels, extent, points, batch in (
        ("deformable attention", 32, 80, (300, 4), 8),
        ("points of masks", 256, 64, (1, 12544), 1),
        ("points of one channel", 1, 64, (1, 1024), 100),
        ("a warped image", 3, 256, (256, 256), 1),
        ("warped features", 64, 64, (64, 64), 1),
    ):
        for mode, padding in (
            ("linear", "zeros"),
            ("linear", "border"),
            ("cubic", "zeros"),
            ("nearest", "zeros"),
        ):
            inputs = f"float[n, {channels}, h, w] x, float[n, a, b, 2] grid"
            attrs = f'mode = "{mode}", padding_mode = "{padding}"'
            body = f"y = GridSample <{attrs}> (x, grid)"
            feeds = {
                "x": _normal(batch, channels, extent, extent),
                "grid": _within(-1.1, 1.1, batch, *points, 2),
            }
            yield f"GridSample: {name}, {mode}, {padding}", _graph(inputs, body), feeds


def roi_aligns() -> Iterator[_Case]:
    for channels, extent, count, size in ((256, 50, 300, 7), (256, 100, 100, 14), (64, 50, 300, 7)):
        inputs = f"float[n, {channels}, h, w] x, float[k, 4] regions, int64[k] batch"
        attrs = f"output_height = {size}, output_width = {size}, sampling_ratio = 2"
        first = _within(0, extent / 2, count, 2)
        feeds = {
            "x": _normal(1, channels, extent, extent),
            "regions": np.concatenate([first, first + _within(2, extent / 2, count, 2)], axis=1),
            "batch": np.zeros(count, np.int64),
        }
        yield (
            f"RoiAlign: {count} of {channels} channels to {size}",
            _graph(inputs, f"y = RoiAlign <{attrs}> (x, regions, batch)"),
            feeds,
        )


def suppressions() -> Iterator[_Case]:
    """Boxes of one class as a network gives them; those of 90 classes, which detectors shift away from each other."""
    for name, count, classes, most in (
        ("8400, 80 classes", 8400, 80, 100),
        ("8400, one class", 8400, 1, 8400),
        ("20000, 90 classes apart", 20000, 90, 20000),
    ):
        apart = most > 8400
        corners = _within(0, 600, 1, count, 2)
        if apart:
            corners += 700 * _RANDOM.integers(0, classes, (1, count, 1)).astype(np.float32)
        constants = f"int64 most = {{{most}}}, float overlap = {{0.5}}, float least = {{{0 if apart else 0.5}}}"
        yield (
            f"NonMaxSuppression: {name}",
            '<ir_version: 10, opset_import: ["" : 20]>'
            "g (float[b, n, 4] boxes, float[b, c, n] scores) => (int64[k, 3] y)"
            f" <{constants}> {{ y = NonMaxSuppression (boxes, scores, most, overlap, least) }}",
            {
                "boxes": np.concatenate([corners, corners + _within(5, 60, 1, count, 2)], axis=2),
                "scores": _within(0, 1, 1, 1 if apart else classes, count),
            },
        )


def deformable_convolutions() -> Iterator[_Case]:
    for channels, extent in ((64, 56), (128, 28), (256, 14)):
        inputs = (
            f"float[n, {channels}, h, w] x, float[{channels}, {channels}, 3, 3] w, "
            "float[n, 18, a, b] offset"
        )
        feeds = {
            "x": _normal(1, channels, extent, extent),
            "w": _normal(channels, channels, 3, 3),
            "offset": _normal(1, 18, extent, extent),
        }
        body = "y = DeformConv <pads = [1, 1, 1, 1]> (x, w, offset)"
        yield f"DeformConv: {channels} channels of {extent}", _graph(inputs, body), feeds


def others() -> Iterator[_Case]:
    yield (
        "LRN: 96 channels of 55",
        _graph("float[n, 96, h, w] x", "y = LRN <size = 5> (x)"),
        {"x": _normal(1, 96, 55, 55)},
    )
    yield (
        "ReverseSequence: 100 of 32",
        _graph("float[t, n, 256] x, int64[n] lengths", "y = ReverseSequence (x, lengths)"),
        {"x": _normal(100, 32, 256), "lengths": _RANDOM.integers(1, 101, 32)},
    )
    for shape, count in (((1, 8400), 300), ((32, 1000), 5), ((128, 32000), 50)):
        yield (
            f"TopK: {count} of {shape[0]} x {shape[1]}",
            _graph("float[n, c] x", "y, i = TopK (x, k)", f"int64[1] k = {{{count}}}"),
            {"x": _normal(*shape)},
        )
    whole = _RANDOM.integers(1, 100, (1000, 1000))
    yield (
        "Equal: int64",
        _graph("int64[n, c] x, int64[n, c] z", "y = Equal (x, z)"),
        {
            "x": whole,
            "z": _RANDOM.integers(1, 100, (1000, 1000)),
        },
    )
    yield (
        "Trilu: 12 x 512 x 512",
        _graph("float[n, h, w] x", "y = Trilu (x)"),
        {"x": _normal(12, 512, 512)},
    )


def windows() -> Iterator[_Case]:
    for op, kernel, stride, shape in (
        *itertools.product(("MaxPool", "AveragePool"), (3, 5, 9), (1,), ((1, 1, 480, 640),)),
        *itertools.product(("MaxPool", "AveragePool"), (3,), (2,), ((1, 1, 480, 640),)),
        *itertools.product(("MaxPool",), (5, 9, 13), (1,), ((1, 256, 20, 20), (1, 4, 96, 128))),
        *itertools.product(("MaxPool",), (5, 9, 13), (1,), ((64, 1, 64, 64),)),
        *itertools.product(("MaxPool",), (9,), (1,), ((1, 64, 96, 128),)),
    ):
        attrs = (
            f"kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], "
            f"pads = [{kernel // 2}, {kernel // 2}, {kernel // 2}, {kernel // 2}]"
        )
        yield (
            f"{op}: {kernel} x {kernel}, stride {stride}, {' x '.join(map(str, shape))}",
            _graph(f"float[n, {shape[1]}, h, w] x", f"y = {op} <{attrs}> (x)"),
            {"x": _normal(*shape)},
        )
    for inputs, outputs, groups, kernel in ((1, 1, 1, 3), (1, 1, 1, 9), (3, 3, 3, 3), (3, 1, 1, 3)):
        pads = ", ".join([str(kernel // 2)] * 4)
        weights = _normal(outputs, inputs // groups, kernel, kernel)
        numbers = ", ".join(map(str, weights.reshape(-1)))
        constant = f"float[{', '.join(map(str, weights.shape))}] w = {{{numbers}}}"
        body = f"y = Conv <pads = [{pads}], group = {groups}> (x, w)"
        yield (
            f"Conv: {inputs} to {outputs} channels, {groups} groups, {kernel} x {kernel}, 480 x 640",
            _graph(f"float[n, {inputs}, h, w] x", body, constant),
            {"x": _normal(1, inputs, 480, 640)},
        )


def long_kernels() -> Iterator[_Case]:
    """Over one channel or to one: encoders and decoders of sound, kernels along columns."""
    for op, shape, weights, attrs in (
        ("Conv", (1, 1, 16000), (512, 1, 10), "strides = [5]"),
        ("Conv", (1, 1, 16000), (512, 1, 16), "strides = [8]"),
        ("Conv", (1, 1, 16000), (512, 1, 21), "strides = [10], pads = [10, 10]"),
        ("Conv", (4, 1, 16000), (512, 1, 10), "strides = [5]"),
        ("Conv", (4, 1, 16000), (512, 1, 16), "strides = [8]"),
        ("Conv", (4, 1, 16000), (512, 1, 21), "strides = [10], pads = [10, 10]"),
        ("Conv", (1, 1, 160000), (512, 1, 10), "strides = [5]"),
        ("Conv", (1, 1, 160000), (512, 1, 16), "strides = [8]"),
        ("Conv", (1, 1, 160000), (512, 1, 21), "strides = [10], pads = [10, 10]"),
        ("Conv", (1, 1, 16000), (514, 1, 1024), "strides = [256], pads = [512, 512]"),
        ("Conv", (1, 1, 16000), (64, 1, 9), "dilations = [4], pads = [16, 16]"),
        ("Conv", (1, 1, 512, 800), (2, 1, 513, 1), "pads = [256, 0, 256, 0]"),
        ("Conv", (1, 1, 256, 200), (16, 1, 33, 1), "pads = [16, 0, 16, 0]"),
        ("ConvTranspose", (1, 512, 1600), (512, 1, 21), "strides = [10], pads = [10, 10]"),
        ("ConvTranspose", (1, 512, 2000), (512, 1, 16), "strides = [8]"),
        ("ConvTranspose", (1, 96, 4000), (96, 2, 8), "strides = [4]"),
    ):
        extents = ", ".join(f"d{axis}" for axis in range(2, len(shape)))
        data = _normal(*weights) / np.sqrt(np.float32(np.prod(weights[1:])))
        text = _graph(f"float[n, {shape[1]}, {extents}] x", f"y = {op} <{attrs}> (x, w)")
        model = onnx.parser.parse_model(text)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, "w"))
        named = " x ".join(map(str, weights))
        extent = " x ".join(map(str, (shape[0], *shape[2:])))
        yield f"{op}: {named}, {attrs}, of {extent}", model, {"x": _normal(*shape)}


def norms() -> Iterator[_Case]:
    """Of 32 groups, between two convolutions of one element each."""
    for channels, extent in ((64, 64), (128, 128), (256, 56), (512, 32), (256, 7)):
        inputs = (
            f"float[n, {channels}, h, w] x, float[{channels}, {channels}, 1, 1] w, "
            f"float[{channels}] scale, float[{channels}] shift"
        )
        body = (
            "a = Conv (x, w) b = GroupNormalization <num_groups = 32> (a, scale, shift) "
            "c = Relu (b) y = Conv (c, w)"
        )
        feeds = {
            "x": _normal(1, channels, extent, extent),
            "w": _normal(channels, channels, 1, 1) / np.sqrt(np.float32(channels)),
            "scale": _normal(channels),
            "shift": _normal(channels),
        }
        name = f"GroupNormalization: {channels} channels of {extent} x {extent}"
        yield name, _graph(inputs, body, opset=21), feeds


def functions() -> Iterator[_Case]:
    x = _within(-0.99, 0.99, 1000, 1000)
    for op in (
        "Acos",
        "Asin",
        "Atan",
        "Tan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Atanh",
        "Exp",
        "Tanh",
        "Erf",
    ):
        yield op, _graph("float[a, b] x", f"y = {op} (x)"), {"x": x}
    for exponent in (3.0, 9.0, 2.7, -1.5):
        constant = f"float e = {{{exponent}}}"
        text = _graph("float[a, b] x", "y = Pow (x, e)", constant)
        yield f"Pow: {exponent}", text, {"x": np.abs(x) + np.float32(0.1)}


def spectra() -> Iterator[_Case]:
    for length in (256, 400, 512, 1000, 1024, 2000, 2048):
        for onesided in (1, 0):
            for batch in (1, 64):
                body = f"y = DFT <onesided = {onesided}> (x)"
                name = f"DFT: {batch} of {length}, {'one side' if onesided else 'both sides'}"
                feeds = {"x": _normal(batch, length, 1)}
                yield name, _graph(f"float[n, {length}, 1] x", body), feeds
        constants = f"int64 step = {{{length // 4}}}, int64 length = {{{length}}}"
        body = "y = STFT (x, step, , length)"
        feeds = {"x": _normal(1, 64000, 1)}
        yield f"STFT: {length}", _graph("float[n, t, 1] x", body, constants), feeds


def _forest(count: int, leaves: int) -> onnx.ModelProto:
    """Trees that grow a leaf at a time, wherever that is, over 30 features."""
    modes: list[str] = []
    trees, numbers, features, yes, no = (list[int]() for _ in range(5))
    for tree in range(count):
        first, is_leaf = len(modes), [0]
        below: dict[int, int] = {}
        for made in range(1, 2 * leaves - 1, 2):
            below[is_leaf.pop(int(_RANDOM.integers(len(is_leaf))))] = made
            is_leaf += [made, made + 1]
        for number in range(2 * leaves - 1):
            trees.append(tree)
            numbers.append(number)
            modes.append("BRANCH_LEQ" if number in below else "LEAF")
            yes.append(below.get(number, 0))
            no.append(below.get(number, -1) + 1)
        features += _RANDOM.integers(30, size=len(modes) - first).tolist()
    at = [i for i, mode in enumerate(modes) if mode == "LEAF"]
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=trees,
        nodes_nodeids=numbers,
        nodes_featureids=features,
        nodes_modes=modes,
        nodes_values=_normal(len(modes)).tolist(),
        nodes_truenodeids=yes,
        nodes_falsenodeids=no,
        target_ids=[0] * len(at),
        target_treeids=[trees[i] for i in at],
        target_nodeids=[numbers[i] for i in at],
        target_weights=_normal(len(at)).tolist(),
    )
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", columns])
        for name, columns in (("x", 30), ("y", 1))
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def forests() -> Iterator[_Case]:
    for trees, leaves in ((10, 31), (100, 31), (100, 1000), (1000, 31)):
        proto = _forest(trees, leaves)
        for rows in (1, 8, 64, 512, 4096):
            name = f"Trees: {trees} of {leaves} leaves, {rows} rows"
            yield name, proto, {"x": _normal(rows, 30)}


_CASES = (
    forests,
    pipelines,
    grid_samples,
    roi_aligns,
    suppressions,
    deformable_convolutions,
    windows,
    long_kernels,
    norms,
    functions,
    others,
    spectra,
)


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--only", default="", help="cases whose names have this")
def main(threads: int, rounds: int, only: str) -> None:
    """Onnxruntime's time over ours."""
    options = Options(cores=threads, strict=True)
    ours, theirs = Party(True, options), Party(False, options)
    table = Table(title="onnxruntime's time over ours (ours in us)")
    for heading in ("operator", "ratio"):
        table.add_column(heading)
    for cases in _CASES:
        for name, given, feeds in cases():
            if only.lower() not in name.lower():
                continue
            proto = onnx.parser.parse_model(given) if isinstance(given, str) else given
            model = proto.SerializeToString()
            for party in (ours, theirs):
                party.ask(model)
            mine, reference = medians(ours, theirs, feeds, rounds, tolerance=5e-3)
            table.add_row(name, f"{reference / mine:.2f} ({mine * 1e6:.0f})")
    Console(width=110).print(table)
    for party in (ours, theirs):
        party.end()


if __name__ == "__main__":
    main()
