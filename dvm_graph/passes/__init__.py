"""Small passes over graphs of basic operators, one file each. Each returns whether it changed anything."""

from dvm_graph.passes.absorb_views import absorb_views
from dvm_graph.passes.collect_scales import collect_scales
from dvm_graph.passes.copy_widened import copy_widened
from dvm_graph.passes.eliminate_common import eliminate_common
from dvm_graph.passes.eliminate_dead import eliminate_dead
from dvm_graph.passes.fill_branches import fill_branches
from dvm_graph.passes.fold_constants import fold_constants
from dvm_graph.passes.fold_scales import fold_scales
from dvm_graph.passes.join_lookups import join_lookups
from dvm_graph.passes.lift_invariants import lift_invariants
from dvm_graph.passes.simplify import simplify
from dvm_graph.passes.sink_concats import sink_concats
from dvm_graph.passes.sink_divisions import sink_divisions
from dvm_graph.passes.sink_transposes import sink_transposes
from dvm_graph.passes.tabulate import tabulate
from dvm_graph.passes.turn_products import turn_products

__all__ = [
    "absorb_views",
    "collect_scales",
    "copy_widened",
    "eliminate_common",
    "eliminate_dead",
    "fill_branches",
    "fold_constants",
    "fold_scales",
    "join_lookups",
    "lift_invariants",
    "simplify",
    "sink_concats",
    "sink_divisions",
    "sink_transposes",
    "tabulate",
    "turn_products",
]
