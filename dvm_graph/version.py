"""The version of the package: saved models name it, and are read by no other one."""

__version__ = "0.1.0"
