"""Where the time of a model's runs goes: kernels, instructions, cores, compiler, vendor library."""

from dvm_graph.profile.collect import profile_program
from dvm_graph.profile.profile import Instruction, Kernel, Profile, Span, Timeline
from dvm_graph.profile.text import Table, tables
from dvm_graph.profile.trace import write_trace

__all__ = [
    "Instruction",
    "Kernel",
    "Profile",
    "Span",
    "Table",
    "Timeline",
    "profile_program",
    "tables",
    "write_trace",
]
