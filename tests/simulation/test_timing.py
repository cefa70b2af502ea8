"""Timing on simulated parts: what any machine of this kind obeys, whatever its constants are."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest
from onnx import parser

import dvm_graph
from dvm_graph import _core
from dvm_graph.errors import InputError
from dvm_graph.npu.spec import Spec, find_spec
from dvm_graph.simulation import Simulation

SPEC = find_spec("ascend910b2")
TINY = Path(__file__).parents[2] / "models" / "tiny"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
GRAPHS = {
    "add": "g (float[n] x, float[n] y) => (float[n] o) { o = Add(x, y) }",
    "norm": "g (float[b,h] x, float[h] w, float[h] c) => (float[b,h] o) {"
    " o = LayerNormalization<axis=-1>(x, w, c) }",
    "chain": "g (float[n] x) => (float[n] o) { a = Erf(x) b = Sin(a) c = Exp(b) d = Tanh(c) o = Erf(d) }",
    "product": "g (float[m,k] x, float[k,n] y) => (float[m,n] o) { o = MatMul(x, y) }",
    "half": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { o = MatMul(x, y) }",
    "added": "g (float16[m,k] x, float16[k,n] y, float16[m,n] c) => (float16[m,n] o)"
    " { p = MatMul(x, y) o = Add(p, c) }",
    "squared": "g (float16[m,k] x) => (float16[m,k] o) { o = Mul(x, x) }",
    "of_squares": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { s = Mul(x, x) o = MatMul(s, y) }",
    "of_squares_added": "g (float16[m,k] x, float16[k,n] y, float16[m,n] c) => (float16[m,n] o)"
    " { s = Mul(x, x) p = MatMul(s, y) o = Add(p, c) }",
    "of_relu_erf": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o)"
    " { r = Relu(x) p = MatMul(r, y) o = Erf(p) }",
    "weighted": "g (float16[m,k] x, float16[k,n] y) => (float16[m,n] o) { w = Softmax<axis=-1>(x) o = MatMul(w, y) }",
    "softmax_twice": "g (float[b,h] x) => (float[h,b] o) { s = Softmax<axis=1>(x)"
    " t = Transpose<perm=[1,0]>(s) o = Softmax<axis=1>(t) }",
    "experts": "g (float[m,k] x, float[k,n] y, float[k,n] z) => (float[m,n] o, float[m,n] p)"
    " { o = MatMul(x, y) p = MatMul(x, z) }",
    "turns": "g (float[b,h] x) => (float[b,h] o) { a = Softmax<axis=0>(x) c = Softmax<axis=1>(a)"
    " d = Softmax<axis=0>(c) e = Softmax<axis=1>(d) o = Softmax<axis=0>(e) }",
    "taps_9": "g (float[n,64,h,w] x, float[64,1,3,3] k) => (float[n,64,p,q] o) { o = Conv<group=64>(x, k) }",
    "taps_49": "g (float[n,64,h,w] x, float[64,1,7,7] k) => (float[n,64,p,q] o) { o = Conv<group=64>(x, k) }",
    "taps_of_4": "g (float[n,64,h,w] x, float[64,4,3,3] k) => (float[n,64,p,q] o) { o = Conv<group=16>(x, k) }",
    "side_by_side": "g (float[n] x, float[m] y) => (float[n] o, float[m] p) { o = Exp(x) p = Exp(y) }",
}


@functools.cache
def model(name: str) -> dvm_graph.Model:
    if name.endswith(".onnx"):
        return dvm_graph.optimize(TINY / name)
    return dvm_graph.optimize(parser.parse_model(HEAD + GRAPHS[name]))


def simulate(name: str, npu: Spec = SPEC, /, **dims: int) -> Simulation:
    return model(name).simulate(dims, npu=npu)


def device(name: str, npu: Spec = SPEC, /, **dims: int) -> float:
    return simulate(name, npu, **dims).device_seconds


def test_a_bandwidth_bound_kernel_approaches_the_bandwidth() -> None:
    bandwidth = SPEC["bandwidth.hbm"] * SPEC["bandwidth.hbm_efficiency"]
    found = simulate("add", n=1 << 30)
    (stage,) = found.stages
    rate = stage.memory_bytes / stage.seconds
    assert 0.85 * bandwidth < rate <= bandwidth * (1 + 1e-9)
    assert stage.memory_bytes == pytest.approx(stage.bytes, rel=1e-6)
    assert stage.read + stage.written == pytest.approx(stage.bytes, rel=1e-6)


def test_a_cube_bound_kernel_approaches_its_peak() -> None:
    peak = 2 * SPEC["cube.tile"] ** 3 * SPEC["cores.cube"] * SPEC["cores.frequency"]
    (stage,) = simulate("half", m=8192, n=8192, k=8192).stages
    assert 0.9 * peak < stage.flops_per_second <= peak
    assert stage.units["cube"].busy > 0.9


@pytest.mark.parametrize(
    ("m", "n", "k"), [(8000, 8192, 28672), (8000, 28672, 8192), (5000, 5120, 5120)]
)
def test_cores_of_a_product_share_what_they_read(m: int, n: int, k: int) -> None:
    """Operands larger than the cache come from memory a few times, not once for each block."""
    (stage,) = simulate("half", m=m, n=n, k=k).stages
    assert stage.bytes <= stage.memory_bytes * (1 + 1e-9)
    assert stage.memory_bytes < 4 * stage.bytes and stage.read > 8 * stage.bytes


def test_vector_cores_add_a_matrix_while_the_cube_unit_goes_on() -> None:
    """The sums do not go to memory and back, and what vector cores do hides behind the products."""
    dims = {"m": 4096, "n": 4096, "k": 4096}
    (product,), (added,) = simulate("half", **dims).stages, simulate("added", **dims).stages
    assert added.kind == "cube+vector"
    assert set(added.lane_units) == {"vector", "mte2", "mte3"}
    matrix = 2 * dims["m"] * dims["n"]
    assert added.memory_bytes < product.memory_bytes + 1.1 * matrix
    assert (
        added.read + added.written > product.read + product.written + 2 * 4 * dims["m"] * dims["n"]
    )
    assert 0.95 * product.seconds < added.seconds < 1.1 * product.seconds


@pytest.mark.parametrize(("name", "after"), [("of_squares", "half"), ("of_squares_added", "added")])
def test_rows_computed_beside_a_product_do_not_go_to_memory(name: str, after: str) -> None:
    """Where memory is what takes long, a pair takes less than the two kernels that it replaces."""
    dims = {"m": 200_000, "n": 128, "k": 512}
    (pair,) = simulate(name, **dims).stages
    (squares,) = simulate("squared", m=dims["m"], k=dims["k"]).stages
    (product,) = simulate(after, **dims).stages
    assert pair.kind == "cube+vector"
    assert pair.memory_bytes == pytest.approx(product.memory_bytes, rel=0.02)
    rows = 2 * dims["m"] * dims["k"]
    assert pair.read + pair.written > product.read + product.written + 1.9 * rows
    assert pair.seconds < 0.65 * (squares.seconds + product.seconds)
    bandwidth = SPEC["bandwidth.hbm"] * SPEC["bandwidth.hbm_efficiency"]
    assert pair.memory_bytes / pair.seconds > 0.8 * bandwidth


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_a_last_line_of_few_rows_takes_little(rows: int) -> None:
    """Whatever it is cut into for the lanes, the lines before it are not cut into tiles as short."""
    even = device("weighted", m=3760, n=625, k=31)
    assert device("weighted", m=3760 + rows, n=625, k=31) < 1.15 * even


def test_traces_have_the_flags_of_both_rings() -> None:
    found = model("of_squares_added").simulate(
        {"m": 200_000, "n": 128, "k": 512}, npu=SPEC, trace=3000
    )
    flags = [flag for stage in found.stages for flag in stage.flags]
    between = {(flag.source, flag.target) for flag in flags if flag.core != flag.from_core}
    assert between == {("fixp", "mte2"), ("mte2", "fixp"), ("mte3", "mte2"), ("mte2", "mte3")}


def test_rows_that_many_cores_need_are_computed_before() -> None:
    """By all vector cores, once: each cube core would compute all of them for itself."""
    found = simulate("of_squares", m=64, n=4096, k=4096)
    assert [stage.kind for stage in found.stages] == ["vector", "cube"]


def test_a_function_that_takes_long_behind_a_product_has_all_lanes() -> None:
    """Beside rows it has half of them: they are computed before, unless the part has it in few cycles."""
    dims = {"m": 9427, "n": 2048, "k": 128}
    fast = SPEC.changed("fast", cycles__v_erf=1)
    assert [stage.kind for stage in simulate("of_relu_erf", **dims).stages] == [
        "vector",
        "cube+vector",
    ]
    assert [stage.kind for stage in simulate("of_relu_erf", fast, **dims).stages] == ["cube+vector"]


@pytest.mark.parametrize("name", ["added", "of_squares", "of_squares_added"])
def test_a_slower_vector_unit_never_makes_a_pair_faster(name: str) -> None:
    dims = {"m": 4000, "n": 1024, "k": 256}
    slow = SPEC.changed("slow", vector__bytes_per_cycle=16, startup__vector=400)
    assert device(name, slow, **dims) > 1.2 * device(name, **dims)


def test_time_grows_with_work_once_cores_are_busy() -> None:
    times = [device("add", n=1 << bits) for bits in (26, 28, 30)]
    assert all(2 < later / earlier < 4.6 for earlier, later in itertools.pairwise(times))


def cycles(name: str, part: Spec, **dims: int) -> float:
    """Of the programs for the whole part, whatever part they run on."""
    return sum(
        stage.timing.cycles
        for launch in found_launches(name, 0, part, **dims)
        for stage in launch.stages
    )


def test_every_tile_is_of_one_core() -> None:
    found = [simulate("bert.onnx", batch=3, seq=17), simulate("experts", m=400, n=500, k=600)]
    found += [simulate("of_squares", m=5000, n=128, k=512), simulate("side_by_side", n=9000, m=70)]
    for stage in (stage for each in found for stage in each.stages):
        tiles: dict[str, list[tuple[int, int]]] = {}
        for core in stage.core_tiles:
            for kernel, begin, end in core.tiles:
                tiles.setdefault(kernel, []).append((begin, end))
        cores = [(core.kind, core.core) for core in stage.core_tiles]
        assert len(set(cores)) == len(cores) == stage.cores
        assert all(core < SPEC[f"cores.{kind}"] for kind, core in cores)
        assert tiles.keys() == set(stage.kernels)
        for kernel, ranges in tiles.items():
            ranges.sort()
            of_kernel = [
                n for name, n in zip(stage.kernels, stage.tiles, strict=True) if name == kernel
            ]
            assert all(a[1] == b[0] for a, b in itertools.pairwise([(0, 0), *ranges]))
            assert ranges[-1][1] in of_kernel


def test_twice_the_cores_at_most_halve_the_time() -> None:
    half = SPEC.changed(
        "half", cores__cube=12, cores__vector=24, target__cores=24, target__cube_cores=12
    )
    for name, dims in (
        ("chain", {"n": 1 << 22}),
        ("norm", {"b": 4096, "h": 1024}),
        ("add", {"n": 12345678}),
        ("product", {"m": 1000, "k": 512, "n": 768}),
    ):
        few, many = cycles(name, half, **dims), cycles(name, SPEC, **dims)
        assert few / 2 <= many * (1 + 1e-9) and many <= few * (1 + 1e-9), name


@pytest.mark.parametrize(
    "slower",
    [
        {"bandwidth__hbm": 0.8e12},
        {"bandwidth__hbm_per_core": 8},
        {"bandwidth__l2_read_per_core": 20},
        {"bandwidth__l2_write_per_core": 20},
        {"bandwidth__l2_over_hbm": 1},
        {"bandwidth__vector_store": 10},
        {"vector__bytes_per_cycle": 64},
        {"cube__peak_f32": 50e12},
        {"scalar__decode": 400},
        {"scalar__sync": 200},
        {"scalar__queue": 1},
        {"startup__vector": 200},
        {"startup__vector_load": 3000},
        {"cores__frequency": 0.9e9},
        {"memory__l2": 1e6},
        {"memory__block": 512},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_slower_unit_never_makes_a_kernel_faster(slower: dict[str, float]) -> None:
    part = SPEC.changed("slower", **slower)
    for name, dims in (
        ("chain", {"n": 1 << 20}),
        ("norm", {"b": 999, "h": 1000}),
        ("add", {"n": 7654321}),
        ("product", {"m": 300, "k": 512, "n": 768}),
    ):
        assert device(name, part, **dims) >= device(name, SPEC, **dims) * (1 - 1e-6), name


def test_hidden_decode_costs_nothing_and_shown_decode_does() -> None:
    free = SPEC.changed("free", scalar__decode=0, scalar__sync=0, scalar__tile=0)
    dims = {"b": 65536, "h": 2048}
    found = simulate("norm", **dims)
    (stage,) = found.stages
    assert 0 < stage.scalar < 0.5 and stage.decode_exposed < 0.01
    assert found.device_seconds == pytest.approx(device("norm", free, **dims), rel=0.01)
    slow = simulate("norm", SPEC.changed("slow", scalar__decode=5000), **dims)
    (stage,) = slow.stages
    assert stage.scalar > 0.9 and slow.device_seconds > 2 * found.device_seconds


def test_temporal_stacking_saves_the_launches_that_it_removes() -> None:
    dims = {"b": 4000, "h": 300}
    stacked = model("softmax_twice").simulate(dims)
    apart = model("softmax_twice").simulate(dims, temporal_stacking=False)
    assert len(stacked.launches) < len(apart.launches) == len(list(stacked.stages))
    assert [s.seconds for s in stacked.stages] == [s.seconds for s in apart.stages]
    saved = len(apart.launches) - len(stacked.launches)
    startups = [sum(launch.startup_seconds for launch in s.launches) for s in (stacked, apart)]
    expected = SPEC["startup.vector_kernel"] - SPEC["startup.barrier"]
    assert startups[1] - startups[0] == pytest.approx(saved * expected)


def test_spatial_stacking_raises_utilisation() -> None:
    dims = {"n": 30000, "m": 30000}
    stacked = model("side_by_side").simulate(dims)
    apart = model("side_by_side").simulate(dims, spatial_stacking=False)
    assert len(list(stacked.stages)) == 1 and len(list(apart.stages)) == 2
    assert stacked.device_seconds < apart.device_seconds


def test_kernels_side_by_side_are_one_launch_whose_table_says_what_a_core_runs() -> None:
    [launch] = model("side_by_side").simulate({"n": 30000, "m": 30000}).launches
    [stage] = launch.stages
    assert launch.startup_seconds == SPEC["startup.vector_kernel"]
    assert launch.host.launch_seconds == SPEC["host.launch"]
    run = [tuple(kernel for kernel, *_ in core.tiles) for core in stage.core_tiles]
    first, second = stage.kernels
    assert set(run) <= {(first,), (first, second), (second,)} and run.count((first, second)) <= 1
    assert run[0] == (first,) and run[-1] == (second,)


def test_kernels_of_a_launch_are_one_program_that_has_what_is_alike_once() -> None:
    launches = simulate("bert.onnx", batch=3, seq=17).launches
    assert any(launch.programs < sum(len(s.kernels) for s in launch.stages) for launch in launches)
    for launch in launches:
        assert launch.programs <= sum(len(stage.kernels) for stage in launch.stages)
        assert launch.program_bytes > 300 * launch.programs  # a header each


def test_to_stack_kernels_takes_the_host_time() -> None:
    """But for a kernel alone, whose cores find their shares themselves; and it counts where compiling is measured."""
    dims = {"n": 30000, "m": 60}
    [alone] = found_launches("add", 3, n=30000)
    [stacked] = found_launches("side_by_side", 3, **dims)
    assert alone.stack_seconds == 0 < stacked.stack_seconds
    assert found_launches("side_by_side", 0, **dims)[0].stack_seconds == 0
    [launch] = model("side_by_side").simulate(dims, measured=3).launches
    assert launch.host.compile_seconds > 0
    assert model("side_by_side").simulate(dims, measured=3, compile=False).compile_seconds == 0


def found_launches(
    name: str, repeats: int, part: Spec = SPEC, /, **dims: int
) -> list[_core.SimulatedLaunch]:
    found = model(name)._program.core.simulate(
        dims,
        SPEC.target,
        part.part,
        cold_cache=True,
        side_by_side=True,
        stacked=True,
        launch_kernels=0,
        most_spans=0,
        compile_repeats=repeats,
    )
    return found.launches


def test_products_larger_than_the_cache_take_turns_on_all_cores() -> None:
    """Side by side, each on some of the cores, they would read their operands more often."""
    dims = {"m": 4096, "n": 1024, "k": 20000}
    stacked = model("experts").simulate(dims)
    apart = model("experts").simulate(dims, spatial_stacking=False)
    assert len(list(stacked.stages)) == 1 and len(list(apart.stages)) == 2
    assert stacked.device_seconds == pytest.approx(apart.device_seconds, rel=0.02)
    read = [sum(stage.read for stage in found.stages) for found in (stacked, apart)]
    assert read[0] == pytest.approx(read[1])


def test_one_place_costs_what_two_would_hide() -> None:
    one = SPEC.changed("one", target__places=1)
    dims = {"m": 4096, "n": 4096, "k": 4096}
    assert device("half", one, **dims) > 1.5 * device("half", **dims)
    assert device("added", one, **dims) > 1.5 * device("added", **dims)
    for name, more in (("norm", {"b": 65536, "h": 1024}), ("add", {"n": 1 << 24})):
        assert device(name, one, **more) >= device(name, **more)


def test_tiles_of_one_size_are_no_better() -> None:
    largest = SPEC.changed("largest", target__largest_tiles=1)
    for name, dims in (
        ("add", {"n": 100_000}),
        ("norm", {"b": 100, "h": 1024}),
        ("half", {"m": 100, "n": 4096, "k": 4096}),
    ):
        assert device(name, largest, **dims) > 1.2 * device(name, **dims), name
    assert device("norm", largest, b=65536, h=1024) >= 0.999 * device("norm", b=65536, h=1024)


def test_the_device_begins_before_everything_is_compiled() -> None:
    dims = {"b": 4000, "h": 300}
    found = model("turns").simulate(dims)
    most = SPEC["host.launch_kernels"]
    assert len(found.launches) > 1
    for launch in found.launches:
        assert launch.host.kernels <= most or len(launch.stages) == 1
    whole = model("turns").simulate(dims, npu=SPEC.changed("whole", host__launch_kernels=1e6))
    assert len(whole.launches) == 1 and found.seconds < whole.seconds
    assert len(model("turns").simulate(dims, compile=False).launches) == 1


def test_the_host_compiles_while_the_device_works() -> None:
    dims = {"b": 4000, "h": 300}
    plan = {"temporal_stacking": False}
    pipelined = model("softmax_twice").simulate(dims, **plan)
    in_turn = model("softmax_twice").simulate(dims, overlap=False, **plan)
    known = model("softmax_twice").simulate(dims, compile=False, **plan)
    assert known.seconds < pipelined.seconds < in_turn.seconds
    assert known.compile_seconds == 0 < pipelined.compile_seconds
    for launch in in_turn.launches:
        assert launch.start == launch.host.end
    measured = model("softmax_twice").simulate(dims, measured=2)
    assert 0 < measured.compile_seconds < 0.1


def test_what_is_used_again_comes_from_the_cache() -> None:
    """A result displaces what others left there; operands come from memory the first time."""
    cold = model("add").simulate({"n": 1 << 20})
    warm = model("add").simulate({"n": 1 << 20}, cold_cache=False)
    (first,), (again,) = cold.stages, warm.stages
    assert first.memory_bytes == pytest.approx(first.bytes)
    assert again.memory_bytes == pytest.approx(again.bytes / 3)
    assert again.seconds < first.seconds
    softmax = model("softmax_twice").simulate({"b": 4000, "h": 300})
    between = list(softmax.stages)[-1]  # reads what the stage before has written
    assert between.memory_bytes <= between.bytes / 2 * 1.01


def test_equal_tiles_are_looked_at_once() -> None:
    (stage,) = simulate("norm", b=491520, h=4096).stages
    assert stage.instructions > 1_000_000 and stage.simulated < 20_000
    assert sum(stage.alike.values()) == stage.cores == 48


def test_skipping_equal_tiles_changes_nothing() -> None:
    """Twice the rows take twice the time, whether a period was found early or late."""
    rows = [96 * 48 * k for k in (8, 16, 32)]
    times = [device("norm", b=b, h=1024) for b in rows]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]), rel=0.02)


def test_simulations_are_deterministic() -> None:
    once, again = (simulate("bert.onnx", batch=3, seq=17) for _ in range(2))
    assert once.to_dict() == again.to_dict()


def test_time_is_accounted_for() -> None:
    found = simulate("bert.onnx", batch=2, seq=40)
    free = 0.0
    for launch in found.launches:
        assert launch.start >= max(free, launch.host.end) - 1e-12
        free = launch.end
    assert found.seconds == free
    for stage in found.stages:
        for unit in stage.units.values():
            waits = unit.for_decode + sum(unit.for_flag.values())
            assert unit.busy >= 0 and unit.busy + waits <= 1 + 1e-6
            assert unit.shared <= unit.busy + 1e-9


def test_dims_have_to_be_given() -> None:
    with pytest.raises(InputError, match="depends on a dim that is not given"):
        model("norm").simulate({"b": 4})
    with pytest.raises(InputError, match="no dim"):
        model("norm").simulate({"b": 4, "h": 4, "z": 4})
    with pytest.raises(InputError, match="extents are 0 or more"):
        model("norm").simulate({"b": 4, "h": -4})
    with pytest.raises(InputError, match="no option 'speed'"):
        model("norm").simulate({"b": 4, "h": 4}, speed=1)


def test_no_work_takes_no_time() -> None:
    assert simulate("norm", b=0, h=8).seconds == 0


def test_windows_take_the_time_of_their_taps() -> None:
    """As many cycles of the queue that they come through as a vector unit would take to add them up."""
    busy = {}
    for name in ("taps_9", "taps_49", "taps_of_4"):
        stage = simulate(name, n=8, h=128, w=128).launches[-1].stages[-1]
        busy[name] = stage.units["mte2"].busy * stage.seconds
    assert busy["taps_49"] / busy["taps_9"] == pytest.approx(49 / 9, rel=0.2)  # images are smaller
    assert busy["taps_of_4"] / busy["taps_9"] == pytest.approx(4, rel=0.05)
