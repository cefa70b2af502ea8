"""What the process does besides compiling and running: calls aside, modules loaded late, files mapped and told apart."""

from dvm_graph.process.aside import call_aside, in_main_thread
from dvm_graph.process.collector import made_for_good
from dvm_graph.process.digest import digest_of
from dvm_graph.process.load import (
    load_compiler,
    load_module,
    load_onnxruntime,
    vendor_failures,
    vendor_session,
)
from dvm_graph.process.mapped_file import MappedFile, drop_pages, file_of

__all__ = [
    "MappedFile",
    "call_aside",
    "digest_of",
    "drop_pages",
    "file_of",
    "in_main_thread",
    "load_compiler",
    "load_module",
    "load_onnxruntime",
    "made_for_good",
    "vendor_failures",
    "vendor_session",
]
