"""Codemods in small, for tests of writing: one that others stand upon, one that replaces."""
