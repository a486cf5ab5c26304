"""The house rules that a machine can check: imports, names, docstrings, the repository."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rewriter import catalog

ROOT = Path(__file__).parent.parent

ROOMS: tuple[tuple[str, ...], ...] = (
    ("errors", "model", "processes", "cache", "visible"),
    ("codemod", "probes", "serving", "plugins"),
    ("declared", "definition", "rehearsal"),
    ("source", "targets", "config", "pieces", "pins", "verdicts", "catalog"),
    ("names", "reaching", "patterns", "rows", "walk", "witness", "transaction"),
    ("flow", "mentions", "edits", "manifest", "leftovers", "bisect"),
    ("uses", "marks", "sites", "forgotten", "carry"),
    ("engine", "carried", "repeated"),
    ("judge", "originals", "testing", "pytest_plugin", "explaining", "skeleton"),
    ("rehearsing", "recording", "stacking", "patches", "fresh", "output"),
    ("writes",),
    ("transition", "patching"),
    ("session", "states", "layers"),
    ("installing", "blobs", "proving"),
    ("matrix", "removing", "checkup", "syncing", "fleet", "reach"),
    ("locked",),
    ("report",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
"""Lowest first. A room is a module or a package; it imports from rows below its own, and from its
own package. `fixtures` is data."""

ONE_ROOM = {"session", "states", "layers"}
"""A session asks what the codemods are in a target, layer by layer: one thing in three files."""

AUTHORS = {
    "rewriter.codemod", "rewriter.flow", "rewriter.mentions", "rewriter.patterns",
    "rewriter.repeated", "rewriter.uses",
}  # fmt: skip
"""What the author of a codemod may use; for types also what these hand over."""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return what a module imports anywhere in it, and whether for types alone."""
    tree = ast.parse(path.read_bytes())
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in typing) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if is_module(inner) else str(node.module)
                found.append((name, id(node) in typing))
    return tuple(found)


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def test_every_room_has_its_row() -> None:
    rows = [room for row in ROOMS for room in row]
    assert len(rows) == len(set(rows))
    present = {
        p.stem if p.is_file() else p.name
        for p in (ROOT / "rewriter").iterdir()
        if (p.suffix == ".py" or (p / "__init__.py").is_file()) and p.name != "__init__.py"
    }
    assert present == set(rows)


@pytest.mark.parametrize("path", modules("rewriter"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_go_down(path: Path) -> None:
    """Imports inside functions count: only the order of loading is lazy. Types do not count."""
    here = path.relative_to(ROOT / "rewriter").parts[0].removesuffix(".py")
    level = {room: number for number, row in enumerate(ROOMS) for room in row}
    for name, for_types in imports(path):
        if for_types or not name.startswith("rewriter.") or here == "__init__":
            continue
        there = room_of(name)
        if there == here or {here, there} <= ONE_ROOM:
            continue
        assert level[there] < level[here], f"{here} imports {name}, which is not below it"


@pytest.mark.parametrize("path", modules("rewriter/probes"), ids=lambda p: str(p.relative_to(ROOT)))
def test_probes_stand_alone(path: Path) -> None:
    for name, for_types in imports(path):
        if name.startswith(("rewriter", "codemods")) and not for_types:
            allowed = name in ("rewriter", "rewriter.errors") or room_of(name) == "probes"
            assert allowed, f"{path.name} imports {name}"


def codemods() -> list[Path]:
    return [p for p in modules("codemods") if p.parent.name == "codemods" and p.stem[0] != "_"]


def shared() -> list[Path]:
    """Return what several codemods share: modules beside them whose names begin with one `_`."""
    return [p for p in (ROOT / "codemods").glob("_*.py") if p.stem != "__init__"]


@pytest.mark.parametrize("path", [*codemods(), *shared()], ids=lambda p: p.stem)
def test_a_codemod_imports_the_authors_api_and_libcst(path: Path) -> None:
    beside = {f"codemods.{p.stem}" for p in shared()} if path not in shared() else set()
    for name, for_types in imports(path):
        if for_types:
            assert name.partition(".")[0] in {"libcst", "rewriter", "collections"}
        elif name.partition(".")[0] not in sys.stdlib_module_names:
            assert name == "libcst" or name in AUTHORS | beside, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "path", modules("codemods/runtime"), ids=lambda p: str(p.relative_to(ROOT))
)
def test_an_installed_module_is_self_contained(path: Path) -> None:
    for name, _ in imports(path):
        root = name.partition(".")[0]
        assert root in {"torch", "triton"} or root in sys.stdlib_module_names, name


@pytest.mark.parametrize("name", catalog.names())
def test_importing_a_codemod_costs_no_libcst(name: str) -> None:
    code = (
        f"import sys, codemods.{name}\n"
        "print([m for m in ('libcst', 'torch', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


HEAVY = ("libcst", "torch", "numpy", "git", "rich", "packaging.specifiers", "pydantic", "tomli_w")


@pytest.mark.parametrize("verb", ["check", "status", "apply", "diff"])
def test_the_help_of_a_command_imports_nothing_heavy(verb: str) -> None:
    code = (
        f"import sys\nfrom rewriter import cli\ntry: cli.main(['{verb}', '--help'])\n"
        f"except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_digest_of_a_verdict_covers_all_that_decides() -> None:
    """A module that the judge uses and that is not in the list would keep old verdicts alive."""
    todo, seen = ["rewriter.judge", *AUTHORS], set()
    while todo:
        name = todo.pop()
        path = ROOT / (name.replace(".", "/") + ".py")
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        todo += [inner for inner, for_types in imports(path) if not for_types]
    ours = {room_of(name) for name in seen if name.startswith("rewriter.")}
    elsewhere = {"errors", "cache", "rehearsal"}  # whether, never what
    assert ours - elsewhere == set(catalog._DECIDING)


# --- names, docstrings ---------------------------------------------------------------------

FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "base", "manager", "core", "misc"}


@pytest.mark.parametrize("package", ["rewriter", "codemods"])
def test_names_say_what_is_in_them(package: str) -> None:
    for path in modules(package):
        assert not FORBIDDEN & set(path.relative_to(ROOT).with_suffix("").parts), path


@pytest.mark.parametrize("path", codemods(), ids=lambda p: p.stem)
def test_a_codemod_says_why_and_when_to_drop_it(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    assert re.search(r"^Why: .{40}", doc, re.MULTILINE)
    assert re.search(r"^Drop when: .{20}", doc, re.MULTILINE)
    first = doc.partition("\n")[0]
    assert first.endswith(".")
    assert not first.startswith(("A ", "The ", "This "))


@pytest.mark.parametrize("package", ["rewriter", "codemods"])
def test_public_things_have_docstrings(package: str) -> None:
    for path in modules(package):
        tree = ast.parse(path.read_bytes())
        assert ast.get_docstring(tree), f"{path} has no docstring"
        for node in tree.body:
            named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"
            if named and not any(ast.unparse(d).startswith("triton") for d in node.decorator_list):
                assert ast.get_docstring(node), f"{path}: {node.name} has no docstring"


def test_a_docstring_of_a_function_begins_with_what_it_does() -> None:
    """Imperative: not `Returns`, not `This function`."""
    for path in modules("rewriter"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                assert not re.fullmatch(r"(Return|Yield|Raise|Get|Make|Give|Tell)s|This", first), (
                    f"{path}: {node.name}: {first}"
                )


# --- what is in the repository -------------------------------------------------------------


def tracked() -> Iterator[Path]:
    """Yield the repository's files; of an unpacked sdist, all that there are."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        yield from (ROOT / name for name in listed.stdout.split("\0") if name)
        return
    for place in ("rewriter", "codemods", "tests", "fixtures", "docs", "benchmarks"):
        yield from (p for p in (ROOT / place).rglob("*") if p.is_file() and p.suffix != ".pyc")


MACHINE = re.compile(r"(?<![\w.$}])/(?:root|home/(?!user\b)\w|work|Users)/")
INDEX = re.compile(r"(?:pypi|pythonhosted|mirrors?|artifactory|nexus)\.[a-z]{2,}", re.IGNORECASE)
KNOWN = {"tests/test_architecture.py"}


def test_no_paths_of_a_machine_and_no_hosts_of_an_index() -> None:
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name in KNOWN or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for pattern in (MACHINE, INDEX):
            found = pattern.search(text)
            assert found is None, f"{name}: {found.group()!r}" if found else ""


def test_fixtures_are_toml_and_nothing_else() -> None:
    for path in (ROOT / "fixtures").rglob("*"):
        assert path.is_dir() or path.suffix == ".toml", path


UPSTREAMS = re.compile(r"Copyright \d{4}-\d{4} SGLang Team")


def test_no_text_of_upstreams() -> None:
    """A licence header travels with copied text; none is here."""
    for path in tracked():
        if path.name != "test_architecture.py" and path.suffix in {".py", ".md", ".toml", ".txt"}:
            assert not UPSTREAMS.search(path.read_text(encoding="utf-8", errors="replace")), path
