"""Structural patches for sglang: applied by syntax, checked across commits, reverted exactly."""

__version__ = "0.1.0"
