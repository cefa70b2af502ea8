"""Runs that somebody ends: by RunOptions, by Ctrl-C, on the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import dvm_graph
from dvm_graph.runtime import vendor
from dvm_graph.runtime.vendor_session import VendorSession
from models import tiny_path
from tests.runtime.children import PROLOGUE, SECONDS, heed_interrupts, in_child

VENDOR = {"node_NonZero_1"}
"""Of the model "nonzero", to be left to the vendor library."""


def test_options_that_are_set() -> None:
    options = dvm_graph.RunOptions()
    feeds = {"x": np.ones((2, 17), np.float32)}
    model = dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
    expected = model.run(feeds, run_options=options)
    options.terminate = True
    for _ in range(3):
        with pytest.raises(dvm_graph.CancelledError):
            model.run(feeds, run_options=options)
    np.testing.assert_array_equal(model.run(feeds)[0], expected[0])
    options.terminate = False
    np.testing.assert_array_equal(model.run(feeds, run_options=options)[0], expected[0])


@pytest.mark.parametrize("what", ["endless(), ON, OFF", "long_kernels(), LONG, SHORT"])
def test_ended_from_another_thread(what: str) -> None:
    in_child(
        f"""
        source, long, short = {what}
        model = dvm_graph.optimize(source)
        options = dvm_graph.RunOptions()
        for thread_runs in (False, True):
            options.terminate = False
            threading.Timer(0.1, setattr, (options, "terminate", True)).start()
            ended = []
            def run():
                try:
                    while True:
                        model.run(long, run_options=options)
                except dvm_graph.CancelledError as error:
                    ended.append(error)
            if thread_runs:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()
            else:
                run()
            assert len(ended) == 1
            assert np.array_equal(model.run(short)[0], *short.values()) or len(short) == 2
        """
    )


@pytest.mark.parametrize("what", ["endless(), ON, OFF", "long_kernels(), LONG, SHORT"])
def test_ended_by_interrupts(what: str) -> None:
    in_child(
        f"""
        source, long, short = {what}
        model = dvm_graph.optimize(source)
        for _ in range(2):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                while True:
                    model.run(long)
            except KeyboardInterrupt:
                pass
            model.run(short)
        """
    )


def test_the_first_vendor_call_and_making_its_session_leave_the_main_thread_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that raises ends them; later calls, known to be short, stay where they are asked for."""
    makers = []
    real = onnxruntime.InferenceSession

    def make(*args: Any, **options: Any) -> onnxruntime.InferenceSession:
        makers.append(threading.current_thread())
        return real(*args, **options)

    monkeypatch.setattr(vendor, "vendor_session", lambda: make)
    dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
    assert makers and threading.main_thread() not in makers
    session = VendorSession(lambda: None, loops=False)  # not used
    threads = [session.call(lambda *_: threading.current_thread(), None) for _ in range(3)]
    assert [thread is threading.main_thread() for thread in threads] == [False, True, True]


def test_interrupts_of_optimize() -> None:
    """A handler ends it at any stage, which is where it is after some more of it each time; nothing stays behind."""
    in_child(
        """
        t = onnx.TensorProto
        nodes = [h.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(1000)]
        nodes.append(h.make_node("NonZero", ["v1000"], ["z"]))
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("v0", t.FLOAT, ["n", "n"])],
                             [h.make_tensor_value_info("z", t.INT64, [2, "m"])])
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
        begin = time.monotonic()
        dvm_graph.optimize(model)
        whole, interrupted = time.monotonic() - begin, 0
        for part in range(5):
            timer = threading.Timer(whole * part / 6, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                dvm_graph.optimize(model)
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
        assert interrupted == 5
        (z,) = dvm_graph.optimize(model).run({"v0": np.eye(3, dtype=np.float32)})
        assert np.array_equal(z, [[0, 1, 2], [0, 1, 2]])
        """
    )


def test_a_handler_that_raises_nothing_lets_the_run_go_on() -> None:
    in_child(
        """
        model = dvm_graph.optimize(long_kernels())
        handled = []
        signal.signal(signal.SIGINT, lambda *_: handled.append(0))
        threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT)).start()
        (result,) = model.run({"v0": np.eye(1000, dtype=np.float32)})
        while not handled:
            time.sleep(0.01)
        assert np.array_equal(result, np.eye(1000)) and len(handled) == 1
        """
    )


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("endless", ["run"]),
        ("endless", ["bench"]),
        ("endless", ["compare"]),
        ("long_kernels", ["run", "--dim", "n=3500"]),
        ("long_kernels", ["bench", "--dim", "n=1000", "--repeats", "1000"]),
    ],
)
def test_commands_end_with_status_130(source: str, arguments: list[str], tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(PROLOGUE, namespace)
    model = tmp_path / "model.onnx"
    model.write_bytes(namespace[source]().SerializeToString())
    if source == "endless":
        np.savez(tmp_path / "feeds.npz", **namespace["ON"])
        arguments = [*arguments, "--feeds", str(tmp_path / "feeds.npz")]
    command, *rest = arguments
    # -v says when the model is there, and the command at work.
    child = subprocess.Popen(
        [sys.executable, "-m", "dvm_graph.cli", command, str(model), "-v", *rest],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert child.stderr is not None
    assert "optimised" in child.stderr.readline()
    timer = threading.Timer(0.2, child.send_signal, (signal.SIGINT,))
    timer.start()
    try:
        _, errors = child.communicate(timeout=SECONDS)
    finally:
        child.kill()
    assert child.returncode == 130, errors
    assert "interrupted" in errors and "Traceback" not in errors


def test_interrupts_about_when_a_call_aside_ends() -> None:
    """One that came with the outcome took it along, and the caller waited for another one."""
    in_child(
        """
        from dvm_graph.process import call_aside

        class Stopped(Exception):
            pass

        def stop(*_):
            raise Stopped

        signal.signal(signal.SIGALRM, stop)
        stopped = 0
        for number in range(3000):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 100 * 2e-6)
                    assert call_aside(lambda: number, lambda: None) == number
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stopped:
                stopped += 1
        assert stopped > 100, stopped
        assert call_aside(lambda: 5, lambda: None) == 5
        """
    )
