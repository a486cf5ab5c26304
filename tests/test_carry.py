"""carry: each shape of change, placed where it belongs, recognised, or refused with a reason."""

from __future__ import annotations

import pytest
from carrying import PATH, Tree, carries, code, diff, fates, place, reasons, refuses, text

from rewriter.carry.carrying import carry
from rewriter.carry.steps import Fate

BASE = """
    import os
    from pkg.alpha import one

    logger = os.getenv("LOG")


    class Runner:
        def __init__(self, model):
            self.model = model
            self.depth = model.depth
            self.width = model.width

        def run(self, batch):
            for _ in range(2):
                self.sync()
                self.step(batch)
            return batch

        def sync(self):
            pass
"""


def edited(old: str, new: str, source: str = BASE) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


# --- the place is found --------------------------------------------------------------------


def test_lines_moved_and_context_changed() -> None:
    """Case 2: what stands around the place changed; the statements beside it did not."""
    theirs = edited("self.width = model.width", "self.width = model.width  # columns")
    theirs = edited(
        "        def sync(self):", "        def pause(self): ...\n\n        def sync(self):", theirs
    )
    ours = edited("self.step(batch)\n", "self.step(batch)\n                self.count(batch)\n")
    wanted = edited(
        "self.step(batch)\n", "self.step(batch)\n                self.count(batch)\n", theirs
    )
    carries(BASE, ours, theirs, wanted, Fate.EXACTLY)


def test_a_neighbour_deleted_with_nothing_in_its_place() -> None:
    theirs = edited("            self.depth = model.depth\n", "")
    ours = edited("model.depth\n", "model.depth\n            self.extra = 1\n")
    wanted = edited(
        "self.model = model\n", "self.model = model\n            self.extra = 1\n", theirs
    )
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_replaced_statement_that_upstream_moved() -> None:
    theirs = edited("            self.depth = model.depth\n", "")
    theirs = edited(
        "model.width\n",
        "model.width\n\n            # last\n            self.depth = model.depth\n",
        theirs,
    )
    ours = edited("self.depth = model.depth", "self.depth = 0")
    carries(BASE, ours, theirs, edited("self.depth = model.depth", "self.depth = 0", theirs),
            Fate.STRUCTURE)  # fmt: skip


def test_an_import_beside_an_import_that_upstream_added() -> None:
    theirs = edited("import one\n", "import one\n    from pkg.beta import two\n")
    ours = edited("import one\n", "import one\n    from pkg.gamma import three\n")
    wanted = edited("import two\n", "import two\n    from pkg.gamma import three\n", theirs)
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_an_import_that_upstream_laid_out_again() -> None:
    theirs = edited(
        "from pkg.alpha import one", "from pkg.alpha import (\n        one,\n        zero,\n    )"
    )
    ours = edited("import one", "import one, two")
    wanted = edited("        zero,\n", "        two,\n        zero,\n", theirs)
    found = place(BASE, ours, theirs)
    assert text(found) in (code(wanted), code(wanted).replace("two,\n    zero,", "zero,\n    two,"))


def test_what_ends_a_block_still_ends_it() -> None:
    """Upstream appended to the same loop; neither binds what the other reads."""
    theirs = edited("self.step(batch)\n", "self.step(batch)\n                self.hook()\n")
    ours = edited(
        "self.step(batch)\n",
        "self.step(batch)\n                if self.on:\n                    self.tick()\n",
    )
    wanted = edited(
        "self.hook()\n",
        "self.hook()\n                if self.on:\n                    self.tick()\n",
        theirs,
    )
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_block_that_upstream_wrapped_in_a_with() -> None:
    old = (
        "            for _ in range(2):\n                self.sync()\n"
        "                self.step(batch)\n"
    )
    new = "            with self.guard():\n                for _ in range(2):\n                    self.sync()\n                    self.step(batch)\n"  # noqa: E501
    theirs = edited(old, new)
    ours = edited("self.sync()\n", "self.sync()\n                self.mark(batch)\n")
    wanted = edited("self.sync()\n", "self.sync()\n                    self.mark(batch)\n", theirs)
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_both_change_one_call_at_different_arguments() -> None:
    base = edited("self.step(batch)", "self.step(batch, 1, depth=2)")
    theirs = edited(
        "self.step(batch)",
        "self.step(\n                    batch,\n                    7,\n"
        "                    depth=2,\n                )",
    )
    ours = edited("self.step(batch)", "self.step(batch, 1, depth=3)")
    carries(base, ours, theirs, edited("depth=2", "depth=3", theirs), Fate.STRUCTURE)


def test_a_parameter_added_where_upstream_added_another() -> None:
    theirs = edited("def run(self, batch)", "def run(self, stream, batch)")
    ours = edited("def run(self, batch)", "def run(self, batch, on=False)")
    wanted = edited("stream, batch)", "stream, batch, on=False)", theirs)
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_the_end_of_one_definition_and_a_new_one_after_it() -> None:
    """Both go to the same offset: what ends the method comes first."""
    theirs = edited("def sync(self):", "def sync(self, hard=False):")
    ours = edited(
        "            self.width = model.width\n",
        "            self.width = model.width\n            self.n = None\n\n"
        "        def count(self, n):\n            self.n = n\n",
    )
    wanted = edited("def sync(self):", "def sync(self, hard=False):", ours)
    carries(BASE, ours, theirs, wanted, Fate.EXACTLY)


def test_a_definition_that_the_patch_parts_in_two() -> None:
    ours = edited(
        "        def run(self, batch):\n",
        "        def run(self, batch):\n            return self.inner(batch)\n\n"
        "        def inner(self, batch):\n",
    )
    theirs = edited("return batch\n", "return list(batch)\n")
    wanted = edited("return batch\n", "return list(batch)\n", ours)
    carries(BASE, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_branch_added_to_a_statement_that_upstream_changed() -> None:
    base = (
        edited("                pass", "                pass")
        if False
        else edited("            pass\n", "            if self.on:\n                self.tick()\n")
    )
    theirs = edited("self.tick()\n", "self.tick(1)\n", base)
    ours = edited(
        "self.tick()\n", "self.tick()\n            else:\n                self.rest()\n", base
    )
    wanted = edited(
        "self.tick(1)\n", "self.tick(1)\n            else:\n                self.rest()\n", theirs
    )
    carries(base, ours, theirs, wanted, Fate.STRUCTURE)


def test_a_method_that_moved_to_another_class() -> None:
    method = "        def run(self, batch):\n            for _ in range(2):\n                self.sync()\n                self.step(batch)\n            return batch\n"  # noqa: E501
    theirs = "    class Loop:\n" + method + "\n\n" + edited(method + "\n", "")
    ours = edited("return batch\n", "return tuple(batch)\n")
    found = place(BASE, ours, theirs)
    assert text(found) == code(edited("return batch\n", "return tuple(batch)\n", theirs))


def test_a_function_that_moved_to_another_file() -> None:
    moved = (
        "def area(shape):\n    width = shape[0]\n    height = shape[1]\n    return width * height\n"
    )
    base = "X = 1\n\n\n" + moved
    trees = (
        Tree({PATH: base}),
        Tree({PATH: "X = 1\n", "sglang/srt/shapes.py": "import os\n\n\n" + moved}),
    )
    patch = diff(base, base.replace("shape[1]", "shape[-1]"))
    found = carry([("own.patch", patch)], *trees)
    assert [change.path for change in found.changes] == ["sglang/srt/shapes.py"]
    assert b"shape[-1]" in (found.changes[0].after or b"")


def test_a_file_that_moved() -> None:
    after = edited("return batch\n", "return [batch]\n")
    trees = Tree({PATH: code(BASE)}), Tree({"sglang/srt/deep/mod.py": code(BASE)})
    found = carry([("own.patch", diff(BASE, after))], *trees)
    assert [change.path for change in found.changes] == ["sglang/srt/deep/mod.py"]
    assert text(found, "sglang/srt/deep/mod.py") == code(after)


def test_comments_of_the_patch_are_kept_and_indented() -> None:
    ours = edited("self.sync()\n", "# before\n                self.sync()  # now\n")
    theirs = edited("return batch\n", "return 1\n")
    wanted = edited("self.sync()\n", "# before\n                self.sync()  # now\n", theirs)
    carries(BASE, ours, theirs, wanted, Fate.EXACTLY)


# --- what upstream has ---------------------------------------------------------------------


def test_the_whole_patch_is_upstream() -> None:
    ours = edited("return batch\n", "return [batch]\n")
    found = place(BASE, ours, edited("return batch", "return [ batch ]  # a list"))
    assert fates(found) == [Fate.UPSTREAM]
    assert found.changes == ()


def test_a_part_of_the_patch_is_upstream() -> None:
    """Case 8: a hunk that is there is told apart from one that is not."""
    ours = edited("import one\n", "import one, two\n")
    ours = edited("return batch\n", "return [batch]\n", ours)
    theirs = edited("import one\n", "import one, two\n")
    found = place(BASE, ours, theirs)
    assert fates(found) == [Fate.UPSTREAM, Fate.EXACTLY]
    assert text(found) == code(ours)


# --- conflicts -----------------------------------------------------------------------------

CONFLICTS = {
    "both change one expression": (
        edited("self.depth = model.depth", "self.depth = 1"),
        edited("self.depth = model.depth", "self.depth = 2"),
        "upstream changed the same part",
    ),
    "fields at one place": (
        edited("    logger =", "    A = 1\n    logger ="),
        edited("    logger =", "    B = 2\n    logger ="),
        "upstream put a statement at the same place",
    ),
    "statements at one place": (
        edited("self.depth = model.depth\n", "self.depth = model.depth\n            self.a()\n"),
        edited("self.depth = model.depth\n", "self.depth = model.depth\n            self.b()\n"),
        "upstream put a statement at the same place",
    ),
    "what ends a block comes after its return": (
        edited("self.step(batch)\n", "self.step(batch)\n                self.tick()\n"),
        edited("self.step(batch)\n", "self.step(batch)\n                continue\n"),
        "upstream put a statement at the same place",
    ),
    "what ends a block depends on what upstream added": (
        edited("self.step(batch)\n", "self.step(batch)\n                n = self.tick()\n"),
        edited("self.step(batch)\n", "self.step(batch)\n                n = 1\n"),
        "upstream binds n at the same place",
    ),
    "the definition is gone": (
        edited("return batch\n", "return [batch]\n"),
        BASE[: BASE.index("        def run")],
        "no such statement any more",
    ),
    "what the patch replaces is gone": (
        edited("            self.depth = model.depth\n", "            self.tick()\n"),
        edited("            self.depth = model.depth\n", ""),
        "upstream has no more what the patch replaces",
    ),
    "what the patch removes was changed": (
        edited("                self.sync()\n", ""),
        edited("                self.sync()\n", "                self.sync(hard=True)\n"),
        "upstream changed what the patch replaces or removes",
    ),
    "upstream has a definition of that name": (
        edited("        def sync", "        def go(self):\n            return 1\n\n        def sync"),  # noqa: E501
        edited("        def run", "        def go(self):\n            return 2\n\n        def run"),
        "upstream has its own `go` by now",
    ),
    "a name that is gone": (
        edited("return batch\n", "return one(batch)\n"),
        edited("    from pkg.alpha import one\n", ""),
        "the patch uses `one`",
    ),
    "a name that the patch takes away": (
        edited("    from pkg.alpha import one\n", ""),
        edited("return batch\n", "return one(batch)\n"),
        "the patch takes away `one`",
    ),
    "an attribute that is gone": (
        edited("return batch\n", "return self.depth\n"),
        edited("            self.depth = model.depth\n", ""),
        "the patch uses `self.depth`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_has_no_one_meaning_is_a_conflict(case: str) -> None:
    ours, theirs, reason = CONFLICTS[case]
    refuses(BASE, ours, theirs, reason)


def test_replaced_under_a_condition_that_upstream_added() -> None:
    old = "                self.sync()\n                self.step(batch)\n"
    ours = edited(old, "                self.other(1)\n                batch = 1\n")
    theirs = edited(
        old,
        "                if self.on:\n                    self.sync()\n"
        "                    self.step(batch)\n",
    )
    refuses(BASE, ours, theirs, "under a condition")


CHOICE = """
    def pick(a, b):
        if a:
            x = 1
            y = 2
        else:
            x = 3
            y = 4
        return x, y
"""


def test_a_branch_is_known_by_its_condition() -> None:
    ours = edited("x = 3\n", "x = 3\n            z = 0\n", CHOICE)
    theirs = edited(
        "        else:\n", "        elif b:\n            x = 5\n        else:\n", CHOICE
    )
    wanted = edited("x = 3\n", "x = 3\n            z = 0\n", theirs)
    carries(CHOICE, ours, theirs, wanted, Fate.EXACTLY)


def test_another_branch_in_the_same_position_is_none() -> None:
    ours = edited("x = 3\n", "x = 3\n            z = 0\n", CHOICE)
    theirs = edited("        else:\n", "        elif b:\n", CHOICE)
    refuses(CHOICE, ours, theirs, "upstream changed the branches")


def test_the_old_text_in_a_new_class_is_no_place() -> None:
    """Case 14: fuzz would edit the new class, which holds the old text."""
    twin = BASE[BASE.index("    class Runner") :].replace("Runner", "Twin")
    theirs = twin + "\n\n" + edited("return batch", "return self.finish(batch)")
    ours = edited("            return batch", "            return [batch]")
    refuses(BASE, ours, theirs, "upstream changed the same part")


def test_a_conflict_shows_both_sides_and_the_place() -> None:
    ours, theirs, _ = CONFLICTS["both change one expression"]
    [result] = place(BASE, ours, theirs).results
    [step] = result.steps
    assert (step.ours, step.theirs) == ("self.depth = 1", "self.depth = 2")
    assert (step.definition, step.line) == ("Runner.__init__", 10)


def test_partial_leaves_out_what_conflicts() -> None:
    ours = edited("return batch\n", "return [batch]\n")
    ours = edited('"LOG"', '"LOGS"', ours)
    theirs = edited('"LOG"', '"LEVEL"')
    assert place(BASE, ours, theirs).changes == ()
    found = place(BASE, ours, theirs, partial=True)
    assert set(fates(found)) == {Fate.CONFLICT, Fate.EXACTLY}
    assert text(found) == code(edited("return batch\n", "return [batch]\n", theirs))


# --- layout, other files -------------------------------------------------------------------


def test_carriage_returns_of_the_other_release_are_kept() -> None:
    theirs = code(BASE).replace("\n", "\r\n").encode()
    ours = edited("return batch\n", "return [\n                batch\n            ]\n")
    found = carry([("p", diff(BASE, ours))], Tree({PATH: code(BASE)}), Tree({PATH: theirs}))
    assert text(found) == code(ours).replace("\n", "\r\n")


def test_definitions_that_the_patch_leaves_alone_keep_their_bytes() -> None:
    theirs = code(BASE).replace("            pass", "            pass  ;  x = ( 1 )  # odd ")
    theirs += "\n\ndef odd( a,b ):\n\treturn a  \n# end"
    ours = edited("return batch\n", "return [batch]\n")
    found = carry([("p", diff(BASE, ours))], Tree({PATH: code(BASE)}), Tree({PATH: theirs}))
    assert text(found) == theirs.replace("return batch\n", "return [batch]\n")


def test_a_file_that_is_no_python() -> None:
    path = "sglang/srt/table.json"
    lines = [f'"{n}": {n},' for n in range(9)]
    base, ours = "\n".join(lines) + "\n", "\n".join([*lines[:8], '"8": 80,']) + "\n"
    theirs = "\n".join(['"x": 0,', *lines]) + "\n"
    found = carry([("p", diff(base, ours, path))], Tree({path: base}), Tree({path: theirs}))
    assert text(found, path) == theirs.replace('"8": 8,', '"8": 80,')
    theirs = theirs.replace('"8": 8,', '"8": 81,')
    found = carry([("p", diff(base, ours, path))], Tree({path: base}), Tree({path: theirs}))
    assert found.conflicts
    assert "upstream changed the same lines" in reasons(found)
