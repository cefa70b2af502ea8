"""A profile as tables: for people, on a terminal or in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dvm_graph.profile.profile import Kernel, Profile

_LONGEST = 20
"""Rows of a table that are shown; the rest is summed up in one."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    """The first is text, the others are numbers."""
    rows: tuple[tuple[str, ...], ...]


def tables(profile: Profile) -> list[Table]:
    """What `print_profile` prints, for those who draw them otherwise: cores, units,
    kernels, ONNX operators, instructions, vendor calls.
    """
    made = [_cores(profile), _units(profile), _kernels(profile)]
    made += [_onnx_operators(profile), _instructions(profile)]
    calls = [span for span in profile.typical.host if span.category == "vendor"]
    if calls:
        rows = ((call.name, _milliseconds(call.seconds)) for call in calls)
        made.append(Table("Vendor calls", ("operators", "ms"), tuple(rows)))
    return made


def summary(profile: Profile) -> str:
    """Two lines: the runs, and the machine."""
    runs = profile.run_seconds
    compiled = [span.seconds for span in profile.first.compiler]
    return (
        f"run {profile.typical.seconds * 1e3:.3f} ms (median of {len(runs)}, "
        f"{min(runs) * 1e3:.3f} to {max(runs) * 1e3:.3f}); first run "
        f"{profile.first.seconds * 1e3:.3f} ms, which compiled {len(compiled)} kernels in "
        f"{profile.compile_seconds * 1e6:.1f} us, at most {max(compiled, default=0.0) * 1e6:.1f} us each\n"
        f"{profile.cores} cores, {profile.simd}; ceilings: {profile.peak_flops / 1e9:.0f} GFLOP/s of "
        f"f32 multiply-adds, {profile.copy_bytes / 1e9:.1f} GB/s of copies, "
        f"{profile.read_bytes / 1e9:.1f} GB/s of reads"
    )


def print_profile(profile: Profile) -> str:
    """The summary and all tables as aligned text."""
    return "\n\n".join([summary(profile), *map(print_table, tables(profile))])


def print_table(table: Table) -> str:
    lines = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def cells(line: Sequence[str]) -> Iterator[str]:
        for index, (cell, width) in enumerate(zip(line, widths, strict=True)):
            yield cell.ljust(width) if index == 0 else cell.rjust(width)

    return "\n".join([table.title, *("  ".join(cells(line)).rstrip() for line in lines)])


def _cores(profile: Profile) -> Table:
    run = profile.typical
    parts = (
        ("in kernels", run.busy),
        ("idle while another core works", run.idle),
        ("vendor library", run.vendor * profile.cores),
        *([("control flow", run.control * profile.cores)] if run.control else []),
        *([("host operators", run.host_operators * profile.cores)] if run.host_operators else []),
        ("host alone", run.host_alone * profile.cores),
    )
    rows = ((name, _milliseconds(time), _percent(profile.share(time))) for name, time in parts)
    return Table("Time of all cores", ("", "core ms", "share"), tuple(rows))


def _units(profile: Profile) -> Table:
    rows = (
        (unit, _milliseconds(time), _percent(profile.share(time)))
        for unit, time in profile.units().items()
    )
    return Table("Units", ("unit", "core ms", "share"), tuple(rows))


def _kernels(profile: Profile) -> Table:
    columns = (
        *("kernel", "kind", "launches", "tiles", "ms", "share"),
        *("GFLOP/s", "of peak", "GB/s", "of copy", "balance", "compile us"),
    )
    ordered = sorted(profile.kernels, key=lambda kernel: -kernel.core_seconds)
    rows = [_kernel_row(profile, kernel) for kernel in ordered[:_LONGEST]]
    if rest := ordered[_LONGEST:]:
        time = sum(kernel.core_seconds for kernel in rest)
        empty = [""] * len(columns)
        empty[0], empty[2] = f"{len(rest)} more", str(sum(kernel.launches for kernel in rest))
        empty[4] = _milliseconds(sum(kernel.seconds for kernel in rest))
        empty[5] = _percent(profile.share(time))
        rows.append(tuple(empty))
    return Table("Kernels", columns, tuple(rows))


def _kernel_row(profile: Profile, kernel: Kernel) -> tuple[str, ...]:
    return (
        kernel.name,
        kernel.kind + (" (fallback)" if kernel.fallback else ""),
        str(kernel.launches),
        str(kernel.tiles),
        _milliseconds(kernel.seconds),
        _percent(profile.share(kernel.core_seconds)),
        f"{kernel.flops_per_second / 1e9:.1f}",
        _percent(kernel.flops_per_second / profile.peak_flops),
        f"{kernel.bytes_per_second / 1e9:.1f}",
        _percent(kernel.bytes_per_second / profile.copy_bytes),
        _percent(kernel.balance(profile.cores)),
        f"{kernel.compile_seconds * 1e6:.1f}",
    )


def _onnx_operators(profile: Profile) -> Table:
    rows = [
        (name, str(launches), _milliseconds(seconds), _percent(profile.share(seconds)))
        for name, launches, seconds in profile.onnx_operators()[:_LONGEST]
    ]
    return Table(
        "ONNX operators in a kernel", ("operators", "launches", "core ms", "share"), tuple(rows)
    )


def _instructions(profile: Profile) -> Table:
    rows = [
        (
            entry.family,
            entry.unit,
            str(entry.count),
            _milliseconds(entry.core_seconds),
            _percent(profile.share(entry.core_seconds)),
            f"{entry.core_seconds / entry.count * 1e9:.0f}" if entry.count else "",
        )
        for entry in profile.instructions()[:_LONGEST]
    ]
    columns = ("instruction", "unit", "count", "core ms", "share", "ns each")
    return Table("Instructions", columns, tuple(rows))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
