"""Hostile trees, archives and plug-ins, and a run of the tool that is measured."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fake_sglang import record
from sources import PATH, backend
from targets import files, installed

SECONDS, MEGABYTES = 20.0, 700.0
"""CPU time and memory that no case may take: the largest file that is read at all has 64 MB."""


class Ran(NamedTuple):
    """A run of the command line as a process: CPU seconds and the largest memory of it and its
    children."""

    code: int
    out: str
    err: str
    seconds: float
    megabytes: float


_MEASURE = """\
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:], timeout=float(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("\\n" + json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
"""A small process around: memory is inherited from what a process is made by."""


def run(place: Path, *arguments: str, env: dict[str, str] | None = None) -> Ran:
    """Run the command line, and measure it."""
    environment = {
        **os.environ, "REWRITER_CACHE_DIR": str(place / "cache"), "COLUMNS": "80",
        "REWRITER_STATE_DIR": str(place / "state"), "PYTHONPATH": str(place / "plugins"),
        "REWRITER_PLUGIN_SECONDS": "3", **(env or {}),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-S", "-c", _MEASURE, str(6 * SECONDS), sys.executable, "-m", "rewriter",
         *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, cwd=place, env=environment, check=True,
    )  # fmt: skip
    out, _, measured = done.stdout.decode("utf-8", "replace").rstrip().rpartition("\n")
    code, seconds, megabytes = json.loads(measured)
    return Ran(code, out, done.stderr.decode("utf-8", "replace"), seconds, megabytes)


class Case(NamedTuple):
    """Something hostile.

    Attributes:
        what: a few words, in the table.
        make: puts it below a directory and returns the command line.
        codes: the exit codes that are right.
        says: what the message must hold.
    """

    what: str
    make: Callable[[Path], tuple[str, ...]]
    codes: tuple[int, ...]
    says: str


def source(raw: bytes | str, verb: str = "apply") -> Callable[[Path], tuple[str, ...]]:
    """Return what makes an install whose target file holds these bytes."""

    def make(place: Path) -> tuple[str, ...]:
        return verb, "--site-packages", str(installed(place / "site", raw))

    return make


def _special(put: Callable[[Path], None], verb: str = "apply") -> Callable[[Path], tuple[str, ...]]:
    """Return what makes an install whose target file is something else."""

    def make(place: Path) -> tuple[str, ...]:
        site = installed(place / "site")
        (site / PATH).unlink()
        put(site / PATH)
        return verb, "--site-packages", str(site)

    return make


def _beside(name: str, put: Callable[[Path], None], verb: str) -> Callable[[Path], tuple[str, ...]]:
    """Return what makes an install with something of our own name in its dist-info."""

    def make(place: Path) -> tuple[str, ...]:
        site = installed(place / "site")
        put(next(site.glob("*.dist-info")) / name)
        return verb, "--site-packages", str(site)

    return make


def _sparse(size: int) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return put


def _text(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None


Make = Callable[[Path], tuple[str, ...]]
"""Puts something below a directory and returns the command line."""


def _wheel(change: Callable[[zipfile.ZipFile, dict[str, bytes]], None]) -> Make:
    """Return what makes a wheel, changed as it is written."""

    def make(place: Path) -> tuple[str, ...]:
        contents = files()
        contents["sglang-0.5.9.dist-info/METADATA"] = b"Name: sglang\nVersion: 0.5.9\n"
        path = place / "sglang-0.5.9-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            change(archive, contents)
            contents["sglang-0.5.9.dist-info/RECORD"] = record(
                contents, "sglang-0.5.9.dist-info/RECORD"
            )
            with warnings.catch_warnings():  # of a name that is in it twice
                warnings.simplefilter("ignore")
                for name, raw in contents.items():
                    archive.writestr(name, raw)
        return "check", "--wheel", str(path)

    return make


def _entry(name: str, raw: bytes = b"x", mode: int = 0) -> Callable[..., None]:
    def change(archive: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, raw)

    return change


def _bomb(archive: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
    contents[PATH] = b"#" * (200 * 2**20)


def _many(archive: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
    for number in range(120_000):
        archive.writestr(f"sglang/{number}.txt", b"")


def _state(spoil: Callable[[Path], None]) -> Callable[[Path], tuple[str, ...]]:
    def make(place: Path) -> tuple[str, ...]:
        spoil(place / "state")
        return "apply", "--site-packages", str(installed(place / "site"))

    return make


def _linked_lock(state: Path) -> None:
    (state / "elsewhere").mkdir(parents=True)
    (state / "locks").symlink_to("elsewhere")


def _open_to_all(state: Path) -> None:
    (state / "locks").mkdir(parents=True)
    (state / "locks").chmod(0o777)


def _of_another(state: Path) -> None:
    (state / "locks").mkdir(parents=True)
    os.chown(state / "locks", 12345, 12345)


def plugin(body: str, module: str = "", verb: str = "apply") -> Callable[[Path], tuple[str, ...]]:
    """Return what installs a plug-in: what its finder does, or its whole module."""
    text = module or (
        "from rewriter.codemod import *\n"
        "import os, sys, time\n\n"
        f"def find(definition):\n{body}\n\n"
        "class Theirs(Codemod):\n"
        f'    target = "{PATH}"\n'
        '    supports = ">=0.4"\n'
        '    sites = (Site("FlashInferMLAAttnBackend.forward_decode", "call", find,'
        ' Wrap("_p.q"), count=None),)\n'
    )

    def make(place: Path) -> tuple[str, ...]:
        info = place / "plugins" / "their-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[rewriter.codemods]\ntheirs = theirs\n")
        (place / "plugins" / "theirs.py").write_text(text)
        return verb, "theirs", "--site-packages", str(installed(place / "site"))

    return make


def _target(path: str) -> str:
    return (
        "from rewriter.codemod import *\nclass Theirs(Codemod):\n"
        f'    target = "{path}"\n    supports = ">=0.4"\n'
        '    sites = (Site("f", "call", "g({x})", Wrap("_p.q")),)\n'
    )


RUN = "[n for n in definition.nodes if type(n).__name__ == 'Call']"
GOOD = backend()
LONG = GOOD + "x = '" + "y" * (2 * 2**20) + "'\n"

CASES = (
    Case("20,000 nested brackets", source(GOOD + "x = " + "(" * 20000 + ")" * 20000), (2,),
         "does not parse"),
    Case("3,000 nested blocks", source(
        GOOD + "".join(" " * i + "if x:\n" for i in range(3000)) + " " * 3000 + "y"), (2,),
        "does not parse"),
    Case("5,000 operators in the definition", source(GOOD.replace(
        "        decode_wrapper = self.decode_wrapper\n",
        "        decode_wrapper = self.decode_wrapper\n        n = " + "-" * 5000 + "1\n")), (2,),
        "flashinfer_mla_backend.py: "),
    Case("50 MB of Python", source(GOOD + "x = 1\n" * (50 * 2**20 // 6)), (2,), "bytes, more than"),
    Case("a file of 10 GB", _special(_sparse(10 * 2**30)), (2,), "are not read"),
    Case("NUL", source(GOOD + "x = 1\0\n"), (2,), "does not parse"),
    Case("no UTF-8", source(GOOD.encode() + b"# \xff\n"), (2,), "cannot be decoded"),
    Case("an unknown encoding", source(b"# coding: nothing\n" + GOOD.encode()), (2,),
         "cannot be decoded"),
    Case("UTF-16", source(GOOD.encode("utf-16")), (2,), "cannot be decoded"),
    Case("a lone carriage return in a string", source(GOOD + "x = '''a\rb'''\r"), (0,), "applied"),
    Case("a line of 2 MB", source(LONG), (0,), "applied"),
    Case("bidi characters in a drifted line", source(GOOD.replace(
        "return decode_wrapper.run(",
        "return self.of(decode_wrapper).run(  # \u202e evil \u2066\n            "), "check"), (1,),
        "\\u202e"),
    Case("an escape sequence in a drifted line", source(GOOD.replace(
        "return decode_wrapper.run(", "return self.of(decode_wrapper).run(  # \x1b[2J\n            "
    ), "check"), (1,), "\\x1b"),
    Case("bidi characters in the diff", source(GOOD.replace(
        "decode_wrapper = self.decode_wrapper",
        "decode_wrapper = self.decode_wrapper  # \u202e"), "diff"), (0,), "act on a terminal"),
    Case("a pipe in the file's place", _special(os.mkfifo), (2,), "found a device, socket or pipe"),
    Case("a device in the file's place", _special(
        lambda p: p.symlink_to("/dev/zero")), (2,), "found a device, socket or pipe"),
    Case("a directory in the file's place", _special(Path.mkdir), (1,), "absent"),
    Case("a link to nothing", _special(lambda p: p.symlink_to("none.py")), (2,), "does not exist"),
    Case("a link in a circle", _special(lambda p: p.symlink_to(p.name)), (2,), "cannot be read"),
    Case("a pipe for a record", _beside("REWRITER.json", os.mkfifo, "status"), (2,),
         "found a device, socket or pipe"),
    Case("a record of 10 GB", _beside("REWRITER.json", _sparse(10 * 2**30), "status"), (2,),
         "are not read"),
    Case("a record that is deep", _beside("REWRITER.json", _text("[" * 100000), "revert"), (2,),
         "expected the manifest"),
    Case("a record that points outside", _beside("REWRITER.json", _text(
        '{"schema": 1, "tool": "x", "package": {"version": null}, "codemods": [], '
        '"files": {"../../etc/passwd": {"before": null, "after": "", "mode": "0644"}}}'),
        "revert"), (2,), "leaves the package"),
    Case("a record with an absolute path", _beside("REWRITER.json", _text(
        '{"schema": 1, "tool": "x", "package": {"version": null}, "codemods": [], '
        '"files": {"/etc/passwd": {"before": null, "after": "", "mode": "0644"}}}'),
        "revert"), (2,), "leaves the package"),
    Case("a pipe for a journal", _beside("REWRITER.journal", os.mkfifo, "apply"), (2,),
         "found a device, socket or pipe"),
    Case("a journal that points outside", _beside("REWRITER.journal", _text(
        '{"schema": 1, "token": "0123abcd", "command": "apply", "process": "h:1", "writes": '
        '[{"at": "root", "path": "sglang/../../x", "before": null, "after": null}]}'),
        "apply"), (2,), "leaves the package"),
    Case("a wheel with ../", _wheel(_entry("../evil.py")), (2,), "leaves the wheel"),
    Case("a wheel with an absolute path", _wheel(_entry("/etc/evil")), (2,), "leaves the wheel"),
    Case("a wheel with a link", _wheel(_entry(
        "sglang/link.py", b"/etc/passwd", stat.S_IFLNK | 0o777)), (2,), "is a link"),
    Case("a wheel with an entry twice", _wheel(_entry(PATH, b"evil")), (2,), "is in it twice"),
    Case("a wheel that unpacks to 200 MB", _wheel(_bomb), (2,), "are not read"),
    Case("a wheel of 120,000 entries", _wheel(_many), (2,), "entries"),
    Case("a pipe for a wheel", lambda place: (
        os.mkfifo(place / "x.whl"), ("check", "--wheel", str(place / "x.whl")))[1], (2,),
        "found something else"),
    Case("locks behind a link", _state(_linked_lock), (2,), "is a link"),
    Case("locks open to everybody", _state(_open_to_all), (2,), "can be written by everybody"),
    Case("locks of another user", _state(_of_another), (2,), "belongs to another user"),
    Case("a plug-in that raises as it is imported", plugin("", "1 / 0"), (2,), "ZeroDivisionError"),
    Case("a plug-in that raises", plugin("    1 / 0"), (2,), "ZeroDivisionError"),
    Case("a plug-in that is no Python", plugin("", "def"), (2,), "SyntaxError"),
    Case("a plug-in that exits as it is imported", plugin("", "raise SystemExit(0)"), (2,),
         "SystemExit"),
    Case("a plug-in that exits", plugin("    sys.exit(0)"), (2,), "SystemExit"),
    Case("a plug-in that ends the process at once", plugin("", "import os; os._exit(0)"), (2,),
         "ended the process"),
    Case("a plug-in that ends the process", plugin("    os._exit(0)"), (2,), "ended the process"),
    Case("a plug-in that hangs as it is imported", plugin("", "while True: pass"), (2,),
         "was ended after 3 s"),
    Case("a plug-in that hangs", plugin("    time.sleep(1000)"), (2,), "was ended after 3 s"),
    Case("a plug-in that takes all memory", plugin("    x = bytearray(2**40)"), (2,),
         "MemoryError"),
    Case("a plug-in without an end of recursion", plugin("    return find(definition)"), (2,),
         ""),
    Case("a plug-in that crashes", plugin("    os.kill(os.getpid(), 11)"), (2,),
         "ended the process"),
    Case("a plug-in that prints", plugin("    print('{}')\n    return []"), (2,),
         "prints to standard output"),
    Case("a plug-in that closes files", plugin("    os.closerange(0, 256)\n    return []"), (2,),
         "ended the process"),
    Case("a plug-in for a file outside", plugin("", _target("sglang/../../x.py")), (2,),
         "no path inside the package"),
    Case("a plug-in for an absolute file", plugin("", _target("/etc/passwd")), (2,),
         "no path inside the package"),
    Case("a plug-in for another package", plugin("", _target("torch/x.py")), (2,),
         "no path inside the package"),
    Case("a plug-in that finds no match", plugin("    return ['x']"), (2,), "expected a Match"),
    Case("a plug-in that finds another's node", plugin(
        "    import libcst\n    return [Match(libcst.Name('x'))]"), (2,),
        "not one of the definition"),
    Case("a plug-in that slips in a statement", plugin(
        f"    return [Match({RUN}[0], ('1)\\nimport os\\nf(2',))]"), (2,),
        "expected the code of one argument"),
    Case("a plug-in that slips in an argument", plugin(
        f"    return [Match({RUN}[0], ('1), g(2',))]"), (2,),
        "expected the code of one argument"),
)  # fmt: skip
