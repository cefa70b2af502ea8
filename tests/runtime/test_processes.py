"""Forks, signals, finalizers and exits around runs, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.runtime.children import in_child

FORK = """
def children_return(work, count=6):
    '''Whether each of some forked children does the work.'''
    for i in range(count):
        time.sleep(0.007)
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            os._exit(0 if work() else 1)
        assert os.waitpid(pid, 0)[1] == 0, f"child {i}"
"""


def test_children_forked_while_threads_run() -> None:
    in_child(
        FORK
        + """
        model, feeds, right = bert()
        other, _, other_right = bert()
        nonzero = dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
        x = {"x": np.ones((2, 17), np.float32)}
        nonzero.run(x)
        stop = False

        def busy(run, feeds):
            while not stop:
                run(feeds)

        threads = [threading.Thread(target=busy, args=pair)
                   for pair in ((model.run, feeds), (model.run, feeds), (nonzero.run, x))]
        for thread in threads:
            thread.start()
        kept = model.run(feeds)
        children_return(lambda: right() and kept.clear() is None and right())
        children_return(lambda: other_right() and len(nonzero.run(x)) > 0)
        children_return(lambda: bert()[2](), 2)
        stop = True
        for thread in threads:
            thread.join()
        assert right()
        """
    )


@pytest.mark.parametrize(
    "disturb",
    [
        "ring = lambda: signal.setitimer(signal.ITIMER_REAL, 0.001); "
        "signal.signal(signal.SIGALRM, lambda *_: (run(), ring())); ring()",
        "gc.set_threshold(5)",
    ],
    ids=["signals", "finalizers"],
)
def test_runs_inside_runs_of_vendor_operators(disturb: str) -> None:
    in_child(
        f"""
        model = dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
        x = {{"x": np.ones((2, 17), np.float32)}}
        expected = model.run(x)
        depth = inner = 0

        def run():
            global depth, inner
            if depth < 3:
                depth += 1
                assert all(np.array_equal(*pair) for pair in zip(model.run(x), expected))
                depth -= 1
                inner += 1

        class Closer:
            def __init__(self):
                self.me = self
            def __del__(self):
                run()

        {disturb}
        faulthandler.dump_traceback_later(100)
        end = time.monotonic() + 1
        while time.monotonic() < end or inner < 50:
            Closer()
            model.run(x)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        gc.disable()
        """
    )


def test_a_finalizer_runs_a_model_as_the_interpreter_ends() -> None:
    said = in_child(
        """
        class Last:
            def __init__(self, run):
                self.me, self.run, self.write, self.feeds = self, run, os.write, OFF
            def __del__(self):
                self.run(self.feeds)
                self.write(1, b"ran")

        gc.disable()  # but at the end
        model = dvm_graph.optimize(endless())  # a Loop runs aside
        model.run(OFF)
        Last(model.run)
        """
    )
    assert said == "ran"


@pytest.mark.parametrize("name", ["bert", "nonzero"])
def test_daemon_threads_at_exit(name: str) -> None:
    in_child(
        f"""
        model = dvm_graph.optimize(tiny_path("{name}"), vendor_nodes=VENDOR)
        feeds = random_feeds("{name}", {{"batch": 2, "seq": 17}})
        def work():
            while True:
                model.run(feeds)
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        """
    )


def test_an_endless_daemon_thread_ends_at_exit() -> None:
    in_child(
        """
        model = dvm_graph.optimize(endless())
        threading.Thread(target=model.run, args=(ON,), daemon=True).start()
        time.sleep(0.1)
        """
    )


def test_loading_the_vendor_library_is_not_interrupted() -> None:
    """An alarm raises in the middle of the first vendor model, earlier and earlier."""
    in_child(
        FORK
        + """
        def work(seconds):
            def ring(*_):
                raise KeyboardInterrupt
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            model = dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes=VENDOR)
            return len(model.run({"x": np.ones((2, 17), np.float32)})) > 0

        dvm_graph.optimize(tiny_path("bert"))
        assert "onnxruntime" not in sys.modules
        for i in range(5):
            children_return(lambda: work(0.02 + 0.08 * i), 1)
        """
    )
