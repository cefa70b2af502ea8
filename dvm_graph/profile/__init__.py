"""Where the time of a model's runs goes: kernels, instructions, cores, compiler, vendor library."""

from dvm_graph.profile.collect import profile_program
from dvm_graph.profile.profile import Instruction, Kernel, Profile, Span, Timeline
from dvm_graph.profile.text import Table, print_table, tables
from dvm_graph.profile.trace import (
    Event,
    complete_event,
    lane_events,
    name_event,
    write_events,
    write_trace,
)

__all__ = [
    "Event",
    "Instruction",
    "Kernel",
    "Profile",
    "Span",
    "Table",
    "Timeline",
    "complete_event",
    "lane_events",
    "name_event",
    "print_table",
    "profile_program",
    "tables",
    "write_events",
    "write_trace",
]
