"""An overlay beneath a real sglang: its own package, its own imports, its own way to spawn.

With stand-ins for the packages that it requires and that are not installed here, and torch for the
CPU. Where ``REWRITER_SGLANG_PYTHON`` names an interpreter whose own sglang can be imported, the
same is tested there with none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import absent_packages
import pytest
from installing import rewriter, sealed_state

from rewriter.targets.release import Release

__all__ = ["sealed_state"]

RELEASE = "0.5.9"  # the last whose wheel is for every Python
BACKEND = "sglang.srt.layers.attention.flashinfer_mla_backend"
FILE = f"{BACKEND.replace('.', '/')}.py"
OWN = "REWRITER_SGLANG_PYTHON"

pytestmark = pytest.mark.wheels


class Served(NamedTuple):
    """An interpreter, an overlay of its sglang, and the path that it runs with."""

    python: str
    overlay: Path
    path: tuple[Path, ...]
    target: tuple[str, ...]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        places = os.pathsep.join(map(str, (self.overlay, *self.path)))
        environment = {**os.environ, "PYTHONPATH": places, "PYTHONWARNINGS": "ignore"}
        return subprocess.run(
            [self.python, *words], env=environment, capture_output=True, check=False, text=True
        )


@pytest.fixture(params=["with stand-ins", "as installed"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, release: Callable[[str], Release]
) -> Served:
    overlay = tmp_path / "overlay"
    if request.param == "as installed":
        python = os.environ.get(OWN)
        if python is None:
            pytest.skip(f"{OWN} names no interpreter with an sglang that can be imported")
        made = Served(python, overlay, (), ("--python", python))
    else:
        pytest.importorskip("torch")
        packages = tmp_path / "site-packages"
        with zipfile.ZipFile(release(RELEASE).path) as archive:
            archive.extractall(packages)
        start = tmp_path / "start"
        start.mkdir()
        shutil.copy(absent_packages.__file__, start / "sitecustomize.py")
        target = ("--site-packages", str(packages))
        made = Served(sys.executable, overlay, (start, packages), target)
    done = rewriter("apply", "mla_kv_gather", *made.target, "--overlay", overlay)
    assert done.code == 0, done.err
    return made


FAMILY = f"""\
import multiprocessing, os, sys

def told(queue):
    import inspect
    import {BACKEND} as module
    from sglang.srt.layers.attention import _rewriter_kv_gather as companion
    source = inspect.getsource(module.FlashInferMLAAttnBackend.forward_decode)
    queue.put((os.getppid(), os.getpid(), module.__file__, companion.__file__,
               "_kv_gather.gather(" in source))

def child(queue):
    process = multiprocessing.Process(target=told, args=(queue,))
    process.start()
    process.join()
    told(queue)

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=child, args=(queue,))
    process.start()
    (parent, _, *inner), (main, middle, *outer) = queue.get(), queue.get()
    process.join()
    assert (parent, main) == (middle, os.getpid())
    assert inner == outer
    print(*inner)
"""


def test_a_spawned_child_of_a_child(served: Served, tmp_path: Path) -> None:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    done = served.run(str(script))
    assert done.returncode == 0, done.stderr[-3000:]
    companion = served.overlay / FILE.replace("flashinfer_mla_backend", "_rewriter_kv_gather")
    assert done.stdout.split() == [str(served.overlay / FILE), str(companion), "True"]


def test_the_package_beneath_is_the_installed_one(served: Served) -> None:
    done = served.run("-c", "import sglang, sglang.srt.utils; print(sglang.__file__)")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout.startswith(str(served.overlay))


def test_an_upgrade_is_refused_however_deep_the_import(served: Served, tmp_path: Path) -> None:
    """sglang imports the backend below try and except; no server may start on the old one."""
    if not served.path:
        pytest.skip("the installed package is not ours to change")
    with (served.path[-1] / FILE).open("ab") as file:
        file.write(b"\n")
    done = served.run("-c", f"try:\n    import {BACKEND}\nexcept Exception: pass\nprint('on')")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{FILE} is not the file that the overlay was made from" in done.stderr
