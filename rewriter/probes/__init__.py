"""Measuring and proving: independent of targets and codemods, torch only lazily."""
