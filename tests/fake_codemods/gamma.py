"""Mixer.spread builds a tuple."""

from rewriter.codemod import Codemod, Replace, Site


class Gamma(Codemod):
    """No insertion: the original layout is gone, so only the record can give it back."""

    target = "sglang/srt/layers/mixer.py"
    supports = ">=0.5,<0.6"
    sites = (Site("Mixer.spread", "spread", "[{x}] * self.width", Replace("({x},) * self.width")),)
