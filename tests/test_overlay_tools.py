"""Overlays beside what else looks at modules: debuggers, source lookups, site files, threads."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
from installing import MIXER, SCALER, codemods, rewriter, sealed_state, site_packages
from test_overlay import WHERE, Over, over, touch_up

__all__ = ["codemods", "over", "sealed_state", "site_packages"]

NOTED = "        y = _tools.note(y)\n"
"""The line that the codemod puts in."""


def line_of(over: Over, code: str) -> int:
    """Return the line of the served module at which a statement stands."""
    lines = (over.place / MIXER).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == code)


# --- where the source is looked up ---------------------------------------------------------


def test_the_patched_source_is_what_tools_read(over: Over) -> None:
    """``inspect`` on a function, a class and a module; line numbers are those of the code."""
    script = (
        "import inspect, linecache\nfrom sglang.srt.layers import mixer\n"
        f"line = {NOTED!r}\n"
        "for thing in (mixer.Mixer.mix, mixer.Mixer, mixer):\n"
        "    assert line in inspect.getsource(thing), thing\n"
        "lines, first = inspect.getsourcelines(mixer.Mixer.mix)\n"
        "code = mixer.Mixer.mix.__code__\n"
        "assert first == code.co_firstlineno\n"
        "number = first + lines.index(line)\n"
        "assert linecache.getline(code.co_filename, number) == line\n"
        "assert number in {n for _, _, n in code.co_lines()}\n"
        "print(inspect.getsourcefile(mixer.Mixer))"
    )
    assert over.says(script) == str(over.place / MIXER)


def test_triton_reads_the_patched_source(over: Over) -> None:
    """``triton.jit`` compiles what ``inspect`` finds, not the function's byte code."""
    pytest.importorskip("triton")
    script = (
        "import triton\nfrom sglang.srt.layers import mixer\n"
        "print('_tools.note(y)' in triton.jit(mixer.Mixer.mix).src)"
    )
    assert over.says(script) == "True"


def test_torch_compile_runs_the_patched_code(over: Over) -> None:
    pytest.importorskip("torch")
    script = (
        "import torch\nfrom sglang.srt.layers import scaler, _rewriter_tools as tools\n"
        "kept = []\ntools.keep = lambda value: (kept.append(1), value)[1]\n"
        "scale = torch.compile(scaler.Scaler().scale, backend='eager')\n"
        "print(float(scale(torch.tensor(2.0))), len(kept))"
    )
    assert over.says(script) == "6.0 1"


def test_a_traceback_shows_the_patched_line(over: Over) -> None:
    done = over.python("-c", "from sglang.srt.layers.mixer import Mixer; Mixer(1).mix('x')")
    assert f'{over.place / MIXER}", line {line_of(over, "y = x * SCALE")}, in mix' in done.stderr
    assert "y = x * SCALE" in done.stderr


def test_a_debugger_steps_through_the_patched_lines(over: Over, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from sglang.srt.layers.mixer import Mixer\nMixer(1).mix(4.0)\n")
    place = f"{over.place / MIXER}:{line_of(over, NOTED.strip())}"
    debugger = ["-m", "pdb", "-c", f"b {place}", "-c", "c", "-c", "w", "-c", "q"]
    done = over.python(*debugger, str(script))
    assert f"Breakpoint 1 at {place}" in done.stdout, done
    assert "-> y = _tools.note(y)" in done.stdout


def test_lines_are_counted_where_they_are(over: Over, tmp_path: Path) -> None:
    """As coverage tools count: by the code's file and line, in the source that the loader gives."""
    script = (
        "import sys\nfrom sglang.srt.layers import mixer\nseen = set()\n"
        "def trace(frame, event, argument):\n"
        "    seen.add((frame.f_code.co_filename, frame.f_lineno))\n    return trace\n"
        "sys.settrace(trace)\nmixer.Mixer(1).mix(4.0)\nsys.settrace(None)\n"
        "source = mixer.__loader__.get_source(mixer.__name__).splitlines(True)\n"
        f"print([n for f, n in sorted(seen) if f == mixer.__file__ and source[n - 1] == {NOTED!r}])"
    )
    assert over.says(script) == str([line_of(over, NOTED.strip())])


def test_reload_and_pickles(over: Over) -> None:
    script = (
        "import importlib, pickle\nfrom sglang.srt.layers import mixer\n"
        "kept = pickle.dumps(mixer.Mixer(3)), pickle.dumps(mixer.Mixer)\n"
        "again = importlib.reload(mixer)\n"
        "assert again is mixer\n"
        "print(pickle.loads(kept[0]).width, pickle.loads(kept[1]) is mixer.Mixer)\n" + WHERE
    )
    assert over.says(script).splitlines() == ["3 True", "served"]


def test_a_reload_after_the_original_changed_is_refused(over: Over) -> None:
    script = (
        "import importlib, pathlib\nfrom sglang.srt.layers import mixer\n"
        f"file = pathlib.Path({str(over.packages / MIXER)!r})\n"
        "file.write_bytes(file.read_bytes() + b'#')\n"
        "importlib.reload(mixer)\nprint('went on')"
    )
    assert "is not the file that the overlay was made from" in over.refuses(script)


# --- how Python finds things ---------------------------------------------------------------


def test_an_original_without_source_is_refused(over: Over) -> None:
    file = over.packages / MIXER
    py_compile.compile(str(file), cfile=f"{file}c", doraise=True)
    file.unlink()
    assert f"{file}c is not the file that the overlay was made from" in over.refuses()


@pytest.mark.parametrize("name", ["PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE"])
def test_settings_that_leave_it_on(name: str, over: Over, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert over.says() == "served"


def test_byte_code_kept_elsewhere(
    over: Over, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "codes"))
    assert over.says() == "served"
    assert list((tmp_path / "codes").rglob("mixer*.pyc"))
    assert over.says() == "served"


def test_three_overlays_stack(over: Over, tmp_path: Path) -> None:
    """The first that serves a module counts; each serves what the others do not."""
    places = [over.place]
    for name, codemod in (("second", "delta"), ("third", "gamma")):
        made = Over(tmp_path / f"{name}-overlay", over.packages)
        assert rewriter("apply", codemod, *made.options()).code == 0
        places.insert(0, made.place)
    third, second, first = places
    script = (
        "from sglang.srt.layers import mixer, scaler, _rewriter_tools as tools\n"
        "import sys\nfor m in (mixer, scaler, tools): print(m.__file__)\n"
        "print([f.rewriter_overlay for f in sys.meta_path if hasattr(f, 'rewriter_overlay')])"
    )
    top = Over(third, over.packages)
    mixer, scaler, tools, order = top.says(script, more=(second, first)).splitlines()
    assert (mixer, scaler) == (str(third / MIXER), str(second / SCALER))
    assert Path(tools).is_relative_to(second)
    assert order == str([str(place) for place in places])


# --- other start-up files ------------------------------------------------------------------


def other(tmp_path: Path, text: str, name: str = "sitecustomize") -> Path:
    place = tmp_path / f"other-{name}"
    place.mkdir()
    (place / f"{name}.py").write_text(text)
    return place


def test_a_sitecustomize_that_raises(over: Over, tmp_path: Path) -> None:
    """Python tells it as it would without the overlay, and goes on; so does the overlay."""
    place = other(tmp_path, "raise ValueError('theirs')\n")
    done = over.python("-c", WHERE, more=(place,))
    assert (done.returncode, done.stdout) == (0, "served\n")
    assert "ValueError: theirs" in done.stderr


def test_a_sitecustomize_that_ends_the_process(over: Over, tmp_path: Path) -> None:
    place = other(tmp_path, "raise SystemExit(3)\n")
    done = over.python("-c", WHERE, more=(place,))
    assert (done.returncode, done.stdout) == (1, "")


def test_a_usercustomize_still_runs(over: Over, tmp_path: Path) -> None:
    """A virtual environment has none; the interpreter that it is made of has."""
    place = other(tmp_path, "import sys; sys.theirs = __file__\n", "usercustomize")
    made_of = Path(sys.executable).resolve()
    assert said(over, made_of, place).splitlines() == ["served", str(place / "usercustomize.py")]


def test_a_sitecustomize_from_a_path_file(
    over: Over, tmp_path: Path, virtual_environment: tuple[Path, Path]
) -> None:
    """Its directory comes by a ``.pth`` of site-packages, behind PYTHONPATH."""
    python, packages = virtual_environment
    place = other(tmp_path, "import sys; sys.theirs = __file__\n")
    (packages / "theirs.pth").write_text(f"{place}\n")
    assert said(over, python).splitlines() == ["served", str(place / "sitecustomize.py")]


def test_a_sitecustomize_imported_by_a_path_file(
    over: Over, virtual_environment: tuple[Path, Path]
) -> None:
    """Ours runs early then, once, and serves all the same."""
    python, packages = virtual_environment
    (packages / "early.pth").write_text("import sitecustomize, sys; sys.theirs = 'early'\n")
    assert said(over, python).splitlines() == ["served", "early"]


def said(over: Over, python: Path, *more: Path) -> str:
    """Return what a script prints in another interpreter with the overlay."""
    path = os.pathsep.join(map(str, (over.place, *more, over.packages)))
    script = f"import sys\n{WHERE}print(sys.theirs)"
    done = subprocess.run(
        [python, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- threads -------------------------------------------------------------------------------

THREADS = (
    "import threading\nfrom sglang.srt import layers\nstart = threading.Barrier(8)\nseen = []\n"
    "def work():\n    start.wait()\n    from sglang.srt.layers import mixer\n"
    "    seen.append(mixer.__file__)\n"
    "threads = [threading.Thread(target=work) for _ in range(8)]\n"
    "for thread in threads: thread.start()\n"
    "for thread in threads: thread.join()\n"
)


def test_many_threads_import_one_module(over: Over) -> None:
    assert over.says(f"{THREADS}print(len(seen), *set(seen))") == f"8 {over.place / MIXER}"


def test_threads_that_are_refused_say_so(over: Over) -> None:
    """Python ends a thread without a word; the message is ours, and nothing is imported."""
    touch_up(over.packages / MIXER)
    done = over.python("-c", f"{THREADS}import sys\nprint(seen, 'sglang.srt.layers.mixer' in "
                       "sys.modules)\nfrom sglang.srt.layers import mixer")  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "[] False\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 9
    assert {line.startswith("rewriter: sglang.srt.layers.mixer: ") for line in lines} == {True}


def test_a_pool_hands_the_refusal_on(over: Over) -> None:
    touch_up(over.packages / MIXER)
    script = (
        "from concurrent.futures import ThreadPoolExecutor as Pool\nimport importlib\n"
        "with Pool(2) as pool:\n"
        "    pool.submit(importlib.import_module, 'sglang.srt.layers.mixer').result()\n"
        "print('went on')"
    )
    assert "refusing to run" in over.refuses(script)
