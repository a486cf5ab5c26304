"""``status --digest``: one hash for a fleet, and ``--expect`` as its gate."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sglang import installed_files
from installing import (
    MIXER,
    PACKAGE,
    FakeCodemods,
    codemods,
    rewriter,
    sealed_state,
    site_packages,
)

__all__ = ["codemods", "sealed_state", "site_packages"]


def digest(*options: str | Path) -> str:
    done = rewriter("status", "--digest", *options)
    assert (done.code, done.err, len(done.out)) == (0, "", 65)
    return done.out.strip()


def test_equal_wherever_patched_alike(
    site_packages: Path, tmp_path: Path, codemods: FakeCodemods, write_files: Callable[..., Path]
) -> None:
    """Another path, other times, another order, another layout, an overlay instead."""
    option = ("--site-packages", site_packages)
    nothing = digest(*option)
    assert rewriter("apply", "alpha", "delta", *option).code == 0
    first = digest(*option)
    assert first != nothing
    other = write_files(tmp_path / "other" / "packages", installed_files("0.5.2", PACKAGE))
    assert digest("--site-packages", other) == nothing
    overlay = ("--site-packages", other, "--overlay", tmp_path / "overlay")
    assert rewriter("apply", "delta", "alpha", *overlay).code == 0
    assert (digest("--site-packages", other), digest(*overlay)) == (nothing, first)
    for name in ("delta", "alpha"):
        assert rewriter("apply", name, "--site-packages", other).code == 0
    os.utime(other / MIXER, (1, 1))
    assert digest("--site-packages", other) == first


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("version", "the version of sglang"),
        ("codemods", "the codemods or their companions, the bytes of the patched files"),
        ("bytes", "the bytes of the patched files"),
    ],
)
def test_the_gate_says_what_differs(
    kind: str, told: str, site_packages: Path, tmp_path: Path, codemods: FakeCodemods,
    write_files: Callable[..., Path],
) -> None:  # fmt: skip
    option = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *option)
    expected = digest(*option)
    assert rewriter("status", "--expect", expected, *option).code == 0
    version = "0.5.3" if kind == "version" else "0.5.2"
    other = ("--site-packages", write_files(tmp_path / "o", installed_files(version, PACKAGE)))
    rewriter("apply", "alpha", *(["gamma"] if kind == "codemods" else []), *other)
    if kind == "bytes":
        with (other[1] / MIXER).open("ab") as file:
            file.write(b"# mine\n")
    done = rewriter("status", "--expect", expected, *other)
    assert done.code == 1
    assert f"what differs: {told}\n" in done.err
    assert "alpha: applied" in done.err
    document = rewriter("status", "--expect", expected, "--json", *other).json
    assert (document["exit"], ", ".join(document["differs"])) == (1, told)
    assert document["digest"] == digest(*other)


def test_a_hash_that_is_none(site_packages: Path, codemods: FakeCodemods) -> None:
    done = rewriter("status", "--expect", "abc", "--site-packages", site_packages)
    assert (done.code, "is no hash" in done.err) == (2, True)


def test_it_does_not_depend_on_how_the_tool_was_written(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    """Neither the interpreter nor the tool itself may enter: the same value anywhere."""
    rewriter("apply", "alpha", "--site-packages", site_packages)
    assert digest("--site-packages", site_packages) == KNOWN


KNOWN = "554eb17bc0ad3735e934d6a19e09a0ae177f7f9d9ef4f7a06a902ff56826dc2d"
