"""The documentation: it builds without a warning, its links lead somewhere, its output is real."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import console_blocks
import docs_stage
import pytest

from rewriter.cli import COMMANDS
from rewriter.targets.release import Release

ROOT = Path(__file__).parent.parent
PAGES = console_blocks.pages()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, once."""
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install -e '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", place],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
        check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return place


def test_every_page_is_in_the_site(site: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file(), page.name
        assert f": {page.name}\n" in nav, page.name


class Links(HTMLParser):
    """The links of a page, and what others can point to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.names: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {given[k] or "" for k in ("id", "name") if k in given}
        self.links |= {given[k] or "" for k in ("href", "src") if given.get(k)}


def links_of(page: Path) -> Links:
    found = Links()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    """To a file and a heading of the site; what is outside is only looked at."""
    pages = {page: links_of(page) for page in site.glob("*.html") if page.name != "404.html"}
    checked = 0
    for page, found in pages.items():
        for link in sorted(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme == "https", (page.name, link)
                assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), (page.name, link)
                continue
            place = page.parent / unquote(parts.path) if parts.path else page
            assert place.resolve().is_file(), (page.name, link)
            if place in pages:
                assert unquote(parts.fragment) in pages[place].names, (page.name, link)
            checked += 1
    assert checked > 200


def test_nothing_of_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=\"?([^\" >]+)", page.read_text()
        )
        assert [url for url in fetched if url.startswith(("http:", "https:", "//"))] == []


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/index.md"])
def test_every_link_of_the_repository_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        if not parts.scheme:
            place = (ROOT / name).parent / parts.path
            assert place.exists(), link
            heads = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads
            ]
            assert parts.fragment in ("", *slugs), link


def test_tests_and_files_that_a_page_names_exist() -> None:
    """``test_x.py::test_y`` and paths in code spans; ``*`` and ``…`` stand for more."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        spans = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
        for span in spans:
            file, _, test = span.partition("::")
            if re.fullmatch(r"test_\w+\*?", file):  # a test, without its file
                file, test = "tests/test_*.py", file
            elif re.fullmatch(r"test_[\w*]+\.py", file):
                file = f"tests/{file}"
            if not re.match(
                r"(?:tests|benchmarks|examples|fixtures|codemods|docs)/[\w*./-]*$", file
            ):
                continue
            if re.search(r"/(_|test_)?NAME\.py$", file):
                continue
            found = list(ROOT.glob(file))
            assert found, (page.name, span)
            name = test.rstrip("*…")
            assert not name or any(f"def {name}" in f.read_text() for f in found), (page.name, span)


@pytest.mark.wheels
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_shows_is_printed(
    page: Path, release: Callable[[str], Release], wheel_cache_of_tests: Path, tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    commands = console_blocks.commands(text)
    for version in docs_stage.releases(commands):
        release(version)  # fetched with the user's own configuration, which the page has not
    wheel = Path(release(docs_stage.RELEASE).path)
    place = tmp_path.resolve()
    with docs_stage.staged(place, commands, wheel, wheel_cache_of_tests) as stage:
        now, messages = console_blocks.run(text, stage)
    assert now == text, f"write it down again: python tests/console_blocks.py {page.name}"
    assert [message for message in messages if not message.is_real()] == []


def test_every_quoted_message_is_provoked() -> None:
    """By a command in front of it, or by a test that asserts its words."""
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    terms = re.findall(r"(\S+\n)\n(`.*)\n:   ", text)
    assert len(terms) >= 20
    assert [term for before, term in terms if before != "-->\n"] == []
    for message, file in console_blocks.elsewhere(text):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert [p for p in message.split("…") if p.strip() not in source] == [], message


def test_every_command_has_its_place() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    told = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert told == list(COMMANDS)


def test_no_text_of_upstreams_is_shown() -> None:
    """Of a diff of a real release only our own lines may stand on a page."""
    for page in PAGES:
        for command, printed in console_blocks.shown(page.read_text(encoding="utf-8")):
            ours = any(part in command for part in ("sglang.git", "trees", "small", "new.patch"))
            assert ours or "\n@@ " not in printed, (page.name, command)


def test_a_reader_can_lay_out_what_the_pages_name(tmp_path: Path) -> None:
    """With nothing but the tool installed: nothing of the tests' own packages is imported."""
    script = (
        "import runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # may be inherited ignored
        "sys.modules.update(dict.fromkeys(['pytest', 'numpy', 'torch']))\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    command = [sys.executable, "-c", script, str(ROOT / "tests/docs_stage.py"), str(tmp_path), "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        told = []
        while not told or (told[-1] and "serving on" not in told[-1]):
            told.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()  # else leaving the block would wait for it
    assert told[-1].startswith("serving on http://127.0.0.1:")
    assert {p.name for p in tmp_path.iterdir()} == set(docs_stage.PARTS)
