"""For pytest: real releases of sglang as a fixture, fetched once and kept in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rewriter.targets.release import Release


@pytest.fixture
def sglang_release() -> Iterator[Callable[[str], Release]]:
    """Return a function from a version to that release's files.

    Where the package index cannot be reached the test is skipped; with ``CI`` set it fails.
    """
    from rewriter.targets.pip_errors import IndexUnreachable
    from rewriter.targets.release import Release

    opened: list[Release] = []

    def of(version: str) -> Release:
        try:
            opened.append(Release(version))
        except IndexUnreachable as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        return opened[-1]

    yield of
    for each in opened:
        each.close()
