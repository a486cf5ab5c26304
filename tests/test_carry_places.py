"""carry: places that upstream changed around: branches, lists, imports, paragraphs, names."""

from __future__ import annotations

from typing import Any

import pytest
from carrying import carries, code, place, reasons, refuses, text

from rewriter.carry.steps import Fate

CHAIN = """
    def load(x):
        if isinstance(x, int):
            return x
        elif isinstance(x, str):
            return int(x)
        else:
            raise ValueError(x)
"""


def edited(old: str, new: str, source: str) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


LISTS = "        elif isinstance(x, list):\n            return x[0]\n"


def test_a_branch_between_two_that_are_still_neighbours() -> None:
    ours = edited("        else:\n", LISTS + "        else:\n", CHAIN)
    theirs = edited(
        "        elif isinstance(x, str):",
        "        elif x is None:\n            return 0\n        elif isinstance(x, str):",
        CHAIN,
    )
    wanted = edited("        else:\n", LISTS + "        else:\n", theirs)
    carries(CHAIN, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_branch_where_upstream_put_another_one() -> None:
    ours = edited("        else:\n", LISTS + "        else:\n", CHAIN)
    theirs = edited(
        "        else:\n", "        elif x is None:\n            return 0\n        else:\n", CHAIN
    )
    refuses(CHAIN, ours, theirs, "upstream changed the branches")


def test_a_branch_that_upstream_has_and_others_that_it_changed() -> None:
    ours = edited("        else:\n", LISTS + "        else:\n", CHAIN)
    theirs = edited("return int(x)", "return int(x, 0)", ours)
    found = place(CHAIN, ours, theirs)
    assert not found.conflicts
    assert found.changes == ()


NAMES = """
    KEEP = [
        "one",
        "two",
        "three",
    ]
"""


def test_an_item_where_upstream_took_its_neighbour_away() -> None:
    ours = edited('"three",\n', '"three",\n        "four",\n', NAMES)
    theirs = edited('        "three",\n', "", NAMES)
    found = place(NAMES, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(edited('"two",\n', '"two",\n        "four",\n', theirs))


SENT = """
    def send(rows, rids, counts):
        return Out(
            depth=1,
            width=2,
            rows=rows,
            rids=rids,
            hosts=None,
            counts=counts,
        )
"""


def test_an_argument_before_those_that_upstream_moved_to_another_place() -> None:
    ours = edited(
        "            rows=rows,\n", "            rows=rows,\n            kinds=1,\n", SENT
    )
    moved = "            rids=rids,\n            hosts=None,\n"
    theirs = edited(moved, "", SENT)
    theirs = edited("            depth=1,\n", moved + "            depth=1,\n", theirs)
    wanted = edited(
        "            rows=rows,\n", "            rows=rows,\n            kinds=1,\n", theirs
    )
    found = place(SENT, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(wanted)


def test_an_operand_where_upstream_took_its_neighbour_away() -> None:
    base = "    x = f(a + b)\n"
    refuses(base, edited("b", "b * c", base), edited("a + b", "a", base), "the same part")


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ("MAX, Alpha, b9, b10", "MAX, MIN, Alpha, Beta, a, b9, b10"),
        ("a1, Alpha, b9, b10", "a, a1, Alpha, b9, b10, Beta, MIN"),
        ("z, y, x", "z, a, Beta, MIN, y, x"),
    ],
    ids=["by kind", "all together", "in none"],
)
def test_imported_names_go_where_the_order_says(there: str, wanted: str) -> None:
    base = "    from pkg import z\n    print(z)\n"
    ours = edited("import z", "import z, a, Beta, MIN", base)
    theirs = edited("import z", f"import {there}", base).replace("print(z)", "print(1)")
    found = place(base, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found).splitlines()[0] == f"from pkg import {wanted}"


FIELDS = """
    class Args:
        depth: int = 1
        width: int = 2

        # other things
        name: str = ""
"""


def test_a_field_stays_in_its_paragraph() -> None:
    more = "        height: int = 3\n"
    ours = edited("        width: int = 2\n", "        width: int = 2\n" + more, FIELDS)
    theirs = edited(
        "        # other things\n", "        # new things\n        kind: str = ''\n\n        # other things\n",  # noqa: E501
        FIELDS,
    )  # fmt: skip
    wanted = edited("        width: int = 2\n", "        width: int = 2\n" + more, theirs)
    carries(FIELDS, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_field_beside_one_in_the_same_paragraph_has_no_place() -> None:
    ours = edited("width: int = 2\n", "width: int = 2\n        height: int = 3\n", FIELDS)
    theirs = edited("width: int = 2\n", "width: int = 2\n        length: int = 4\n", FIELDS)
    refuses(FIELDS, ours, theirs, "at the same place")


CHECKS = """
    class Args:
        def check(self):
            assert self.a > 0
            assert self.b > 0
"""


def test_what_follows_a_statement_that_upstream_put_under_a_condition() -> None:
    more = "            assert self.c > 0\n"
    ours = edited("self.b > 0\n", "self.b > 0\n" + more, CHECKS)
    under = "            if self.a:\n                assert self.b > 0\n"
    theirs = edited("            assert self.b > 0\n", under, CHECKS)
    carries(CHECKS, ours, theirs, edited(under, under + more, theirs), Fate.STRUCTURE)


def test_what_comes_before_a_statement_that_upstream_put_under_a_condition() -> None:
    """What it makes is there whether the statement runs or not."""
    base = edited("assert self.a > 0", "n = self.a", CHECKS)
    base = edited("assert self.b > 0", "n = n + self.b", base)
    more = "            n = abs(n)\n"
    ours = edited("n = self.a\n", "n = self.a\n" + more, base)
    under = "            if self.c:\n                n = n + self.b\n"
    theirs = edited("            n = n + self.b\n", under, base)
    carries(base, ours, theirs, edited(under, more + under, theirs), Fate.STRUCTURE)


def test_blank_lines_do_not_go_where_upstream_put_the_statement_below_them() -> None:
    more = "            self.told(self.c, 1)\n"
    ours = edited("            assert self.b", more + "\n            assert self.b", CHECKS)
    under = "            if self.a:\n                assert self.b > 0\n"
    theirs = edited("            assert self.b > 0\n", under, CHECKS)
    carries(CHECKS, ours, theirs, edited(under, more + under, theirs), Fate.STRUCTURE)


def test_what_needs_a_statement_that_upstream_put_under_a_condition() -> None:
    base = edited("assert self.b > 0", "n = self.b", CHECKS)
    ours = edited("n = self.b\n", "n = self.b\n            self.c(n)\n", base)
    theirs = edited(
        "            n = self.b\n", "            if self.a:\n                n = self.b\n", base
    )
    refuses(base, ours, theirs, "under a condition")


# --- renamed locals --------------------------------------------------------------------------

LOOP = """
    def run(batch, size):
        total = 0
        for item in batch:
            value = item * size
            total += value
        return total
"""


def test_locals_that_upstream_renamed_are_followed_and_said() -> None:
    ours = edited(
        "        return total\n", "        total = max(total, 1)\n        return total\n", LOOP
    )
    theirs = LOOP.replace("total", "amount").replace(
        "amount = 0", "print(size)\n        amount = 0"
    )
    found = place(LOOP, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert "amount = max(amount, 1)\n" in text(found)
    assert "total" not in text(found)
    assert "`total` is `amount` by now" in reasons(found)
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(code(ours), spaces[0])
    exec(text(found), spaces[1])
    assert spaces[0]["run"]([0], 2) == spaces[1]["run"]([0], 2) == 1


def test_a_name_that_two_others_took_over_is_not_followed() -> None:
    theirs = edited("        for item in batch:\n            value = item * size\n            total += value\n        return total",  # noqa: E501
                    "        for item in batch:\n            first = item * size\n            total += first\n        last = 1\n        return total + last",  # noqa: E501
                    LOOP)  # fmt: skip
    ours = edited(
        "            total += value\n", "            value += 1\n            total += value\n", LOOP
    )
    found = place(LOOP, ours, theirs)
    assert found.conflicts or "first += 1" in text(found)


def test_the_new_name_that_the_patch_uses_itself_is_not_taken() -> None:
    ours = edited(
        "        return total\n", "        amount = 1\n        return total + amount\n", LOOP
    )
    theirs = LOOP.replace("total", "amount")
    found = place(LOOP, ours, theirs)
    assert found.conflicts


# --- definitions that went elsewhere ---------------------------------------------------------

SHAPES = """
    def area(shape):
        width = shape[0]
        height = shape[1]
        return width * height


    def name(shape):
        return str(shape)
"""


def test_a_function_that_upstream_renamed() -> None:
    ours = edited("shape[1]", "shape[-1]", SHAPES)
    theirs = edited("def area", "def surface", SHAPES)
    found = place(SHAPES, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(edited("shape[1]", "shape[-1]", theirs))


def test_a_function_that_two_others_may_be() -> None:
    ours = edited("shape[1]", "shape[-1]", SHAPES)
    first, second = code(SHAPES).split("\n\n\n")
    twice = [first.replace("def area", f"def {name}") for name in ("surface", "extent")]
    found = place(SHAPES, ours, "\n\n\n".join([*twice, second]))
    assert found.conflicts
    assert "upstream has no such statement any more" in reasons(found)


# --- arguments and elements that upstream has ------------------------------------------------

HEADER = "    def run(a, b=1):\n        return go(a, b=b, on=[1])\n"

THERE = {
    "a parameter beside another": ("b=1):", "b=1, c=2):", "b=1, d=3, c=2):"),
    "keyword arguments in another order": (
        "b=b, on", "b=b, c=1, d=2, on", "d=2, b=b, c=1, on",
    ),
    "an element beside others": ("[1]", "[1, 2]", "[0, 1, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("case", THERE)
def test_what_upstream_added_with_other_things_is_there(case: str) -> None:
    old, new, theirs = THERE[case]
    found = place(HEADER, edited(old, new, HEADER), edited(old, theirs, HEADER))
    assert not found.conflicts, reasons(found)
    assert found.changes == ()


@pytest.mark.parametrize(
    ("old", "new", "theirs"),
    [("go(a,", "go(a, x,", "go(x, a,"), ("(a, b=1)", "(a, c, b=1)", "(c, a, b=1)")],
)
def test_at_another_position_it_is_something_else(old: str, new: str, theirs: str) -> None:
    found = place(HEADER, edited(old, new, HEADER), edited(old, theirs, HEADER))
    assert found.conflicts
