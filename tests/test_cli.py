"""The command line: misuse, bad input and configuration; each gets one clear message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import rewriter, tree
from sources import PATH, backend
from targets import checkout, companion, files, installed, patched, written

from rewriter import __version__, cli
from rewriter.commands import options
from rewriter.model import State

# --- misuse --------------------------------------------------------------------------------


def test_the_version() -> None:
    done = rewriter("--version")
    assert (done.code, done.out, done.err) == (0, f"rewriter {__version__}\n", "")


def test_help_names_every_verb() -> None:
    done = rewriter("--help")
    assert done.code == 0
    for verb in cli.COMMANDS:
        assert f"\n  {verb} " in done.out
    assert rewriter("-h").out == done.out


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_every_verb_has_help_of_its_own(verb: str) -> None:
    done = rewriter(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: rewriter {verb} ")
    assert all(len(line) <= 80 for line in done.out.splitlines())


MISUSE = {
    "no such verb": (["chek"], "No such command 'chek'. Did you mean 'check'?"),
    "no such option": (["check", "--nope"], "No such option: --nope"),
    "an option without its value": (["check", "--release"], "Option '--release' requires"),
    "two targets": (
        ["check", "--release", "0.5.9", "--wheel", "x.whl"],
        "rewriter: --release and --wheel each name a target; give one of them",
    ),
    "a commit of nothing": (["check", "--rev", "HEAD"], "rewriter: --rev needs --repo"),
    "a repository without a commit": (["check", "--repo", "."], "rewriter: --repo needs --rev"),
    "a release that is no version": (
        ["check", "--release", "latest"],
        "rewriter: --release 'latest': expected a version such as 0.5.9",
    ),
    "an unknown codemod": (
        ["check", "mla"], "rewriter: no codemod is called 'mla'; known: ",
    ),
    "nothing to pin": (["pin"], "rewriter: give releases to pin"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_exits_2_with_one_message(tmp_path: Path, name: str) -> None:
    arguments, message = MISUSE[name]
    if name == "an unknown codemod":
        arguments = [*arguments, "--site-packages", str(installed(tmp_path))]
    done = rewriter(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_no_verb_prints_the_help_and_exits_2() -> None:
    done = rewriter()
    assert done.code == 2
    assert "Usage: rewriter [OPTIONS] COMMAND" in done.out + done.err


# --- bad input -----------------------------------------------------------------------------


def site(tmp_path: Path, text: str | bytes, version: str = "0.5.9") -> list[str]:
    return ["--site-packages", str(installed(tmp_path / "site-packages", text, version))]


def nothing_there(tmp_path: Path, git: Git) -> list[str]:
    return ["--site-packages", str(tmp_path / "nowhere")]


def no_sglang(tmp_path: Path, git: Git) -> list[str]:
    written(tmp_path / "site-packages", {"torch/__init__.py": b""})
    return ["--site-packages", str(tmp_path / "site-packages")]


def a_folder_that_is_no_package(tmp_path: Path, git: Git) -> list[str]:
    written(tmp_path / "site-packages", {"sglang/readme.txt": b""})
    return ["--site-packages", str(tmp_path / "site-packages")]


def a_checkout_of_something_else(tmp_path: Path, git: Git) -> list[str]:
    written(tmp_path / "tree", {"setup.py": b"", "python/other/__init__.py": b""})
    return ["--checkout", str(tmp_path / "tree")]


def python_2(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend() + "print 'x'\n")


def merge_conflict(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend() + "<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> b\n")


def truncated(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend()[:-10])


def a_nul(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend() + "\0")


def twenty_thousand_brackets(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend() + "x = " + "[" * 20_000 + "]" * 20_000)


def fifty_megabytes(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend().encode() + b"# " + b"x" * 50 * 2**20)


def bad_bytes(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend().encode() + b"# \xff\n")


def a_text_patch_of_the_same_idea(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend(decode="gathered by another patch"))


def half_patched(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, patched().replace("_kv_gather.attach(self, model_runner)", "pass"))


def without_the_companion(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, patched())


def another_file_in_the_companions_place(tmp_path: Path, git: Git) -> list[str]:
    arguments = site(tmp_path, patched())
    place = tmp_path / "site-packages/sglang/srt/layers/attention/_rewriter_kv_gather.py"
    place.write_bytes(companion() + b"# mine\n")
    return arguments


def a_version_out_of_range(tmp_path: Path, git: Git) -> list[str]:
    return site(tmp_path, backend(), "0.6.0rc1")


def repository(tmp_path: Path, git: Git) -> Path:
    place = checkout(tmp_path / "repository")
    git("init", "-q", cwd=place)
    git("add", ".", cwd=place)
    git("commit", "-qm", "one", cwd=place)
    return place


def no_such_revision(tmp_path: Path, git: Git) -> list[str]:
    return ["--repo", str(repository(tmp_path, git)), "--rev", "v9.9"]


def no_repository(tmp_path: Path, git: Git) -> list[str]:
    return ["--repo", str(written(tmp_path / "tree", files())), "--rev", "HEAD"]


def a_commit_without_sglang(tmp_path: Path, git: Git) -> list[str]:
    place = written(tmp_path / "repository", {"readme": b""})
    git("init", "-q", cwd=place)
    git("add", ".", cwd=place)
    git("commit", "-qm", "one", cwd=place)
    return ["--repo", str(place), "--rev", "HEAD"]


def beyond_a_shallow_clone(tmp_path: Path, git: Git) -> list[str]:
    place = repository(tmp_path, git)
    git("commit", "-q", "--allow-empty", "-m", "two", cwd=place)
    git("clone", "-q", "--depth", "1", f"file://{place}", str(tmp_path / "shallow"), cwd=tmp_path)
    return ["--repo", str(tmp_path / "shallow"), "--rev", "HEAD~1"]


def a_wheel_of_another_project(tmp_path: Path, git: Git) -> list[str]:
    from zipfile import ZipFile

    wheel = tmp_path / "torch-2.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for path, raw in installed_files("2.0", {"torch/__init__.py": b""}, "torch").items():
            archive.writestr(path, raw)
    return ["--wheel", str(wheel)]


def no_wheel(tmp_path: Path, git: Git) -> list[str]:
    (tmp_path / "sglang-0.5.9-py3-none-any.whl").write_bytes(b"no zip")
    return ["--wheel", str(tmp_path / "sglang-0.5.9-py3-none-any.whl")]


def no_interpreter(tmp_path: Path, git: Git) -> list[str]:
    return ["--python", str(tmp_path / "bin/python")]


REFUSED: dict[Callable[[Path, Git], list[str]], tuple[int, str]] = {
    # what is asked → exit code of check, a part of the message
    nothing_there: (2, "nowhere: no such directory"),
    no_sglang: (2, "expected sglang/__init__.py, found none"),
    a_folder_that_is_no_package: (2, "expected sglang/__init__.py, found none"),
    a_checkout_of_something_else: (2, "sglang"),
    python_2: (2, f"{PATH}: does not parse at line 154"),
    merge_conflict: (2, f"{PATH}: does not parse at line 154"),
    truncated: (2, f"{PATH}: does not parse at line 153"),
    a_nul: (2, f"{PATH}: does not parse"),
    twenty_thousand_brackets: (2, f"{PATH}: does not parse"),
    fifty_megabytes: (2, "is this the right file?"),
    bad_bytes: (2, f"{PATH}: cannot be decoded: "),
    a_text_patch_of_the_same_idea: (1, "another patch of the same idea?"),
    half_patched: (1, "6 of 7 places are ours; not: constructor"),
    without_the_companion: (1, "_rewriter_kv_gather.py is missing"),
    another_file_in_the_companions_place: (1, "_rewriter_kv_gather.py was edited"),
    a_version_out_of_range: (1, "sglang 0.6.0rc1 is outside the supported range"),
    no_such_revision: (2, "v9.9"),
    no_repository: (2, "tree"),
    a_commit_without_sglang: (2, "sglang"),
    beyond_a_shallow_clone: (2, "shallow"),
    a_wheel_of_another_project: (2, "torch"),
    no_wheel: (2, "sglang-0.5.9-py3-none-any.whl"),
    no_interpreter: (2, "no interpreter there"),
}


@pytest.mark.parametrize("asked", REFUSED, ids=lambda asked: asked.__name__)
def test_bad_input_gets_one_message_and_nothing_is_written(
    tmp_path: Path, sealed_git: Git, asked: Callable[[Path, Git], list[str]]
) -> None:
    arguments = asked(tmp_path, sealed_git)
    code, message = REFUSED[asked]
    before = tree(tmp_path)
    done = rewriter("check", *arguments)
    said = " ".join((done.out + done.err).split())
    assert message in said
    assert done.code == code
    assert "Traceback" not in said
    if code == 2:
        assert done.out == ""
        assert done.err.startswith("rewriter: ")
        assert done.err.count("\n") == 1, "one message, one line"
    out = tmp_path / "out"
    applied = rewriter("apply", *arguments, "--output", out)
    assert (applied.code, applied.out) == (2, "")
    assert applied.err.startswith("rewriter: ")
    assert not out.exists()
    for command in ("apply", "status", "diff"):
        again = rewriter(command, *arguments)
        assert again.code in (0, 2)
        assert "Traceback" not in again.err
    assert tree(tmp_path) == before, "nothing was written"


@pytest.mark.parametrize("asked", [nothing_there, python_2, no_such_revision])
def test_an_error_is_told_in_json_as_well(
    tmp_path: Path, sealed_git: Git, asked: Callable[[Path, Git], list[str]]
) -> None:
    done = rewriter("check", *asked(tmp_path, sealed_git), "--json")
    assert done.code == 2
    assert done.json["exit"] == 2
    assert done.json["error"] in done.err
    assert done.json["results"] == []


def test_a_bare_repository_is_read(tmp_path: Path, sealed_git: Git) -> None:
    place = repository(tmp_path, sealed_git)
    sealed_git("clone", "-q", "--bare", str(place), str(tmp_path / "bare.git"), cwd=tmp_path)
    done = rewriter("check", "--repo", tmp_path / "bare.git", "--rev", "main")
    assert done.code == 0
    assert "mla_kv_gather: ready" in done.out


def test_a_shallow_clone_is_read_as_far_as_it_goes(tmp_path: Path, sealed_git: Git) -> None:
    arguments = beyond_a_shallow_clone(tmp_path, sealed_git)
    assert rewriter("check", *arguments[:-1], "HEAD").code == 0


def test_no_network_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    done = rewriter("check", "--release", "0.5.9")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("rewriter: ")
    assert "0.5.9" in done.err
    assert "Traceback" not in done.err


# --- bugs, pipes ---------------------------------------------------------------------------


def test_a_bug_exits_3_and_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: options.TargetOptions, progress: object = None) -> None:
        raise ZeroDivisionError("for this test")

    monkeypatch.setattr(options.TargetOptions, "resolve", broken)
    done = rewriter("check")
    assert done.code == 3
    assert "ZeroDivisionError: for this test" in done.err
    assert done.err.endswith("rewriter: this is a bug of the tool; nothing more was written\n")


def test_a_reader_that_goes_away_is_no_bug(tmp_path: Path) -> None:
    place = installed(tmp_path)
    command = (
        f"{sys.executable} -m rewriter diff --site-packages {place} | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode != 3


# --- configuration -------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a project's directory, with a package beside it."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    installed(tmp_path / "site-packages")
    return place


def checked(project: Path, *arguments: str) -> tuple[int, str]:
    done = rewriter("check", *arguments, "--site-packages", project.parent / "site-packages")
    return done.code, done.out + done.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rewriter.toml", 'codemods = ["mla_kv_gather"]\n'),
        ("pyproject.toml", '[tool.rewriter]\ncodemods = ["mla_kv_gather"]\n'),
        ("pyproject.toml", '[project]\nname = "x"\n'),
        ("pyproject.toml", "[tool.rewriter]\n"),
        ("rewriter.toml", ""),
    ],
)
def test_configuration_names_the_codemods(project: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    code, said = checked(project)
    assert code == 0
    assert "mla_kv_gather: ready" in said


def test_the_own_file_comes_before_the_projects(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.rewriter]\ncodemods = ["nothing"]\n')
    assert checked(project)[0] == 2
    (project / "rewriter.toml").write_text('codemods = ["mla_kv_gather"]\n')
    assert checked(project)[0] == 0
    (project / "rewriter.toml").write_text('codemods = ["nothing"]\n')
    assert checked(project, "mla_kv_gather")[0] == 0, "the command line comes before both"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("codemods = [", "rewriter.toml: cannot be read as TOML: "),
        ("codemods = 'mla_kv_gather'", "`codemods` must be a list of names, not 'mla_kv_gather'"),
        ("codemods = [1]", "`codemods` must be a list of names, not [1]"),
        ('codemods = ["a", "a"]', "`codemods` names one twice"),
        ('codemod = ["a"]', "unknown key 'codemod'; known: "),
        ("force-version = 1", "`force-version` must be true or false, not 1"),
        ('codemods = ["mla"]', "no codemod is called 'mla'"),
        ("\ufeffcodemods = []", "cannot be read as TOML: "),
        ("codemods = []", "rewriter.toml: the list of `codemods` is empty, so nothing is wanted"),
    ],
)
def test_a_malformed_configuration_is_an_error(project: Path, text: str, message: str) -> None:
    (project / "rewriter.toml").write_text(text, encoding="utf-8")
    code, said = checked(project)
    assert code == 2
    assert message in said


def test_a_pyproject_that_says_nothing_of_us_is_not_parsed(project: Path) -> None:
    (project / "pyproject.toml").write_text("[broken")
    assert checked(project)[0] == 0


def test_force_version_from_the_configuration(project: Path) -> None:
    installed(project.parent / "site-packages", version="0.6.1")
    (project.parent / "site-packages/sglang-0.5.9.dist-info/METADATA").unlink()
    assert State.UNSUPPORTED.value in checked(project)[1]
    (project / "rewriter.toml").write_text("force-version = true\n")
    assert checked(project)[0] == 0


# --- JSON ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["list"], ["check"], ["diff"], ["status"], ["apply", "--dry-run"], ["revert", "--dry-run"]],
    ids=lambda command: command[0],
)
def test_every_command_has_the_same_json(tmp_path: Path, command: list[str]) -> None:
    target = [] if command == ["list"] else ["--site-packages", str(installed(tmp_path))]
    done = rewriter(*command, *target, "--json")
    document = done.json
    assert {"schema", "tool", "command", "target", "results", "written", "exit"} <= set(document)
    assert document["schema"] == 1
    assert document["tool"] == f"rewriter {__version__}"
    assert document["command"] == command[0]
    assert document["exit"] == done.code
    assert document["written"] == []
    if target:
        assert sorted(document["target"]) == ["kind", "location", "version"]
        states = {row["codemod"]: row["state"] for row in document["results"]}
        assert states["mla_kv_gather"] == "ready"
    else:
        assert document["target"] is None
