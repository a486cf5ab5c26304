"""Installed packages: wheel and bare layouts, here and in other interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import FILES, installed_files

from rewriter.errors import TargetError, ToolBug
from rewriter.targets import resolve
from rewriter.targets.installed import InstalledPackage

Write = Callable[..., Path]
Environment = tuple[Path, Path]


def test_wheel_layout_of_another_interpreter(
    virtual_environment: Environment, write_files: Write
) -> None:
    python, site_packages = virtual_environment
    write_files(site_packages, installed_files())
    target = InstalledPackage.of_interpreter(python)
    assert (target.kind, target.layout, target.version) == ("installed", "wheel", "0.5.2")
    assert target.root == site_packages
    assert target.dist_info == site_packages / "sglang-0.5.2.dist-info"
    assert (target.diff_prefix, target.writable) == ("", True)
    assert target.location == str(site_packages / "sglang")
    assert target.git_dir is None
    assert {path: target.read(path) for path in target.files()} == FILES
    record = target.record()
    assert record is not None
    assert record["sglang/srt/crlf.py"].matches(FILES["sglang/srt/crlf.py"])


def test_directory_of_a_virtual_environment_names_its_interpreter(
    virtual_environment: Environment, write_files: Write
) -> None:
    python, site_packages = virtual_environment
    write_files(site_packages, installed_files())
    assert resolve(python=python.parent.parent).location == str(site_packages / "sglang")


def test_this_interpreter(
    tmp_path: Path, write_files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, installed_files())
    monkeypatch.syspath_prepend(tmp_path)
    target = resolve()
    assert target.location == str(tmp_path / "sglang")
    assert "sglang" not in sys.modules


def test_working_directory_is_not_an_install(
    tmp_path: Path, write_files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m`` puts it first on the path, but a server started elsewhere does not see it."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TargetError, match="sglang is not installed there"):
        resolve()


def test_target_directory_with_and_without_dist_info(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path / "with", installed_files())
    write_files(tmp_path / "without")
    found = InstalledPackage.of_directory(tmp_path / "with" / "sglang")
    assert (found.root, found.layout) == (tmp_path / "with", "wheel")
    found = InstalledPackage.of_directory(tmp_path / "without")
    assert (found.root, found.layout, found.dist_info) == (tmp_path / "without", "bare", None)
    assert found.version == "0.5.2"


def test_pyproject_in_site_packages_says_nothing(tmp_path: Path, write_files: Write) -> None:
    """Badly packaged projects leave theirs at the top of site-packages."""
    pyproject = b'[project]\nname = "other"\nversion = "9.0"\n'
    write_files(tmp_path, {**FILES, "pyproject.toml": pyproject})
    found = InstalledPackage.of_directory(tmp_path)
    assert (found.layout, found.version) == ("bare", "0.5.2")


def test_site_packages_inside_a_repository_is_no_checkout(
    tmp_path: Path, write_files: Write, sealed_git: Git
) -> None:
    """The enclosing repository is somebody else's: patches once went missing into it."""
    sealed_git("init", "-q", cwd=tmp_path)
    site_packages = write_files(tmp_path / "lib" / "site-packages", installed_files())
    target = InstalledPackage.of_directory(site_packages)
    assert (target.root, target.git_dir) == (site_packages, None)


def test_stale_dist_info_is_told_by_record(tmp_path: Path, write_files: Write) -> None:
    """``pip install --target --upgrade`` leaves the old one behind."""
    old = {**FILES, "sglang/version.py": b'__version__ = "0.5.1"\n'}
    write_files(tmp_path, installed_files("0.5.1", old))
    write_files(tmp_path, installed_files("0.5.2"))
    target = InstalledPackage.of_directory(tmp_path)
    assert target.dist_info == tmp_path / "sglang-0.5.2.dist-info"
    assert target.version == "0.5.2"


def test_undecided_dist_infos_are_an_error(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path, installed_files("0.5.1"))
    write_files(tmp_path, installed_files("0.5.2"))
    (tmp_path / "sglang" / "version.py").write_bytes(b"")
    with pytest.raises(TargetError, match=r"found sglang-0\.5\.1\.dist-info, sglang-0\.5\.2"):
        InstalledPackage.of_directory(tmp_path)


def test_empty_dist_info_left_by_an_uninstall_is_ignored(
    tmp_path: Path, write_files: Write
) -> None:
    write_files(tmp_path, installed_files())
    (tmp_path / "sglang-0.5.1.dist-info").mkdir()
    assert InstalledPackage.of_directory(tmp_path).version == "0.5.2"


def test_stripped_record(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path, installed_files())
    (tmp_path / "sglang-0.5.2.dist-info" / "RECORD").unlink()
    target = InstalledPackage.of_directory(tmp_path)
    assert target.layout == "wheel"
    assert target.record() is None


def test_fork_under_another_name(tmp_path: Path, write_files: Write) -> None:
    """It installs the package as its own distribution, and counts its own releases."""
    files = {**FILES, "sglang/version.py": b"__version__ = generated\n"}
    write_files(tmp_path, installed_files("7.1", files, name="sglang-fork"))
    write_files(tmp_path, installed_files("2.0", {"other/__init__.py": b""}, name="other"))
    target = InstalledPackage.of_directory(tmp_path)
    assert target.dist_info == tmp_path / "sglang_fork-7.1.dist-info"
    assert (target.layout, target.version) == ("wheel", None)


def test_kernel_package_is_not_taken_for_it(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path, {**FILES, **installed_files("0.3", {"k/a.py": b""}, "sglang-kernel")})
    assert InstalledPackage.of_directory(tmp_path).dist_info is None


def test_linked_package_and_files(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path / "real")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sglang").symlink_to(tmp_path / "real" / "sglang")
    target = InstalledPackage.of_directory(tmp_path / "site")
    assert target.root == tmp_path / "site"
    (tmp_path / "real" / "sglang" / "link.py").symlink_to("version.py")
    assert target.read("sglang/link.py") == FILES["sglang/version.py"]


def test_files_below_a_folder_without_byte_code(tmp_path: Path, write_files: Write) -> None:
    target = InstalledPackage.of_directory(write_files(tmp_path))
    write_files(tmp_path, {"sglang/srt/__pycache__/crlf.cpython-312.pyc": b"x"})
    assert list(target.files("sglang/srt")) == [
        "sglang/srt/__init__.py",
        "sglang/srt/crlf.py",
        "sglang/srt/layers/norm.py",
    ]
    assert list(target.files("sglang/version.py")) == ["sglang/version.py"]
    assert list(target.files("sglang/none")) == []


def test_what_is_not_there(tmp_path: Path, write_files: Write) -> None:
    target = InstalledPackage.of_directory(write_files(tmp_path))
    assert target.read("sglang/none.py") is None
    assert target.read("sglang/version.py/none.py") is None
    assert target.read("sglang/srt") is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "sglang/../x",
        "other/x.py",
        "sglang//x",
        "sglang/./x",
        "sglang\\x",
        "../sglang",
    ],
)
def test_path_that_leaves_the_package(path: str, tmp_path: Path, write_files: Write) -> None:
    target = InstalledPackage.of_directory(write_files(tmp_path))
    with pytest.raises(ToolBug, match="does not name a file of the package"):
        target.read(path)
    with pytest.raises(ToolBug):
        list(target.files(path))


def test_chatty_start_up(virtual_environment: Environment, write_files: Write) -> None:
    python, site_packages = virtual_environment
    write_files(site_packages, installed_files())
    (site_packages / "sitecustomize.py").write_text("print('hello', end='')\n")
    assert InstalledPackage.of_interpreter(python).version == "0.5.2"


def refused(act: Callable[[], object]) -> str:
    """Return the message of the TargetError that ``act`` ends in."""
    with pytest.raises(TargetError) as caught:
        act()
    return str(caught.value)


def test_messages_for_a_directory(tmp_path: Path, write_files: Write) -> None:
    def of(path: Path) -> str:
        return refused(lambda: InstalledPackage.of_directory(path))

    assert of(tmp_path / "none") == f"{tmp_path}/none: no such directory"
    (tmp_path / "empty").mkdir()
    expected = f"{tmp_path}/empty: expected sglang/__init__.py, found none"
    assert of(tmp_path / "empty") == expected
    place = write_files(tmp_path / "venv" / "lib" / "python3.12" / "site-packages")
    assert of(tmp_path / "venv").endswith(f"; there is one in {place}")
    write_files(tmp_path / "clone" / "python")
    assert of(tmp_path / "clone").endswith("; it is a checkout: use --checkout")
    written = tmp_path / "out"
    (written / ".rewriter").mkdir(parents=True)
    assert "; it was written by rewriter: an overlay is named with --overlay" in of(written)


def test_messages_for_an_interpreter(virtual_environment: Environment, tmp_path: Path) -> None:
    def of(path: object) -> str:
        return refused(lambda: InstalledPackage.of_interpreter(str(path)))

    python, site_packages = virtual_environment
    assert of(python).endswith(": sglang is not installed there")
    (site_packages / "sglang").mkdir()
    assert f"; {site_packages}/sglang is a directory without __init__.py" in of(python)
    assert "found a directory without bin/python" in of(tmp_path)
    assert (
        of(tmp_path / "none") == f"{tmp_path}/none: no interpreter there: the file does not exist"
    )
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    assert of(script).endswith("the file is not executable")
    script.chmod(0o755)
    assert "expected a Python 3.8 or later, found exit code 3: broken" in of(script)
    script.write_text("#!/none/such\n")
    assert "cannot be run: No such file" in of(script)


def test_interpreter_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.targets.interpreter.TIMEOUT", 0.1)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexec sleep 5\n")
    script.chmod(0o755)
    assert "gave no answer within" in refused(lambda: InstalledPackage.of_interpreter(script))


def test_package_inside_an_archive(
    virtual_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("sglang/__init__.py", "")
    monkeypatch.setenv("PYTHONPATH", str(archive))
    message = refused(lambda: InstalledPackage.of_interpreter(virtual_environment[0]))
    assert "found a package inside an archive" in message


def test_messages_for_a_file(
    tmp_path: Path, write_files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = InstalledPackage.of_directory(write_files(tmp_path))
    folder = tmp_path / "sglang"
    (folder / "dangling.py").symlink_to("none.py")
    message = refused(lambda: target.read("sglang/dangling.py"))
    assert "a link whose target 'none.py' does not exist" in message
    (folder / "circle.py").symlink_to("circle.py")
    assert "circle.py: cannot be read: " in refused(lambda: target.read("sglang/circle.py"))
    os.mkfifo(folder / "pipe.py")
    assert "expected a regular file" in refused(lambda: target.read("sglang/pipe.py"))
    assert list(target.files()) == sorted(FILES)

    def denied(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    message = refused(lambda: target.read("sglang/version.py"))
    assert message == f"{folder}/version.py: cannot be read: Permission denied"


def test_folder_that_cannot_be_listed(
    tmp_path: Path, write_files: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = InstalledPackage.of_directory(write_files(tmp_path))

    def denied(place: str) -> object:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr(os, "scandir", denied)
    message = refused(lambda: list(target.files()))
    assert message == f"{tmp_path}/sglang: cannot be listed: Permission denied"


def test_import_stays_cheap() -> None:
    """``check`` gates the start of servers: it must not pay for git, zip or pip."""
    heavy = ("git", "zipfile", "packaging", "platformdirs", "subprocess", "filelock")
    script = f"import sys, rewriter.targets; print([n for n in {heavy!r} if n in sys.modules])"
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {script}"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[]\n"
