"""Editable installs: the layouts that build backends write, and where they lead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Snapshot
from fake_sglang import FILES, metadata

from rewriter.targets.installed import InstalledPackage

Write = Callable[..., Path]
Environment = tuple[Path, Path]


FINDER = """\
from __future__ import annotations
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

MAPPING: dict[str, str] = {mapping!r}
NAMESPACES: dict[str, list[str]] = {{}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return spec_from_file_location(fullname, Path(MAPPING[fullname], "__init__.py"))
        return None


def install():
    if not any(finder == _EditableFinder for finder in sys.meta_path):
        sys.meta_path.append(_EditableFinder)
"""
"""What setuptools writes for a source tree whose layout a ``.pth`` line cannot express."""


def editable_dist_info(site_packages: Path, source: Path, name: str = "sglang") -> Path:
    """Write the dist-info of an editable install of the project at ``source``."""
    folder = site_packages / f"{name.replace('-', '_')}-0.5.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_bytes(metadata("0.5.1", name))
    url = {"dir_info": {"editable": True}, "url": source.as_uri()}
    (folder / "direct_url.json").write_text(json.dumps(url))
    (folder / "RECORD").write_text(f"__editable__.{name}-0.5.1.pth,,\n{folder.name}/RECORD,,\n")
    return folder


def install_pth(site_packages: Path, source: Path) -> Path:
    """Install a source tree as editable by a path in a ``.pth`` file."""
    dist_info = editable_dist_info(site_packages, source)
    (site_packages / "__editable__.sglang-0.5.1.pth").write_text(f"{source}\n", "utf-8")
    return dist_info


def install_finder(site_packages: Path, source: Path) -> Path:
    """Install a source tree as editable by a finder that a ``.pth`` file loads."""
    dist_info = editable_dist_info(site_packages, source)
    module = "__editable___sglang_0_5_1_finder"
    mapping = {"sglang": str(source / "sglang")}
    (site_packages / f"{module}.py").write_text(FINDER.format(mapping=mapping), "utf-8")
    pth = f"import {module}; {module}.install()"
    (site_packages / "__editable__.sglang-0.5.1.pth").write_text(pth)
    return dist_info


@pytest.mark.parametrize("install", [install_pth, install_finder])
@pytest.mark.parametrize("folder", ["src", "a b", "sgläng-源"])
def test_editable_layouts(
    install: Callable[[Path, Path], Path],
    folder: str,
    virtual_environment: Environment,
    tmp_path: Path,
    write_files: Write,
) -> None:
    python, site_packages = virtual_environment
    source = write_files(tmp_path / folder / "python")
    dist_info = install(site_packages, source)
    for target in (
        InstalledPackage.of_interpreter(python),
        InstalledPackage.of_directory(site_packages),
    ):
        assert (target.root, target.layout) == (source, "editable")
        assert target.dist_info == dist_info
        assert target.version == "0.5.2", "the sources have moved on since the install"
        assert target.top == tmp_path / folder
        assert target.record() is None
        assert target.read("sglang/srt/crlf.py") == FILES["sglang/srt/crlf.py"]


def test_editable_version_falls_back_to_metadata(
    virtual_environment: Environment, tmp_path: Path, write_files: Write
) -> None:
    python, site_packages = virtual_environment
    source = write_files(tmp_path / "src", {**FILES, "sglang/version.py": b"import x\n"})
    install_pth(site_packages, source)
    assert InstalledPackage.of_interpreter(python).version == "0.5.1"


def test_editable_known_by_direct_url_alone(tmp_path: Path, write_files: Write) -> None:
    source = write_files(tmp_path / "src" / "python")
    editable_dist_info(tmp_path / "site", tmp_path / "src")
    target = InstalledPackage.of_directory(tmp_path / "site")
    assert (target.root, target.layout) == (source, "editable")


def test_editable_project_that_vendors_it_is_not_its_own(
    tmp_path: Path, write_files: Write
) -> None:
    site_packages = tmp_path / "site"
    source = write_files(tmp_path / "outer" / "third_party" / "sglang" / "python")
    editable_dist_info(site_packages, tmp_path / "outer", name="outer")
    (site_packages / "vendored.pth").write_text(f"{source}\n")
    target = InstalledPackage.of_directory(site_packages)
    assert (target.root, target.dist_info, target.layout) == (source, None, "bare")


def test_strict_editable_layout(tmp_path: Path, write_files: Write) -> None:
    """Setuptools links each file into a tree of its own."""
    source = write_files(tmp_path / "src" / "python")
    links = source / "build" / "__editable__.sglang-0.5.1-py3-none-any"
    for path in FILES:
        (links / path).parent.mkdir(parents=True, exist_ok=True)
        (links / path).symlink_to(source / path)
    dist_info = editable_dist_info(tmp_path / "site", source)
    (tmp_path / "site" / "__editable__.sglang-0.5.1.pth").write_text(f"{links}\n")
    target = InstalledPackage.of_directory(tmp_path / "site")
    assert (target.root, target.dist_info, target.layout) == (links, dist_info, "editable")
    assert {path: target.read(path) for path in target.files()} == FILES


def test_source_tree_on_pythonpath_counts_as_editable(
    virtual_environment: Environment,
    tmp_path: Path,
    write_files: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyproject = b'[project]\nname = "sglang"\nversion = "0.5.3"\n'
    source = write_files(tmp_path / "python", {**FILES, "pyproject.toml": pyproject})
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.setenv("PYTHONPATH", str(source))
    target = InstalledPackage.of_interpreter(virtual_environment[0])
    assert (target.root, target.layout, target.dist_info) == (source, "editable", None)
    assert target.version == "0.5.3"
    assert target.git_dir == tmp_path / ".git"


def test_reading_writes_nothing(
    virtual_environment: Environment,
    tmp_path: Path,
    write_files: Write,
    snapshot: Callable[[Path], Snapshot],
) -> None:
    """Not even byte code of the finder, which the interpreter that is asked imports."""
    python, site_packages = virtual_environment
    install_finder(site_packages, write_files(tmp_path / "src"))
    before = snapshot(tmp_path)
    target = InstalledPackage.of_interpreter(python)
    assert target.version
    assert [target.read(path) for path in target.files()]
    assert snapshot(tmp_path) == before
