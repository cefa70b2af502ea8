"""Which elements of an image resizing reads, along which axis first, and how."""

from __future__ import annotations

import pytest

from dvm_graph.ir import Node
from tests.decompose.reference import decomposed
from tests.end_to_end.reference import model_from_text


def operators(
    channels: int, scales: tuple[float, float], attrs: str = 'mode = "linear"'
) -> list[Node]:
    """Basic operators on images."""
    factors = ", ".join(map(str, (1.0, 1.0, *scales)))
    model = model_from_text(f"""
        g (float[n, {channels}, h, w] x) => (float[n, {channels}, h2, w2] y)
        <float[4] scales = {{{factors}}}>
        {{ y = Resize <{attrs}> (x, , scales) }}""")
    return [node for node in decomposed(model).needed_nodes() if node.outputs[0].rank == 4]


def gathered_axes(nodes: list[Node]) -> list[int]:
    """Without repetitions."""
    return list(dict.fromkeys(node.attrs["axis"] for node in nodes if node.op == "gather"))


@pytest.mark.parametrize(
    ("scales", "order"),
    [((2.0, 2.0), [3, 2]), ((0.75, 0.75), [2, 3]), ((0.75, 2.0), [2, 3]), ((2.0, 0.75), [3, 2])],
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_few_channels_are_read_by_rows(
    scales: tuple[float, float], order: list[int], mode: str
) -> None:
    """No axis moves, and elements are read one by one where there are fewest of them."""
    nodes = operators(3, scales, f'mode = "{mode}"')
    assert gathered_axes(nodes) == order
    assert not any(node.op == "transpose" for node in nodes)


def test_many_channels_are_read_pixel_by_pixel() -> None:
    nodes = operators(17, (2.0, 2.0))
    assert gathered_axes(nodes) == [1, 2]
    assert sum(node.op == "transpose" for node in nodes) == 2


@pytest.mark.parametrize(("channels", "mode"), [(8, "linear"), (8, "cubic"), (64, "nearest")])
def test_planes_are_read_as_they_lie(channels: int, mode: str) -> None:
    assert not any(
        node.op == "transpose" for node in operators(channels, (1.5, 1.5), f'mode = "{mode}"')
    )


@pytest.mark.parametrize(("channels", "mode"), [(8, "linear"), (64, "nearest")])
def test_images_of_convolutions_are_read_pixel_by_pixel(channels: int, mode: str) -> None:
    model = model_from_text(f"""
        g (float[n, 3, h, w] x, float[{channels}, 3, 1, 1] k) => (float[n, {channels}, h2, w2] y)
        <float[4] scales = {{1.0, 1.0, 1.5, 1.5}}>
        {{ t = Conv (x, k) u = Relu (t) y = Resize <mode = "{mode}"> (u, , scales) }}""")
    nodes = [node for node in decomposed(model).needed_nodes() if node.op == "gather"]
    assert gathered_axes(nodes) == [1, 2]


@pytest.mark.parametrize("channels", [3, 8, 17])
def test_means_of_neighbours_are_of_steps(channels: int) -> None:
    """Halfway between two elements is where an axis is shrunk by a power of two."""
    assert not any(node.op == "gather" for node in operators(channels, (0.5, 0.25)))


@pytest.mark.parametrize("transform", ["asymmetric", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("scales", [(2.0, 3.0), (0.5, 0.25)])
def test_nearest_elements_before_are_views(transform: str, scales: tuple[float, float]) -> None:
    attrs = (
        f'mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "{transform}"'
    )
    assert not gathered_axes(operators(3, scales, attrs))


def test_views_are_of_pixels() -> None:
    """Elements that are only repeated or left out meet the layout of convolutions."""
    nodes = operators(3, (2.0, 1.0), 'mode = "nearest"')
    assert sum(node.op == "transpose" for node in nodes) == 2
