"""A backend for `torch.compile`: `torch.compile(module, backend="dvm", dynamic=True)` (docs/torch.md)."""

from dvm_graph.torch_backend.backend import dvm

__all__ = ["dvm"]
