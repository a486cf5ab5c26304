"""Releases: fetched once with pip, cached, mended when damaged. The index is a local folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_sglang import FILES, installed_files

from rewriter.errors import TargetError
from rewriter.targets import available_releases, pip, resolve
from rewriter.targets.cache import wheel_cache
from rewriter.targets.pip_errors import IndexUnreachable, failure, nearest
from rewriter.targets.release import Release

Make = Callable[..., Path]
FakePip = Callable[[str], Path]


@pytest.fixture
def index(tmp_path: Path, fake_wheel: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that pip takes for the package index, with three releases in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("0.5.2", "0.5.10", "0.5.9"):
        fake_wheel(version=version, directory=folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    """Return a function that replaces pip by a script, which can use ``arguments`` and ``into``.

    The script's calls are logged, a line each, in the file whose path is returned.
    """

    def make(body: str) -> Path:
        script, log = tmp_path / "fake_pip.py", tmp_path / "calls"
        script.write_text(
            "import pathlib, shutil, sys, time\n"
            "arguments = sys.argv[1:]\n"
            "into = arguments[arguments.index('-d') + 1] if '-d' in arguments else None\n"
            f"with open({str(log)!r}, 'a') as log: print(*arguments, file=log)\n" + body
        )
        monkeypatch.setattr(pip, "pip_command", lambda: [sys.executable, str(script)])
        return log

    return make


COPY = "shutil.copy({wheel!r}, into)\n"
NOTHING = "sys.exit('ERROR: no version that satisfies (from versions: none)')\n"


@pytest.fixture
def copying_pip(fake_pip: FakePip, fake_wheel: Make) -> Path:
    """Replace pip by a script that gives a fake wheel of 0.5.2; return the log of its calls.

    A tenth of the time that the real one takes.
    """
    return fake_pip(COPY.format(wheel=str(fake_wheel())))


@pytest.fixture(autouse=True)
def fresh_list() -> Iterator[None]:
    """Forget the versions that another test listed."""
    pip.available_releases.cache_clear()
    yield
    pip.available_releases.cache_clear()


def test_fetches_and_reads(index: Path) -> None:
    target = resolve(release="v0.5.2")
    assert (target.kind, target.version, target.writable) == ("release", "0.5.2", False)
    assert (target.location, target.diff_prefix) == ("sglang 0.5.2 (index)", "")
    assert {path: target.read(path) for path in target.files()} == FILES
    assert target.read("sglang/none.py") is None


def test_second_time_needs_no_index(copying_pip: Path, fake_pip: FakePip) -> None:
    Release("0.5.2").close()
    fake_pip(NOTHING)
    target = Release("0.5.2")
    assert target.path == wheel_cache() / "sglang-0.5.2-py3-none-any.whl"
    assert target.read("sglang/version.py") == FILES["sglang/version.py"]
    assert len(copying_pip.read_text().splitlines()) == 1


def test_nothing_but_wheels_and_locks_stays_in_the_cache(copying_pip: Path) -> None:
    (wheel_cache() / ".fetching-0.5.2-killed").mkdir()
    Release("0.5.2").close()
    names = sorted(path.name for path in wheel_cache().iterdir())
    assert names in (
        ["sglang-0.5.2-py3-none-any.whl"],
        [
            "sglang-0.5.2-py3-none-any.whl",
            "sglang-0.5.2.lock",
        ],
    )


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "other version"])
def test_damaged_cache_is_fetched_again(damage: str, copying_pip: Path, fake_wheel: Make) -> None:
    first = Release("0.5.2")
    first.close()
    data = bytearray(first.path.read_bytes())
    if damage == "truncated":
        del data[-30:]
    elif damage == "flipped":
        at = data.index(b"sglang/srt/layers/norm.py") + len("sglang/srt/layers/norm.py") + 10
        data[at] ^= 0xFF
    elif damage == "emptied":
        data.clear()
    else:
        data = bytearray(fake_wheel(version="0.5.1").read_bytes())
    first.path.write_bytes(data)
    target = Release("0.5.2")
    assert {path: target.read(path) for path in target.files()} == FILES
    assert Release("0.5.2").read("sglang/version.py") == FILES["sglang/version.py"]


def test_damaged_cache_without_index(copying_pip: Path, fake_pip: FakePip) -> None:
    first = Release("0.5.2")
    first.close()
    first.path.write_bytes(b"no zip")
    fake_pip(NOTHING)
    with pytest.raises(TargetError) as caught:
        Release("0.5.2")
    assert "expected a wheel (a zip file)" in str(caught.value)
    assert "; fetching it again: sglang 0.5.2: pip found no version" in str(caught.value)


def test_wheel_that_the_index_itself_has_damaged(copying_pip: Path, fake_wheel: Make) -> None:
    fake_wheel({**installed_files(), "sglang/version.py": b"changed"})
    target = Release("0.5.2")
    with pytest.raises(TargetError, match="its hash differs"):
        target.read("sglang/version.py")


def test_unknown_version_names_the_nearest(index: Path) -> None:
    with pytest.raises(TargetError) as caught:
        Release("0.5.9.post1")
    assert str(caught.value) == (
        "sglang 0.5.9.post1: the index has no wheel of it for Linux x86_64; "
        "nearest: 0.5.2, 0.5.9, 0.5.10"
    )


def test_index_that_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(IndexUnreachable, match="pip found no version at all"):
        Release("0.5.2")


def test_index_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "_QUIET", ("--no-input", "--retries=0", "--isolated"))
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    with pytest.raises(IndexUnreachable, match="the releases of sglang: "):
        available_releases()


def test_available_releases_are_sorted_by_version(index: Path, fake_wheel: Make) -> None:
    fake_wheel(version="0.5.11rc1", directory=index)
    assert available_releases() == ["0.5.2", "0.5.9", "0.5.10"]
    available_releases().clear()
    for wheel in index.iterdir():
        wheel.unlink()
    assert available_releases() == ["0.5.2", "0.5.9", "0.5.10"], "kept for the process"


def test_wheels_of_the_stated_platform_are_asked_for(fake_pip: FakePip) -> None:
    """Whatever Python and system this runs on."""
    log = fake_pip("sys.exit(1)")
    with pytest.raises(TargetError):
        Release("0.5.2")
    call = log.read_text().split()
    assert call[0] == "download"
    assert call[-1] == "sglang==0.5.2"
    wanted = {"--no-deps", "--only-binary=:all:", "--implementation=cp", "--python-version=3.12"}
    assert wanted | {"--platform=manylinux_2_34_x86_64", "--platform=any"} <= set(call)


def test_progress_from_what_pip_says(fake_pip: FakePip, fake_wheel: Make) -> None:
    says = "print('Progress 10 of 1000', flush=True); time.sleep(0.4)\n"
    fake_pip(says + COPY.format(wheel=str(fake_wheel())) + "print('Progress 1000 of 1000')\n")
    told: list[tuple[int, int | None]] = []
    Release("0.5.2", lambda done, total: told.append((done, total)))
    assert told == [(10, 1000), (1000, 1000)]


def test_progress_from_the_disk_with_an_older_pip(fake_pip: FakePip, fake_wheel: Make) -> None:
    """Before 24.1 it has no progress bar for machines."""
    log = fake_pip(
        "import os\n"
        "if '--progress-bar=raw' in arguments:\n"
        "    sys.exit(\"option --progress-bar: invalid choice: 'raw' (choose from 'on', 'off')\")\n"
        "with open(os.path.join(os.environ['TMPDIR'], 'part'), 'wb') as part:\n"
        "    part.write(bytes(500))\n"
        "time.sleep(0.4)\n" + COPY.format(wheel=str(fake_wheel()))
    )
    told: list[tuple[int, int | None]] = []
    target = Release("0.5.2", lambda done, total: told.append((done, total)))
    assert told[0] == (500, None)
    assert target.read("sglang/version.py") == FILES["sglang/version.py"]
    assert len(log.read_text().splitlines()) == 2


def test_two_processes_fetch_once(fake_pip: FakePip, fake_wheel: Make, tmp_path: Path) -> None:
    log = fake_pip("time.sleep(0.5)\n" + COPY.format(wheel=str(fake_wheel())))
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from rewriter.targets import pip, release\n"
        f"pip.pip_command = lambda: [sys.executable, {str(tmp_path / 'fake_pip.py')!r}]\n"
        "assert release.Release('0.5.2').read('sglang/version.py')\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('WARNING: x'); sys.exit('ERROR: no space')", "0.5.2: pip failed: no space"),
        ("sys.exit(3)", "sglang 0.5.2: pip failed: no output"),
        ("sys.exit('Traceback\\nValueError: x')", "sglang 0.5.2: pip failed: ValueError: x"),
        ("", "pip download sglang==0.5.2: expected one wheel, found 0"),
        ("sys.exit('Temporary failure in name resolution')", "index cannot be reached"),
    ],
)
def test_failures_of_pip(body: str, message: str, fake_pip: FakePip) -> None:
    fake_pip(body)
    with pytest.raises(TargetError) as caught:
        Release("0.5.2")
    assert message in str(caught.value)
    assert [path for path in wheel_cache().iterdir() if path.suffix != ".lock"] == []


def test_pip_without_index_command() -> None:
    message = str(failure(None, 'ERROR: unknown command "index"\n'))
    assert message.endswith("this pip cannot list versions; upgrade it to 21.2 or later")


def test_pip_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "pip_command", lambda: [str(tmp_path / "none")])
    with pytest.raises(TargetError, match="none: cannot be run: No such file"):
        Release("0.5.2")


def test_pip_on_path_and_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment made by uv has no pip of its own."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IndexUnreachable, match=r"install pip\. A wheel that you have"):
        pip.pip_command()
    found = tmp_path / "pip3"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    assert pip.pip_command() == [str(found)]


def test_cache_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="set REWRITER_CACHE_DIR to a directory"):
        Release("0.5.2")
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "cache"))

    def full(*arguments: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rewriter.targets.release.download", full)
    with pytest.raises(TargetError, match="cannot be kept there: No space left on device"):
        Release("0.5.2")


def test_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, sealed: Path) -> None:
    monkeypatch.delenv("REWRITER_CACHE_DIR")
    place = wheel_cache()
    assert place.name == "wheels"
    assert "sglang-rewriter" in place.parts
    assert place.is_relative_to(sealed)


def test_nearest_at_the_ends() -> None:
    known = ["0.5.10", "0.5.2", "0.5.9"]
    assert nearest("9", known) == ["0.5.9", "0.5.10"]
    assert nearest("0.1", known) == ["0.5.2", "0.5.9"]


@pytest.mark.wheels
@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.12.post1"])
def test_real_release(version: str, release: Callable[[str], Release]) -> None:
    """One wheel for every Python, and one that is built per CPython and C library."""
    target = release(version)
    assert target.version == version
    paths = list(target.files("sglang/srt/layers/attention"))
    assert "sglang/srt/layers/attention/flashinfer_mla_backend.py" in paths
    for path in paths:
        assert target.read(path) is not None
