"""Rows to CSV and back, statistics and tables."""

from __future__ import annotations

import math
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cpus import family
from benchmarks.first import first_measured, first_table
from benchmarks.messages import feed_file
from benchmarks.paired import best_peer, geometric_mean, lowest, pairs, percentile
from benchmarks.results import Results
from benchmarks.rows import Row, median_ratio, read_rows, write_rows
from benchmarks.tables import (
    Table,
    again_table,
    compile_table,
    kernels_table,
    noise_table,
    number,
    points_table,
    speedup_table,
)
from benchmarks.worker import max_error
from dvm_graph.npu.cpu import cpu_in


def row(engine: str, index: int, *runs_ms: float, **values: object) -> Row:
    base = Row("operators", "matmul", index, f"m={index}", engine, "ok", runs_ms=runs_ms)
    return replace(base, **values)


def compiled(*longest_us: float, rest: float = 0.0) -> dict[str, object]:
    total = tuple(one + rest for one in longest_us)
    return {"kernels": 2, "compile_us": total, "longest_us": longest_us}


ROWS = [  # the machine was at half speed in the last round of m=0 and in the first of m=1
    row(
        "dvm_graph", 0, 1.0, 1.0, 3.0, firsts_ms=(1.5, 2.0, 3.0), **compiled(7.0, 6.0, 8.0, rest=2)
    ),
    row("dvm_graph", 1, 8.0, 4.0, 4.0, firsts_ms=(8.0, 4.0, 4.0), **compiled(5.0, 5.0, 60.0)),
    row("onnxruntime", 0, 2.0, 3.0, 4.0, controls_ms=(2.0, 3.3, 4.4), cold_ms=3.5, error=0.0),
    row("onnxruntime", 1, 4.0, 2.0, 1.0, controls_ms=(4.0, 2.0, 1.0), cold_ms=1.0, error=0.0),
    row("torch", 0, 1.0, 1.0, 1.0),
    row("torch", 1, status="wrong"),
]


def test_rows_survive_a_file(tmp_path: Path) -> None:
    write_rows(Row, ROWS, tmp_path / "rows.csv")
    again = read_rows(Row, tmp_path / "rows.csv")
    assert [repr(one) for one in again] == [repr(one) for one in ROWS]  # NaN is not itself


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("part,workload\nmodels,bert\n")
    with pytest.raises(ValueError, match="run the benchmark again"):
        read_rows(Row, tmp_path / "rows.csv")


def test_percentiles_are_values_that_occur() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, p) for p in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([3.0], 50) == 3.0
    assert percentile([math.nan, 2.0, 1.0, math.nan], 99) == 2.0
    assert math.isnan(percentile([], 50)) and math.isnan(percentile([math.nan], 50))


def test_geometric_mean_of_ratios_is_symmetric() -> None:
    assert geometric_mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)
    assert math.isnan(geometric_mean([]))


def test_ratios_are_medians_of_pairs_not_ratios_of_medians() -> None:
    subject, peer = ROWS[0], ROWS[2]
    assert peer.run_ms / subject.run_ms == 3.0
    assert median_ratio(peer.runs_ms, subject.runs_ms) == 2.0
    assert subject.first_over_repeat == 1.5
    assert peer.noise == pytest.approx(1.1) and math.isnan(subject.noise)


def test_rounds_that_were_not_measured_do_not_count() -> None:
    assert median_ratio((6.0, 8.0, 9.0), (2.0, math.nan, 1.0)) == 6.0
    assert math.isnan(median_ratio((), (1.0,))) and math.isnan(median_ratio((1.0,), ()))
    with pytest.raises(ValueError):
        median_ratio((1.0, 2.0), (1.0,))


def test_pairs_leave_out_wrong_results() -> None:
    assert [pair.speedup for pair in pairs(ROWS, "onnxruntime")] == [2.0, 0.5]
    assert [pair.speedup for pair in pairs(ROWS, "torch")] == [1.0]


def test_the_best_peer_ran_every_point() -> None:
    assert best_peer(ROWS) == "onnxruntime"


def test_the_best_peer_does_not_round() -> None:
    rounding = [row("openvino_bf16", index, 0.5) for index in (0, 1)]
    assert best_peer([*ROWS, *rounding]) == "onnxruntime"


def test_the_lowest_speedup_is_over_any_engine_that_does_not_round() -> None:
    rounding = [row("openvino_bf16", index, 0.1, 0.1, 0.1) for index in (0, 1)]
    found = lowest([*ROWS, *rounding])
    assert {key: (pair.peer.engine, pair.speedup) for key, pair in found.items()} == {
        ("matmul", "m=0"): ("torch", 1.0),
        ("matmul", "m=1"): ("onnxruntime", 0.5),
    }


def test_points_measured_again_stand_beside_what_they_were() -> None:
    again = [
        replace(row("dvm_graph", 0, 2.0, 2.0, 2.0), point="m=1"),
        replace(row("onnxruntime", 0, 1.8, 2.2, 1.9), point="m=1"),
        replace(row("torch", 0, 4.0, 4.0, 4.0), point="m=1"),
    ]
    assert again_table(ROWS, again).rows == (
        ("matmul", "m=1", "0.500", "onnxruntime", "0.950", "onnxruntime", "0.90 - 1.10"),
    )


def test_compile_time_is_exact_where_the_engine_says_it() -> None:
    assert ROWS[0].compile_ms == pytest.approx(0.009) and ROWS[0].compile_max_ms == 0.007
    assert [ROWS[2].compile_ms, ROWS[3].compile_ms] == [0.5, 0.0]


def test_the_binding_ceiling_is_the_nearer_one() -> None:
    one = row("dvm_graph", 0, 1.0, 2.0, 1.0, flops=50_000_000, bytes=8_000_000)
    one = replace(one, fma_gflops=(100.0, 50.0, 100.0), copy_gbs=(10.0, 5.0, 9.0))
    one = replace(one, read_gbs=(32.0, 16.0, 32.0))
    assert one.achieved == pytest.approx(0.8)
    assert replace(one, part="models").achieved == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, ""), (0.0, "0.00"), (1.234, "1.23"), (0.0012, "1.2e-03"), (math.inf, "inf")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_markdown_escapes_bars() -> None:
    table = Table("t", ("a", "b"), (("1|2", "3"),))
    assert table.markdown() == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"


def test_tables_say_what_the_rows_hold() -> None:
    assert "| matmul | onnxruntime (best peer) | 2 | 1.000 | 0.50 - 2.00 | 50 % |" in (
        speedup_table(ROWS).markdown()
    )
    assert "| matmul | dvm_graph | 2 | 0.007 | 0.014 | 5.0 |" in compile_table(ROWS).markdown()
    assert "| matmul | 2 | 4 | 5.0 | 0.014 | 0.28 % | 3.5 | 7.0 | 60.0 |  |  |  |  |" in (
        kernels_table(ROWS).markdown()
    )
    assert "| matmul | 2 | 1.049 | 0.050 | 50 % |" in noise_table(ROWS).markdown()
    assert "| matmul | m=1 | 4.00 | 2.00 | wrong |" in points_table(ROWS).markdown()


def test_what_was_first_measured_stays(tmp_path: Path) -> None:
    def results(factor: float) -> Results:
        rows = [replace(one, part="zoo", runs_ms=(factor, factor)) for one in ROWS[2:4]]
        rows += [replace(one, part="zoo", runs_ms=(1.0, 1.0)) for one in ROWS[:2]]
        return Results({"zoo": rows}, (), (), (), "zen4", {})

    path = tmp_path / "first.csv"
    (first,) = first_measured(results(2.0), path)
    assert (first.workload, first.against, first.speedup) == ("matmul", "onnxruntime", 2.0)
    text = path.read_text()
    assert first_measured(results(3.0), path) == [first] and path.read_text() == text
    table = first_table([first], results(3.0).parts["zoo"])
    assert table.rows == (("matmul", "onnxruntime", "2.00", "3.00"),)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("AuthenticAMD", "25", "17"), "zen4"),
        (("AuthenticAMD", "25", "33"), "zen3"),
        (("GenuineIntel", "6", "85"), "skylake-server"),
        (("GenuineIntel", "6", "106"), "icelake-server"),
        (("GenuineIntel", "6", "42"), "genuineintel-6-42"),
        (("", "", ""), platform.machine().replace("_", "-")),
    ],
)
def test_a_cpu_has_the_name_of_its_family(fields: tuple[str, str, str], name: str) -> None:
    info = "processor : 0\nvendor_id : {}\ncpu family : {}\nmodel : {}\n\nprocessor : 1\n"
    assert family(cpu_in(info.format(*fields))) == name


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_error_is_relative_to_the_largest_magnitude(chunk: int) -> None:
    expected = np.array([[1.0, -8.0], [2.0, 0.5]], np.float32)
    actual = expected + np.array([[0, 0], [0.25, 0]], np.float32)
    assert max_error(actual, expected, chunk) == pytest.approx(0.25 / 8)
    assert max_error(expected, expected, chunk) == 0.0
    assert max_error(actual[:1], expected, chunk) == math.inf
    actual[0, 0] = np.nan
    assert max_error(actual, expected, chunk) == math.inf


def test_feeds_are_found_in_the_order_of_the_inputs(tmp_path: Path) -> None:
    names = [feed_file(tmp_path, position, f"x-{position}").name for position in range(12)]
    assert [int(name.partition("-")[0]) for name in names] == list(range(12))
    assert [Path(name).stem.partition("-")[2] for name in names] == [f"x-{i}" for i in range(12)]
