"""LSTM, GRU and RNN, and cells written as a Scan, against onnxruntime, over steps, batch and hidden values.

`python -m benchmarks.units.recurrent [--op LSTM] [--threads 2] [--rounds 40] [--strict]`

Both engines take turns, in processes of their own, which are stopped meanwhile: idle threads of an engine may spin. What
is shown is onnxruntime's median time over ours, and our median. As many inputs as hidden values. `--strict` leaves
nothing to onnxruntime. `--op Decoder`: a loop of as many turns, which attends to all rows that it has added to two
caches, with `--heads` heads. `--op Beams`: one that takes the caches of its batch in another order behind each turn;
`--op Static`: one whose caches have a place for each turn from the beginning, as `torch.while_loop` wants them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import click
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dvm_graph
from dvm_graph import Options

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCHES, HIDDEN = (1, 10, 100, 500), (1, 8, 32), (64, 128, 256, 512)
Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
_SECONDS, _TURN = 0.15, 0.01
"""Time of an engine at one point, from which on there are no further rounds, and of a turn, about."""


def recurrent(op: str, hidden: int, direction: str = "forward", heads: int = 1) -> onnx.ModelProto:
    """The operator over any number of steps and batches; `Scan`: h = tanh(x + h R); `Attention`: h = tanh(x + softmax(h K^T) V)
    with K = m R and V = m R^T for the memory m of all x, which turns compute alike.
    """
    random = np.random.default_rng(0)
    if op in DECODERS:
        return decoder(op, hidden, heads)
    if op in ("Scan", "Attention"):
        size = hidden**0.5 if op == "Scan" else hidden  # of scores, so that turns forget errors
        r = (random.standard_normal((hidden, hidden)) / size).astype(np.float32)
        return _scan(numpy_helper.from_array(r, "r"), hidden, attends=op == "Attention")
    directions = 2 if direction == "bidirectional" else 1
    rows = GATES[op] * hidden
    shapes = {
        "w": (directions, rows, hidden),
        "r": (directions, rows, hidden),
        "b": (directions, 2 * rows),
    }
    arrays = {n: random.uniform(-1, 1, s) / hidden**0.5 for n, s in shapes.items()}
    node = helper.make_node(
        op, ["x", *shapes], ["y"], hidden_size=hidden, direction=direction, name="n"
    )
    return _model([node], [_float("x", ["t", "b", hidden])], [_float("y", None)], arrays)


def _scan(r: TensorProto, hidden: int, *, attends: bool = False) -> onnx.ModelProto:
    state: list[str | int] = ["b", hidden]
    read = _attention() if attends else [helper.make_node("MatMul", ["h", "r"], ["m"])]
    nodes = [
        *read,
        helper.make_node("Add", ["m", "row"], ["a"]),
        helper.make_node("Tanh", ["a"], ["after"]),
        helper.make_node("Identity", ["after"], ["out"]),
    ]
    body = helper.make_graph(
        nodes,
        "turn",
        [_float("h", state), _float("row", state)],
        [_float("after", state), _float("out", state)],
    )
    first = helper.make_node("ReduceMean", ["x", "axes"], ["first"], keepdims=0)
    scan = helper.make_node("Scan", ["first", "x"], ["last", "y"], num_scan_inputs=1, body=body)
    around = [first, helper.make_node("Transpose", ["x"], ["memory"], perm=[1, 0, 2])]
    model = _model([*around, scan], [_float("x", ["t", *state])], [_float("y", ["t", *state])], {})
    model.graph.initializer.extend([r, numpy_helper.from_array(np.array([0]), "axes")])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    return model


_TURN_OF_DECODER = """
    on = Identity(go)
    split = Constant <value_ints = [0, HEADS, 1, -1]>()
    join = Constant <value_ints = [0, -1]>()
    scale = Constant <value_float = SCALE>()
    zero = Constant <value_int = 0>() one = Constant <value_int = 1>()
    qm = MatMul(h, wq) km = MatMul(h, wk) vm = MatMul(h, wv)
    q = Reshape(qm, split) k = Reshape(km, split) v = Reshape(vm, split)
    SEEN
    turned = Transpose <perm = [0, 1, 3, 2]>(seen_k)
    scores = MatMul(q, turned)
    scaled = Mul(scores, scale)
    SHARES
    heads = MatMul(shares, seen_v)
    mixed = Reshape(heads, join)
    o = MatMul(mixed, wo)
    sum = Add(o, h)
    after = Tanh(sum)
    row = Identity(after)
    KEPT
"""
_APPENDED = """
    seen_k = Concat <axis = 2>(past_k, k)
    seen_v = Concat <axis = 2>(past_v, v)
"""
_PLACED = """
    four = Constant <value_ints = [1, 1, 1, 1]>() at = Reshape(i, four) shape = Shape(k) places = Expand(at, shape)
    seen_k = ScatterElements <axis = 2>(past_k, places, k)
    seen_v = ScatterElements <axis = 2>(past_v, places, v)
    extent = Shape <start = 2, end = 3>(past_k) count = Squeeze(extent) all = Range(zero, count, one)
    is_seen = LessOrEqual(all, i) never = Constant <value_float = -1e30>()
"""
_OF_ALL = "shares = Softmax <axis = -1>(scaled)"
_OF_SEEN = "counted = Where(is_seen, scaled, never) shares = Softmax <axis = -1>(counted)"
_KEPT = "all_k = Identity(seen_k) all_v = Identity(seen_v)"
_REORDERED = """
    many = Shape <end = 1>(h) batch = Squeeze(many) each = Range(zero, batch, one)
    moved = Add(each, i) order = Mod(moved, many)
    all_k = Gather <axis = 0>(seen_k, order) all_v = Gather <axis = 0>(seen_v, order)
"""
DECODERS = {
    "Decoder": {"SEEN": _APPENDED, "SHARES": _OF_ALL, "KEPT": _KEPT},
    "Beams": {"SEEN": _APPENDED, "SHARES": _OF_ALL, "KEPT": _REORDERED},
    "Static": {"SEEN": _PLACED, "SHARES": _OF_SEEN, "KEPT": _KEPT},
}


def decoder(op: str, hidden: int, heads: int) -> onnx.ModelProto:
    """y, a row for each turn: attention of a state to all states before it, whose keys and values are kept."""
    cache = f"float[b, {heads}, P, {hidden // heads}]"
    turn = _TURN_OF_DECODER
    words = {"HEADS": str(heads), "SCALE": str((heads / hidden) ** 0.5)}
    for word, text in (DECODERS[op] | words).items():
        turn = turn.replace(word, text)
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    decoder (int64 n, float[b, {hidden}] x, {cache.replace("P", "p0")} none) => (float[t, b, {hidden}] y) {{
      last, keys, values, y = Loop (n, "", x, none, none) <
        body = turn (int64 i, bool go, float[b, {hidden}] h, {cache.replace("P", "p")} past_k, {cache.replace("P", "o")} past_v)
            => (bool on, float[b, {hidden}] after, {cache.replace("P", "r")} all_k, {cache.replace("P", "s")} all_v,
                float[b, {hidden}] row) {{{turn}}}
      >
    }}"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for name in ("wq", "wk", "wv", "wo"):
        weights = (random.standard_normal((hidden, hidden)) / hidden**0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return model


def _feeds(
    op: str, x: np.ndarray[Any, Any], model: onnx.ModelProto
) -> Feeds | np.ndarray[Any, Any]:
    """Of rows [steps, batch, hidden]; a decoder makes as many from the first ones."""
    if op not in DECODERS:
        return x
    heads, size = (d.dim_value for d in model.graph.input[2].type.tensor_type.shape.dim[1::2])
    rows = len(x) if op == "Static" else 0
    none = np.zeros((x.shape[1], heads, rows, size), np.float32)
    return {"n": np.array(len(x)), "x": x[0], "none": none}


def _attention() -> list[onnx.NodeProto]:
    """`m` of the memory for the state `h`, with the weights `r`."""
    return [
        helper.make_node("Transpose", ["r"], ["other"], perm=[1, 0]),
        helper.make_node("MatMul", ["memory", "r"], ["keys"]),
        helper.make_node("MatMul", ["memory", "other"], ["values"]),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Unsqueeze", ["h", "one"], ["query"]),
        helper.make_node("MatMul", ["query", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "values"], ["mixed"]),
        helper.make_node("Squeeze", ["mixed", "one"], ["m"]),
    ]


def _float(name: str, shape: list[str | int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    arrays: dict[str, np.ndarray[Any, Any]],
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _serve(connection: Connection, ours: bool, options: Options) -> None:
    """Takes a model, or inputs and how often to run; gives nothing, or the result and the seconds of each run.

    No inputs: those before, and no result.
    """
    run: Callable[[Feeds], Any] | None = None
    feeds: Feeds = {}
    while (message := connection.recv()) is not None:
        if isinstance(message, bytes):
            run = _engine(message, ours, options)
            connection.send(None)
            continue
        given, rounds = message
        if given is not None:
            feeds = given if isinstance(given, Mapping) else {"x": given}
        assert run is not None
        result, times = run(feeds), []
        for _ in range(rounds):
            begin = time.perf_counter()
            run(feeds)
            times.append(time.perf_counter() - begin)
        connection.send((None if given is None else result, times))


def _engine(model: bytes, ours: bool, given: Options) -> Callable[[Feeds], Any]:
    if ours:
        compiled = dvm_graph.optimize(model, given)
        return lambda feeds: compiled.run(feeds)[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.cores or 0
    session = onnxruntime.InferenceSession(model, options)
    return lambda feeds: session.run(None, dict(feeds))[0]


class Party:
    """The process of an engine; it runs only while it is asked. Feeds of one array are those of an input `x`.

    Of options, onnxruntime takes the number of cores.
    """

    def __init__(self, ours: bool, options: Options) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, ours, options), daemon=True)
        self._process.start()

    def ask(self, message: object) -> Any:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._connection.send(message)
        answer = self._connection.recv()
        os.kill(self._process.pid, signal.SIGSTOP)
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def medians(
    ours: Party,
    theirs: Party,
    x: Feeds | np.ndarray[Any, Any],
    rounds: int,
    tolerance: float = 1e-4,
) -> tuple[float, float]:
    """Seconds of ours and of onnxruntime's run, which take turns of several runs."""
    (mine, first), (reference, _) = ours.ask((x, 3)), theirs.ask((x, 3))
    greatest = max(1.0, np.max(np.abs(reference), initial=0))
    np.testing.assert_allclose(mine, reference, rtol=1e-3, atol=tolerance * greatest)
    each = max(2, min(50, round(_TURN / min(first))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for party, taken in zip((ours, theirs), times, strict=True):
            taken += party.ask((None, each))[1]
        if sum(times[0]) > _SECONDS:
            break
    return statistics.median(times[0]), statistics.median(times[1])


@click.command()
@click.option(
    "--op",
    "ops",
    multiple=True,
    default=("LSTM", "GRU"),
    help="or RNN, Scan, Attention, Decoder, Beams, Static",
)
@click.option("--direction", default="forward")
@click.option("--heads", default=1, help="of a Decoder, Beams or Static")
@click.option("--threads", default=2)
@click.option("--rounds", default=40)
@click.option("--strict", is_flag=True, help="leave nothing to onnxruntime")
@click.option("--steps", multiple=True, type=int, default=STEPS)
@click.option("--batch", "batches", multiple=True, type=int, default=BATCHES)
@click.option("--hidden", "sizes", multiple=True, type=int, default=HIDDEN)
def main(
    ops: tuple[str, ...],
    direction: str,
    heads: int,
    threads: int,
    rounds: int,
    strict: bool,
    steps: tuple[int, ...],
    batches: tuple[int, ...],
    sizes: tuple[int, ...],
) -> None:
    random = np.random.default_rng(1)
    options = Options(cores=threads, strict=strict)
    mine, peer = Party(True, options), Party(False, options)
    for op in ops:
        table = Table(title=f"{op}, {direction}: onnxruntime's time over ours (ours in us)")
        for heading in ("hidden", "batch", *(f"{count} steps" for count in steps)):
            table.add_column(heading, justify="right")
        speedups: list[float] = []
        for hidden in sizes:
            model = recurrent(op, hidden, direction, heads)
            for party in (mine, peer):
                party.ask(model.SerializeToString())
            for batch in batches:
                cells = []
                for count in steps:
                    x = random.standard_normal((count, batch, hidden)).astype(np.float32)
                    tolerance = (
                        1e-3 if op in DECODERS else 1e-4
                    )  # turns add to the errors of those before
                    ours, theirs = medians(mine, peer, _feeds(op, x, model), rounds, tolerance)
                    speedups.append(theirs / ours)
                    cells.append(f"{theirs / ours:.2f} ({ours * 1e6:.0f})")
                table.add_row(str(hidden), str(batch), *cells)
        Console(width=110).print(table)
        mean = statistics.geometric_mean(speedups)
        print(f"{op}: geometric mean {mean:.2f}, least {min(speedups):.2f}", flush=True)
    for party in (mine, peer):
        party.end()


if __name__ == "__main__":
    main()
