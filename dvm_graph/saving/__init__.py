"""Compiled models in files, and back: a start that compiles nothing.

What is kept is what the core was told to make the program (`runtime.recipe`), the contents of constants as
they lie in memory, packed panels included, and what users may ask of a model. Loading needs none of the compiler:
`save` is imported by who saves.
"""

from dvm_graph.saving.cache import CACHE_VARIABLE, entry_of
from dvm_graph.saving.load import RUN_OPTIONS, SavedModel, load_model, load_report
from dvm_graph.saving.saved_file import is_saved

__all__ = [
    "CACHE_VARIABLE",
    "RUN_OPTIONS",
    "SavedModel",
    "entry_of",
    "is_saved",
    "load_model",
    "load_report",
]
