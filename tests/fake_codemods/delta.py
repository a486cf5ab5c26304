"""Norm.forward squares by a call; it shares its companion with alpha."""

from rewriter.codemod import Codemod, Companion, Site, Wrap, import_line


class Delta(Codemod):
    """Another file, the same companion."""

    target = "sglang/srt/layers/scaler.py"
    supports = ">=0.5,<0.6"
    companions = (Companion("sglang/srt/layers/_rewriter_tools.py", "tools"),)
    sites = (
        import_line("from sglang.srt.layers import _rewriter_tools as _tools"),
        Site("Scaler.scale", "scale", "x * self.factor", Wrap("_tools.keep")),
    )
