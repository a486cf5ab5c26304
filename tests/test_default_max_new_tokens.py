"""default_max_new_tokens: several files, three generations of server arguments."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rewriter import catalog, engine, pins
from rewriter.judge import changes, judge
from rewriter.model import State
from rewriter.targets.release import Release

CODEMOD = catalog.load("default_max_new_tokens")
SCHEDULER, ARGUMENTS = "sglang/srt/managers/scheduler.py", "sglang/srt/server_args.py"
FIELDS = "sglang/srt/arg_groups/fields/schedule.py"

PLAIN = b"""\
import dataclasses
from typing import Optional

@dataclasses.dataclass
class ServerArgs:
    model: str = ""
    # Scheduling
    max_queued_requests: Optional[int] = None
    seed: int = 1

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model", default="")
        parser.add_argument(
            "--max-queued-requests", type=int, default=None,
            help="how many")
        parser.add_argument("--seed", type=int, default=1)
"""
ANNOTATED = b"""\
import dataclasses
from typing import Annotated as A, Optional, get_origin

def add_cli_args_from_dataclass(parser, cls):
    for field in dataclasses.fields(cls):
        if get_origin(field.type) is A:
            parser.add_argument(f"--{field.name.replace('_', '-')}", default=field.default)

@dataclasses.dataclass
class ServerArgs:
    max_queued_requests: A[
        Optional[int], "how many"
    ] = None
    seed: A[int, "of all"] = 1

    @staticmethod
    def add_cli_args(parser):

        add_cli_args_from_dataclass(parser, ServerArgs)  # all of them
"""
SCHEDULING = b"""\
class Scheduler:
    def __init__(self, server_args):
        self.server_args = server_args

    def init_req_max_new_tokens(self, req):
        most = req.sampling_params.max_new_tokens
        req.sampling_params.max_new_tokens = min(
            (
                req.sampling_params.max_new_tokens
                if req.sampling_params.max_new_tokens is not None  # the request's own
                else 1 << 30
            ),
            self.max_req_len - 1,
        )
"""


def patched(arguments: bytes) -> dict[str, bytes]:
    """Apply to both files, take out again, and return what was made."""
    before = {SCHEDULER: SCHEDULING, ARGUMENTS: arguments}
    assert judge(CODEMOD, before.get, "0.5.9").state is State.READY
    made = {c.path: c.after for c in changes([CODEMOD], before.get) if c.after is not None}
    assert judge(CODEMOD, made.get, "0.5.9").state is State.APPLIED
    assert changes([CODEMOD], made.get) == []
    assert {p: engine.examine(CODEMOD, p, raw).pristine for p, raw in made.items()} == before
    return made


@pytest.mark.parametrize("arguments", [PLAIN, ANNOTATED], ids=["plain", "annotated"])
@pytest.mark.parametrize(("line", "expected"), [("", None), ("--default-max-new-tokens 64", 64)])
def test_the_argument_is_parsed(arguments: bytes, line: str, expected: int | None) -> None:
    module: dict[str, Any] = {}
    exec(compile(patched(arguments)[ARGUMENTS], ARGUMENTS, "exec"), module)
    parser = argparse.ArgumentParser()
    module["ServerArgs"].add_cli_args(parser)
    given = vars(parser.parse_args(line.split()))
    known = {f.name for f in dataclasses.fields(module["ServerArgs"])} & given.keys()
    assert module["ServerArgs"](**{k: given[k] for k in known}).default_max_new_tokens == expected


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [(None, None, 999), (None, 64, 64), (None, 0, 999), (5, 64, 5), (100, 64, 100), (0, 64, 0)],
)
def test_a_limit_that_the_request_names_wins(
    asked: int | None, default: int | None, expected: int
) -> None:
    module: dict[str, Any] = {}
    exec(compile(patched(PLAIN)[SCHEDULER], SCHEDULER, "exec"), module)
    scheduler = module["Scheduler"](SimpleNamespace(default_max_new_tokens=default))
    scheduler.max_req_len = 1000
    req = SimpleNamespace(sampling_params=SimpleNamespace(max_new_tokens=asked))
    scheduler.init_req_max_new_tokens(req)
    assert req.sampling_params.max_new_tokens == expected


def test_a_field_in_a_file_of_its_own() -> None:
    """From 0.5.20 the fields are in classes of their own, and ServerArgs has none."""
    option, fields = ANNOTATED.split(b"@dataclasses.dataclass\n")
    fields, method = fields.split(b"    @staticmethod\n")
    before = {
        SCHEDULER: SCHEDULING,
        ARGUMENTS: option + b"class ServerArgs:\n    @staticmethod\n" + method,
        FIELDS: fields.replace(b"ServerArgs", b"Schedule"),
    }
    assert judge(CODEMOD, before.get, "0.5.20").state is State.READY
    made = {c.path: c.after or b"" for c in changes([CODEMOD], before.get)}
    assert b"    default_max_new_tokens: Optional[int] = None\n" in made[FIELDS]
    assert b"default_max_new_tokens:" not in made[ARGUMENTS]
    assert judge(CODEMOD, made.get, "0.5.20").state is State.APPLIED
    both = {**before, ARGUMENTS: ANNOTATED}
    assert "found 2" in judge(CODEMOD, both.get, "0.5.20").reason


def test_layout_and_comments_around_the_default_stay() -> None:
    made = patched(PLAIN)[SCHEDULER]
    ours = b"else self.server_args.default_max_new_tokens or 1 << 30"
    assert made == SCHEDULING.replace(b"else 1 << 30", ours)


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        (SCHEDULER, b"else 1 << 30", b"else 1 << 20", "has no `{limit} if"),
        (SCHEDULER, b"else 1 << 30", b"else self.limit or 1 << 30", "has no `{limit} if"),
        (SCHEDULER, b"if req.", b"if self.", "has no `{limit} if"),
        (SCHEDULER, b"def init_req_", b"def set_req_", "is not defined"),
        (ARGUMENTS, b"    max_queued", b"    most_queued", "expected one field in"),
        (ARGUMENTS, b'"--max-queued', b'"--most-queued', "`ServerArgs.add_cli_args` has no"),
    ],
)
def test_drift_in_either_file_refuses_both(path: str, old: bytes, new: bytes, reason: str) -> None:
    files = {SCHEDULER: SCHEDULING, ARGUMENTS: PLAIN}
    files[path] = files[path].replace(old, new)
    verdict = judge(CODEMOD, files.get, "0.5.9")
    assert verdict.state is State.DRIFTED
    assert reason in verdict.reason


def test_look_alikes_are_left_alone() -> None:
    other = SCHEDULING.replace(b"Scheduler", b"Other").replace(b"import", b"")
    field = PLAIN.replace(b"ServerArgs", b"PortArgs")
    before = {SCHEDULER: SCHEDULING + other, ARGUMENTS: PLAIN + field}
    made = {c.path: c.after for c in changes([CODEMOD], before.get)}
    assert (made[SCHEDULER] or b"").endswith(other)
    assert (made[ARGUMENTS] or b"").endswith(field)


SOME = pins.load("default_max_new_tokens")[::11] + pins.load("default_max_new_tokens")[-1:]
"""Of all pins enough for every generation of either file: the files are among sglang's longest."""


@pytest.mark.wheels
@pytest.mark.parametrize("pin", SOME, ids=lambda p: f"{p.releases[0]}-{p.source[:4]}")
def test_pinned_sources_sites_and_results(release: Callable[[str], Release], pin: pins.Pin) -> None:
    raw = release(pin.releases[0]).read(pin.file)
    assert raw is not None
    assert pins.sha256(raw) == pin.source
    found = engine.examine(CODEMOD, pin.file, raw)
    assert [pins.PinnedSite(s.definition, s.kind, s.line or 0) for s in found.sites] == [*pin.sites]
    after = engine.apply(CODEMOD, pin.file, raw)
    assert pins.sha256(after) == pin.patched
    assert engine.examine(CODEMOD, pin.file, after).pristine == raw
