"""Reports of a matrix, each read back by the program that it is written for, or its schema."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matrix_history import CODEMOD, FILE, Repository, storied
from test_matrix import rows_of

from rewriter import catalog, cli
from rewriter.model import Nearest, SiteResult, State, Verdict
from rewriter.report import github, html, junit, markdown, sarif
from rewriter.report import matrix as text
from rewriter.rows import Matrix, Row
from rewriter.targets.commits import Commit

HOSTILE = 'a <b> & "c" | `d` %0A ::error::x, y: z\r\n\x1b[31m\x00 ü \u2028 </script> \ufffe'
"""What a subject or a path may hold, and each format must not take for its own."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


@pytest.fixture
def matrix(story: Repository) -> Matrix:
    """Return a matrix with every kind of row that a history gives."""
    rows = tuple(rows_of(story.path, "c0..main"))
    return Matrix(rows, (catalog.load(CODEMOD),), "the story", 10, 10)


@pytest.fixture
def hostile() -> Matrix:
    """Return a matrix of every state, with texts that no format may take for its own."""
    commit = Commit("0" * 40, "2025-01-01T00:00:00+00:00", HOSTILE)
    nearest = Nearest(7, HOSTILE, HOSTILE)
    rows = []
    for state in State:
        site = SiteResult("C.m", "cast", 7, state, HOSTILE, nearest, FILE)
        verdict = Verdict(CODEMOD, FILE, state, (site,), HOSTILE, nearest)
        rows.append(
            Row(CODEMOD, "commits", HOSTILE, "commit", commit, None, verdict,
                since=(HOSTILE, commit), prefix="python/")
        )  # fmt: skip
    rows.append(rows[-1]._replace(verdict=None, error=HOSTILE))
    rows.append(rows[2]._replace(moved=(HOSTILE, "0123456789")))
    return Matrix(tuple(rows), (catalog.load(CODEMOD),), HOSTILE, 1, 1)


def empty() -> Matrix:
    """Return a matrix of one fine row, so that nothing is to tell."""
    verdict = Verdict(CODEMOD, FILE, State.READY)
    row = Row(CODEMOD, "releases", "0.5.9", "release", verdict=verdict)
    return Matrix((row,), (catalog.load(CODEMOD),), "0.5.9")


# --- SARIF -----------------------------------------------------------------------------------


def sarif_of(matrix: Matrix) -> dict[str, object]:
    """Return the SARIF log, validated against the schema of the standard."""
    log = json.loads(sarif.document(matrix))
    validate = pytest.importorskip("sarif_kit.validate", reason="sarif-kit needs Python 3.11")
    assert validate.validation_errors(log) == []
    assert validate.validation_errors({**log, "version": "2.0"}), "the validator does work"
    run = log["runs"][0]
    assert isinstance(run, dict)
    return run


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sarif(matrix: Matrix) -> None:
    run = sarif_of(matrix)
    results = run["results"]
    assert isinstance(results, list)
    assert [(r["ruleId"], r["level"], r["properties"]["state"]) for r in results] == [
        (CODEMOD, "error", "drifted"), (CODEMOD, "error", "error"),
    ]  # fmt: skip
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": f"python/{FILE}", "uriBaseId": "%SRCROOT%"}
    row = matrix.rows[6]
    assert row.verdict is not None
    assert row.verdict.nearest is not None
    assert place["region"] == {"startLine": row.verdict.nearest.line}
    assert "5: drifted" in results[0]["message"]["text"], "the commit that broke it"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sarif_of_any_text(hostile: Matrix) -> None:
    run = sarif_of(hostile)
    assert len(run["results"]) == 8  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sarif_of_a_clean_matrix() -> None:
    assert sarif_of(empty())["results"] == []


def test_sarif_fingerprints_outlive_a_new_commit(story: Repository) -> None:
    def prints(revs: str) -> set[str]:
        rows = tuple(rows_of(story.path, revs))
        log = json.loads(sarif.document(Matrix(rows, (catalog.load(CODEMOD),), "")))
        return {r["partialFingerprints"]["codemodState/v1"] for r in log["runs"][0]["results"]}

    assert prints("c4..c5") == prints("c4..c6") != set()


def test_retirement_is_a_note(tmp_path: Path) -> None:
    row = empty().rows[0]._replace(verdict=Verdict(CODEMOD, FILE, State.UPSTREAM, (), "mended"))
    retired = Matrix((row,), (catalog.load(CODEMOD),), "")
    [result] = json.loads(sarif.document(retired))["runs"][0]["results"]
    assert result["level"] == "note"
    assert "Drop when: upstream reads FP8 rows" in result["message"]["text"]
    assert next(github.commands(retired)).startswith("::notice file=")
    assert any("Drop when: " in line for line in markdown.summary(retired))
    assert any("drop when: " in line for line in text.lines(retired, colour=False))
    assert "Drop when: " in html.page(retired)


# --- JUnit -----------------------------------------------------------------------------------


def test_junit(matrix: Matrix) -> None:
    import junitparser

    read = junitparser.JUnitXml.fromroot(
        junitparser.junitparser.etree.fromstring(junit.document(matrix))
    )
    assert (read.tests, read.failures, read.errors, read.skipped) == (10, 2, 1, 0)
    [suite] = list(read)
    assert suite.name == f"{CODEMOD}, commits"
    kinds = [[type(result).__name__ for result in case.result] for case in suite]
    assert kinds == [[], [], [], [], ["Failure"], ["Failure"], [], ["Error"], [], []]
    failed = list(suite)[4]
    assert failed.name.endswith("2025-01-08 5: drifted")
    assert failed.result[0].message.startswith("drifted: ")
    assert "since: " in failed.result[0].text


def test_junit_of_any_text(hostile: Matrix) -> None:
    import junitparser

    raw = junit.document(hostile)
    read = junitparser.JUnitXml.fromroot(junitparser.junitparser.etree.fromstring(raw))
    assert read.tests == len(State) + 2
    assert (read.failures, read.errors, read.skipped) == (7, 1, 1)
    assert "</script>" in next(iter(next(iter(read)))).name


# --- GitHub ----------------------------------------------------------------------------------


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner does."""
    match = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert match is not None
    level, properties, data = match.groups()
    pairs = dict(pair.split("=", 1) for pair in properties.split(","))

    def plain(value: str) -> str:
        for code, char in (("0D", "\r"), ("0A", "\n"), ("3A", ":"), ("2C", ","), ("25", "%")):
            value = value.replace(f"%{code}", char)
        return value

    return level, {name: plain(value) for name, value in pairs.items()}, plain(data)


def test_annotations(matrix: Matrix) -> None:
    lines = [parsed(line) for line in github.commands(matrix)]
    assert [level for level, _, _ in lines] == ["error", "error"]
    _, where, data = lines[0]
    assert where["file"] == f"python/{FILE}"
    assert where["title"].startswith(f"{CODEMOD} is drifted at ")
    assert "\nsince " in data
    assert "5: drifted" in data
    assert list(github.commands(empty())) == []


def test_annotations_of_any_text(hostile: Matrix) -> None:
    for line in github.commands(hostile):
        assert "\n" not in line
        assert "\r" not in line
        level, where, data = parsed(line)
        assert level == "error"
        assert set(where) <= {"file", "line", "title"}
        assert "%0A ::error::x, y: z" in data, "what was there is there, and commands nothing"


def test_step_summary(
    story: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    command = ["matrix", "--repo", str(story.path), "--revs", "c4..c6", "--github"]
    assert cli.build(("matrix", "list"))(command, standalone_mode=False) == 1
    assert "::error file=python/" in capsys.readouterr().out
    told = summary.read_text(encoding="utf-8")
    assert told.startswith("before\n### ❌ rewriter: not fine at 2 of 2 revisions: drifted")


# --- Markdown --------------------------------------------------------------------------------


def test_markdown(matrix: Matrix) -> None:
    lines = list(markdown.summary(matrix))
    assert lines[0].startswith("### ❌ rewriter: not fine at 3 of 10 revisions: drifted, error")
    table = [line for line in lines if line.startswith("|")]
    assert {line.count(" | ") for line in table} == {3}
    assert table[-1].startswith("| ✅ ready | ")


def test_markdown_of_any_text(hostile: Matrix) -> None:
    for line in markdown.summary(hostile):
        assert "\n" not in line
        assert "\r" not in line
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, "the columns hold"
        assert "<b>" not in re.sub(r"(`+).*?\1|\\.", "", line)


@pytest.mark.parametrize(
    ("given", "shown"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`a`", "`` `a` ``"), ("a|b", "`a\\|b`"), ("", "")],
)
def test_code_in_markdown(given: str, shown: str) -> None:
    assert markdown.code(given) == shown


def test_table_of_codemods(capsys: pytest.CaptureFixture[str]) -> None:
    cli.build(("matrix", "list"))(["list", "--markdown"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| codemod | what | sglang | checked | file | drop when |"
    assert len(lines) == 2 + len(catalog.names())
    row = next(line for line in lines if f"`{CODEMOD}`" in line)
    assert "releases, 0.4.6.post5 to 0.5." in row
    assert "`>=0.4.6.post5,<0.6`" in row


# --- HTML ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page is made of: its elements, and whether they are closed in order."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def classes(self, tag: str) -> list[str]:
        """Return the classes of all elements of one kind."""
        return [attrs.get("class") or "" for name, attrs in self.tags if name == tag]


def test_page(matrix: Matrix) -> None:
    page = Page(html.page(matrix))
    cells = [c for c in page.classes("span") if c.startswith("cell ")]
    story = ["upstream base", "upstream", "ready", "ready", "ready", "drifted", "drifted", "ready",
             "error", "ready", "ready"]  # fmt: skip
    assert [c.removeprefix("cell ") for c in cells][4:15] == story
    assert "5: drifted" in page.text
    assert "does not parse at line 1" in page.text


def test_page_loads_nothing(hostile: Matrix) -> None:
    raw = html.page(hostile)
    page = Page(raw)
    kinds = {tag for tag, _ in page.tags}
    assert not kinds & {"script", "link", "img", "iframe", "object", "form", "a"}
    names = {name for _, attrs in page.tags for name in attrs}
    assert names <= {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "scope",
        "tabindex",
    }
    assert "url(" not in raw
    assert "@import" not in raw
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "<b>" not in page.text.replace("a <b> & ", ""), "texts are shown, not taken for markup"
    assert "b" in kinds


def test_page_of_several_series_and_codemods() -> None:
    one = empty().rows[0]
    other = one._replace(codemod="another")
    tree = one._replace(series="trees", kind="checkout", label="here")
    rows = (one, tree, other, tree._replace(codemod="another"))
    page = Page(html.page(Matrix(rows, (catalog.load(CODEMOD),), "")))
    assert page.classes("table").count("runs") == 2
    assert "Releases" in page.text
    assert "Trees" in page.text


# --- text and JSON ---------------------------------------------------------------------------


def test_text(matrix: Matrix) -> None:
    lines = list(text.lines(matrix, colour=False))
    assert lines[0] == "the story: 10 distinct sources, 10 judged"
    assert f"{CODEMOD}, commits" in lines
    assert "       nearest: line 20: k_buf = self.gathered_rows(layer)" in lines
    assert lines[-1].startswith("not fine at 3 of 10 revisions: drifted, error (not now; last: ")
    assert not any("\033" in line for line in lines)
    assert any("\033[31mdrifted" in line for line in text.lines(matrix, colour=True))
    verbose = list(text.lines(matrix, colour=False, verbose=True))
    assert len(verbose) == len(lines) + len(matrix.rows)


def test_text_obeys_nothing(hostile: Matrix) -> None:
    for line in text.lines(hostile._replace(location=""), colour=False, verbose=True):
        if "since" in line or "nearest" in line:
            assert line.isprintable()


def test_text_of_one_revision() -> None:
    assert list(text.lines(empty(), colour=False))[-1] == "fine at 1 revision"


def test_json(story: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["matrix", "--repo", str(story.path), "--revs", "c3..c6", "--json"]
    assert cli.build(("matrix", "list"))(command, standalone_mode=False) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["command"], told["exit"]) == (1, "matrix", 1)
    assert (told["sources"], told["judged"]) == (4, 4)
    row = told["rows"][2]
    commit = {
        "id": story.git("rev-parse", "c5"),
        "date": "2025-01-08T00:00:00+00:00",
        "subject": "5: drifted",
    }
    assert row["state"] == "drifted"
    assert row["revision"] == {
        "kind": "commit", "label": commit["id"][:10], "version": None, "commit": commit,
    }  # fmt: skip
    assert row["since"] == {"label": commit["id"][:10], "commit": commit}
    assert (row["changed"], row["before"], row["fine"]) == (True, ["ready"], False)
    assert row["nearest"]["text"] == "k_buf = self.gathered_rows(layer)"
    assert row["sites"][-1]["definition"] == "FlashInferMLAAttnBackend.forward_decode"


def test_files_are_written_whole(story: Repository, tmp_path: Path) -> None:
    places = {name: tmp_path / f"report.{name}" for name in ("sarif", "junit", "html")}
    options = [each for name, place in places.items() for each in (f"--{name}", str(place))]
    command = ["matrix", "--repo", str(story.path), "--revs", "c2..c4", *options]
    assert cli.build(("matrix", "list"))(command, standalone_mode=False) == 0
    assert sorted(tmp_path.iterdir()) == sorted(places.values()), "no scratch files are left"
    assert {place.stat().st_mode & 0o777 for place in places.values()} == {0o644}


def test_progress_is_for_terminals_alone(
    story: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["matrix", "--repo", str(story.path), "--revs", "c2..c4"]
    cli.build(("matrix", "list"))(command, standalone_mode=False)
    assert capsys.readouterr().err == ""
    from rewriter.report.steps import counting

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with counting("judging") as report:
        assert report is not None
        report(1, 3)
        report(3, 3)
    assert "judging" in terminal.getvalue()
    with counting("judging", quiet=True) as report:
        assert report is None


def test_markdown_keeps_what_a_docstring_marks_as_code() -> None:
    told = markdown.prose("``--limit N`` bounds *requests*; ``a|b``")
    assert told == r"`--limit N` bounds \*requests\*; `a\|b`"
