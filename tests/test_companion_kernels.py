"""The Triton kernels, in Triton's interpreter on the CPU.

The interpreter is chosen by an environment variable before Triton is imported, so these tests run
in a process of their own: the one test that a plain run sees starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from test_companion import (  # noqa: E402
    COMPANION,
    NO_PAGE,
    WIDTH,
    backend,
    ints,
    table_of,
    wrapper,
)

from rewriter.probes.equivalence.loading import load_companion  # noqa: E402
from rewriter.probes.equivalence.tensors import same_bits  # noqa: E402

INSIDE = os.environ.get("TRITON_INTERPRET") == "1"
SOURCES = os.environ.get("REWRITER_TEST_SOURCES", "")
"""Directory with ``original.py`` and ``patched.py`` of one release, for the modes."""

FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz]
MODELS = [torch.bfloat16, torch.float16]


def _pytest(*arguments: str, **environment: str) -> str:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed: its kernels are not run here")
    done = subprocess.run(
        # numpy warns of NaN on the way; the interpreter computes both arms of a choice.
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore::RuntimeWarning",
         "-p", "no:cacheprovider", "-p", "no:randomly", __file__, *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1", **environment},
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def load(source: bytes = COMPANION) -> ModuleType:
    """Load the companion with its kernels, which take tensors of the host here."""
    module = load_companion(source, triton=True)
    assert module.triton is not None
    module._fused = lambda tensor: True
    return module


def convert(
    module: ModuleType, pool: torch.Tensor, rows: torch.Tensor, count: int, model: torch.dtype,
    scatter: bool,
) -> torch.Tensor:  # fmt: skip
    """Run the kernel into memory full of sevens."""
    places = pool.shape[0] if scatter else rows.shape[0]
    out = torch.full((places, *pool.shape[1:]), 7.0, dtype=model)
    module.convert(pool, rows, ints(count), out, scatter=scatter)
    return out


def expected(
    pool: torch.Tensor, rows: torch.Tensor, count: int, model: torch.dtype, scatter: bool
) -> torch.Tensor:
    """Do the same with torch."""
    whole = pool.to(model)
    if scatter and count >= pool.shape[0]:
        return whole
    used = rows[:count].long()
    places = pool.shape[0] if scatter else rows.shape[0]
    out = torch.full((places, *pool.shape[1:]), 7.0, dtype=model)
    if scatter:
        out[used] = whole[used]
    else:
        out[:count] = whole[used]
    return out


def every_byte(dtype: torch.dtype, rows: int, width: int) -> torch.Tensor:
    """Return a pool with all 256 bytes in it."""
    assert rows * width >= 256
    return torch.arange(rows * width).to(torch.uint8).view(rows, 1, width).view(dtype)


def check_every_byte(module: ModuleType) -> None:
    """All 256 bytes of each format, into each dtype of a model."""
    for dtype in FORMATS:
        pool = every_byte(dtype, 16, 16)
        rows = torch.arange(15, -1, -1, dtype=torch.int32)
        for model in MODELS:
            for scatter in (False, True):
                for count in (15, 16):
                    got = convert(module, pool, rows, count, model, scatter)
                    assert same_bits(got, expected(pool, rows, count, model, scatter))


def check_counts(module: ModuleType) -> None:
    """Counts below, at and above tile, list and pool; rows behind the count are not touched.

    Compact lists are shorter than the pool, or the pool would be converted as a whole.
    """
    pool = every_byte(torch.float8_e4m3fn, 13, 24)
    rows = ints(5, 5, 12, 0, 3, 7, 7, 1, 2, 11, 4, 9, 10, 6, 8, 12, 0, 3)
    for scatter, listed in ((False, rows[:12]), (True, rows), (True, rows[:5])):
        for count in (0, 1, 4, 5, 7, 8, 9, 12, 13, 18):
            if count <= len(listed):
                got = convert(module, pool, listed, count, torch.bfloat16, scatter)
                assert same_bits(got, expected(pool, listed, count, torch.bfloat16, scatter)), count


def check_tail(module: ModuleType) -> None:
    """What stands behind the count is no index and is not read."""
    pool = every_byte(torch.float8_e5m2, 13, 24)
    rows = ints(3, 9, *[2**31 - 1] * 14)
    for scatter in (False, True):
        got = convert(module, pool, rows, 2, torch.float16, scatter)
        assert same_bits(got, expected(pool, rows, 2, torch.float16, scatter))


def check_widths(module: ModuleType) -> None:
    """512 + 64, powers of two, and widths that are neither."""
    for width in (576, 512, 40, 17, 24, 16):
        pool = every_byte(torch.float8_e4m3fn, 20, width)
        rows = ints(19, 0, 7)
        for scatter in (False, True):
            got = convert(module, pool, rows, 3, torch.bfloat16, scatter)
            assert same_bits(got, expected(pool, rows, 3, torch.bfloat16, scatter)), width


def check_strides(module: ModuleType) -> None:
    """A layer whose rows lie between those of other layers."""
    layers = torch.arange(13 * 3 * 24).to(torch.uint8).view(13, 3, 1, 24)
    rows = ints(12, 0, 7, 7)
    for layer in range(3):
        pool = layers[:, layer].view(torch.float8_e4m3fn)
        for scatter in (False, True):
            got = convert(module, pool, rows, 4, torch.bfloat16, scatter)
            assert same_bits(got, expected(pool, rows, 4, torch.bfloat16, scatter))


def check_few_programs(module: ModuleType) -> None:
    """One program converts what is several times its size."""
    module._PROGRAMS_PER_SM = 1
    pool = every_byte(torch.float8_e4m3fn, 700, 16)
    rows = torch.arange(699, -1, -1, dtype=torch.int32)
    for scatter in (False, True):
        for count in (600, 699):
            got = convert(module, pool, rows, count, torch.bfloat16, scatter)
            assert same_bits(got, expected(pool, rows, count, torch.bfloat16, scatter)), count


def check_narrowing(module: ModuleType) -> None:
    """All 65,536 values of each dtype of a model become the FP8 ones that torch makes of them."""
    if not hasattr(module, "narrow"):
        return
    for model in MODELS:
        keys = torch.arange(2**16).to(torch.int16).view(model).view(64, 1, 1024)
        nope, rope = module.narrow(keys[..., :1000], keys[..., 1000:])
        got = torch.cat([nope.view(torch.uint8), rope.view(torch.uint8)], -1)
        assert same_bits(
            got.view(torch.float8_e4m3fn).float(), keys.to(torch.float8_e4m3fn).float()
        )


def check_addresses_beyond_two_to_the_31(module: ModuleType) -> None:
    """Source and target rows beyond 2 ** 31 elements, in files without content."""
    width, rows = 576, 2**31 // 576 + 3
    with tempfile.TemporaryDirectory() as directory:

        def sparse(name: str, dtype: torch.dtype) -> torch.Tensor:
            path, size = str(Path(directory, name)), rows * width
            whole = torch.from_file(path, shared=True, size=size, dtype=dtype)
            return whole.view(rows, 1, width)

        pool = sparse("pool", torch.uint8)
        last = rows - 1
        pool[last, 0] = torch.arange(width).to(torch.uint8) % 120
        keys = pool.view(torch.float8_e4m3fn)
        compact = torch.zeros(2, 1, width, dtype=torch.bfloat16)
        module.convert(keys, ints(last, 0), ints(2), compact, scatter=False)
        want = keys[last:].to(torch.bfloat16)
        assert same_bits(compact[:1], want)
        spread = sparse("out", torch.bfloat16)
        module.convert(keys, ints(last, 0), ints(2), spread, scatter=True)
        assert same_bits(spread[last:], want)
        assert not spread[:10].count_nonzero()


def pages_agree(
    module: ModuleType, pool: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, size: int
) -> bool:
    """Return whether the kernel for pages does what torch does, into memory full of sevens."""
    outs = [torch.full(pool.shape, 7.0, dtype=torch.bfloat16) for _ in range(2)]
    module._convert_pages_fused(pool, table, lengths, outs[0], size)
    module._convert_pages_torch(pool, table, lengths, outs[1], size)
    return same_bits(*outs)


def random_table(lengths: tuple[int, ...], pages: int, size: int) -> torch.Tensor:
    """Return random pages for requests of these lengths, with no pages behind them."""
    drawn = torch.Generator().manual_seed(len(lengths) + size)
    used = [-(-length // size) for length in lengths]
    rows = [torch.randint(pages, (count,), generator=drawn).tolist() for count in used]
    return table_of(*(tuple(row) for row in rows))


MIXTURES = {
    "one": (130,), "one, empty": (0,), "one of one": (1,), "three": (257, 0, 5),
    "none but the last": (0, 0, 0, 700), "seven": (64, 128, 16, 1, 0, 5, 999),
    "sixty-four": tuple((37 * i * i) % 23 for i in range(64)),
}  # fmt: skip


def check_pages(module: ModuleType) -> None:
    """Every page size and mixture of lengths, on one program and on several."""
    for size in (1, 16, 64, 128):
        pool = every_byte(torch.float8_e4m3fn, 2048, 24)
        for lengths in MIXTURES.values():
            table = random_table(lengths, len(pool) // size, size)
            for programs in (1, 3, 8) if size == 16 else (3,):
                module._PROGRAMS_PER_SM = programs
                assert pages_agree(module, pool, table, ints(*lengths), size), (size, lengths)


def check_pages_of_formats_and_widths(module: ModuleType) -> None:
    """All formats; 512 + 64 elements, and widths that are no power of two; strided layers."""
    table = random_table((20, 3), 5, 16)
    for dtype in FORMATS:
        for width in (576, 40, 17):
            layers = torch.arange(80 * 2 * width).to(torch.uint8).view(80, 2, 1, width)
            for pool in (layers[:, 1].view(dtype), every_byte(dtype, 80, width)):
                assert pages_agree(module, pool, table, ints(20, 3), 16), (dtype, width)


def check_pages_behind(module: ModuleType) -> None:
    """Entries behind a length are not read, columns that are not there neither."""
    pool = every_byte(torch.float8_e4m3fn, 64, 24)
    table = table_of((5,), (9, 2), columns=2)
    assert pages_agree(module, pool, table, ints(4, 5), 4)
    assert pages_agree(module, pool, table_of((5,), (9,), columns=1), ints(99, 4), 4)
    assert pages_agree(module, pool, table_of((5,), columns=1), ints(99), 4)


def check_pages_whole(module: ModuleType) -> None:
    """As many rows as the pool, or more: the pool once, in order."""
    pool = every_byte(torch.float8_e4m3fn, 64, 24)
    for lengths in ((64,), (999,), (32, 32), (60, 60, 1), (40, 24, 0)):
        table = random_table(tuple(min(n, 64) for n in lengths), 16, 4)
        table = torch.where(table == NO_PAGE, 0, table)
        assert pages_agree(module, pool, table, ints(*lengths), 4), lengths


def check_pages_that_are_none(module: ModuleType) -> None:
    """An entry in use that is no page is not followed: page 0 is converted in its place.

    Pool and target lie between others' rows, so that a kernel that follows one is seen.
    """
    pool = every_byte(torch.float8_e4m3fn, 3 * 64, 24)[64:128]
    strided = table_of((5, 99, -1, 99, 16, 99, 1))[:, ::2]
    for table, lengths in (
        (table_of((5, -1), (16, 1)), ints(8, 5)),
        (table_of((5, -1, 16, 1)), ints(13)),
        (strided, ints(13)),
    ):
        out = torch.full((3 * 64, 1, 24), 7.0, dtype=torch.bfloat16)
        expected = out.clone()
        module._convert_pages_fused(pool, table, lengths, out[64:128], 4)
        for page in (0, 1, 5):
            rows = slice(4 * page, 4 * page + 4)
            expected[64:128][rows] = pool[rows].to(torch.bfloat16)
        assert same_bits(out, expected)


def check_pages_of_more_than_two_to_the_32(module: ModuleType) -> None:
    """Requests that share pages list 2 ** 32 rows in all: more than the pool has."""
    pool = every_byte(torch.float8_e4m3fn, 64, 24)
    table = torch.zeros(1, 1, dtype=torch.int32).expand(4096, 2**20)
    lengths = torch.full((4096,), 2**20, dtype=torch.int32)
    out = torch.full(pool.shape, 7.0, dtype=torch.bfloat16)
    module._convert_pages_fused(pool, table, lengths, out, 1)
    assert same_bits(out, pool.to(torch.bfloat16))


def check_page_addresses_beyond_two_to_the_31(module: ModuleType) -> None:
    """Source and target pages beyond 2 ** 31 elements, in files without content."""
    width, size = 576, 64
    rows = -(-(2**31 // width + 3) // size) * size
    with tempfile.TemporaryDirectory() as directory:

        def sparse(name: str, dtype: torch.dtype) -> torch.Tensor:
            path = str(Path(directory, name))
            whole = torch.from_file(path, shared=True, size=rows * width, dtype=dtype)
            return whole.view(rows, 1, width)

        pool = sparse("pool", torch.uint8)
        pool[-size:, 0] = torch.arange(width).to(torch.uint8) % 120
        keys, last = pool.view(torch.float8_e4m3fn), rows // size - 1
        for table, lengths in (
            (table_of((last,), (last,)), ints(3, 5)),
            (table_of((last,)), ints(3)),
        ):
            out = sparse(f"out of {len(lengths)}", torch.bfloat16)
            module._convert_pages_fused(keys, table, lengths, out, size)
            assert same_bits(out[-size:], keys[-size:].to(torch.bfloat16))
            assert not out[:10].count_nonzero()


def check_wrappers(module: ModuleType) -> None:
    """Through ``plan`` and ``gather``, eager and for graphs."""
    made, keys = backend(module)
    whole = keys.to(torch.bfloat16)
    chosen = wrapper()
    module.plan(chosen, ints(7, 3, 3), ints(0, 2, 3), made)
    assert same_bits(module.gather(chosen, keys, torch.bfloat16), whole[[7, 3, 3]])
    bound = torch.zeros(20, dtype=torch.int32)
    chosen = wrapper(bound)
    bound[:2] = ints(9, 4)
    module.plan(chosen, bound, ints(0, 2), made)
    got = module.gather(chosen, keys, torch.bfloat16)
    assert same_bits(got[[9, 4]], whole[[9, 4]])
    assert got.shape == (*whole.shape[:2], WIDTH)


CHECKS = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


if INSIDE and not SOURCES:

    @pytest.mark.parametrize("name", CHECKS)
    def test_kernel(name: str) -> None:
        CHECKS[name](load())


if INSIDE and SOURCES:

    @pytest.mark.parametrize(
        "mode",
        [
            "decode, eager",
            "decode, CUDA graphs",
            "more rows listed than the pool has, CUDA graphs",
            "target verify, CUDA graphs",
        ],
    )
    def test_modes_inside(mode: str) -> None:
        from rewriter.probes.equivalence.modes import SCENARIOS
        from rewriter.probes.equivalence.verifying import compare, play

        original, patched = (
            Path(SOURCES, name).read_bytes() for name in ("original.py", "patched.py")
        )
        scenario = next(s for s in SCENARIOS if s.name == mode)
        row = compare(
            scenario,
            play(scenario, original, None),
            play(scenario, patched, COMPANION, triton=True),
        )
        assert row.state == "equal", row


if not INSIDE:

    def test_kernels_in_the_interpreter() -> None:
        told = _pytest()
        assert told.startswith("exit 0\n"), told
        assert f"{len(CHECKS)} passed" in told

    @pytest.mark.wheels
    def test_modes_with_the_kernels(release, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        from equivalence_sources import sources, versions

        both = sources(release, versions()[-1])
        (tmp_path / "original.py").write_bytes(both.original)
        (tmp_path / "patched.py").write_bytes(both.patched)
        told = _pytest(REWRITER_TEST_SOURCES=str(tmp_path))
        assert told.startswith("exit 0\n"), told
        assert "4 passed" in told
