"""The command line: `dvm-graph run|compare|bench|report|visualize|dump|disasm MODEL`."""

from dvm_graph.cli.group import main

__all__ = ["main"]
