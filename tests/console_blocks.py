"""What the pages of the documentation show was really printed: run their console blocks.

A block ``console`` holds commands, each behind ``$ ``, and what they print. All blocks of a page
run in order, in a directory of the page's own with an unpacked sglang in ``site-packages``. A block
``console title="not run here"`` is left alone.

    python tests/console_blocks.py docs/PAGE.md…     write down again what is printed
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASE = "0.5.12.post1"
HOME = "/home/user"
"""What stands for the page's directory in what is printed."""

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def outcome(text: str, place: Path, wheel: Path, cache: Path) -> str:
    """Return a page with what its commands print now."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site-packages")
    environment = _environment(place, cache)

    def run(block: re.Match[str]) -> str:
        lines = [line for line in block[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(_shown(line, place, environment) for line in lines) + "```"

    return _BLOCK.sub(run, text)


def _shown(line: str, place: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", line[2:]], cwd=place, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
    )  # fmt: skip
    printed = done.stdout.replace(str(place), HOME)
    if printed and not printed.endswith("\n"):
        printed += "\n"
    code = f"(exit code {done.returncode})\n" if done.returncode else ""
    return f"{line}\n{printed}{code}"


def _environment(place: Path, cache: Path) -> dict[str, str]:
    programs = place / ".bin"
    programs.mkdir()
    for name, words in (("rewriter", "-m rewriter"), ("python", "")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "REWRITER_CACHE_DIR": str(cache),
        "REWRITER_STATE_DIR": str(place / ".state"),
    }


def main() -> None:
    """Write the pages that were named, with what their commands print now."""
    from rewriter.cache import cache_directory
    from rewriter.targets.release import Release

    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as scratch:
            text = page.read_text(encoding="utf-8")
            wheel = Path(Release(RELEASE).path)
            now = outcome(text, Path(scratch).resolve(), wheel, cache_directory())
        page.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
