"""carry: what the patch uses of the other release is looked up there; a success is no guess."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from carrying import PATH, Tree, code, diff, fates, place, reasons, text

from rewriter.carry.carrying import Carried, carry
from rewriter.carry.steps import Fate

OTHER = "sglang/srt/other.py"
MIXED = "sglang/srt/mixed.py"

BASE = """
    from sglang.srt.other import Plan, measure


    class Runner:
        def __init__(self, rank, size):
            self.rank = rank
            self.size = size

        def run(self, batch):
            width = 2
            batch = batch * width
            return batch

        def rest(self):
            return self.size
"""
LIBRARY = """
    from dataclasses import dataclass


    def measure(shape, unit=1):
        return shape * unit


    @dataclass
    class Plan:
        rows: int
        columns: int = 0
"""


def placed(
    ours: str,
    *,
    theirs: str = BASE,
    older: Mapping[str, str] | None = None,
    newer: Mapping[str, str] | None = None,
    partial: bool = False,
    versions: tuple[str | None, str | None] = (None, None),
) -> Carried:
    """Carry a patch of BASE; ``older`` and ``newer`` are the other files of the releases."""
    first = {OTHER: LIBRARY, **(older or {})}
    second = {**first, **(newer or {})}
    one = Tree({PATH: code(BASE), **{p: code(t) for p, t in first.items()}})
    two = Tree({PATH: code(theirs), **{p: code(t) for p, t in second.items()}})
    one.version, two.version = versions  # type: ignore[assignment]
    return carry([("own.patch", diff(BASE, ours))], one, two, partial=partial)


def edited(old: str, new: str, source: str = BASE) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


def using(line: str) -> str:
    """Return the patched module with one more line in ``run``."""
    return edited("            return batch\n", f"            {line}\n            return batch\n")


def library(old: str, new: str) -> dict[str, str]:
    return {OTHER: edited(old, new, LIBRARY)}


CONFLICTS = {
    "an argument that is required by now": (
        using("batch = measure(batch)"),
        library("def measure(shape, unit=1)", "def measure(shape, unit)"),
        "`measure` requires the argument `unit`",
    ),
    "an argument that is gone": (
        using("batch = measure(batch, unit=3)"),
        library("def measure(shape, unit=1)", "def measure(shape, scale=1)").copy()
        | {MIXED: "unit = 1\n"},
        "`measure` has no argument `unit`",
    ),
    "fewer positions": (
        using("batch = measure(batch, 3)"),
        library("def measure(shape, unit=1)", "def measure(shape, *, unit=1)"),
        "`measure` takes 1 positional arguments, not 2",
    ),
    "another order of arguments": (
        using("batch = measure(batch, 3)"),
        library("def measure(shape, unit=1)", "def measure(unit, shape=1)"),
        "changed the order of arguments: `measure` takes `unit` where the patch gives `shape`",
    ),
    "a field that is required by now": (
        using("batch = Plan(batch).rows"),
        library("columns: int = 0", "columns: int"),
        "`Plan` requires the argument `columns`",
    ),
    "a function that went elsewhere": (
        edited("import Plan, measure", "import Plan, lay, measure", using("batch = lay(batch)")),
        {OTHER: LIBRARY, MIXED: "def lay(shape):\n    return shape\n"},
        "imports `lay` from sglang.srt.other, which has no such name; sglang/srt/mixed.py has it",
    ),
    "a module that is gone": (
        "import sglang.srt.extra\n" + code(BASE),
        {},
        "the patch imports sglang.srt.extra, and upstream has no such module",
    ),
    "an attribute that nothing has any more": (
        using("batch = batch.trimmed()"),
        {},
        "the patch uses `trimmed`, a name that upstream has nowhere any more",
    ),
}
OLDER = {
    "a function that went elsewhere": library(
        "def measure", "def lay(shape):\n        return shape\n\n\n    def measure"
    ),
    "a module that is gone": {"sglang/srt/extra.py": "x = 1\n"},
    "an attribute that nothing has any more": {
        MIXED: "class Batch:\n    def trimmed(self):\n        return self\n"
    },
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_no_longer_fits_is_a_conflict(case: str) -> None:
    ours, newer, reason = CONFLICTS[case]
    older = OLDER.get(case, {})
    if case == "a module that is gone":
        found = carried_without("sglang/srt/extra.py", ours, older)
    elif case == "an attribute that nothing has any more":
        found = carried_without(MIXED, ours, older)
    else:
        found = placed(ours, older=older, newer=newer)
    assert reason in reasons(found)
    assert found.changes == ()
    unchanged = placed(ours, older=older)
    assert not unchanged.conflicts, reasons(unchanged)


MEASURES = """
    def measure(shape, unit=1):
        return shape * unit


    class Plan:
        def __init__(self, rows, columns=0):
            self.rows = rows

        def wide(self, by=1):
            return self.rows * by

        def both(self):
            return self.wide(), measure(self.rows, 2)
"""
NARROWED = {
    "a function": (
        ("measure(shape, unit=1)", "measure(shape, unit)"),
        ("measure(batch, unit=3)", "measure(batch)"),
        "sglang/srt/other.py, line 5: `measure` requires the argument `unit`",
    ),
    "an argument that the patch takes away": (
        ("measure(shape, unit=1)", "measure(shape, *units)"),
        ("measure(batch)", "measure(batch, unit=3)"),
        "sglang/srt/other.py, line 5: `measure` has no argument `unit`",
    ),
    "a class": (
        ("__init__(self, rows, columns=0)", "__init__(self, rows, columns)"),
        ("measure(batch)", "Plan(batch)"),
        "sglang/srt/other.py, line 5: `Plan` requires the argument `columns`",
    ),
}


@pytest.mark.parametrize("case", NARROWED)
def test_a_call_that_upstream_added_of_what_the_patch_changes(case: str) -> None:
    (old, new), (before, after), reason = NARROWED[case]
    caller = "from sglang.srt.mod import Plan, measure\n\n\ndef run(batch):\n    return {}\n"
    patch = [("own.patch", diff(MEASURES, edited(old, new, MEASURES)))]
    older = {PATH: code(MEASURES), OTHER: caller.format(before)}
    found = carry(patch, Tree(older), Tree({**older, OTHER: caller.format(after)}))
    assert f"upstream calls what the patch changes: {reason}" in reasons(found)
    assert found.changes == ()
    assert not carry(patch, Tree(older), Tree(older)).conflicts
    # one that the patch's own release has too is the patch's own fault
    both = {**older, OTHER: caller.format(after)}
    assert not carry(patch, Tree(both), Tree(both)).conflicts


def test_calls_that_another_patch_would_change_are_not_told() -> None:
    """In the other release they lack another argument: a field was added behind the patch's."""
    fields = "from dataclasses import dataclass\n\n\n@dataclass\nclass Out:\n    rows: int\n{}"
    caller = "from sglang.srt.mod import Out\n\n\ndef run(rows):\n    return Out({})\n"
    base, theirs = fields.format("    size: int\n"), fields.format("    size: int\n    last: int\n")
    ours = base.replace("rows: int", "rows: int\n    more: int")
    older = {PATH: base, OTHER: caller.format("rows, 1")}
    newer = {PATH: theirs, OTHER: caller.format("rows, 1, 2")}
    found = carry([("own.patch", diff(base, ours))], Tree(older), Tree(newer))
    assert not found.conflicts, reasons(found)


@pytest.mark.parametrize(
    ("imported", "called", "told"),
    [
        ("from sglang.srt import mod", "mod.measure(batch)", True),
        ("from sglang.srt.mod import measure as scaled", "scaled(batch)", False),
        ("import numpy as mod", "mod.measure(batch)", False),
        ("from sglang.srt.mod import measure", "tuple(map(measure, batch))", False),
    ],
)
def test_which_calls_of_another_module_are_known(imported: str, called: str, told: bool) -> None:
    """A call under another name is not looked for: it would take parsing every module."""
    ours = edited("measure(shape, unit=1)", "measure(shape, unit)", MEASURES)
    older = {PATH: code(MEASURES)}
    newer = {**older, OTHER: f"{imported}\n\n\ndef run(batch):\n    return {called}\n"}
    found = carry([("own.patch", diff(MEASURES, ours))], Tree(older), Tree(newer))
    assert ("upstream calls what the patch changes" in reasons(found)) is told


def test_a_call_that_upstream_added_in_the_same_module() -> None:
    ours = edited("self.wide()", "self.wide(1)", edited("by=1", "by", MEASURES))
    more = "\n        def more(self):\n            return self.wide()\n"
    found = place(MEASURES, ours, MEASURES + more)
    assert "sglang/srt/mod.py, line 16: `self.wide` requires the argument `by`" in reasons(found)
    wider = edited("by=1", "by=1, deep=False", MEASURES)
    assert not place(MEASURES, wider, MEASURES + more).conflicts


COROUTINE = (
    LIBRARY
    + """

    async def fill(shape):
        return shape
"""
)


def test_a_call_without_await_of_what_is_a_coroutine_by_now() -> None:
    ours = edited("import Plan, measure", "import Plan, fill, measure", using("fill(batch)"))
    plain = {OTHER: COROUTINE.replace("async def", "def")}
    found = placed(ours, older=plain, newer={OTHER: COROUTINE})
    assert "the patch calls `fill` without `await`; it is a coroutine by now" in reasons(found)
    assert found.changes == ()
    assert not placed(ours, older=plain).conflicts
    # on its own release it is the patch's fault, and no matter of carrying
    assert not placed(ours, older={OTHER: COROUTINE}).conflicts


def test_an_await_that_the_patch_takes_away_where_upstream_calls_another_coroutine() -> None:
    base = """
        class Server:
            async def stop(self):
                await self.queue.put(1)

            async def _send(self, what):
                await self.queue.put(what)
    """
    ours = base.replace("await self.queue.put(1)", "self.queue.put(1)")
    theirs = base.replace("self.queue.put(1)", "self._send(1)")
    found = place(base, ours, theirs)
    assert "calls `self._send` without `await`" in reasons(found)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("self.full = 1", True),
        ("return self.queue.put(1)", False),
        ("raise NotImplementedError", False),
    ],
)
def test_an_await_of_what_is_no_coroutine_any_more(body: str, told: bool) -> None:
    base = f"""
        class Server:
            async def stop(self):
                self.stopped = True

            async def fill(self):
                {body}
    """
    ours = base.replace("stopped = True", "stopped = True\n                await self.fill()")
    found = place(base, ours, base.replace("async def fill", "def fill"))
    assert ("the patch awaits `self.fill`, which is no coroutine" in reasons(found)) is told


def carried_without(path: str, ours: str, older: Mapping[str, str]) -> Carried:
    first = {PATH: code(BASE), OTHER: code(LIBRARY), **{p: code(t) for p, t in older.items()}}
    second = {p: t for p, t in first.items() if p != path}
    return carry([("own.patch", diff(BASE, ours))], Tree(first), Tree(second))


LOOK_ALIKES = {
    "an argument of another name": (
        using("batch = measure(batch, 3)"), library("unit=1):", "factor=1):"),
    ),
    "one more argument that may be left out": (
        using("batch = measure(batch, unit=3)"), library("unit=1):", "unit=1, deep=False):"),
    ),
    "any names": (
        using("batch = measure(batch, unit=3)"), library("unit=1):", "**named):"),
    ),
    "spread arguments": (
        using("batch = measure(*batch)"), library("shape, unit=1):", "shape, unit):"),
    ),
    "a name of another module, not of the package": (
        "import numpy\n" + code(using("batch = numpy.measure(batch)")), {OTHER: LIBRARY},
    ),
    "a decorated function": (
        using("batch = measure(batch)"),
        library("    def measure(shape, unit=1)", "    @wrapped\n    def measure(shape, unit)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOK_ALIKES)
def test_what_still_fits_is_left_alone(case: str) -> None:
    ours, newer = LOOK_ALIKES[case]
    found = placed(ours, newer=newer)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(ours)


def test_what_the_patch_lacks_in_its_own_release_is_not_told() -> None:
    """The other half may be in a patch that was not given."""
    ours = using("batch = measure(batch, depth=1).deepened(self.depth)")
    found = placed(ours, newer=library("return shape", "return  shape"))
    assert not found.conflicts, reasons(found)


# --- self, and locals ----------------------------------------------------------------------


def test_an_attribute_that_is_read_through_another_one_by_now() -> None:
    there = "self.place = rank\n            self.n = self.place.rank\n"
    theirs = edited("self.rank = rank\n", there)
    found = placed(using("batch += self.rank"), theirs=theirs)
    assert "`self.rank`, and `Runner` has no such attribute" in reasons(found)
    assert "upstream reads `self.place.rank` by now" in reasons(found)


def test_an_attribute_that_a_base_in_another_file_binds_by_now() -> None:
    theirs = edited("            self.rank = rank\n", "            super().__init__(rank)\n")
    theirs = edited("class Runner:", "class Runner(Ranked):", theirs)
    theirs = "from sglang.srt.mixed import Ranked\n" + code(theirs)
    mixed = "class Ranked:\n    def __init__(self, rank):\n        self.rank = rank\n"
    found = placed(using("batch += self.rank"), theirs=theirs, newer={MIXED: mixed})
    assert not found.conflicts, reasons(found)


def test_an_attribute_that_the_class_it_is_mixed_into_binds_by_now() -> None:
    theirs = edited("            self.rank = rank\n", "")
    mixed = (
        "from sglang.srt.mod import Runner\n\n\nclass Whole(Runner):\n"
        "    def __init__(self, rank):\n        self.rank = rank\n"
    )
    found = placed(using("batch += self.rank"), theirs=theirs, newer={MIXED: mixed})
    assert not found.conflicts, reasons(found)


def test_a_local_name_that_is_a_global_one_by_now() -> None:
    theirs = "width = 7\n" + code(edited("            width = 2\n", ""))
    found = placed(using("batch += width"), theirs=theirs)
    assert "the patch reads `width`, no local name there" in reasons(found)


def test_a_local_name_that_is_bound_later_by_now() -> None:
    theirs = edited("            width = 2\n            batch = batch * width\n",
                    "            batch = batch * 2\n            width = 2\n")  # fmt: skip
    ours = edited("batch = batch * width\n", "batch = batch + width * 2\n")
    found = placed(ours, theirs=theirs)
    assert found.conflicts
    assert found.changes == ()


def test_what_the_patch_takes_away_and_another_module_imports_by_now() -> None:
    found = carry(
        [("own.patch", diff("def one():\n    pass\n\n\ndef two():\n    pass\n",
                            "def two():\n    pass\n"))],
        Tree({PATH: "def one():\n    pass\n\n\ndef two():\n    pass\n"}),
        Tree({PATH: "def one():\n    pass\n\n\ndef two():\n    pass\n",
              OTHER: "from sglang.srt.mod import one\n"}),
    )  # fmt: skip
    assert "the patch takes away `one`, which sglang/srt/other.py imports by now" in reasons(found)


# What a class binds: neither what its methods store in other objects nor their local names.
BUFFERS = """
    class Runner:
        def __init__(self, rows):
            self.rows = rows
            self.wide = 2

        def run(self, batch):
            batch.wide = 1
            wide = batch.wide
            return wide
"""


@pytest.mark.parametrize(
    ("there", "bound"),
    [
        ("self.buffers.wide = 2", False),
        ("rows.wide = 2", False),
        ("wide = 2", False),
        ("self.wide: int = 2", True),
        ("self.wide, self.deep = rows", True),
        ('setattr(self, "wide", 2)', True),
        ('self.register_buffer("wide", rows)', True),
        ("for each in rows: setattr(self, each, 2)", True),
        ("self.__dict__.update(rows)", True),
        ("for self.wide in rows: pass", True),
    ],
)
def test_which_attributes_a_class_binds(there: str, bound: bool) -> None:
    ours = edited("return wide", "return wide + self.wide", BUFFERS)
    found = place(BUFFERS, ours, edited("self.wide = 2", there, BUFFERS))
    told = "uses `self.wide`, and `Runner` has no such attribute" in reasons(found)
    assert told is not bound, reasons(found)


def test_an_attribute_that_a_class_gives_to_an_object_it_makes() -> None:
    theirs = edited("            self.wide = 2\n", "", BUFFERS)
    theirs += """
        @classmethod
        def made(cls, rows):
            runner = cls(rows)
            runner.wide = 2
            return runner
    """
    found = place(BUFFERS, edited("return wide", "return wide + self.wide", BUFFERS), theirs)
    assert not found.conflicts, reasons(found)


# --- placed, and to be reviewed --------------------------------------------------------------

CALLS = """
    def build(kinds):
        made = []
        if "cpu" in kinds:
            made.append(Probe(kinds, depth=1, shape=True))
        return made
"""


def test_upstream_has_the_changed_statement_once_more() -> None:
    ours = edited("shape=True", "shape=True, traced=True", CALLS)
    again = '        if "gpu" in kinds:\n'
    again += "            made.append(Probe(kinds, depth=1, shape=True))\n"
    theirs = edited("        return made\n", again + "        return made\n", CALLS)
    found = one_file(CALLS, ours, theirs)
    assert set(fates(found)) == {Fate.REVIEW}
    assert "upstream has the statement that the patch changes on line 6 too" in reasons(found)
    assert found.changes == ()
    kept = one_file(CALLS, ours, theirs, partial=True)
    assert kept.conflicts
    first = 'shape=True))\n        if "gpu"'
    assert text(kept) == code(edited(first, first.replace("=True", "=True, traced=True"), theirs))
    other = theirs.replace(again, again.replace("Probe", "Other"))
    assert not one_file(CALLS, ours, other).conflicts


def one_file(base: str, ours: str, theirs: str, *, partial: bool = False) -> Carried:
    trees = Tree({PATH: code(base)}), Tree({PATH: code(theirs)})
    return carry([("own.patch", diff(base, ours))], *trees, partial=partial)


FIELDS = """
    class Args:
        one: A[int, "first"] = 1
        two: A[int, "second"] = 2
"""


def test_upstream_gave_both_neighbours_something() -> None:
    ours = edited("        two:", '        more: A[int, "new"] = 3\n        two:', FIELDS)
    theirs = FIELDS.replace('"first"]', '"first", Group("a")]')
    found = one_file(FIELDS, ours, theirs)
    assert not found.conflicts, "one neighbour alone"
    theirs = theirs.replace('"second"]', '"second", Group("b")]')
    found = one_file(FIELDS, ours, theirs)
    assert set(fates(found)) == {Fate.REVIEW}
    assert "upstream gave the statements on both sides of it `Group`" in reasons(found)
    has = ours.replace('"new"]', '"new", Group("c")]')
    assert not one_file(FIELDS, has, theirs).conflicts


@pytest.mark.parametrize(
    ("comment", "reviewed"),
    [
        ("# off: broken in 0.5.1", True),
        ("# off: broken in 0.5.0/0.5.1,\n            # to be looked at", True),
        ("# off: broken in 0.5.1 and 0.5.2", False),
        ("# off: broken in 0.5.10", False),
        ("# off", False),
    ],
)
def test_a_comment_that_names_the_release(comment: str, reviewed: bool) -> None:
    ours = using(f"{comment}\n            batch = 0")
    theirs = edited("return self.size", "return [self.size]")
    found = placed(ours, theirs=theirs, versions=("0.5.1", "0.5.2"))
    assert found.conflicts is reviewed
    assert ("a comment of the patch says that this is for 0.5.1" in reasons(found)) is reviewed
    same = placed(ours, theirs=theirs, versions=("0.5.1", "0.5.1"))
    assert not same.conflicts


PARTS = """
    class One:
        def set(self, value):
            self.value = value


    class Two:
        def run(self):
            return 1
"""


def test_what_is_bound_in_one_class_and_read_in_another() -> None:
    bound = "self.value = value\n"
    ours = edited(bound, f"{bound}            self.on = value\n", PARTS)
    ours = edited("return 1", "return 1 if self.on else 2", ours)
    method = "        def run(self):"
    theirs = edited(method, f"        name = 'two'\n\n{method}", PARTS)
    found = one_file(PARTS, ours, theirs)
    assert Fate.REVIEW in fates(found)
    assert "the patch reads `self.on` in `Two` and binds it in `One`" in reasons(found)
    theirs = edited("class One:", "X = 1\n\n\n    class One:", PARTS)
    unchanged = one_file(PARTS, ours, theirs)
    assert not unchanged.conflicts, "the class is as it was: no matter of carrying"


# --- hunks that need each other --------------------------------------------------------------


def test_a_hunk_that_needs_a_conflict_is_held_back_in_another_file() -> None:
    user = "from sglang.srt.other import Plan\n\n\ndef use(plan):\n    x = 1\n    return x\n"
    base = {OTHER: code(LIBRARY), PATH: user}
    ours = {
        OTHER: base[OTHER].replace("columns: int = 0", "columns: int = 5\n    depth: int = 1"),
        PATH: user.replace("    return x\n", "    x += plan.depth\n    return x\n"),
    }
    theirs = {**base, OTHER: base[OTHER].replace("columns: int = 0", "columns: int = 9")}
    patches = [(path, diff(base[path], ours[path], path)) for path in (OTHER, PATH)]
    found = carry(patches, Tree(base), Tree(theirs), partial=True)
    assert fates(found) == [Fate.CONFLICT, Fate.HELD]
    assert "it needs `depth`, which hunk 1 of other.py brings" in reasons(found)
    assert found.changes == ()
    free = carry(patches, Tree(base), Tree({**base, PATH: "import os\n" + user}), partial=True)
    assert not free.conflicts, reasons(free)


def test_a_hunk_that_needs_a_conflict_is_held_back_in_the_same_function() -> None:
    lines = "".join(f"    a{n} = {n}\n" for n in range(12))
    base = f"def run(x):\n{lines}    return x\n"
    ours = base.replace("    a1 = 1\n", "    a1 = one()\n    n = x + 1\n")
    ours = ours.replace("    return x\n", "    x = n\n    return x\n")
    theirs = base.replace("    a1 = 1\n", "    a1 = two()\n")
    found = one_file(base, ours, theirs, partial=True)
    assert Fate.CONFLICT in fates(found)
    assert found.changes == (), "what would read an unbound name is not written"


# --- where a value comes from ----------------------------------------------------------------

VALUES = """
    def scores(x, scale):
        width = 4
        weights = project(x)
        weights = weights.float()
        total = weights.sum()
        return total
"""
READS = edited(
    "        return total\n", "        total += weights.max()\n        return total\n", VALUES
)


@pytest.mark.parametrize(
    ("ours", "old", "new", "told"),
    [
        (READS, "weights = weights.float()", "weights = narrowed(weights)", "weights"),
        (READS, "weights = project(x)", "weights = project(x, scale)", "weights"),
        (READS, "width = 4", "width = 8", ""),
        (READS, "weights = weights.float()", "weights = weights.float()  # 32", ""),
        # read by the statement already: upstream's to keep right
        (
            edited("weights.sum()", "weights.sum() + 1", VALUES),
            "weights = project(x)", "weights = project(x, scale)", "",
        ),
        # assigned further down
        (
            edited("width = 4\n", "width = 4\n        show(total)\n", VALUES),
            "total = weights.sum()", "total = weights.mean()", "",
        ),
    ],
)  # fmt: skip
def test_upstream_changed_how_a_value_comes_about(
    ours: str, old: str, new: str, told: str
) -> None:  # fmt: skip
    found = place(VALUES, ours, edited(old, new, VALUES))
    if told:
        assert set(fates(found)) == {Fate.REVIEW}
        assert f"upstream changed how `{told}` comes about, which the patch reads" in reasons(found)
        assert found.changes == ()
    else:
        assert not found.conflicts, reasons(found)


def test_what_upstream_has_too_reads_what_it_changed() -> None:
    """With another hunk that is still to be put in."""
    ours = READS.replace("width = 4", "width = 5")
    theirs = edited("project(x)", "project(x, scale)", READS)
    found = place(VALUES, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(theirs.replace("width = 4", "width = 5"))


def test_a_value_of_a_renamed_local_is_the_same() -> None:
    theirs = VALUES.replace("weights", "marks")
    found = place(VALUES, READS, theirs)
    assert not found.conflicts, reasons(found)


def test_a_name_of_a_function_around_is_not_the_one_inside() -> None:
    base = """
        def outer(x):
            weights = project(x)

            def inner(weights):
                return weights

            return inner(weights)
    """
    ours = edited("return weights\n", "show(weights)\n                return weights\n", base)
    found = place(base, ours, edited("project(x)", "project(x, 1)", base))
    assert not found.conflicts, reasons(found)
