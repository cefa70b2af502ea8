"""What somebody may want of a run: to end it.

Invariant: whoever sets `terminate` ends the kernels and the vendor operators of the runs that got these
options, however the setting falls between the two.
"""

from __future__ import annotations

from typing import Any

from dvm_graph import _core


class RunOptions:
    """Given to `Model.run`, as onnxruntime's `RunOptions`. Several runs may share one.

    Setting `terminate`, from another thread or a signal handler, ends the runs that have it: each raises
    `CancelledError`, between two tiles of a kernel or two nodes of a vendor operator, and the model stays
    usable. A run that begins while it is set ends at once.
    """

    __slots__ = ("_stop", "_vendor")

    def __init__(self) -> None:
        self._stop = _core.StopFlag()
        self._vendor: Any = None

    @classmethod
    def of(cls, options: Any) -> RunOptions:
        """For these options, which may be onnxruntime's: setting their `terminate` later ends vendor
        operators only.
        """
        if isinstance(options, cls):
            return options
        made = cls()
        made.terminate = bool(options.terminate)
        made._vendor = options
        return made

    def __repr__(self) -> str:
        return f"RunOptions(terminate={self.terminate})"

    @property
    def terminate(self) -> bool:
        """Whether runs with these options are to end."""
        return self._stop.set

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._stop.set = bool(value)
        if self._vendor is not None:
            self._vendor.terminate = bool(value)

    @property
    def stop_flag(self) -> _core.StopFlag:
        """What kernels look at."""
        return self._stop

    def of_vendor(self) -> Any:
        """Options of onnxruntime that end with these."""
        if self._vendor is None:
            import onnxruntime  # a vendor operator asks: it is loaded

            self._vendor = onnxruntime.RunOptions()
            self._vendor.terminate = self.terminate  # set meanwhile, or it will be
        return self._vendor
