"""``python -m rewriter``."""

from rewriter.cli import main

main()
