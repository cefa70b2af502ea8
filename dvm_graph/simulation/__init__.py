"""What a model would take on a part that is not at hand: simulated for given dims, without data."""

from dvm_graph.simulation.collect import Plan, simulate_program
from dvm_graph.simulation.record import CoreTiles, Host, Launch, Simulation, Stage, Unit

__all__ = ["CoreTiles", "Host", "Launch", "Plan", "Simulation", "Stage", "Unit", "simulate_program"]
