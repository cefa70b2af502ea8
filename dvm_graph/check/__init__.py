"""Translation validation: a compiled model held to what its operators mean.

In: a model. Out: a `CheckReport`. See `validate`.
"""

from dvm_graph.check.findings import CheckReport, Finding, Subject
from dvm_graph.check.referee import float64_outputs
from dvm_graph.check.validate import checked_compile, validate

__all__ = ["CheckReport", "Finding", "Subject", "checked_compile", "float64_outputs", "validate"]
