"""Serve a reduced GLM-5 on a real sglang, unpatched and patched, and compare.

What runs on the GPU is in here; what it takes to decide is not: which package to serve comes as
a directory for PYTHONPATH, so the installed one is never touched.
"""
