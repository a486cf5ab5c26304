"""``rewriter pin --update``: the releases since the last pin, and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fake_sglang import FILES, installed_files
from matrix_history import CODEMOD, FILE, source

from rewriter import cli, pins
from rewriter.errors import RefusedError, UsageError
from rewriter.model import State


@pytest.fixture
def index(
    fake_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, bytes | None]], None]:
    """Return a function that says what releases there are, and what their backends are."""

    def offer(backends: Mapping[str, bytes | None]) -> None:
        place = Path(os.environ["REWRITER_CACHE_DIR"]) / "wheels"
        place.mkdir(parents=True, exist_ok=True)
        for version, backend in backends.items():
            more = {} if backend is None else {FILE: backend}
            fake_wheel(installed_files(version, {**FILES, **more}), version, place)
        monkeypatch.setattr("rewriter.targets.available_releases", lambda: list(backends))

    return offer


def pin(fixtures: Path, *arguments: str) -> None:
    """Run the command in this process."""
    command = ["pin", "--fixtures", str(fixtures), *arguments]
    assert not cli.build(("pin", "list"))(command, standalone_mode=False)


def test_only_what_is_newer(
    index: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index({"0.5.1": source(), "0.5.2": source(note="2"), "0.5.3": source(note="2")})
    pin(tmp_path, "0.5.2")
    capsys.readouterr()
    pin(tmp_path, "--update")
    told = capsys.readouterr().out
    assert told.startswith(f"0.5.3          {CODEMOD}: ready ")
    [kept] = pins.load(CODEMOD, tmp_path)
    assert kept.releases == ("0.5.2", "0.5.3"), "the same source is one pin"


def test_nothing_newer(
    index: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index({"0.5.2": source()})
    pin(tmp_path, "--update")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.toml")}
    capsys.readouterr()
    pin(tmp_path, "--update")
    assert capsys.readouterr().out == (
        f"no release is newer than those pinned in {tmp_path}: {CODEMOD} 0.5.2\n"
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.toml")} == before


def test_without_any_pin_the_supported_releases(index: Callable[..., None], tmp_path: Path) -> None:
    index({"0.4.4": source("upstream"), "0.5.1": source(), "0.5.2": None, "0.9": source()})
    pin(tmp_path, "--update")
    assert [p.releases for p in pins.load(CODEMOD, tmp_path)] == [("0.5.1",)]


def test_upstream_is_pinned_as_upstream(index: Callable[..., None], tmp_path: Path) -> None:
    index({"0.5.1": source(), "0.5.2": source("upstream")})
    pin(tmp_path, "--update")
    found = [(p.releases, p.state) for p in pins.load(CODEMOD, tmp_path)]
    assert found == [(("0.5.1",), State.READY), (("0.5.2",), State.UPSTREAM)]


def test_a_drift_pins_nothing(index: Callable[..., None], tmp_path: Path) -> None:
    index({"0.5.1": source(), "0.5.2": source("drifted")})
    with pytest.raises(RefusedError, match=f"{CODEMOD} is drifted in 0\\.5\\.2"):
        pin(tmp_path, "--update")
    assert not list(tmp_path.iterdir())


def test_json(
    index: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index({"0.5.1": source()})
    pin(tmp_path, "--update", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == [str(path) for path in tmp_path.rglob("*.toml")]
    assert [(row["release"], row["state"]) for row in told["pinned"]] == [("0.5.1", "ready")]


@pytest.mark.parametrize("arguments", [(), ("--update", "0.5.1")])
def test_releases_or_update(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give releases to pin, or --update"):
        pin(tmp_path, *arguments)
