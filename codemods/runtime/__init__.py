"""Modules that a codemod installs into its target: self-contained, never importing rewriter."""
