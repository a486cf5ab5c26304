"""The codemod on a source of our own. Pins: `rewriter pin 0.5.9 --codemod norm_watch`."""

from rewriter.testing import assert_refuses, assert_reverts, assert_rewrites, assert_untouched

BEFORE = """\
import torch


class RMSNorm:
    def forward_native(self, x):
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(variance)


class GemmaRMSNorm:
    def forward_native(self, y):
        variance = y.pow(2).mean(dim=-1, keepdim=True)  # over the last
        return y * torch.rsqrt(variance)
"""
IMPORT = "import torch\nfrom sglang.srt.layers import _rewriter_norm_watch as _norm_watch\n"
LINE = "        _norm_watch.watch(self, variance)\n"
AFTER = (
    BEFORE.replace("import torch\n", IMPORT)
    .replace("keepdim=True)\n", "keepdim=True)\n" + LINE)
    .replace("last\n", "last\n" + LINE)
)


def test_one_line_behind_each_variance():
    assert_rewrites("norm_watch", BEFORE, AFTER)
    assert_reverts("norm_watch", BEFORE)


def test_another_power_is_drift():
    assert_refuses("norm_watch", BEFORE.replace("pow(2)", "pow(3)"), "has no `variance = ")


def test_other_norms_are_left_alone():
    assert_untouched("norm_watch", BEFORE.replace("RMSNorm", "LayerNorm"))
