"""``rewriter verify``: the command; what it runs is tested in test_equivalence."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from rewriter.cli import build
from rewriter.commands.verify import failing
from rewriter.probes.equivalence.rows import ModeRow
from rewriter.report.equivalence import head, line, summary
from rewriter.targets.release import Release

pytest.importorskip("torch")


@pytest.mark.wheels
def test_a_release_is_proved(release: Callable[[str], Release]) -> None:
    wheel = str(release("0.5.9").path)
    done = CliRunner().invoke(build(), ["verify", "--wheel", wheel])
    assert done.exit_code == 0, done.output
    assert "decode, CUDA graphs" in done.output
    assert "differs" not in done.output
    table = [text for text in done.output.splitlines() if not text.startswith("/")]
    assert max(map(len, table)) <= 80


@pytest.mark.wheels
def test_json_holds_every_mode(release: Callable[[str], Release]) -> None:
    wheel = str(release("0.5.9").path)
    done = CliRunner().invoke(build(), ["verify", "--wheel", wheel, "--json"])
    value = json.loads(done.stdout)
    assert (value["command"], value["exit"], done.exit_code) == ("verify", 0, 0)
    eager = next(row for row in value["modes"] if row["mode"] == "decode, eager")
    assert eager["state"] == "equal"
    assert 0 < eager["after"] < eager["before"]


@pytest.mark.wheels
def test_a_release_without_the_cast_is_refused(release: Callable[[str], Release]) -> None:
    from rewriter.errors import RefusedError

    wheel = str(release("0.4.6").path)
    done = CliRunner().invoke(build(), ["verify", "--wheel", wheel])
    assert isinstance(done.exception, RefusedError)
    assert "upstream" in str(done.exception)


@pytest.mark.wheels
def test_one_codemod_is_proved_at_a_time(release: Callable[[str], Release]) -> None:
    from rewriter.errors import UsageError

    wheel = str(release("0.5.9").path)
    both = ["verify", "mla_kv_gather", "fa3_kv_gather", "--wheel", wheel]
    done = CliRunner().invoke(build(), both)
    assert isinstance(done.exception, UsageError)
    assert "not mla_kv_gather, fa3_kv_gather; name the one" in str(done.exception)


def test_differs_and_not_run_are_a_no() -> None:
    rows = [ModeRow(state, state, 9, 3) for state in ("equal", "untouched", "differs", "not run")]
    assert [row.state for row in failing(rows)] == ["differs", "not run"]
    assert "1 differs" in summary(rows)
    assert "1 not run" in summary(rows)
    longest = ModeRow("m" * 48, "untouched", 1_000_000, 999_999)
    assert max(len(head()), len(line(longest))) <= 80
