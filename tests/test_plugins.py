"""Codemods of other packages: found by entry point, run only where named, malformed ones told."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rewriter import catalog, plugins
from rewriter.cli import main
from rewriter.errors import CatalogError
from rewriter.judge import changes, judge
from rewriter.model import State

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"

GOOD = '''\
"""Wraps.

Why: for a test.
Drop when: never.
"""

from rewriter.codemod import Codemod, Companion, Insert, Replace, Site, Wrap


class Good(Codemod):
    """A codemod."""

    target = "sglang/srt/m.py"
    supports = ">=0.4"
    sites = (Site("f", "call", "g({x})", Wrap("_p.q")),)
    companions = (Companion("sglang/srt/_rewriter_p.py", "beside/p"),)
'''
SOURCE = b"def f(a):\n    return g(a)\n"

Install = Callable[..., Path]


@pytest.fixture
def install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Install]:
    """Return a function that installs a package with one codemod, by default called `theirs`."""
    package = f"plugin_{abs(hash(request.node.name))}"
    monkeypatch.syspath_prepend(tmp_path)

    def make(text: str = GOOD, name: str = "theirs", value: str = "", dist: str = "their") -> Path:
        place = tmp_path / package
        (place / "beside").mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text("")
        (place / "theirs.py").write_text(text)
        (place / "beside" / "p.py").write_text('VERSION = "7"\n')
        info = tmp_path / f"{dist}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        points = f"[{plugins.GROUP}]\n{name} = {value or package + '.theirs'}\n"
        (info / "entry_points.txt").write_text(points)
        forget()
        return place / "theirs.py"

    forget()
    yield make
    forget()


def forget() -> None:
    importlib.invalidate_caches()
    catalog._asked.clear()
    for cached in (catalog.load, catalog.companion_bytes, plugins.installed, plugins.place):
        cached.cache_clear()


def test_a_plug_in_runs_only_where_it_is_named(install: Install) -> None:
    install()
    assert catalog.knows("theirs")
    module = plugins.installed()["theirs"].module
    assert "theirs" not in catalog.names()
    assert module not in sys.modules
    codemod = catalog.load("theirs")
    assert codemod.name == "theirs"
    assert module in sys.modules
    assert catalog.names()[-1] == "theirs"


def test_its_companion_comes_from_beside_it(install: Install) -> None:
    install()
    codemod = catalog.load("theirs")
    made = {c.path: c.after for c in changes([codemod], {"sglang/srt/m.py": SOURCE}.get)}
    assert made["sglang/srt/m.py"] == b"def f(a):\n    return _p.q(g(a))\n"
    companion = made["sglang/srt/_rewriter_p.py"]
    assert companion is not None
    assert companion.startswith(b"# rewriter companion p 7 sha256:")
    assert judge(codemod, made.get, "0.5").state is State.APPLIED


def test_its_digest_follows_its_files(install: Install) -> None:
    path = install()
    digests = {catalog.digest("theirs")}
    path.write_text(GOOD + "# more\n")
    digests.add(catalog.digest("theirs"))
    (path.parent / "beside" / "p.py").write_text('VERSION = "8"\n')
    digests.add(catalog.digest("theirs"))
    assert len(digests) == 3


def test_list_shows_where_it_comes_from(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("raise SystemExit\n")  # listed, not imported
    with pytest.raises(SystemExit) as ended:
        main(["list"])
    assert ended.value.code == 0
    assert "theirs  (installed by their 1.0)\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["list", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["plugins"]
    assert (row["name"], row["package"]) == ("theirs", "their 1.0")


def test_the_configuration_names_it(
    install: Install, write_files: Callable[..., Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    install()
    root = write_files(tmp_path / "site", {"sglang/srt/m.py": SOURCE, "sglang/__init__.py": b""})
    project = tmp_path / "project"
    project.mkdir()
    (project / "rewriter.toml").write_text('codemods = ["theirs"]\n')
    monkeypatch.chdir(project)
    with pytest.raises(SystemExit) as ended:
        main(["check", "--site-packages", str(root)])
    assert "theirs: ready" in capsys.readouterr().out
    assert ended.value.code == 0


def test_a_record_names_it_too(
    install: Install, write_files: Callable[..., Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Applied by name; told, and reverted, without: what it left is never called unknown."""
    install()
    files = {
        "sglang/srt/m.py": SOURCE, "sglang/__init__.py": b"",
        "sglang-0.5.2.dist-info/METADATA": b"Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.2\n",
        "sglang-0.5.2.dist-info/RECORD": b"sglang/srt/m.py,,\nsglang-0.5.2.dist-info/RECORD,,\n",
    }  # fmt: skip
    root = write_files(tmp_path / "site", files)
    for arguments, said in [
        (["apply", "theirs", "--accept-unproven"], "theirs: applied"),
        (["status"], "theirs: applied"),
        (["revert"], "theirs: ready"),
    ]:
        forget()  # as in a process of its own
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--site-packages", str(root)])
        out, err = capsys.readouterr()
        assert said in out, err
        assert ended.value.code in (0, 1)  # 1: reverted, unproven
    assert (root / "sglang/srt/m.py").read_bytes() == SOURCE
    assert not (root / "sglang/srt/_rewriter_p.py").exists()


def line(text: str) -> int:
    return GOOD[: GOOD.index(text)].count("\n") + 1


MALFORMED = {
    "an import": ("from rewriter", "import nowhere\nfrom rewriter", "from rewriter",
                  "cannot be imported: ModuleNotFoundError"),
    "an error as it runs": ('">=0.4"', '1 / 0', '">=0.4"', "cannot be imported: ZeroDivisionError"),
    "a syntax error": ('">=0.4"', ")", '">=0.4"', "cannot be imported: SyntaxError"),
    "no codemod": ("(Codemod)", "", None, "defines 0 codemods, expected one"),
    "no range": ('">=0.4"', '""', "class Good", "Good has no `supports`"),
    "a bad template": ("g({x})", "g({x}", "sites =", "`g({x}` is no Python: "),
    "two statements": ("g({x})", "g({x}); h", "sites =", "is not one statement or expression"),
    "a file outside": ("sglang/srt/m.py", "torch/m.py", "target =", "`torch/m.py` is no path"),
    "a companion outside": ("sglang/srt/_r", "../_r", "companions =", "is no path inside"),
    "no companion": ("beside/p", "beside/r", "companions =", "beside/r.py does not exist"),
    "a hole": ('Wrap("_p.q")', 'Replace("h({y})")', "sites =", "uses {y}, which what it looks"),
    "no site": ('Site("f", "call", "g({x})", Wrap("_p.q"))', "1", "class Good", "is no Site"),
    "a function replaced": ('"g({x})", Wrap("_p.q")', 'len, Replace("h")', "sites =",
                            "what a function finds can be wrapped or inserted at"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_one_is_an_error_with_file_and_line(install: Install, name: str) -> None:
    old, new, where, message = MALFORMED[name]
    assert GOOD.count(old) >= 1
    path = install(GOOD.replace(old, new))
    with pytest.raises(CatalogError) as caught:
        catalog.load("theirs")
    assert str(caught.value).startswith(f"{path}:{line(where) if where else 1}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["nowhere.at.all", "plugin_without_file"])
def test_a_module_that_is_not_there(install: Install, value: str) -> None:
    install(value=value)
    with pytest.raises(CatalogError, match=r"^their 1\.0: .*(nowhere|plugin_without_file)"):
        catalog.load("theirs")


@pytest.mark.parametrize(("name", "value"), [("a-b", "x.y"), ("ab", "x.y:Z"), ("ab", "x y")])
def test_a_malformed_entry_point(install: Install, name: str, value: str) -> None:
    install(name=name, value=value)
    with pytest.raises(CatalogError, match=r"their 1\.0: the entry point .* is malformed"):
        plugins.installed()


def test_two_packages_with_one_name(install: Install) -> None:
    install()
    install(dist="other", value="somewhere.else")
    with pytest.raises(CatalogError, match="both offer a codemod 'theirs'"):
        catalog.load("theirs")


def test_an_unknown_name_is_told_with_the_plug_ins(install: Install) -> None:
    install()
    told = r"is called 'their'; known: .*, theirs\. Did you mean 'theirs'\?$"
    with pytest.raises(CatalogError, match=told):
        catalog.load("their")


def test_the_example_works_from_its_own_wheel(tmp_path: Path) -> None:
    """Built, installed beside this package, listed, and its own tests run."""
    wheels, place = tmp_path / "wheels", tmp_path / "place"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", wheels, EXAMPLE)
    (wheel,) = wheels.glob("*.whl")
    assert "norm_watch/companions/watch.py" in zipfile.ZipFile(wheel).namelist()
    run(*pip, "install", "--no-deps", "--no-index", "--target", place, wheel)
    listed = run(sys.executable, "-m", "rewriter", "list", path=place)
    assert "norm_watch  (installed by norm-watch 1.0)\n" in listed
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests"]
    assert "3 passed" in run(*tests, path=place)


def run(*command: object, path: Path | None = None) -> str:
    import os

    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False,
        env=environment, cwd=path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
