"""The version that a source tree states: static, literal, or not at all."""

from __future__ import annotations

import pytest

from rewriter.targets.version import is_project, normalised, source_version, stated

LITERAL = b'__version__ = "0.5.10"\n'
GENERATED = b"""\
from __future__ import annotations
version: str
__version__: str
__version__ = version = '0.5.12.post1'
__version_tuple__ = version_tuple = (0, 5, 12)
"""
DELEGATES = b"""\
try:
    from sglang._version import __version__
except ImportError:
    __version__ = "0.0.0.dev0"
"""
DYNAMIC = b'[project]\nname = "sglang"\ndynamic = ["version"]\n'
STATIC = b'[project]\nname = "sglang"\nversion = "0.5.9"\n'


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"sglang/version.py": LITERAL}, "0.5.10"),
        ({"sglang/version.py": DELEGATES}, None),
        ({"sglang/version.py": DELEGATES, "sglang/_version.py": GENERATED}, "0.5.12.post1"),
        ({"pyproject.toml": STATIC, "sglang/version.py": LITERAL}, "0.5.9"),
        ({"pyproject.toml": DYNAMIC, "sglang/version.py": LITERAL}, "0.5.10"),
        ({"pyproject.toml": DYNAMIC}, None),
        ({"pyproject.toml": STATIC.replace(b"sglang", b"sglang-fork")}, None),
        ({"pyproject.toml": b"[project", "sglang/version.py": LITERAL}, "0.5.10"),
        ({"pyproject.toml": b"\xff", "sglang/version.py": LITERAL}, "0.5.10"),
        ({"pyproject.toml": b"project = 1\n", "sglang/version.py": LITERAL}, "0.5.10"),
        ({"sglang/version.py": b"__version__ = '0.5.3rc0'  # c\r\n"}, "0.5.3rc0"),
        ({"sglang/version.py": b'__version__ = "unknown"\n'}, None),
        ({"sglang/version.py": b'__version__ = ".".join(parts)\n'}, None),
        ({}, None),
    ],
)
def test_source_version(files: dict[str, bytes], version: str | None) -> None:
    assert source_version(files.get) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.5.9", "0.5.9"),
        ("0.5.6.post2", "0.5.6.post2"),
        ("0.5.13.dev7+g0123abc", "0.5.13.dev7+g0123abc"),
        ("0.1.3", "0.1.3"),
        ("0.0.0.dev0", None),
        ("0.0.0", None),
        ("0.0", None),
        ("0.1.dev1+g0123abc", None),
        ("0.1.dev1", None),
        ("", None),
        ("main", None),
    ],
)
def test_stated(text: str, version: str | None) -> None:
    assert stated(text) == version


def test_normalised_keeps_placeholders() -> None:
    assert normalised("0.0.0") == "0.0.0"
    assert normalised("no version") is None


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (STATIC, True),
        (STATIC.replace(b"sglang", b"sglang-fork"), True),
        (STATIC.replace(b"sglang", b"other"), False),
        (None, False),
    ],
)
def test_is_project(data: bytes | None, answer: bool) -> None:
    assert is_project(lambda path: data) is answer
