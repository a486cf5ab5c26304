"""Traces read to the exact truth: layouts, defects, cuts, and a bounded space."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_writer import Recipe, Truth, write_trace

from rewriter.probes.trace.problems import TraceError
from rewriter.probes.trace.reading import Health, Reading
from rewriter.probes.trace.recording import Recording, Recordings

_DEFECTS = ("backslash", "quote", "newline", "utf8", "nan", "nul", "log", "comma", "commas",
            "trailing", "huge", "negative", "unlinked", "cut")  # fmt: skip


def _read(path: Path) -> tuple[Health, Recording]:
    reading = Reading(path)
    recordings = Recordings()
    for events in reading.batches():
        recordings.take(events)
    return reading.health, recordings.by_rank.get("", Recording())


def _casts(recording: Recording) -> tuple[int, float]:
    kinds = [kind for kind in recording.kinds if "LoadWithCast" in kind.name]
    return sum(kind.calls for kind in kinds), sum(kind.total for kind in kinds)


def _same(path: Path, truth: Truth) -> Health:
    health, recording = _read(path)
    assert health.events == truth.events
    assert recording.kernels == truth.kernels
    assert recording.gpu_us == pytest.approx(truth.gpu_us, abs=1e-3)
    calls, spent = _casts(recording)
    assert calls == truth.casts
    assert spent == pytest.approx(truth.cast_us, abs=1e-3)
    assert recording.negative == truth.negative
    return health


@pytest.mark.parametrize("style", ["torch", "fields", "compact"])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.json.tmp"])
def test_every_layout_gives_the_truth(tmp_path: Path, style: str, name: str) -> None:
    path = tmp_path / name
    health = _same(path, write_trace(path, Recipe(style=style, stack=2, shapes=True)))
    assert health.whole


@pytest.mark.parametrize("style", ["torch", "fields", "compact"])
@pytest.mark.parametrize("defect", _DEFECTS)
def test_every_defect_gives_the_truth(tmp_path: Path, style: str, defect: str) -> None:
    path = tmp_path / "trace.json"
    recipe = Recipe(style=style, stack=3, shapes=True, defects=frozenset({defect}))
    health = _same(path, write_trace(path, recipe))
    assert health.truncated == (defect == "cut")
    assert health.unreadable == 0
    proper = {"huge", "negative", "unlinked", "cut"}
    assert bool(health.repaired) == (defect not in proper)


@pytest.mark.parametrize("style", ["torch", "compact"])
def test_all_defects_at_once(tmp_path: Path, style: str) -> None:
    path = tmp_path / "trace.json.gz"
    recipe = Recipe(style=style, stack=3, shapes=True, defects=frozenset(_DEFECTS) - {"trailing"})
    health = _same(path, write_trace(path, recipe))
    assert health.repaired
    assert health.truncated


def test_windows_end_inside_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows put cuts everywhere: into names, lists, between damaged events."""
    path = tmp_path / "trace.json"
    truth = write_trace(path, Recipe(stack=3, shapes=True, defects=frozenset(_DEFECTS[:9])))
    for size in (997, 4099, 65_537):
        monkeypatch.setattr("rewriter.probes.trace.files.CHUNK", size)
        _same(path, truth)


def test_a_bare_array_and_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    truth = write_trace(path, Recipe())
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document["traceEvents"]))
    assert _same(path, truth).whole
    path.write_text("[]")
    health, _ = _read(path)
    assert health == Health(events=0, truncated=False)


def test_text_that_looks_like_events_in_a_name(tmp_path: Path) -> None:
    name = 'x}, {"ph": "X", "cat": "kernel", "name": "y'
    events = [{"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 1} for _ in range(20)]
    nested = {"ph": "M", "name": "pg", "args": {"list": [{"name": "a"}, {"name": "b"}]}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*events, nested]}))
    health, recording = _read(path)
    assert (health.events, recording.kernels, health.whole) == (21, 0, True)
    path.write_text(path.read_text().replace('"cpu_op"', '"cpu\\op"'))
    health, recording = _read(path)
    assert (health.events, recording.kernels, health.repaired) == (21, 0, 20)


def test_numbers_as_text_null_and_over_64_bits(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": "12.5", "dur": "3.25", "pid": 0,
             "args": {"stream": 7, "correlation": 2**80, "External id": None}}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event, {**event, "ts": 20.0, "dur": 1}]}))
    health, recording = _read(path)
    assert health.events == 2
    assert recording.gpu_us == pytest.approx(4.25)
    assert list(recording.correlation) == [-1, -1]


def test_a_long_tail_ends_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.probes.trace.files.CHUNK", 4096)
    path = tmp_path / "trace.json"
    truth = write_trace(path, Recipe())
    groups = [{"name": f"group {n}", "ph": "x", "ranks": list(range(20))} for n in range(900)]
    text = path.read_text().rstrip().removesuffix("}")
    path.write_text(f'{text}, "pg_config": {json.dumps(groups)}, "record_shapes": 1}}')
    assert _same(path, truth).whole
    reading = Reading(path)
    assert sum(map(len, reading.batches())) == truth.events
    assert reading.head.record_shapes


def test_durations_that_cannot_be_summed(tmp_path: Path) -> None:
    """T7: negative, -1, 0 and a time stamp of 0 are counted and left out."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": ts, "dur": dur,
         "args": {"stream": 7}}
        for ts, dur in ((10.0, 2.5), (20.0, -1), (30.0, -7.5), (40.0, 0), (0, 5.0))
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": kernels}))
    _, recording = _read(path)
    assert recording.gpu_us == 2.5
    assert (recording.negative, recording.zero, recording.unplaced) == (2, 1, 1)
    assert recording.kernels == 5


def test_gzip_of_several_members_padded_cut_and_damaged(tmp_path: Path) -> None:
    plain = tmp_path / "trace.json"
    truth = write_trace(plain, Recipe())
    data = plain.read_bytes()
    path = tmp_path / "trace.json.gz"
    half = len(data) // 2
    whole = gzip.compress(data[:half]) + gzip.compress(data[half:])
    path.write_bytes(whole + b"\0" * 512)
    assert _same(path, truth).whole

    path.write_bytes(whole[:-6])
    health = _same(path, truth)
    assert health.cut == "gzip data has no end marker"

    path.write_bytes(whole[: len(whole) // 2])
    health, recording = _read(path)
    assert health.truncated
    assert 0 < recording.kernels < truth.kernels

    damaged = bytearray(gzip.compress(data))
    damaged[-5] ^= 0xFF
    path.write_bytes(bytes(damaged))
    health = _same(path, truth)
    assert health.cut is not None
    assert health.cut.startswith("gzip data is damaged")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an empty file"),
        (b"   \n", "an empty file"),
        (b"hello", "neither an array"),
        (b'{"schemaVersion": 1, "deviceProperties": [', "neither an array"),
        (b"\x1f\x8b\x08\x00", "an empty file"),
        (b"\x89PNG\r\n\x1a\n", "neither an array"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=said):
        list(Reading(path).batches())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        list(Reading(tmp_path / "none.json").batches())


class _Small(dict[str, tuple[bytes, Truth]]):
    def __repr__(self) -> str:
        return "small"  # hypothesis prints arguments; these have 200 kB


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> _Small:
    """Small traces as bytes, one proper and one with every defect, and where events end."""
    folder = tmp_path_factory.mktemp("small")
    made = _Small()
    for name, defects in (("proper", ()), ("damaged", _DEFECTS[:8])):
        recipe = Recipe(layers=2, dense=1, stack=2, shapes=True, marks=True, steps=2,
                        defects=frozenset(defects))  # fmt: skip
        path = folder / name
        truth = write_trace(path, recipe)
        made[name] = (path.read_bytes(), truth)
    return made


_ANYWHERE = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@_ANYWHERE
@given(place=st.floats(0, 1), which=st.sampled_from(["proper", "damaged"]), packed=st.booleans())
def test_a_cut_anywhere_loses_only_the_event_it_is_in(
    tmp_path: Path,
    small: _Small,
    place: float,
    which: str,
    packed: bool,
) -> None:
    data, truth = small[which]
    start = data.index(b'"traceEvents": [') + 16
    cut = start + round(place * (len(data) - start))
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(data[:cut], 1) if packed else data[:cut])
    health, recording = _read(path)
    whole = sum(end <= cut for end in truth.ends)
    # Of a damaged event at the very end nobody can tell whether it is whole.
    assert health.events in ({whole} if which == "proper" else {whole, whole - 1})
    assert recording.kernels <= truth.kernels
    closed = data.rindex(b"]")
    assert health.truncated == (cut <= closed)


@_ANYWHERE
@given(data=st.data())
def test_damage_anywhere_never_crashes(tmp_path: Path, small: _Small, data: st.DataObject) -> None:
    text, truth = small["proper"]
    changed = bytearray(text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        junk = data.draw(st.binary(min_size=0, max_size=5))
        changed[at : at + data.draw(st.integers(0, 6))] = junk
    path = tmp_path / "trace.json"
    path.write_bytes(bytes(changed))
    try:
        health, recording = _read(path)
    except TraceError:
        return
    assert health.events <= truth.events
    assert recording.kernels <= truth.kernels


# The kernel's own mark: ru_maxrss is inherited from the process that started this one.
_MEASURE = """
import gc, sys
gc.disable()
from pathlib import Path
from rewriter.probes.trace.diagnosis import diagnose
from rewriter.probes.trace.findings import Asked
diagnose(Path(sys.argv[1]), Asked())
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def _peak_mib(path: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_flat_in_the_size_of_the_file(tmp_path: Path) -> None:
    peaks = []
    for steps in (40, 160):
        path = tmp_path / f"{steps}.json.gz"
        write_trace(path, Recipe(steps=steps, layers=12, stack=6))
        peaks.append(_peak_mib(path))
    assert peaks[1] <= 160
    assert peaks[1] - peaks[0] <= 12


def test_reading_takes_a_part_of_orjsons_time(tmp_path: Path) -> None:
    """The figure that is promised, 0.35, is measured on 550 MB in benchmarks/diagnose.py."""
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(steps=60, layers=12, stack=8, shapes=True))
    ours, theirs = [], []
    for _ in range(2):
        began = time.process_time()
        _read(path)
        ours.append(time.process_time() - began)
        began = time.process_time()
        total = 0.0
        for event in orjson.loads(path.read_bytes())["traceEvents"]:
            if event.get("cat") == "kernel":
                total += event["dur"]
        theirs.append(time.process_time() - began)
    assert min(ours) < 0.6 * min(theirs)


def test_events_that_begin_with_an_unknown_field(tmp_path: Path) -> None:
    """No writer is known that does; without heads the file would be one window."""
    events = [
        {"order": n, "ph": "X", "cat": "kernel", "name": "k", "ts": 1.0 + n, "dur": 0.5,
         "args": {"stream": 7, "note": "x" * 200}}
        for n in range(20_000)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    health, recording = _read(path)
    assert health.whole
    assert (health.events, recording.gpu_us) == (20_000, 10_000.0)
    path.write_text(path.read_text().replace('"note": "x', '"note": "\\x', 50))
    health, recording = _read(path)
    assert (health.events, health.repaired) == (20_000, 50)
