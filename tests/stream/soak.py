"""Flushes random programs again and again, from several threads, then takes turns of loops, and looks whether memory grows.

`python -m tests.stream.soak [--flushes 100000] [--threads 2] [--turns 100000]`
"""

from __future__ import annotations

import threading
from pathlib import Path

import click
import numpy as np
import onnx

import dvm_graph
from dvm_graph import _core
from dvm_graph.stream import open_stream
from tests.stream.programs import on_stream, random_program

PROGRAMS = 20
TURNS = 100
"""Of a loop."""
LOOPS = """<ir_version: 8, opset_import: ["": 18]> g (float[n, m] x, int64 k) => (float[n, m] y, float[t, n] rows, float[r] grown) {
  yes = Constant<value = bool {1}>()
  y, rows = Loop(k, yes, x) <
    body = turn (int64 i, bool go, float[n, m] s) => (bool more, float[n, m] after, float[n] row) {
        more = Identity(go)
        a = Tanh(s)
        w = Transpose(a)
        p = MatMul(a, w)
        after = MatMul(p, a)
        one = Constant<value_ints = [1]>()
        row = ReduceSum<keepdims = 0>(after, one)
    }
  >
  flat = Constant<value_ints = [-1]>()
  first = Reshape(x, flat)
  grown = Loop(k, yes, first) <
    body = grow (int64 i, bool go, float[a] s) => (bool more, float[b] longer) {
        more = Identity(go)
        from = Constant<value_ints = [-1]>()
        to = Constant<value_ints = [1000000]>()
        last = Slice(s, from, to)
        next = Cos(last)
        longer = Concat<axis = 0>(s, next)
    }
  >
}"""


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def flush_programs(stream: _core.Stream, first_seed: int, flushes: int) -> None:
    """Programs take turns; the last result of each is compared with numpy's."""
    programs = [random_program(first_seed + i) for i in range(PROGRAMS)]
    given = [[stream.constant(array) for array in program.given] for program in programs]
    for i in range(flushes):
        program, values = programs[i % PROGRAMS], given[i % PROGRAMS]
        held = on_stream(program, stream, values)
        last = max(held)
        np.testing.assert_array_equal(held[last].numpy(), program.values[last])


def take_turns(model: dvm_graph.Model, turns: int) -> None:
    """In loops of `TURNS`, of states that keep their shape and of one that grows; results are compared with numpy's."""
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    state, rows, grown = x, [], [*x.ravel()]
    for _ in range(TURNS):
        a = np.tanh(state)
        state = (a @ a.T) @ a
        rows.append(state.sum(1))
        grown.append(np.cos(grown[-1]))
    for _ in range(turns // (2 * TURNS)):
        results = model.run({"x": x, "k": np.array(TURNS)})
        for result, wanted in zip(results, (state, rows, grown), strict=True):
            np.testing.assert_allclose(result, np.array(wanted), rtol=1e-3, atol=1e-5)


@click.command(help=__doc__)
@click.option("--flushes", default=100_000)
@click.option("--threads", default=2)
@click.option("--turns", default=100_000)
def main(flushes: int, threads: int, turns: int) -> None:
    stream = open_stream()
    each = flushes // (10 * threads)
    for tenth in range(10):
        workers = [
            threading.Thread(target=flush_programs, args=(stream, 100 * i, each))
            for i in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(f"{(tenth + 1) * each * threads} flushes: {resident_bytes() / 2**20:.1f} MiB")
    model = dvm_graph.optimize(onnx.parser.parse_model(LOOPS), strict=True)
    for tenth in range(10):
        take_turns(model, turns // 10)
        print(f"{(tenth + 1) * turns // 10} turns: {resident_bytes() / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
