"""Runs that meet each other, pip and readers: a few of those that ``races.py`` runs by hundreds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_outcomes import staged
from races import HEAD, RACES, Ground, Race, made, row, run


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    place = tmp_path_factory.mktemp("races")
    with staged(place, sync=True):
        yield made(place)


@pytest.mark.parametrize("race", [pytest.param(race, id=race.name) for race in RACES])
def test_no_reader_sees_a_mixed_package(
    race: Race, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewriter.transaction.run.GRACE", 0.2)
    chance = random.Random(1)
    found = [run(race, ground, chance) for _ in range(2 if race.pip else 4)]
    print("", HEAD, row(race, found), sep="\n")
    assert [line for one in found for line in one.broken] == []
    seen: Counter[str] = sum((one.seen for one in found), Counter())
    assert not [word for word in seen if word == "mixed" or word.startswith("wrong")]
    assert seen["imports"] > 100
    assert seen["patched"] > 0
    assert seen["original"] > 0


def test_a_reader_that_sees_a_mixed_package_is_told(ground: Ground) -> None:
    """The readers of the other test are worth something."""
    import shutil

    from installing import TOOLS
    from races import Child, read_on

    def read() -> Counter[str]:
        stop = ground.place / "stop-of-one"
        stop.touch()
        return read_on(ground.site, stop)

    shutil.rmtree(ground.site)
    shutil.copytree(ground.kept[True], ground.site, symlinks=True)
    assert Child(read).result()["patched"] == 1
    (ground.site / TOOLS).unlink()
    assert Child(read).result()["mixed"] == 1
    assert not Path(ground.site / TOOLS).exists()
