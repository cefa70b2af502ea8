"""Which family of CPUs a result was measured on; tables and plots of one family stand beside those of others.

Out: short names for use in file names and page regions. A CPU that the table lacks is named by vendor, family and model.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path

_FAMILIES: Mapping[tuple[str, int, range], str] = {
    ("AuthenticAMD", 0x17, range(0x30, 0x100)): "zen2",
    ("AuthenticAMD", 0x19, range(0x00, 0x10)): "zen3",
    ("AuthenticAMD", 0x19, range(0x20, 0x60)): "zen3",
    ("AuthenticAMD", 0x19, range(0x10, 0x20)): "zen4",
    ("AuthenticAMD", 0x19, range(0x60, 0xB0)): "zen4",
    ("AuthenticAMD", 0x1A, range(0x00, 0x100)): "zen5",
    ("GenuineIntel", 0x06, range(0x55, 0x56)): "skylake-server",
    ("GenuineIntel", 0x06, range(0x6A, 0x6D)): "icelake-server",
    ("GenuineIntel", 0x06, range(0x8F, 0x90)): "sapphire-rapids",
}
"""By vendor, family and models. Intel's 0x55 is Skylake, Cascade Lake and Cooper Lake: the same core."""


def described(info: str) -> Mapping[str, str]:
    """Fields of the first CPU in the text of /proc/cpuinfo."""
    lines = (line.partition(":") for line in info.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def family(fields: Mapping[str, str]) -> str:
    """The short name of the family; in lower-case letters, digits and hyphens."""
    words = [fields.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    if words[1].isdigit() and words[2].isdigit():
        for (vendor, number, models), name in _FAMILIES.items():
            if vendor == words[0] and number == int(words[1]) and int(words[2]) in models:
                return name
    known = [word for word in words if word] or [platform.machine()]
    return re.sub("[^a-z0-9]+", "-", "-".join(known).lower()).strip("-")


def this_machine() -> tuple[str, str]:
    """The family of this machine's CPU, and its name in full."""
    try:
        fields = described(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        fields = {}
    return family(fields), fields.get("model name", platform.machine())
