"""The smoke test on a real GPU with a real sglang; skipped where there is none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from rewriter.commands.smoke import gpus_of, patched_copy
from rewriter.probes.serve import smoke
from rewriter.session import opened
from rewriter.targets import resolve

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpus() -> int:
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("needs sglang installed in this interpreter")
    found = gpus_of(sys.executable)
    if not found:
        pytest.skip("needs a GPU that torch sees")
    return found


@pytest.mark.parametrize("mode", smoke.MODES)
def test_patched_server_gives_the_same_tokens_without_the_cast(
    gpus: int, mode: str, tmp_path: Path
) -> None:
    session = opened(resolve(), None, False)
    patched = patched_copy(session, tmp_path / "patched")
    report = smoke.run(patched, tmp_path, python=sys.executable, modes=[mode])
    assert report.fine, report.rows


def test_two_gpus(gpus: int, tmp_path: Path) -> None:
    if gpus < 2:
        pytest.skip("needs two GPUs")
    session = opened(resolve(), None, False)
    patched = patched_copy(session, tmp_path / "patched")
    report = smoke.run(patched, tmp_path, python=sys.executable, modes=["graphs"], gpus=2)
    assert report.fine, report.rows
