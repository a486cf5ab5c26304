"""Overlays: what real processes import, what makes them refuse, and the commands on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from fake_sglang import installed_files
from faults import KILL, watched
from installing import (
    MIXER,
    PACKAGE,
    TOOLS,
    FakeCodemods,
    codemods,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

from rewriter import catalog, targets

__all__ = ["codemods", "sealed_state", "site_packages"]

WHERE = (
    "from sglang.srt.layers import mixer, scaler\n"
    "print('served' if 'overlay' in mixer.Mixer.mix.__code__.co_filename else 'installed')\n"
)


class Over(NamedTuple):
    """An overlay and the site-packages that it lies over."""

    place: Path
    packages: Path

    def options(self) -> tuple[str, ...]:
        return ("--site-packages", str(self.packages), "--overlay", str(self.place))

    def python(
        self, *arguments: str, more: tuple[Path, ...] = (), cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run this interpreter with the overlay in front of the package."""
        path = os.pathsep.join(str(p) for p in (self.place, *more, self.packages))
        environment = {**os.environ, "PYTHONPATH": path}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True,
            check=False, text=True,
        )  # fmt: skip

    def says(self, script: str = WHERE, **more: object) -> str:
        done = self.python("-c", script, **more)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refuses(self, script: str = WHERE) -> str:
        """Return the message with which an import ends the process."""
        done = self.python("-c", script)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr.count("\n") == 1
        return done.stderr


_ready: list[Path] = []
"""The overlay of the first test, for copies: it holds no path of its own."""


@pytest.fixture
def over(
    site_packages: Path, tmp_path: Path, codemods: FakeCodemods,
    tmp_path_factory: pytest.TempPathFactory,
) -> Over:  # fmt: skip
    """Return an overlay with alpha and delta in it."""
    made = Over(tmp_path / "overlay", site_packages)
    if not _ready:
        place = tmp_path_factory.mktemp("made") / "overlay"
        done = rewriter("apply", "alpha", "delta", *made._replace(place=place).options())
        assert done.code == 0, done.err
        _ready.append(place)
    shutil.copytree(_ready[0], made.place)
    return made


def touch_up(file: Path) -> None:
    """Change a file in a way that leaves it as long and as old as it was."""
    status, raw = file.stat(), file.read_bytes()
    file.write_bytes(raw.replace(b"Mixes", b"Mixed").replace(b"Scales.", b"Scaled."))
    assert file.read_bytes() != raw
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_the_package_is_not_touched(
    site_packages: Path, tmp_path: Path, codemods: FakeCodemods,
    snapshot: Callable[[Path], object],
) -> None:  # fmt: skip
    before = snapshot(site_packages)
    over = Over(tmp_path / "overlay", site_packages)
    assert rewriter("apply", "alpha", "delta", *over.options()).code == 0
    over.python("-B", "-c", WHERE)
    rewriter("status", *over.options())
    rewriter("revert", *over.options())
    assert snapshot(site_packages) == before
    assert tree(over.place, byte_code=True) == {}


def test_processes_import_the_patched_modules(over: Over) -> None:
    assert over.says() == "served"
    plain = subprocess.run(
        [sys.executable, "-c", WHERE], env={**os.environ, "PYTHONPATH": str(over.packages)},
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert plain.stdout.strip() == "installed"


FAMILY = """\
import multiprocessing, os, subprocess, sys
def told(queue):
    from sglang.srt.layers import mixer
    queue.put((os.getpid(), "overlay" in mixer.Mixer.mix.__code__.co_filename))
def child(method, queue):
    told(queue)
    inner = multiprocessing.get_context(method)
    process = inner.Process(target=told, args=(queue,))
    process.start(); process.join()
def main():
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(method, queue))
        process.start()
        (one, first), (two, second) = queue.get(timeout=30), queue.get(timeout=30)
        process.join()
        print(method, len({os.getpid(), one, two}), first, second)
    print(subprocess.check_output([sys.executable, "-c",
        "import sglang.srt.layers.mixer as m; print(m.__file__)"], text=True).strip())
if __name__ == "__main__":
    main()
"""


def test_a_spawned_child_of_a_child_imports_them(over: Over, tmp_path: Path) -> None:
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    done = over.python(str(script))
    assert done.stdout.splitlines() == [
        "spawn 3 True True", "fork 3 True True", str(over.place / MIXER)
    ], done.stderr  # fmt: skip


def test_run_as_a_module(over: Over) -> None:
    done = over.python("-W", "ignore", "-m", "sglang.srt.layers.mixer")
    assert done.returncode == 0, done.stderr
    (over.packages / "sglang/launch.py").write_text(WHERE)
    assert over.python("-m", "sglang.launch").stdout == "served\n"


def test_under_pytest(over: Over, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {WHERE.splitlines()[0]}\n"
                                         "    assert 'overlay' in mixer.__file__\n")  # fmt: skip
    done = over.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
                       str(tmp_path / "test_it.py"), cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("flag", "where"), [("-I", None), ("-E", None), ("-S", "installed")])
def test_what_switches_it_off(flag: str, where: str | None, over: Over) -> None:
    done = over.python(flag, "-c", WHERE)
    if where is None:  # PYTHONPATH is ignored, the package's own folder as well
        assert "overlay" not in done.stdout
        assert done.returncode == 1
    else:
        assert done.stdout.strip() == where


def test_a_zipped_original_is_verified_as_well(over: Over, tmp_path: Path) -> None:
    archive = tmp_path / "sglang.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path, raw in PACKAGE.items():
            file.writestr(path, raw)
    zipped = over._replace(packages=archive)
    assert zipped.says() == "served"
    with zipfile.ZipFile(archive, "w") as file:
        for path, raw in PACKAGE.items():
            file.writestr(path, raw + b"\n")
    assert "sglang.zip" in zipped.refuses()


def test_two_processes_share_byte_code(over: Over) -> None:
    over.says()
    folder = over.place / "sglang/srt/layers/__pycache__"
    times = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    assert {name.partition(".")[0] for name in times} == {"mixer", "scaler", "_rewriter_tools"}
    over.says()
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == times


# --- refusals ------------------------------------------------------------------------------


def test_refuses_after_the_original_changed(over: Over) -> None:
    over.says()
    touch_up(over.packages / MIXER)
    told = over.refuses()
    assert told.startswith("rewriter: sglang.srt.layers.mixer: ")
    assert f"`rewriter apply --overlay {over.place}`" in told
    assert states(*over.options())["alpha"] == "orphaned"
    assert states(*over.options())["delta"] == "applied"


def test_refuses_even_where_import_errors_are_swallowed(over: Over) -> None:
    touch_up(over.packages / MIXER)
    script = "try:\n    import sglang.srt.layers.mixer\nexcept Exception: print('went on')"
    assert "refusing to run" in over.refuses(script)


def test_refuses_where_the_original_is_gone(over: Over) -> None:
    (over.packages / MIXER).unlink()
    assert "does not have it any more" in over.refuses()


@pytest.mark.parametrize("path", [MIXER, TOOLS])
def test_refuses_an_edited_file_of_the_overlay(path: str, over: Over) -> None:
    over.says()  # its byte code is there, as old and as long
    file = over.place / path
    status, raw = file.stat(), file.read_bytes()
    file.write_bytes(raw[:-2] + b" \n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "was changed since the overlay was made" in over.refuses()
    assert rewriter("check", "alpha", *over.options(), "--require", "applied").code == 1


def test_refuses_where_a_file_of_the_overlay_is_gone(over: Over) -> None:
    (over.place / TOOLS).unlink()
    assert "_rewriter_tools.py" in over.refuses()


DOUBLE = "from sglang.srt.layers._rewriter_tools import double as d; print(d(2))"


def test_old_byte_code_is_never_taken_for_new(over: Over, codemods: FakeCodemods) -> None:
    assert over.says(DOUBLE) == "4"
    file = over.place / TOOLS
    times = file.stat()
    codemods.edit("runtime/tools.py", "2 * value", "3 * value")
    kept = file.parent / "kept"
    shutil.copytree(file.parent / "__pycache__", kept)
    assert rewriter("apply", "alpha", "delta", *over.options()).code == 0
    shutil.copytree(kept, file.parent / "__pycache__", dirs_exist_ok=True)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert over.says(DOUBLE) == "6"


# --- beside others -------------------------------------------------------------------------


def test_runs_the_sitecustomize_that_it_hides(over: Over, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.seen = [__name__, __file__]\n")
    script = f"import sys\n{WHERE}print(sys.seen, sys.modules['sitecustomize'].__file__)"
    file = str(other / "sitecustomize.py")
    assert over.says(script, more=(other,)).splitlines() == [
        "served", f"{['sitecustomize', file]} {file}"
    ]  # fmt: skip


def test_two_overlays_on_one_path(over: Over, tmp_path: Path) -> None:
    mine = Over(tmp_path / "second-overlay", over.packages)
    assert rewriter("apply", "delta", *mine.options()).code == 0
    assert mine.says(more=(over.place,)) == "served"
    script = "import sglang.srt.layers.scaler as s; print(s.__file__)"
    assert mine.says(script, more=(over.place,)).startswith(str(mine.place))


def test_a_module_that_looks_beside_itself_finds_the_package(
    over: Over, codemods: FakeCodemods
) -> None:
    file = over.packages / MIXER
    file.write_bytes(file.read_bytes() + b"\nHERE = __file__\n")
    rewriter("revert", *over.options())
    assert rewriter("apply", "alpha", *over.options(), "--accept-unproven").code == 0
    script = "import sglang.srt.layers.mixer as m; print(m.HERE, m.Mixer.mix.__code__.co_filename)"
    assert over.says(script) == f"{file} {over.place / MIXER}"


def test_a_package_itself(over: Over, codemods: FakeCodemods) -> None:
    """The overlay then looks like the package, and is not taken for it."""
    codemods.use({"omega.py": (
        "from rewriter.codemod import Codemod, Insert, Site\n"
        "class Omega(Codemod):\n    target = 'sglang/__init__.py'\n    supports = '>=0'\n"
        "    sites = (Site('start', 'more', 'x = {y}', Insert('x = 2 * x')),)\n"
    )})  # fmt: skip
    file = over.packages / "sglang/__init__.py"
    file.write_bytes(b"def start(y):\n    x = y\n    return x\n")
    done = rewriter("apply", "omega", *over.options(), "--accept-unproven")
    assert done.code == 0, done.err
    assert over.says(f"import sglang; print(sglang.start(3))\n{WHERE}") == "6\nserved"


# --- the commands --------------------------------------------------------------------------


def test_commands_treat_it_as_a_target(over: Over) -> None:
    assert rewriter("check", "alpha", "delta", *over.options(), "--require", "applied").code == 0
    assert states(*over.options()) == {
        "alpha": "applied", "beta": "ready", "delta": "applied", "gamma": "ready"
    }  # fmt: skip
    again = rewriter("apply", "alpha", *over.options())
    assert (again.code, "applied already" in again.out) == (0, True)
    diff = rewriter("diff", "gamma", *over.options())
    assert "+        return (x,) * self.width" in diff.out.replace("( x ,)", "(x,)")
    assert rewriter("apply", "gamma", *over.options()).code == 0
    assert rewriter("revert", "alpha", *over.options()).code == 0
    assert states(*over.options())["gamma"] == "applied"
    assert over.says() == "served"
    document = rewriter("status", *over.options(), "--json").json
    assert document["target"]["kind"] == "overlay"


def test_apply_makes_a_stale_one_anew(over: Over) -> None:
    touch_up(over.packages / MIXER)
    refused = rewriter("apply", "alpha", *over.options())
    assert (refused.code, "not known to be as shipped" in refused.err) == (2, True)
    done = rewriter("apply", "alpha", *over.options(), "--accept-unproven")
    assert done.code == 0, done.err
    assert over.says() == "served"


def test_apply_repairs_the_start_up_file(over: Over) -> None:
    (over.place / "sitecustomize.py").unlink()
    assert over.says() == "installed"
    found = rewriter("check", "alpha", *over.options(), "--require", "applied")
    assert (found.code, "nothing of it is served" in found.out.replace("\n       ", " ")) == (
        1,
        True,
    )
    assert rewriter("apply", "alpha", "delta", *over.options()).code == 0
    assert over.says() == "served"


@pytest.mark.parametrize("lost", ["record", "start", "module", "all"])
def test_what_is_lost_of_one_is_made_again(lost: str, over: Over) -> None:
    """Even where an edit cannot be undone by structure: the originals lie beneath."""
    assert rewriter("apply", "gamma", *over.options()).code == 0
    if lost in ("record", "all"):
        shutil.rmtree(over.place / ".rewriter")
    if lost in ("start", "all"):
        (over.place / "sitecustomize.py").unlink()
    if lost in ("module", "all"):
        (over.place / MIXER).write_bytes(b"# nothing is left\n")
    done = rewriter("apply", "alpha", "delta", "gamma", *over.options())
    assert done.code == 0, done.err
    assert over.says() == "served"
    assert {n for n, s in states(*over.options()).items() if s == "applied"} == {
        "alpha", "delta", "gamma"
    }  # fmt: skip
    assert rewriter("revert", "alpha", "delta", "gamma", *over.options()).code == 0
    assert tree(over.place, byte_code=True) == {}


def test_a_foreign_start_up_file_is_left_alone(
    site_packages: Path, tmp_path: Path, codemods: FakeCodemods
) -> None:
    over = Over(tmp_path / "overlay", site_packages)
    over.place.mkdir()
    (over.place / "sitecustomize.py").write_text("pass\n")
    done = rewriter("apply", "alpha", *over.options())
    assert (done.code, "is not ours" in done.err) == (2, True)
    assert [p.name for p in over.place.iterdir()] == ["sitecustomize.py"]


def test_an_overlay_of_a_patched_package_is_refused(over: Over, tmp_path: Path) -> None:
    assert rewriter("apply", "gamma", "--site-packages", str(over.packages)).code == 0
    other = over._replace(place=tmp_path / "other")
    done = rewriter("apply", "alpha", *other.options())
    assert (done.code, "itself has codemods applied" in done.err) == (2, True)
    assert not other.place.exists()
    assert "refusing to run" in over.refuses()
    assert rewriter("revert", *over.options()).code == 0
    assert tree(over.place, byte_code=True) == {}


def test_one_is_made_of_a_wheel_and_serves_the_install(
    over: Over, tmp_path: Path, fake_wheel: Callable[..., Path]
) -> None:
    wheel = fake_wheel(installed_files("0.5.2", PACKAGE))
    made = Over(tmp_path / "overlay-of-wheel", over.packages)
    done = rewriter("apply", "alpha", "--wheel", str(wheel), "--overlay", str(made.place))
    assert done.code == 0, done.err
    assert made.says() == "served"
    assert states(*made.options())["alpha"] == "applied"


def test_over_a_checkout(
    over: Over, tmp_path: Path, write_files: Callable[..., Path], sealed_git: Callable[..., bytes]
) -> None:
    """Proved by its commit; git sees nothing."""
    top = tmp_path / "clone"
    write_files(top / "python", PACKAGE)
    sealed_git("init", "-q", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-q", "-m", "all", cwd=top)
    made = Over(tmp_path / "overlay-of-clone", top / "python")
    done = rewriter("apply", "alpha", "--checkout", top, "--overlay", made.place)
    assert (done.code, "as shipped: HEAD " in done.out) == (0, True), done.err
    assert made.says() == "served"
    changed = sealed_git("status", "--porcelain", cwd=top).decode().splitlines()
    assert [line for line in changed if "__pycache__" not in line] == []


def test_a_path_that_cannot_be_searched(site_packages: Path, tmp_path: Path) -> None:
    place = tmp_path / f"a{os.pathsep}b"
    done = rewriter("check", "--site-packages", site_packages, "--overlay", place)
    assert (done.code, "cannot be on PYTHONPATH" in done.err) == (2, True)


@pytest.mark.parametrize("options", [("--output", "x"), ("--release", "1", "--wheel", "x")])
def test_misuse(options: tuple[str, ...], tmp_path: Path) -> None:
    assert rewriter("apply", "--overlay", str(tmp_path / "o"), *options).code == 2


# --- rewriter run --------------------------------------------------------------------------


def start(*arguments: str | Path, over: Over) -> subprocess.CompletedProcess[str]:
    """Run ``rewriter run`` with the fake codemods, in a process that it can replace."""
    script = (
        "import sys\nfrom rewriter import catalog, cli\n"
        f"catalog.PACKAGE = {catalog.PACKAGE!r}\nsys.path.insert(0, sys.argv.pop(1))\ncli.main()"
    )
    place = str(catalog.directory().parent)
    environment = {**os.environ, "PYTHONPATH": str(over.packages)}
    return subprocess.run(
        [sys.executable, "-c", script, place, "run", "--overlay", over.place, *arguments],
        env=environment, capture_output=True, check=False, text=True,
    )  # fmt: skip


def test_run_starts_a_command_with_it(over: Over) -> None:
    done = start("--", sys.executable, "-c", f"{WHERE}raise SystemExit(7)", over=over)
    assert (done.returncode, done.stdout) == (7, "served\n"), done.stderr


def test_run_starts_a_script_by_its_first_line(over: Over, tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text(f"#!{sys.executable} -B\n{WHERE}")
    script.chmod(0o755)
    assert start("--", script, over=over).stdout == "served\n"
    script.write_text(f"#!{sys.executable} -E\n{WHERE}")
    refused = start("--", script, over=over)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "-E does not run" in refused.stderr.replace(": does", " does")


@pytest.mark.parametrize("flags", [["-I"], ["-S"], ["-W", "ignore", "-Es"]])
def test_run_refuses_what_would_switch_it_off(flags: list[str], over: Over) -> None:
    done = start("--", sys.executable, *flags, "-c", "print('started')", over=over)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "switch it off" in done.stderr


def test_run_refuses_a_stale_one(over: Over) -> None:
    touch_up(over.packages / MIXER)
    done = start("--", sys.executable, "-c", "print('started')", over=over)
    assert (done.returncode, done.stdout) == (2, "")
    assert "alpha is orphaned: the package was changed since the overlay was made" in done.stderr


@pytest.mark.parametrize(
    ("command", "told"), [("no-such-command", "no such command"), ("", "Missing argument")]
)
def test_run_misused(command: str, told: str, over: Over) -> None:
    done = start("--", *([command] if command else []), over=over)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_run_without_an_overlay(over: Over, tmp_path: Path) -> None:
    done = start("--", sys.executable, "-c", "", over=over._replace(place=tmp_path / "none"))
    assert (done.returncode, "no overlay there" in done.stderr) == (2, True)


def test_run_names_the_option_that_it_has(tmp_path: Path) -> None:
    """No sglang for this Python: of the options that name a target ``run`` has one."""
    done = rewriter("run", "--overlay", tmp_path, "--", sys.executable, "-c", "pass")
    assert done.code == 2
    assert "; nothing was started. Name the environment that has it with --python" in done.err


# --- all or nothing ------------------------------------------------------------------------


@pytest.fixture
def fresh(site_packages: Path, tmp_path: Path, codemods: FakeCodemods) -> Over:
    """Return an overlay that is yet to be made."""
    return Over(tmp_path / "overlay", site_packages)


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_killed_half_way(verb: str, fresh: Over) -> None:
    """No process then serves what is not whole, and the next run puts it right."""
    command = (verb, "alpha", *fresh.options())
    back = ("revert" if verb == "apply" else "apply", *command[1:])
    interrupted = 0
    if verb == "revert":
        assert rewriter(*back).code == 0
    calls = watched([fresh.place], command).calls
    assert rewriter(*back).code == 0
    for number in [call.number for call in calls if call.changes][::8]:
        assert watched([fresh.place], command, {number: KILL}).done is None
        told = states("alpha", *fresh.options())["alpha"]
        interrupted += told == "interrupted"
        seen = fresh.python("-c", "from sglang.srt.layers.mixer import Mixer; Mixer(1).mix(4.0)")
        assert seen.returncode == 0 or "refusing to run" in seen.stderr
        assert rewriter(*command).code == 0
        after = states("alpha", *fresh.options())["alpha"]
        assert after == ("applied" if verb == "apply" else "ready")
        assert rewriter(*back).code == 0
    assert interrupted > 3


def test_the_package_is_found_beneath_an_overlay_that_looks_like_it(
    over: Over, codemods: FakeCodemods
) -> None:
    """The probe of another interpreter runs with the overlay on its path."""
    (over.place / "sglang/__init__.py").write_bytes(b"")
    probe = Path(targets.__file__).parent / "probe.py"
    done = over.python(str(probe), "sglang")
    assert str(over.packages / "sglang/__init__.py") in done.stdout
