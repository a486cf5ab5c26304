"""Structural patches for sglang: applied by syntax, checked across commits, reverted byte for byte."""

__version__ = "0.1.0"
