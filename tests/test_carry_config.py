"""Patches in ``rewriter.toml``: what every command makes of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import (
    MIXER,
    Install,
    codemods,
    record_faults,
    rewriter,
    sealed_state,
    states,
    tree,
)
from patching import EDITS, FRESH, NEWER, NOTES, Team, contents, patched, replaced, team

from rewriter import config
from rewriter.errors import UsageError

__all__ = ["codemods", "sealed_state", "team"]

pytestmark = pytest.mark.usefixtures("codemods")


@pytest.fixture
def site_packages(tmp_path: Path, write_files: Install) -> Path:
    """Return the newer package as pip leaves it."""
    return write_files(tmp_path / "site-packages", installed_files("0.5.2", NEWER))


def at(place: Path) -> tuple[str, str]:
    return "--site-packages", str(place)


def configure(team: Team, *patches: Path, codemods: str = "[]") -> None:
    listed = ", ".join(f'"{patch}"' for patch in patches)
    text = f"codemods = {codemods}\npatches = [{listed}]\n"
    Path("rewriter.toml").write_text(text + (f'from = "{team.older}"\n' if patches else ""))


def test_check_apply_and_revert(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    patch = team.patch()
    configure(team, patch, codemods='["alpha"]')
    done = rewriter("check", *at(site_packages))
    assert done.code == 0, done.err
    assert re.search(r"^team\.patch@[0-9a-f]{8}: ready$", done.out, re.MULTILINE)
    assert "hunk 2      Mixer.mix" in done.out
    assert rewriter("check", *at(site_packages), "--require", "applied").code == 1
    done = rewriter("apply", *at(site_packages))
    assert done.code == 0, done.err
    assert (site_packages / FRESH).is_file()
    assert b"_tools.note(y)" in (site_packages / MIXER).read_bytes()
    assert record_faults(site_packages) == []
    assert rewriter("check", *at(site_packages), "--require", "applied").code == 0
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_the_gate_carries_nothing(
    team: Team, site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(team, team.patch())
    rewriter("apply", *at(site_packages))
    monkeypatch.setattr("rewriter.carry.carrying.carry", None)
    assert rewriter("check", *at(site_packages), "--require", "applied").code == 0


def test_the_gate_loads_no_parser(team: Team, site_packages: Path) -> None:
    import subprocess

    configure(team, team.patch())
    rewriter("apply", *at(site_packages))
    code = (
        "import sys\nfrom rewriter import cli\n"
        f"try: cli.main(['check', '--require', 'applied', '-q', *{at(site_packages)!r}])\n"
        "except SystemExit as end: print(end.code, file=sys.stderr)\n"
        "print('libcst' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["0", "False"]


def test_diff_shows_patches_and_codemods_as_one(
    team: Team, site_packages: Path, tmp_path: Path, sealed_git: Git
) -> None:
    configure(team, team.patch(), codemods='["alpha"]')
    done = rewriter("diff", *at(site_packages))
    assert done.code == 0
    for line in ("+        y = y + TEAM\n", "+        y = _tools.note(y)\n", f"+++ b/{NOTES}\n"):
        assert line in done.out
    assert done.out.count(f"diff --git a/{MIXER}") == 1
    place = tmp_path / "again"
    place.mkdir()
    for path, raw in NEWER.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(raw)
    (tmp_path / "all.diff").write_bytes(done.out.encode())
    sealed_git("init", cwd=place)
    sealed_git("apply", str(tmp_path / "all.diff"), cwd=place)
    rewriter("apply", *at(site_packages))
    assert contents(place) == contents(site_packages)


def test_output_holds_patches_and_codemods(team: Team, site_packages: Path, tmp_path: Path) -> None:
    configure(team, team.patch(), codemods='["alpha"]')
    out = tmp_path / "out"
    done = rewriter("apply", *at(site_packages), "--output", str(out), "--full")
    assert done.code == 0, done.err
    assert rewriter("check", *at(out), "--require", "applied").code == 0
    rewriter("apply", *at(site_packages))
    assert contents(out) == contents(site_packages)
    assert rewriter("revert", *at(out)).code == 0
    assert contents(out) == dict(NEWER)


def test_a_patch_that_does_not_carry_any_more(
    team: Team, tmp_path: Path, write_files: Install
) -> None:
    other = replaced(NEWER[MIXER], b"return sqrt(y)", b"return sqrt(y) - 1")
    place = write_files(tmp_path / "other", installed_files("0.5.3", {**NEWER, MIXER: other}))
    ours = replaced(NEWER[MIXER], b"return sqrt(y)", b"return sqrt(y) + 1")
    configure(team, team.patch({MIXER: ours}))
    done = rewriter("check", *at(place))
    assert done.code == 1
    assert "drifted" in done.out
    assert f"why: {MIXER}, hunk 2: upstream changed the same part" in done.out
    done = rewriter("apply", *at(place))
    assert (done.code, "is drifted" in done.err) == (2, True)


def test_sync_from_any_state(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    one = team.patch(name="one.patch")
    raw = (team.older / MIXER).read_bytes()
    two = team.patch({MIXER: replaced(raw, b'"""Mixes."""', b'"""Mixer."""')}, "two.patch")
    configure(team, one, two, codemods='["alpha"]')
    done = rewriter("sync", *at(site_packages))
    assert done.code == 0, done.err
    assert re.findall(r"^(.+): put in$", done.out, re.MULTILINE)[2] == "alpha"
    whole = tree(site_packages)
    done = rewriter("sync", *at(site_packages))
    assert "everything is as the configuration says; nothing to write" in done.out
    configure(team, two)
    assert rewriter("sync", *at(site_packages)).code == 0
    wanted = {**NEWER, MIXER: replaced(NEWER[MIXER], b'"""Mixes."""', b'"""Mixer."""')}
    assert contents(site_packages) == wanted
    configure(team, one, two, codemods='["alpha"]')
    assert rewriter("sync", *at(site_packages)).code == 0
    assert tree(site_packages) == whole
    assert record_faults(site_packages) == []
    configure(team)
    assert rewriter("sync", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_sync_replaces_another_version(team: Team, site_packages: Path) -> None:
    configure(team, team.patch())
    rewriter("sync", *at(site_packages))
    team.patch({**EDITS, NOTES: b"for more people\n"})
    done = rewriter("check", *at(site_packages))
    assert (done.code, "`rewriter sync` replaces it" in " ".join(done.out.split())) == (1, True)
    done = rewriter("sync", *at(site_packages))
    assert done.code == 0, done.err
    assert contents(site_packages) == patched({**EDITS, NOTES: b"for more people\n"})
    assert list(states(*at(site_packages)).values()).count("applied") == 1


def test_sync_mends_what_was_taken_out_in_part(team: Team, site_packages: Path) -> None:
    configure(team, team.patch())
    rewriter("sync", *at(site_packages))
    whole = tree(site_packages)
    path = site_packages / MIXER
    path.write_bytes(replaced(path.read_bytes(), b"        y = y + TEAM\n", b""))
    done = rewriter("sync", *at(site_packages))
    assert done.code == 0, done.err
    assert tree(site_packages) == whole


def test_lock_and_what_differs_from_it(team: Team, site_packages: Path) -> None:
    configure(team, team.patch(), codemods='["alpha"]')
    assert rewriter("lock", *at(site_packages)).code == 0
    rewriter("sync", "--locked", *at(site_packages))
    assert rewriter("check", "--locked", *at(site_packages)).code == 0
    text = Path("rewriter.lock").read_text()
    rewriter("lock", *at(site_packages))
    assert Path("rewriter.lock").read_text() == text, "before and after it is applied"
    assert 'name = "team.patch@' in text
    assert f'path = "{FRESH}"\nbefore = ""\n' in text
    team.patch({**EDITS, NOTES: b"for more people\n"})
    done = rewriter("sync", "--locked", *at(site_packages))
    assert done.code == 2
    assert "is locked, and the configuration does not name it any more" in done.err


def test_digest_is_of_the_patch_whatever_its_file_is_called(
    team: Team, site_packages: Path, tmp_path: Path, write_files: Install
) -> None:
    def digest(place: Path) -> str:
        return rewriter("status", "--digest", *at(place)).out

    clean = digest(site_packages)
    other = write_files(tmp_path / "other", installed_files("0.5.2", NEWER))
    patch = team.patch()
    rewriter(*team.apply(patch), *at(site_packages))
    assert digest(site_packages) != clean
    copy = team.written(patch.read_bytes(), "another.patch")
    rewriter(*team.apply(copy), *at(other))
    assert digest(other) == digest(site_packages)
    done = rewriter("status", "--expect", clean.strip(), *at(other))
    assert (done.code, "the codemods or their companions, the bytes" in done.err) == (1, True)
    rewriter("revert", *at(other))
    assert digest(other) == clean


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('patches = ["a.patch"]\n', "`patches` and `from` go together"),
        ('from = "0.5.9"\n', "`patches` and `from` go together"),
        ('patches = "a.patch"\nfrom = "0.5.9"\n', "`patches` must be a list of names"),
        ('patches = ["a", "a"]\nfrom = "0.5.9"\n', "`patches` names one twice"),
        ('patches = ["a"]\nfrom = 5\n', "`from` must be a release in quotes"),
    ],
)
def test_malformed(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rewriter.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        config.load(tmp_path)
    assert message in str(caught.value)


def test_a_patch_that_is_not_there(team: Team, site_packages: Path) -> None:
    configure(team, team.place / "gone.patch")
    done = rewriter("check", *at(site_packages))
    assert (done.code, "gone.patch: cannot be read" in done.err) == (2, True)
