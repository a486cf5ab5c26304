"""What lies in the directory that a page of the documentation runs in.

    python tests/docs_stage.py [DIRECTORY [PORT]]     lay out the parts there, and serve

Always: the programs ``rewriter``, ``python``, ``pip`` and ``pytest``, of an environment of the
page's own that also sees all that the running one has. Further parts where a command of the page
names them:

===================  =============================================================================
``site-packages``    sglang 0.5.9 as its wheel holds it, where the page does not install it
``small``            a site-packages with an sglang of two files, our own text
``fork``             a working tree that changed the place that ``mla_kv_gather`` edits
``sglang.git``       a repository in which the codemod lives through everything
``before.json.gz``   a trace of decode steps that convert the whole pool; an H200's, 8 layers
``after.json.gz``    the same with a patch
``trees``            working trees ``old``, ``new`` and ``latest``, and ``own.patch`` for the first
``127.0.0.1:30000``  a server that speaks sglang's API; its real port is another
===================  =============================================================================
"""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

import docs_trees
import fake_sglang_server
import matrix_history
from fake_sglang import FILES, installed_files

RELEASE = "0.5.9"
_TRACES = Path(__file__).parent / "data" / "traces"

SERVER = "127.0.0.1:30000"
HOME = "/home/user"
"""What stands for the page's directory in what is printed."""


class Stage(NamedTuple):
    """Where the commands of a page run.

    Attributes:
        place: the directory.
        environment: of its shell.
        names: what is shown → what it really is, in commands and in what they print.
    """

    place: Path
    environment: Mapping[str, str]
    names: Mapping[str, str]

    def meant(self, text: str) -> str:
        """Return what is shown as it really is."""
        for shown, real in self.names.items():
            text = text.replace(shown, real)
        return text

    def named(self, text: str) -> str:
        """Return what was printed as it is shown."""
        for shown, real in self.names.items():
            text = text.replace(real, shown)
        return text


@contextmanager
def staged(place: Path, commands: Sequence[str], wheel: Path, cache: Path) -> Iterator[Stage]:
    """Lay out the directory of a page."""
    words = "\n".join(commands)
    for name, make in PARTS.items():
        if name in words:
            make(place / name)
    if "site-packages" in words and "--target site-packages" not in words:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place / "site-packages")
    names = {HOME: str(place), "python3.11": f"python3.{sys.version_info[1]}"}
    with ExitStack() as stack:
        if SERVER in words:
            behaviour = fake_sglang_server.Behaviour(first=0.004, gap=0.001)
            served = stack.enter_context(fake_sglang_server.serving(behaviour))
            names[SERVER] = served.url.partition("//")[2]
        yield Stage(place, _environment(place, cache), names)


def _written(root: Path, contents: Mapping[str, bytes]) -> None:
    for path, raw in contents.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)


def _package(kind: str) -> dict[str, bytes]:
    backend = matrix_history.source(kind)
    return {**FILES, "sglang/srt/layers/attention/__init__.py": b"", matrix_history.FILE: backend}


def _small(place: Path) -> None:
    _written(place, installed_files("0.5.9", _package("ready")))


def _fork(place: Path) -> None:
    project = b'[project]\nname = "sglang"\ndynamic = ["version"]\n'
    tree = {path: raw for path, raw in _package("drifted").items() if "version" not in path}
    _written(place / "python", {**tree, "pyproject.toml": project})


PARTS: Mapping[str, Callable[[Path], object]] = {
    "small": _small,
    "fork": _fork,
    "sglang.git": matrix_history.storied,
    "trees": docs_trees.write,
    "before.json.gz": lambda place: shutil.copy(_TRACES / "trace-graphs-dummy.json.gz", place),
    "after.json.gz": lambda place: shutil.copy(
        _TRACES / "trace-graphs-random-triton.json.gz", place
    ),
}


def _environment(place: Path, cache: Path) -> dict[str, str]:
    python = _virtual_environment(place / ".venv")
    kept = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "REWRITER", "COV_"))
    }  # fmt: skip
    return {
        **kept,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "REWRITER_CACHE_DIR": str(_cache(place / ".cache", cache)),
        "REWRITER_STATE_DIR": str(place / ".state"),
        "PIP_NO_INDEX": "1",  # what a page installs is there already, or is a wheel of the cache
        "PIP_FIND_LINKS": str(cache / "wheels"),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the other way round
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }


def _cache(place: Path, wheels: Path) -> Path:
    """Make a cache that has the wheels of another one, and no verdict yet."""
    place.mkdir()
    (place / "wheels").symlink_to(wheels / "wheels")
    return place


def _virtual_environment(place: Path) -> Path:
    """Make one by hand, which takes no time, with all that the running one has in it."""
    packages = place / "lib" / f"python3.{sys.version_info[1]}/site-packages"
    packages.mkdir(parents=True)
    known = "; ".join(f"site.addsitedir({folder!r})" for folder in site.getsitepackages())
    (packages / "running.pth").write_text(f"import site; {known}\n", encoding="utf-8")
    home = Path(sys.executable).resolve().parent
    (place / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    python = place / "bin" / f"python3.{sys.version_info[1]}"
    python.parent.mkdir()
    for each in (python, python.with_name("python"), python.with_name("python3")):
        each.symlink_to(Path(sys.executable).resolve())
    for name, module in (("rewriter", "rewriter"), ("pip", "pip"), ("pytest", "pytest")):
        script = python.parent / name
        script.write_text(f'#!/bin/sh\nexec "{python}" -m {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return python


def releases(commands: Sequence[str]) -> set[str]:
    """Return the releases that commands name, which have to be fetched before they run."""
    return set(re.findall(r"\b0\.[45]\.\d+(?:\.post\d+|rc\d+)?", "\n".join(commands)))


def main() -> None:
    """Lay out what pages name, for a reader who runs their commands, and answer as a server."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    port = int(sys.argv[2] if len(sys.argv) > 2 else SERVER.rpartition(":")[2])
    place.mkdir(parents=True, exist_ok=True)
    for name, make in PARTS.items():
        make(place / name)
        print(f"wrote {place / name}")
    behaviour = fake_sglang_server.Behaviour(first=0.004, gap=0.001)
    with suppress(KeyboardInterrupt), fake_sglang_server.serving(behaviour, port) as served:
        print(f"serving on {served.url}; interrupt to end", flush=True)
        Event().wait()


if __name__ == "__main__":
    main()
