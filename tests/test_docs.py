"""The documentation: it builds without a warning, its links lead somewhere, its output is real."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import console_blocks
import docs_stage
import pytest

from rewriter.cli import COMMANDS
from rewriter.targets.release import Release

ROOT = Path(__file__).parent.parent
PAGES = console_blocks.pages()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install -e '.[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / page.with_suffix(".html").name).is_file(), page.name


@pytest.mark.wheels
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_shows_is_printed(
    page: Path, release: Callable[[str], Release], wheel_cache_of_tests: Path, tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    commands = console_blocks.commands(text)
    for version in docs_stage.releases(commands):
        release(version)  # fetched with the user's own configuration, which the page has not
    wheel = Path(release(docs_stage.RELEASE).path)
    place = tmp_path.resolve()
    with docs_stage.staged(place, commands, wheel, wheel_cache_of_tests) as stage:
        now, messages = console_blocks.run(text, stage)
    assert now == text, f"write it down again: python tests/console_blocks.py {page.name}"
    assert [message for message in messages if not message.is_real()] == []


def test_every_quoted_message_is_provoked() -> None:
    """By a command in front of it, or by a test that asserts its words."""
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    terms = re.findall(r"(\S+\n)\n(`.*)\n:   ", text)
    assert len(terms) >= 20
    assert [term for before, term in terms if before != "-->\n"] == []
    for message, file in console_blocks.elsewhere(text):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert [p for p in message.split("…") if p.strip() not in source] == [], message


def test_every_command_has_its_place() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    told = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert sorted(told) == sorted(COMMANDS)


def test_no_text_of_upstreams_is_shown() -> None:
    """Of a diff of a real release only our own lines may stand on a page."""
    for page in PAGES:
        for command, printed in console_blocks.shown(page.read_text(encoding="utf-8")):
            ours = any(part in command for part in ("sglang.git", "trees", "small", "new.patch"))
            assert ours or "\n@@ " not in printed, (page.name, command)
