"""Mixer.mix notes what it mixes."""

from rewriter.codemod import Codemod, Companion, Insert, Site, import_line

TOOLS = Companion("sglang/srt/layers/_rewriter_tools.py", "tools")


class Alpha(Codemod):
    """A pure insertion with a companion."""

    target = "sglang/srt/layers/mixer.py"
    supports = ">=0.5,<0.6"
    companions = (TOOLS,)
    sites = (
        import_line("from sglang.srt.layers import _rewriter_tools as _tools"),
        Site("Mixer.mix", "note", "y = {x} * SCALE", Insert("y = _tools.note(y)")),
    )
