"""Mixer.mix doubles what was noted: it stands upon what alpha puts in."""

from rewriter.codemod import Codemod, Insert, Site


class Beta(Codemod):
    """Anchored on another codemod's insertion."""

    target = "sglang/srt/layers/mixer.py"
    supports = ">=0.5,<0.6"
    requires = ("alpha",)
    sites = (Site("Mixer.mix", "double", "y = _tools.note(y)", Insert("y = _tools.double(y)")),)
