"""Which CPU this is: its identity from /proc/cpuinfo, and its caches from /sys.

Nothing here fails: what the system does not say is missing from the answer. Reads a few small files.
"""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_KIBIBYTES = re.compile(r"(\d+)K")


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU as the system names it."""

    vendor: str = ""
    """`AuthenticAMD`; of Arm CPUs the implementer, `0x41`."""
    family: int = 0
    model: int = 0
    """Of Arm CPUs the part."""
    name: str = ""

    @property
    def key(self) -> str:
        """Unlike that of any other kind of CPU; fit for the name of a file."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-")
        return "-".join(filter(None, (self.vendor, str(self.family), str(self.model), name)))


@functools.cache
def this_cpu() -> Cpu:
    """The first CPU of the machine."""
    return cpu_in(_text(CPUINFO))


def cpu_in(cpuinfo: str) -> Cpu:
    """The first CPU that the text of /proc/cpuinfo describes."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            if fields:
                break
            continue
        fields.setdefault(name.strip(), value.strip())
    if "CPU implementer" in fields:
        part = _integer(fields.get("CPU part", ""))
        return Cpu(fields["CPU implementer"], 0, part, fields.get("model name", ""))
    return Cpu(
        fields.get("vendor_id", ""),
        _integer(fields.get("cpu family", "")),
        _integer(fields.get("model", "")),
        fields.get("model name", ""),
    )


def cache_sizes(folder: Path = CACHES) -> dict[str, int]:
    """Fields of `npu/host/machine.def` as far as the system says them."""
    found: dict[str, int] = {}
    for entry in sorted(folder.glob("index*")):
        level, kind = _text(entry / "level").strip(), _text(entry / "type").strip()
        size = _KIBIBYTES.match(_text(entry / "size"))
        if size is None or kind == "Instruction":
            continue
        bytes_ = int(size[1]) * 1024
        if level == "1":
            found["first_bytes"] = bytes_
            for field, name in (
                ("first_ways", "ways_of_associativity"),
                ("line_bytes", "coherency_line_size"),
            ):
                if value := _integer(_text(entry / name).strip()):
                    found[field] = value
        elif level == "2":
            found["private_bytes"] = bytes_
        elif level == "3":
            found["shared_bytes"] = bytes_
    return found


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeError):
        return path.read_text(encoding="utf-8")
    return ""


def _integer(text: str) -> int:
    with contextlib.suppress(ValueError):
        return int(text, 0)
    return 0
