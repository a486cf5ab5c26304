"""carry: diffs as people have them, applied to their own release exactly, and what is refused."""

from __future__ import annotations

import pytest
from carrying import PATH, Tree, fates, text

from rewriter.carry import hunks
from rewriter.carry.carrying import Carried, carry
from rewriter.carry.steps import Fate
from rewriter.errors import RefusedError, UsageError
from rewriter.model import Change
from rewriter.report.diff import unified

BASE = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\ng = 7\nh = 8\n"
OURS = BASE.replace("d = 4\n", "d = 44\nd2 = 45\n")
HUNK = """@@ -1,7 +1,8 @@
 a = 1
 b = 2
 c = 3
-d = 4
+d = 44
+d2 = 45
 e = 5
 f = 6
 g = 7
"""


def carried(*patches: str | bytes, base: str = BASE, onto: str = "z = 0\n" + BASE) -> Carried:
    raw = [p if isinstance(p, bytes) else p.encode() for p in patches]
    named = [(f"{n}.patch", each) for n, each in enumerate(raw, 1)]
    return carry(named, Tree({PATH: base}), Tree({PATH: onto}))


HEADERS = {
    "git": f"diff --git a/python/{PATH} b/python/{PATH}\nindex 1..2 100644\n"
    f"--- a/python/{PATH}\n+++ b/python/{PATH}\n",
    "git without python": f"diff --git a/{PATH} b/{PATH}\n--- a/{PATH}\n+++ b/{PATH}\n",
    "plain": f"--- {PATH}\n+++ {PATH}\n",
    "with times": f"--- {PATH}\t2024-01-01 00:00:00.0 +0000\n+++ {PATH}\t2024-01-02 00:00:00.0\n",
    "with times after blanks": f"--- {PATH} 2024-01-01 00:00:00\n+++ {PATH} 2024-01-02 00:00:00\n",
    "of an install": f"--- /usr/lib/python3/site-packages/{PATH}\n"
    f"+++ /usr/lib/python3/site-packages/{PATH}\n",
    "inside of the package": "--- a/srt/mod.py\n+++ b/srt/mod.py\n",
    "a mail": f"From 1234\nSubject: x\n\n---\n mod.py | 3 +-\n\n"
    f"diff --git a/{PATH} b/{PATH}\n--- a/{PATH}\n+++ b/{PATH}\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_of_all_kinds(kind: str) -> None:
    found = carried(HEADERS[kind] + HUNK + ("-- \n2.39.5\n\n" if kind == "a mail" else ""))
    assert text(found) == "z = 0\n" + OURS
    assert fates(found) == [Fate.EXACTLY]


def test_a_patch_with_carriage_returns() -> None:
    found = carried((HEADERS["git"] + HUNK).replace("\n", "\r\n"))
    assert text(found) == "z = 0\n" + OURS


def test_wrong_counts_are_repaired_and_said() -> None:
    """Case 7: a header edited by hand."""
    found = carried(HEADERS["git"] + HUNK.replace("-1,7 +1,8", "-1,9 +1,4"))
    assert text(found) == "z = 0\n" + OURS
    assert found.results[0].said == "its header counts 9 and 4 lines, its body has 7 and 8"


def test_a_wrong_line_is_no_matter_where_the_context_is_there_once() -> None:
    found = carried(HEADERS["git"] + HUNK.replace("-1,7 +1,8", "-31,7 +31,8"))
    assert text(found) == "z = 0\n" + OURS


def test_wrong_counts_before_another_file() -> None:
    other = HEADERS["plain"].replace("mod.py", "two.py") + "@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    patch = HEADERS["plain"] + HUNK.replace("-1,7", "-1,3") + other
    trees = [Tree({PATH: BASE, "sglang/srt/two.py": "x = 1\n"}) for _ in (0, 1)]
    found = carry([("p", patch.encode())], *trees)
    assert [c.path for c in found.changes] == [PATH, "sglang/srt/two.py"]


def test_blank_context_lines_without_their_blank() -> None:
    base = "a = 1\n\nb = 2\nc = 3\n"
    patch = HEADERS["plain"] + "@@ -1,4 +1,4 @@\n a = 1\n\n-b = 2\n+b = 3\n c = 3\n"
    assert text(carried(patch, base=base, onto=base)) == base.replace("b = 2", "b = 3")


@pytest.mark.parametrize("ends", [("", ""), ("\n", ""), ("", "\n")])
def test_files_without_a_last_newline(ends: tuple[str, str]) -> None:
    base, ours = "a = 1\nb = 2" + ends[0], "a = 1\nb = 3" + ends[1]
    patch = unified([Change(PATH, base.encode(), ours.encode())], "")
    assert text(carried(patch, base=base, onto=base)) == ours


def test_several_patches_of_one_file_in_their_order() -> None:
    second = HEADERS["plain"] + "@@ -4,2 +4,2 @@\n-d = 44\n+d = 444\n d2 = 45\n"
    found = carried(HEADERS["plain"] + HUNK, second)
    assert text(found) == "z = 0\n" + OURS.replace("d = 44\n", "d = 444\n")
    assert [r.patch for r in found.results] == ["1.patch", "2.patch"]


def test_a_new_file_and_a_deleted_one() -> None:
    old, new = "sglang/srt/old.py", "sglang/srt/new.py"
    patch = unified([Change(new, None, b"x = 1\n"), Change(old, b"y = 1\n", None)], "python/")
    found = carry([("p", patch)], Tree({old: "y = 1\n"}), Tree({old: "y = 1\n", PATH: BASE}))
    assert {c.path: c.after for c in found.changes} == {new: b"x = 1\n", old: None}
    again = carry([("p", patch)], Tree({old: "y = 1\n"}), Tree({new: "x = 1\n"}))
    assert set(fates(again)) == {Fate.UPSTREAM}
    other = carry([("p", patch)], Tree({old: "y = 1\n"}), Tree({new: "x = 2\n", old: "y = 2\n"}))
    assert set(fates(other)) == {Fate.CONFLICT}


def test_a_renamed_file() -> None:
    new = "sglang/srt/new.py"
    head = (
        f"diff --git a/{PATH} b/{new}\nsimilarity index 90%\nrename from {PATH}\nrename to {new}\n"
    )
    patch = head + f"--- a/{PATH}\n+++ b/{new}\n" + HUNK
    found = carried(patch)
    assert {c.path: c.after for c in found.changes} == {
        PATH: None,
        new: ("z = 0\n" + OURS).encode(),
    }
    again = carry([("p", patch.encode())], Tree({PATH: BASE}), Tree({new: OURS}))
    assert not again.conflicts
    assert again.changes == ()


def test_files_outside_of_the_package_are_told() -> None:
    outside = "--- a/docs/x.md\n+++ b/docs/x.md\n@@ -1 +1 @@\n-a\n+b\n"
    found = carried(HEADERS["git"] + HUNK + outside)
    assert found.outside == ("docs/x.md",)
    assert text(found) == "z = 0\n" + OURS


# --- refused -------------------------------------------------------------------------------

REVERSED = (
    HUNK.replace("-d", "?").replace("+d", "-d").replace("?", "+d").replace("-1,7 +1,8", "-1,8 +1,7")
)

REFUSED = {
    "no diff": ("hello\n", UsageError, "expected a unified diff, found no hunk"),
    "empty": ("", UsageError, "expected a unified diff, found no hunk"),
    "no file": (HUNK, UsageError, "a hunk without a file header"),
    "binary": (
        f"diff --git a/{PATH} b/{PATH}\nindex 1..2\nGIT binary patch\nliteral 1\n",
        UsageError, "a binary change of sglang/srt/mod.py",
    ),
    "a body that cannot be counted": (
        HEADERS["git"] + HUNK.replace(" e = 5", "e = 5"), UsageError, "cannot be repaired",
    ),
    "reversed": (HEADERS["git"] + REVERSED, RefusedError, "or the patch is reversed"),
    "other context": (
        HEADERS["git"] + HUNK.replace(" b = 2", " b = 20"), RefusedError,
        "hunk 1 .*expected `b = 20` at line 2, found `b = 2`",
    ),
    "another project": (
        HEADERS["plain"].replace("sglang/srt", "vllm/core") + HUNK, RefusedError,
        "none of the files is part of the package: vllm/core/mod.py; is the patch for another",
    ),
    "another release": (
        HEADERS["plain"].replace("mod.py", "gone.py") + HUNK, RefusedError,
        "sglang/srt/gone.py: not in the release that the patch is for",
    ),
    "a path that leaves": (
        "--- a/sglang/../x.py\n+++ b/sglang/../x.py\n" + HUNK, RefusedError,
        "inside the package, found one with `..`",
    ),
    "new and there": (
        f"--- /dev/null\n+++ b/{PATH}\n@@ -0,0 +1 @@\n+x = 1\n", RefusedError, "applied already",
    ),
    "deleted in part": (
        f"--- a/{PATH}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a = 1\n", RefusedError, "7 lines of it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_clear_message(case: str) -> None:
    patch, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as caught:
        carried(patch)
    assert "\n" not in str(caught.value)


def test_applied_already() -> None:
    with pytest.raises(RefusedError, match="it is applied, or the patch is reversed"):
        carried(HEADERS["git"] + HUNK, base=OURS)


def test_context_that_is_there_twice_and_not_where_it_says() -> None:
    base = "x = 1\ny = 2\n" + "pass\n" * 5 + "x = 1\ny = 2\n"
    patch = HEADERS["plain"] + "@@ -4,2 +4,2 @@\n x = 1\n-y = 2\n+y = 3\n"
    with pytest.raises(RefusedError, match="2 other places"):
        carried(patch, base=base, onto=base)


def test_hunks_say_what_they_expect() -> None:
    [file] = hunks.read((HEADERS["git"] + HUNK).encode(), "p")
    [hunk] = file.hunks
    assert (hunk.start, hunk.counts) == (1, (2, 1))
    assert hunk.old == BASE.splitlines()[:7]
    assert hunk.new == OURS.splitlines()[:8]


@pytest.mark.parametrize("whole", [False, True])
def test_carriage_returns_of_a_new_file(whole: bool) -> None:
    """Its own are kept; those of a patch that was converted as a whole are none of its."""
    raw = (
        b"diff --git a/sglang/dos.py b/sglang/dos.py\nnew file mode 100644\n--- /dev/null\n"
        b"+++ b/sglang/dos.py\n@@ -0,0 +1,3 @@\n+A = 1\r\n+B = 2\n+C = 3\n"
        b"\\ No newline at end of file\n"
    )
    if whole:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    found = carry([("own.patch", raw)], Tree({PATH: "x = 1\n"}), Tree({PATH: "x = 1\n"}))
    [change] = found.changes
    assert change.after == (b"A = 1\nB = 2\nC = 3" if whole else b"A = 1\r\nB = 2\nC = 3")


def test_files_without_a_line() -> None:
    raw = (
        b"diff --git a/sglang/new.py b/sglang/new.py\nnew file mode 100644\n"
        b"index 0000000..e69de29\n"
        b"diff --git a/sglang/old.py b/sglang/old.py\ndeleted file mode 100644\n"
        b"index e69de29..0000000\n"
    )
    trees = Tree({PATH: "x = 1\n", "sglang/old.py": ""})
    found = carry([("own.patch", raw)], trees, trees)
    assert [(c.path, c.before, c.after) for c in found.changes] == [
        ("sglang/new.py", None, b""), ("sglang/old.py", b"", None),
    ]  # fmt: skip


ENDS = [
    (b"A = 1\nB = 2", b"A = 1\nB = 2\nC = 3", b"Z = 0\nA = 1\nB = 2"),
    (b"A = 1\nB = 2", b"A = 1\nB = 2\nC = 3\n", b"Z = 0\nA = 1\nB = 2"),
    (b"A = 1\nB = 2\n", b"A = 1\nB = 2\nC = 3", b"Z = 0\nA = 1\nB = 2\n"),
    (b"A = 1\nB = 2", b"A = 1\nB = 3", b"Z = 0\nA = 1\nB = 2"),
    (b"A = 1\nB = 2", b"A = 1\nB = 2\n", b"Z = 0\nA = 1\nB = 2"),
    (b"A = 1\r\nB = 2", b"A = 1\r\nB = 2\r\nC = 3", b"Z = 0\r\nA = 1\r\nB = 2"),
]


@pytest.mark.parametrize(("base", "ours", "theirs"), ENDS)
def test_the_end_of_a_file(base: bytes, ours: bytes, theirs: bytes) -> None:
    patch = unified([Change(PATH, base, ours)], "")
    found = carry([("own.patch", patch)], Tree({PATH: base}), Tree({PATH: theirs}))
    [change] = found.changes
    assert change.after == theirs[: theirs.index(b"A")] + ours
