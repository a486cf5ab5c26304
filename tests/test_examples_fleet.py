"""The examples for fleets: linted, and run as far as that goes here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import targets
from installing import (
    FakeCodemods,
    codemods,
    rewriter,
    sealed_state,
    site_packages,
)

from rewriter import __version__

__all__ = ["codemods", "sealed_state", "site_packages"]

EXAMPLES = Path(__file__).parent.parent / "examples"
VERBS = {"apply", "check", "status", "lock", "sync"}


def tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, check=False, text=True
    )


def test_dockerfile_is_clean() -> None:
    done = run(tool("hadolint"), EXAMPLES / "docker/overlay.Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["slurm/prolog.sh", "docker/start.sh"])
def test_scripts_are_clean(name: str) -> None:
    done = run(tool("shellcheck"), EXAMPLES / name)
    assert done.returncode == 0, done.stdout


def test_unit_is_clean(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    text = (EXAMPLES / "systemd/sglang.service").read_text(encoding="utf-8")
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("rewriter", "python"):
        (place / name).symlink_to("/bin/true")
    unit = tmp_path / "sglang.service"
    unit.write_text(text.replace("/opt/sglang/bin", str(place)), encoding="utf-8")
    done = run(analyze, "verify", "--man=no", "--recursive-errors=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def loaded() -> dict[str, object]:
    yaml = pytest.importorskip("yaml")
    text = (EXAMPLES / "kubernetes/overlay.yml").read_text(encoding="utf-8")
    value: dict[str, object] = yaml.safe_load(text)
    return value


def test_manifest_holds_together() -> None:
    """The volume that is written is the one that is read, where PYTHONPATH says."""
    pod = loaded()["spec"]["template"]["spec"]  # type: ignore[index]
    (init,), (server,) = pod["initContainers"], pod["containers"]
    (written,), (read,) = init["volumeMounts"], server["volumeMounts"]
    assert written["name"] == read["name"] == pod["volumes"][0]["name"]
    assert read["readOnly"]
    assert server["env"] == [{"name": "PYTHONPATH", "value": read["mountPath"]}]
    assert init["image"] == server["image"]
    assert f"--overlay {written['mountPath']}\n" in init["args"][0]


@pytest.mark.parametrize("version", ["1.30", None])
def test_manifest_keeps_to_the_schema(version: str | None) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    version = version or validator.latest_version()
    validator.validate(loaded(), version, strict=True)
    wrong = loaded()
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []  # type: ignore[index]
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, version, strict=True)


def test_one_name_is_to_be_filled_in() -> None:
    """OWNER, who keeps a copy of this repository: `uses:` knows no variables."""
    for path in sorted((EXAMPLES / "workflows").iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert "# Put the owner of your copy of this repository for OWNER." in lines, path.name
        named = [line.strip("- ") for line in lines if "OWNER" in line and line[0] != "#"]
        assert [line.strip() for line in named] == [f"uses: OWNER/sglang-rewriter@v{__version__}"]


def test_examples_name_this_version() -> None:
    for path in sorted(p for p in EXAMPLES.rglob("*") if p.is_file()):
        found = re.findall(r"sglang-rewriter(?:==|@v)([\w.]+)", path.read_text(encoding="utf-8"))
        assert set(found) <= {__version__}, path.name


def commands() -> list[tuple[str, list[str]]]:
    """Return every command line of ours in the examples."""
    found: list[tuple[str, list[str]]] = []
    for path in sorted(EXAMPLES.rglob("*")):
        if path.suffix not in (".yml", ".service", ".sh", ".Dockerfile", ""):
            continue
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            _, found_it, rest = line.partition("rewriter ")
            if found_it and not line.lstrip().startswith("#") and rest.split()[0] in VERBS:
                rest = rest.partition("2>&1")[0].partition(">&2")[0].rstrip("\\ ")
                found.append((path.name, shlex.split(rest)))
    return found


@pytest.mark.parametrize(("name", "words"), commands())
def test_command_lines_are_understood(name: str, words: list[str]) -> None:
    done = rewriter(*words, "--help")
    assert (done.code, done.out.startswith("Usage:")) == (0, True)


def test_a_prolog_lets_jobs_through_where_the_hash_is_right(
    site_packages: Path, codemods: FakeCodemods, tmp_path: Path
) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    value = rewriter("status", "--digest", "--site-packages", site_packages).out
    known = tmp_path / "patched.sha256"
    known.write_text(value)
    stub = tmp_path / "bin" / "rewriter"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\n[ "$*" = "status --expect {value.strip()}" ] && exit 0\n'
                    "echo what differs\nexit 1\n")  # fmt: skip
    stub.chmod(0o755)
    path = f"{stub.parent}{os.pathsep}{os.environ['PATH']}"
    prolog = EXAMPLES / "slurm/prolog.sh"

    def asked(partition: str) -> subprocess.CompletedProcess[str]:
        return run(prolog, PATH=path, SLURM_JOB_PARTITION=partition, SGLANG_PATCHED=str(known))

    assert (asked("sglang").returncode, asked("sglang").stderr) == (0, "")
    known.write_text("0" * 64)
    refused = asked("sglang")
    assert (refused.returncode, "what differs" in refused.stderr) == (1, True)
    assert asked("other").returncode == 0


@pytest.mark.parametrize("name", ["Dockerfile", "overlay.Dockerfile"])
def test_an_image_is_patched_by_its_build(name: str, tmp_path: Path) -> None:
    """The RUN lines, in a shell here: pip is told to install us, and the package is patched."""
    packages = targets.installed(tmp_path / "site-packages")
    text = (EXAMPLES / "docker" / name).read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    programs = tmp_path / "bin"
    programs.mkdir()
    for program, does in (
        ("python3", f'[ "$*" = "-m pip install --no-cache-dir sglang-rewriter=={__version__}" ]'),
        ("rewriter", f'exec "{sys.executable}" -m rewriter "$@" --site-packages "{packages}"'),
    ):
        (programs / program).write_text(f"#!/bin/sh\n{does}\n")
        (programs / program).chmod(0o755)
    overlay = tmp_path / "overlay"
    done = run("sh", "-ec", line.replace("/opt/overlay", str(overlay)),
               PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    place = overlay if name.startswith("overlay") else packages
    assert (place / targets.COMPANION).is_file()
    assert (packages / targets.COMPANION).exists() == (place == packages)


def test_a_unit_starts_what_is_locked(
    site_packages: Path, codemods: FakeCodemods, tmp_path: Path
) -> None:
    """Its gate, before and after a file was rebuilt."""
    text = (EXAMPLES / "systemd/sglang.service").read_text(encoding="utf-8")
    (gate,) = re.findall(r"^ExecStartPre=\S+/rewriter (.*)$", text, re.MULTILINE)
    Path("rewriter.toml").write_text('codemods = ["alpha"]\n')
    option = ("--site-packages", site_packages)
    assert rewriter("sync", *option).code == 0
    assert rewriter("lock", *option).code == 0
    assert rewriter(*gate.split(), *option).code == 0
    assert rewriter("revert", *option).code == 0
    assert rewriter(*gate.split(), *option).code == 1
    assert "RestartPreventExitStatus=1 2" in text


def test_the_init_containers_script_serves_what_the_server_imports(
    site_packages: Path, codemods: FakeCodemods, tmp_path: Path
) -> None:
    """The lines of the example, on an overlay here."""
    pod = loaded()["spec"]["template"]["spec"]  # type: ignore[index]
    for line in pod["initContainers"][0]["args"][0].splitlines():
        if line.startswith("rewriter "):
            words = [w.replace("/overlay", str(tmp_path / "o")) for w in line.split()[1:]]
            words.insert(1, "alpha")
            done = rewriter(*words, "--site-packages", site_packages)
            assert done.code == 0, done.err
    done = run(
        sys.executable, "-c", "import sglang.srt.layers.mixer as m; print(m.__file__)",
        PYTHONPATH=f"{tmp_path / 'o'}{os.pathsep}{site_packages}",
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path / "o"))
