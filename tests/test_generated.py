"""Generated sources: rewritten right, proved by running them, or refused; never a silent miss.

Run with ``-s`` to print what came of every spelling, and of the combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import generated_fa3
import generated_mla
from generating import Outcome, Shape, outcome
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPES = {shape.codemod: shape for shape in (generated_mla.SHAPE, generated_fa3.SHAPE)}
"""A codemod more is one more of these."""

MOST_CHANGED = 4


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, str, str, Outcome]]]:
    """Collect what came of every spelling and print it at the end."""
    rows: list[tuple[str, str, str, Outcome]] = []
    yield rows
    print("\n\ncodemod, what is spelled: how | outcome | reason")
    for codemod, part, spelling, found in rows:
        print(f"{codemod}, {part}: {spelling} | {found.word} | {found.reason}")
    for codemod in dict.fromkeys(row[0] for row in rows):
        words = Counter(row[3].word for row in rows if row[0] == codemod)
        told = ", ".join(f"{n} {word}" for word, n in sorted(words.items()))
        print(f"{codemod}: {sum(words.values())} spellings: {told}; 0 silent misses")


@pytest.mark.parametrize(
    ("codemod", "part", "spelling"),
    [
        (name, part, spelling)
        for name, shape in SHAPES.items()
        for part, spellings in shape.choices.items()
        for spelling in spellings
    ],
)
def test_a_spelling(
    codemod: str, part: str, spelling: str, table: list[tuple[str, str, str, Outcome]]
) -> None:
    shape = SHAPES[codemod]
    found = outcome(shape, {**shape.plain, part: spelling})
    table.append((codemod, part, spelling, found))
    assert found.word == ("refused" if spelling in shape.refused(part) else "rewritten")


@pytest.mark.parametrize("codemod", SHAPES)
def test_the_pool_as_it_is_needs_no_patch(codemod: str) -> None:
    shape = SHAPES[codemod]
    direct = {"decode cast": "no cast", "extend cast": "no cast"}
    assert outcome(shape, {**shape.plain, **direct}).word == "upstream"


@pytest.mark.parametrize("codemod", SHAPES)
def test_combinations_of_anything(codemod: str) -> None:
    """A few parts spelled in any way, the others plain."""
    shape = SHAPES[codemod]
    words: Counter[str] = Counter()

    @settings(max_examples=150, deadline=None, database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        parts = data.draw(st.sets(st.sampled_from(sorted(shape.choices)), max_size=MOST_CHANGED))
        choice = dict(shape.plain)
        for part in sorted(parts):
            choice[part] = data.draw(st.sampled_from(shape.choices[part]))
        found = outcome(shape, choice)
        words[found.word] += 1
        if any(spelling in shape.refused(part) for part, spelling in choice.items()):
            assert found.word != "rewritten", choice

    check()
    told(codemod, "anything", words)


@pytest.mark.parametrize("codemod", SHAPES)
def test_combinations_of_what_is_known(codemod: str) -> None:
    """Every part spelled in a way that is rewritten by itself."""
    shape = SHAPES[codemod]
    words: Counter[str] = Counter()
    known = {
        part: [spelling for spelling in spellings if spelling not in shape.refused(part)]
        for part, spellings in shape.choices.items()
    }

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.fixed_dictionaries({part: st.sampled_from(how) for part, how in known.items()}))
    def check(choice: dict[str, str]) -> None:
        words[outcome(shape, choice).word] += 1

    check()
    told(codemod, "what is known", words)
    assert words["rewritten"] > words.total() / 2, "most of what is known is rewritten together"


def told(codemod: str, what: str, words: Counter[str]) -> None:
    """Print the outcomes of combinations."""
    found = ", ".join(f"{n} {word}" for word, n in sorted(words.items()))
    print(f"\n{codemod}: {words.total()} combinations of {what}: {found}; 0 silent misses")


def test_a_shape_has_no_spelling_that_is_refused_for_nothing() -> None:
    for shape in SHAPES.values():
        for part, spellings in shape.choices.items():
            assert shape.refused(part) <= set(spellings), part
            assert spellings[0] not in shape.refused(part)


@pytest.mark.parametrize("codemod", SHAPES)
def test_the_harness_sees_a_silent_miss(codemod: str) -> None:
    """What proves the others: a rewrite that leaves a whole conversion fails."""
    plain = SHAPES[codemod]
    missing = Shape(
        plain.codemod, plain.path, plain.choices, plain.build,
        lambda source, companion: plain.play(source, None if companion is None else _idle()),
        plain.refused,
    )  # fmt: skip
    with pytest.raises(AssertionError, match="silent miss: the whole pool is still converted"):
        outcome(missing, plain.plain)


def _idle():  # type: ignore[no-untyped-def]
    """Return a companion that leaves everything alone."""
    from rewriter import catalog
    from rewriter.probes.equivalence.loading import load_companion

    (companion,) = catalog.load("mla_kv_gather").companions
    return load_companion(catalog.companion_bytes(companion), switch="off")
