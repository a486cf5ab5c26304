"""RMSNorm and GemmaRMSNorm say once when they are given what is not finite.

Why: a NaN spreads to the last token before anybody sees it; the first norm that meets it names the
layer's inputs as the place to look.
Drop when: sglang has a check of its own for values that are not finite.
"""

from __future__ import annotations

from rewriter.codemod import Codemod, Companion, Insert, Site, import_line


class NormWatch(Codemod):
    """One line behind each variance."""

    target = "sglang/srt/layers/layernorm.py"
    supports = ">=0.5.8,<0.6"
    drop_when = "sglang has a check of its own for values that are not finite"
    companions = (Companion("sglang/srt/layers/_rewriter_norm_watch.py", "companions/watch"),)
    sites = (
        import_line("from sglang.srt.layers import _rewriter_norm_watch as _norm_watch"),
        *(
            Site(
                f"{name}.forward_native",
                "variance",
                "variance = {x}.pow(2).mean(dim=-1, keepdim=True)",
                Insert("_norm_watch.watch(self, variance)"),
            )
            for name in ("RMSNorm", "GemmaRMSNorm")
        ),
    )
