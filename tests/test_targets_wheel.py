"""Wheels by path: what is read is what RECORD describes, and everything else is refused."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import Snapshot
from fake_sglang import FILES, installed_files, metadata, record

from rewriter.errors import TargetError, ToolBug
from rewriter.targets import resolve
from rewriter.targets.record import parse_record
from rewriter.targets.wheel import DamagedWheel, WheelFile

Make = Callable[..., Path]


def test_reads_a_wheel(fake_wheel: Make) -> None:
    path = fake_wheel()
    target = resolve(wheel=path)
    assert (target.kind, target.version, target.writable) == ("wheel", "0.5.2", False)
    assert (target.location, target.diff_prefix) == (str(path), "")
    files = {name: target.read(name) for name in target.files()}
    assert files == FILES
    assert list(files) == sorted(files)
    assert list(target.files("sglang/srt/layers")) == ["sglang/srt/layers/norm.py"]
    assert target.read("sglang/none.py") is None
    assert target.read("sglang/srt") is None
    with pytest.raises(ToolBug):
        target.read("sglang-0.5.2.dist-info/METADATA")


def test_entries_for_folders(fake_wheel: Make) -> None:
    target = WheelFile(fake_wheel({"sglang/": b"", "sglang/srt/": b"", **installed_files()}))
    assert list(target.files()) == sorted(FILES)
    assert target.read("sglang/srt") is None


def test_name_and_version_come_from_metadata_not_from_the_file_name(
    fake_wheel: Make, tmp_path: Path
) -> None:
    renamed = fake_wheel().rename(tmp_path / "renamed ö.whl")
    assert WheelFile(renamed).version == "0.5.2"


def test_reading_writes_nothing(
    fake_wheel: Make, tmp_path: Path, snapshot: Callable[[Path], Snapshot]
) -> None:
    path = fake_wheel()
    before = snapshot(tmp_path)
    target = WheelFile(path)
    assert target.version
    assert [target.read(name) for name in target.files()]
    target.close()
    assert snapshot(tmp_path) == before


def refused(path: Path, read: str | None = None) -> str:
    """Return the message of the TargetError on opening a wheel, or on reading from it."""
    if read is None:
        with pytest.raises(TargetError) as caught:
            WheelFile(path)
    else:
        target = WheelFile(path)
        with pytest.raises(TargetError) as caught:
            target.read(read)
    return str(caught.value)


def test_not_a_wheel(tmp_path: Path, fake_wheel: Make) -> None:
    assert (
        refused(tmp_path / "none.whl")
        == f"{tmp_path}/none.whl: cannot be read: No such file or directory"
    )
    assert "cannot be read: Is a directory" in refused(tmp_path)
    text = tmp_path / "text.whl"
    text.write_text("no zip")
    assert "expected a wheel (a zip file)" in refused(text)
    assert "found a source distribution" in refused(tmp_path / "sglang-0.5.2.tar.gz")
    plain = fake_wheel(FILES)
    assert "expected a wheel with one .dist-info (METADATA and RECORD), found 0" in refused(plain)
    two = fake_wheel({**installed_files("0.5.1"), **installed_files("0.5.2")})
    assert "found 2" in refused(two)


def test_other_project(fake_wheel: Make) -> None:
    other = fake_wheel(installed_files("2.0", {"other/__init__.py": b""}, name="other"))
    assert "expected a wheel of sglang, found one of other" in refused(other)
    empty = fake_wheel(installed_files(files={"other/__init__.py": b""}))
    assert "expected sglang/__init__.py in it, found none" in refused(empty)


def test_truncated(fake_wheel: Make) -> None:
    path = fake_wheel()
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DamagedWheel, match="expected a wheel"):
        WheelFile(path)


def flip(path: Path, name: str) -> None:
    """Change one byte in the middle of an entry's packed data."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(name) + info.compress_size // 2] ^= 0xFF
    path.write_bytes(data)


def test_flipped_byte(fake_wheel: Make) -> None:
    path = fake_wheel()
    flip(path, "sglang/srt/layers/norm.py")
    target = WheelFile(path)
    with pytest.raises(DamagedWheel, match=r"norm\.py is damaged: "):
        target.read("sglang/srt/layers/norm.py")
    assert target.read("sglang/version.py") == FILES["sglang/version.py"]


def with_record(rows: bytes) -> dict[str, bytes]:
    """Return the files of a wheel with another RECORD."""
    return {**installed_files(), "sglang-0.5.2.dist-info/RECORD": rows}


def test_record_does_not_agree(fake_wheel: Make) -> None:
    changed: Mapping[str, bytes] = {**installed_files(), "sglang/version.py": b"changed"}
    message = refused(fake_wheel(changed), "sglang/version.py")
    assert "sglang/version.py is not what RECORD describes: its hash differs" in message
    added = {**installed_files(), "sglang/added.py": b"x = 1\n"}
    assert "it does not list the file" in refused(fake_wheel(added), "sglang/added.py")
    unhashed = with_record(b"sglang/version.py,,\n")
    assert "its hash differs" in refused(fake_wheel(unhashed), "sglang/version.py")
    weak = with_record(b"sglang/version.py,md5=abc,22\n")
    assert "its hash differs" in refused(fake_wheel(weak), "sglang/version.py")
    broken = with_record(b"one,two\n")
    message = refused(fake_wheel(broken), "sglang/version.py")
    assert "RECORD cannot be parsed: RECORD line 1: expected path,hash,size" in message
    binary = with_record(b"\xff\xfe")
    assert "RECORD cannot be parsed: " in refused(fake_wheel(binary), "sglang/version.py")


@pytest.mark.parametrize("name", ["../evil.py", "sglang/../../evil.py", "/evil.py", "a\\..\\b.py"])
def test_entry_that_leaves_the_wheel(name: str, fake_wheel: Make) -> None:
    path = fake_wheel({**installed_files(), name: b""})
    assert refused(path) == f"{path}: entry {name!r} leaves the wheel; refused"


def test_entry_that_is_a_link(fake_wheel: Make) -> None:
    path = fake_wheel()
    info = zipfile.ZipInfo("sglang/link.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    assert refused(path) == f"{path}: entry 'sglang/link.py' is a link; refused"


def test_entry_that_is_too_large(fake_wheel: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.targets.wheel.LIMIT", 1000)
    big = {**FILES, "sglang/big.py": b"#" * 1001}
    message = refused(fake_wheel(installed_files(files=big)), "sglang/big.py")
    assert message.endswith("sglang/big.py claims 1001 bytes; more than 1000 are not read")


def test_encrypted_entry(fake_wheel: Make) -> None:
    path = fake_wheel()
    data = bytearray(path.read_bytes())
    central = data.rindex(b"PK\x01\x02", 0, data.rindex(b"sglang/version.py"))
    local = data.rindex(b"PK\x03\x04", 0, data.index(b"sglang/version.py"))
    data[central + 8] |= 1
    data[local + 6] |= 1
    path.write_bytes(data)
    assert "cannot be unpacked: " in refused(path, "sglang/version.py")


def test_record_with_quoted_paths_and_empty_lines() -> None:
    rows = parse_record(b'"a, b.py",sha256=x,3\r\n\r\nc.py,,\r\n')
    assert (rows["a, b.py"].hash, rows["a, b.py"].size) == ("sha256=x", 3)
    assert (rows["c.py"].hash, rows["c.py"].size) == ("", None)


def test_placeholder_version_is_none(fake_wheel: Make) -> None:
    own = "sglang-0.0.0.dist-info/RECORD"
    files = {**FILES, "sglang-0.0.0.dist-info/METADATA": metadata("0.0.0.dev0")}
    assert WheelFile(fake_wheel({**files, own: record(files, own)})).version is None
