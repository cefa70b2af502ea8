"""A simulation as one picture (.svg): the timeline above, the roofline below. Read without another tool.

The timeline has a lane for the host, one for the device, and one for each unit, filled as high as the unit is
busy. The roofline has a point for each stage, as large as its share of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from xml.sax.saxutils import escape

from dvm_graph.errors import InputError, output_path, writing
from dvm_graph.report import SubgraphKind
from dvm_graph.report.palette import EDGE, FONT, INK, KINDS, MUTED, PANEL
from dvm_graph.simulation.record import Simulation, Stage

_WIDTH, _LEFT, _RIGHT = 1100, 110, 20
_LANE, _GAP, _TOP = 34, 8, 50
_ROOF = 360
_WAITING = "#cbd5e1"


def draw(simulation: Simulation, path: str | PathLike[str]) -> None:
    """Writes the picture.

    Raises:
        InputError: the suffix is not .svg, or the file cannot be written.
    """
    target = output_path(path)
    if target.suffix.lower() != ".svg":
        raise InputError(f"cannot draw to {target.name!r}: the suffix has to be .svg")
    with writing(target):
        Path(target).write_text(picture(simulation), encoding="utf-8")


def picture(simulation: Simulation) -> str:
    units = list(dict.fromkeys(unit for stage in simulation.stages for unit in stage.units))
    lanes = ["host", "device", *units, "scalar"]
    roof_top = _TOP + len(lanes) * (_LANE + _GAP) + 50
    body = [*_timeline(simulation, lanes), *_roofline(simulation, roof_top)]
    height = roof_top + _ROOF + 60
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="{FONT}, sans-serif" font-size="12" fill="{INK}">',
            f'<rect width="{_WIDTH}" height="{height}" fill="{PANEL}"/>',
            *body,
            "</svg>\n",
        ]
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK, size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _bar(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.4):.2f}" height="{height:.2f}" fill="{fill}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _colour(stage: Stage) -> str:
    kind = stage.kind if stage.kind in ("vector", "cube") else "mix"
    return KINDS[SubgraphKind(kind)].header


def _timeline(simulation: Simulation, lanes: list[str]) -> Iterator[str]:
    scale = (_WIDTH - _LEFT - _RIGHT) / (simulation.seconds or 1.0)
    y = {lane: _TOP + i * (_LANE + _GAP) for i, lane in enumerate(lanes)}
    dims = ", ".join(f"{name} {extent}" for name, extent in simulation.dims.items())
    title = f"{simulation.spec.name}, {dims}: {simulation.seconds * 1e3:.3f} ms"
    yield _text(_LEFT, 24, title, size=15)
    for lane in lanes:
        yield _text(_LEFT - 10, y[lane] + _LANE / 2 + 4, lane, anchor="end")
        yield _bar(_LEFT, y[lane] + _LANE, _WIDTH - _LEFT - _RIGHT, 0.6, EDGE, lane)
    for launch in simulation.launches:
        host = launch.host
        name = launch.stages[0].name
        x = _LEFT + host.start * scale
        yield _bar(x, y["host"], host.compile_seconds * scale, _LANE, MUTED, f"compile {name}")
        x += host.compile_seconds * scale
        yield _bar(x, y["host"], host.launch_seconds * scale, _LANE, _WAITING, f"launch {name}")
        x = _LEFT + launch.start * scale
        yield _bar(x, y["device"], launch.startup_seconds * scale, _LANE, _WAITING, f"start {name}")
        for stage in launch.stages:
            x, width = _LEFT + stage.start * scale, stage.seconds * scale
            note = f"{stage.name}: {stage.seconds * 1e6:.1f} us on {stage.cores} cores"
            yield _bar(x, y["device"], width, _LANE, _colour(stage), note)
            shares = {unit: share.busy for unit, share in stage.units.items()}
            for unit, share in (*shares.items(), ("scalar", stage.scalar)):
                height = _LANE * min(share, 1.0)
                note = f"{stage.name}: {unit} busy {share:.0%}"
                yield _bar(x, y[unit] + _LANE - height, width, height, _colour(stage), note)
    bottom = _TOP + len(lanes) * (_LANE + _GAP) + 12
    for tick in range(6):
        at = simulation.seconds * tick / 5
        anchor = "end" if tick == 5 else "middle"
        yield _text(_LEFT + at * scale, bottom, f"{at * 1e6:.0f} us", anchor=anchor, fill=MUTED)


def _roofline(simulation: Simulation, top: float) -> Iterator[str]:
    roof, memory = simulation.peak(), simulation.memory_rate
    points = [
        (max(s.flops + s.vector_flops, 1.0) / max(s.memory_bytes, 1.0), s)
        for s in simulation.stages
        if s.seconds
    ]
    vector = (
        simulation.spec["cores.vector"]
        * simulation.spec["vector.bytes_per_cycle"]
        / 4
        * simulation.spec["cores.frequency"]
    )
    low_x, high_x = -2.0, max(4.0, *(math.log10(x) for x, _ in points)) + 0.2 if points else 4.0
    high_y = math.log10(roof) + 0.4
    low_y = high_y - 7

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = (min(max(math.log10(intensity), low_x), high_x) - low_x) / (high_x - low_x)
        y = (min(max(math.log10(max(rate, 1.0)), low_y), high_y) - low_y) / (high_y - low_y)
        return _LEFT + x * (_WIDTH - _LEFT - _RIGHT), top + _ROOF * (1 - y)

    yield _text(
        _LEFT, top - 12, "operations per second over operations per byte of memory", size=13
    )
    yield f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_ROOF}" fill="none" stroke="{EDGE}"/>'
    for peak, name in (
        (roof, "cube units, f16"),
        (simulation.peak("f32"), "cube units, f32"),
        (vector, "vector units, f32"),
    ):
        ridge = peak / memory
        line = [at(10**low_x, memory * 10**low_x), at(ridge, peak), at(10**high_x, peak)]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        yield f'<polyline points="{corners}" fill="none" stroke="{MUTED}"/>'
        x, y = line[-1]
        yield _text(x - 6, y - 4, f"{name}: {peak / 1e12:.1f} TFLOP/s", anchor="end", fill=MUTED)
    x, y = at(10 ** (low_x + 0.6), memory * 10 ** (low_x + 0.6))
    yield _text(x + 14, y + 4, f"memory: {memory / 1e9:.0f} GB/s", fill=MUTED)
    for decade in range(math.ceil(low_x), math.floor(high_x) + 1):
        x, _ = at(10.0**decade, 1.0)
        yield _text(x, top + _ROOF + 18, f"{10.0**decade:g}", anchor="middle", fill=MUTED)
    for decade in range(math.ceil(low_y), math.floor(high_y) + 1):
        _, y = at(1.0, 10.0**decade)
        yield _text(_LEFT - 10, y + 4, f"1e{decade}", anchor="end", fill=MUTED)
    for intensity, stage in points:
        rate = (stage.flops + stage.vector_flops) / stage.seconds
        x, y = at(intensity, rate)
        size = 3 + 14 * math.sqrt(stage.seconds / (simulation.device_seconds or 1.0))
        note = f"{stage.name}: {rate / 1e12:.2f} TFLOP/s, {stage.memory_bytes / stage.seconds / 1e9:.0f} GB/s"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{_colour(stage)}" fill-opacity="0.6">'
            f"<title>{escape(note)}</title></circle>"
        )
