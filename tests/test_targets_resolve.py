"""The options of a command line name one target, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rewriter.errors import UsageError
from rewriter.targets import resolve


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"python": "p", "checkout": "c"}, "--python and --checkout each name a target"),
        ({"wheel": "w", "release": "1"}, "--release and --wheel each name a target; give one"),
        ({"repo": "r", "rev": "v", "site_packages": "s"}, "--site-packages and --repo each"),
        ({"python": "", "wheel": ""}, "--python and --wheel each"),
        ({"repo": "r"}, "--repo needs --rev: which commit of which repository?"),
        ({"rev": "v"}, "--rev needs --repo: which commit of which repository?"),
        ({"rev": "v", "checkout": "c"}, "--rev needs --repo"),
        ({"release": "newest"}, "--release 'newest': expected a version such as 0.5.9"),
        ({"repo": "r", "rev": "-x"}, "--rev '-x': expected a commit, a tag or a branch"),
    ],
)
def test_conflicts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(**options)
    assert str(caught.value).startswith(message)
