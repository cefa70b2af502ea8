"""Which family of CPUs a result was measured on; tables and plots of one family stand beside those of others.

Out: short names for use in file names and page regions. A CPU that `npu/specs/host/families.toml` lacks is named by
vendor, family and model.
"""

from __future__ import annotations

import platform
import re

from dvm_graph.npu.cpu import Cpu, this_cpu
from dvm_graph.npu.machine import family_and_table


def family(cpu: Cpu) -> str:
    """The short name of the family; in lower-case letters, digits and hyphens."""
    known = family_and_table(cpu)
    if known is not None:
        return known[0]
    name = f"{cpu.vendor}-{cpu.family}-{cpu.model}" if cpu.vendor else platform.machine()
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def this_machine() -> tuple[str, str]:
    """The family of this machine's CPU, and its name in full."""
    cpu = this_cpu()
    return family(cpu), cpu.name or platform.machine()
