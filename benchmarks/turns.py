"""The order of the turns in a round: drawn, so that no engine always follows the same one."""

from __future__ import annotations

import random
from collections.abc import Collection

SUBJECT = "dvm_graph"
"""What every other engine is compared with."""
REFERENCE = "onnxruntime"
"""What every result is compared with."""
CEILINGS = "ceilings"
"""The party that measures the machine, right before or after the subject."""
CONTROL = "control"
"""The reference once more, not next to its other turn."""


def draw_turns(
    engines: Collection[str], generator: random.Random, *, control: bool = True
) -> list[str]:
    """The engines and the ceilings, and the control if the reference takes part."""
    order = list(engines)
    generator.shuffle(order)
    if control and REFERENCE in order:
        at = order.index(REFERENCE)
        apart = [place for place in range(len(order) + 1) if place not in (at, at + 1)]
        order.insert(generator.choice(apart or [at + 1]), CONTROL)
    at = order.index(SUBJECT) if SUBJECT in order else 0
    order.insert(at + generator.randrange(2), CEILINGS)
    return order
