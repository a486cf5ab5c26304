"""Each line of the companion that carries a rule, broken on purpose, turns a named check red.

The table below is the claim: which rule, what was broken, which check saw it. Run with ``-s`` to
print it. A mutation whose text is no longer in the companion fails its test: the table must follow
the code. Checks are named ``mode: …`` (a mode of ``verify``, on a release), ``companion: …``
(``test_companion``) and ``kernel: …`` (``test_companion_kernels``, in Triton's interpreter).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

import test_companion
import test_companion_kernels
from equivalence_sources import COMPANION, Releases, sources

from rewriter.probes.equivalence.attention import BatchMLAPagedAttentionWrapper
from rewriter.probes.equivalence.loading import load_companion
from rewriter.probes.equivalence.modes import SCENARIOS
from rewriter.probes.equivalence.paged_modes import PAGED_SCENARIOS
from rewriter.probes.equivalence.verifying import examine

OLD, NEW = "0.5.5.post3", "0.5.22"
"""Releases of two shapes: one capture method that plans once, and one entry that plans twice."""


@dataclass(frozen=True)
class Mutation:
    """One rule broken.

    Attributes:
        rule: the rule, in a few words.
        edits: (text, replacement) pairs; each text occurs exactly once in the companion.
        check: what must turn red.
        release: for a mode, the release that it is run on.
    """

    rule: str
    edits: tuple[tuple[str, str], ...]
    check: str
    release: str = NEW

    def companion(self) -> bytes:
        """Return the broken companion."""
        text = COMPANION.decode()
        for old, new in self.edits:
            assert text.count(old) == 1, f"{self.rule}: {text.count(old)} times in it: {old!r}"
            text = text.replace(old, new)
        return text.encode()


def _one(rule: str, old: str, new: str, check: str, release: str = NEW) -> Mutation:
    return Mutation(rule, ((old, new),), check, release)


COUNT = "    planned.count.copy_(kv_indptr[-1:])\n"
RESET = "    planned.mode, planned.rows = mode, None\n"
DECODE_GRAPHS = "mode: decode, CUDA graphs"
VERIFY_GRAPHS = "mode: target verify, CUDA graphs"
CROWDED = "mode: more rows listed than the pool has"

MUTATIONS = (
    # attach
    _one("packed rows are left alone", "buffers[0].shape[-1] == width and ", "",
         "mode: packed rows"),
    _one("a pool in the query's dtype is left alone", " and pool.dtype in _FORMATS", "",
         "mode: BF16 pool"),
    _one("a hybrid pool's MLA layers are found", 'getattr(pool, "full_kv_pool", pool)', "pool",
         "companion: hybrid pools"),
    _one("an unknown pool is left alone", "if buffers and ", "if ", "companion: unknown pools"),
    _one("the buffer has the pool's rows, padding too", "Pool(buffers[0].shape[0],",
         "Pool(buffers[0].shape[0] - 1,", DECODE_GRAPHS),
    _one("the buffer has the model's dtype", "width, pool.dtype, model_runner.dtype)",
         "width, pool.dtype, torch.float32)", DECODE_GRAPHS),
    # decide
    _one("off is the original", 'SWITCH == "off" or pool is None or else', "pool is None or else",
         "mode: SGLANG_KV_GATHER=off"),
    _one("indices of another buffer (DCP) are left alone", "other_buffer is not None or ", "",
         "mode: context parallel prefill"),
    _one("pages are left alone", " or page_size != 1", "", "mode: pages of several tokens",
         "0.5.1"),
    _one("graphs need Triton", "Mode.SCATTER if fused else Mode.UNTOUCHED", "Mode.SCATTER",
         "mode: decode, CUDA graphs, without Triton"),
    _one("the whole pool where no fewer rows are listed", "listed < pool.rows",
         "listed < 99 * pool.rows", CROWDED),
    _one("graphs scatter", 'bool(getattr(wrapper, "_use_cuda_graph", False))', "False",
         DECODE_GRAPHS),
    # plan
    _one("the decision is the wrapper's own", "wrapper._kv_gather = planned",
         "type(wrapper)._kv_gather = planned", "mode: two plans before two runs"),
    _one("a wrapper planned elsewhere is left alone", "wrapper._kv_gather = planned",
         "type(wrapper)._kv_gather = planned", "mode: wrapper planned elsewhere"),
    _one("the decision is taken anew at every plan", RESET, "", CROWDED),
    _one("the count is taken at every plan", COUNT,
         "    if planned.buffer is None:\n        planned.count.copy_(kv_indptr[-1:])\n",
         DECODE_GRAPHS, OLD),
    _one("the count cell never moves", COUNT, "    planned.count = kv_indptr[-1:].clone()\n",
         DECODE_GRAPHS),
    _one("the count is a copy, not a view", COUNT, "    planned.count = kv_indptr[-1:]\n",
         VERIFY_GRAPHS),
    _one("the count is a wrapper's own", "Planned(mode, kv_indptr.new_zeros(1))",
         'Planned(mode, _buffers.setdefault("count", kv_indptr.new_zeros(1)))',
         "mode: two plans before two runs"),
    _one("the count is the local tensor's, not the wrapper's copy", COUNT,
         "    own = wrapper._kv_indptr_buf\n"
         "    planned.count.copy_((kv_indptr if own is None else own)[-1:])\n", DECODE_GRAPHS),
    _one("the count is no call argument's length", COUNT,
         "    planned.count.fill_(kv_indices.shape[0])\n", DECODE_GRAPHS),
    Mutation("graphs read the wrapper's index buffer",
             ((RESET, RESET.replace("None", "kv_indices")),
              ("rows = wrapper._kv_indices_buf", "rows = planned.rows")), VERIFY_GRAPHS),
    _one("eager plans get sequential indices", "return torch.arange(kv_indices.shape[0], "
         "dtype=kv_indices.dtype, device=kv_indices.device)", "return kv_indices",
         "mode: decode, eager"),
    _one("sequential indices keep their dtype", "dtype=kv_indices.dtype, ", "",
         "mode: decode, eager"),
    _one("graphs keep their indices", "            planned.buffer = _pool_shaped(pool, "
         "kv_indices.device)\n        return kv_indices",
         "            planned.buffer = _pool_shaped(pool, kv_indices.device)", VERIFY_GRAPHS, OLD),
    # gather
    _one("another shape than the pool's is left alone", "shared.shape == pool.shape and ", "",
         "companion: other shape"),
    _one("another dtype than the model's is left alone", " and shared.dtype == dtype", "",
         "companion: other dtype"),
    _one("debug compares", 'if SWITCH == "debug":\n            _compare(',
         "if False:\n            _compare(", "companion: debug"),
    _one("one line in the log", "    _told = True\n", "", "companion: one line"),
    # convert, without Triton
    _one("no rows, no launch", "    if rows.shape[0] == 0:\n        return\n", "",
         "companion: empty"),
    _one("the tail is not read (host)", "rows = rows[: int(count)]", "rows = rows[:]",
         "mode: indices longer than in use"),
    _one("the tail is not read (device)", "rows = torch.where(places < count, rows, 0)",
         "rows = rows", "companion: tail on a device"),
    _one("at most the pool in graphs", "if scatter and rows.shape[0] >= pool.shape[0]:",
         "if False:", CROWDED + ", CUDA graphs"),
    _one("each row at its own place", "out[rows.long()] = part", "out[: rows.shape[0]] = part",
         DECODE_GRAPHS),
    # the shared buffer
    _one("one buffer for all graph wrappers", "if key not in _buffers:", "if True:",
         "companion: one buffer"),
    _one("a buffer for each size of pool", "key = (device, pool.rows, ", "key = (device, 0, ",
         "companion: one buffer"),
    _one("the buffer is zeroed", "_buffers[key] = torch.zeros(", "_buffers[key] = torch.empty(",
         "companion: one buffer"),
    # writer
    _one("off is the original (writes)", 'if SWITCH == "off" or pool is None or pool.dtype',
         "if pool is None or pool.dtype", "companion: writer"),
    _one("only e4m3fn pools are written", " or pool.dtype != torch.float8_e4m3fn", "",
         "companion: writer"),
    _one("keys that are one plane, or several heads, are not narrowed",
         "        and nope.shape[1] == 1\n", "", "companion: writer"),
    _one("keys that are not dense are not narrowed",
         "        and nope.stride(2) == rope.stride(2) == 1\n", "", "companion: writer"),
    _one("keys are narrowed inside graphs alone", "        and _capturing()", "        and True",
         "companion: writer"),
    _one("a plan with another mode ends the last one", "if planned.mode is Mode.SCATTER and shared",
         "if shared", "companion: replan"),
    # pages
    _one("off is the original (pages)", ' or SWITCH == "off":\n        return pool', ":\n"
         "        return pool", "companion: pages left alone"),
    _one("another kernel's table is not this one's", "if whole or pool.dtype == dtype",
         "if pool.dtype == dtype", "companion: pages left alone"),
    _one("FlashAttention 4 gets the pool", 'getattr(backend, "fa_impl_ver", 3) != 3 or ', "",
         "companion: pages left alone"),
    _one("a GPU without Triton gets the pool", " or not (_fused(pool) or _on_host(pool))", "",
         "companion: pages left alone"),
    *(
        _one(f"layouts for pages: {condition}", f"        and {condition}\n", "",
             "companion: pages left alone")
        for condition in (
            "dtype in (torch.bfloat16, torch.float16, torch.float32)", "pool.dim() == 3",
            "pool.shape[1] == 1", "pool.stride(2) == 1", "pool.shape[0] % size == 0",
            "table.dim() == 2", "lengths.dim() == 1", "table.shape[0] == lengths.shape[0]",
        )
    ),
    _one("pages keep nothing", "    out = torch.empty(pool.shape, dtype=dtype, device=pool.device)"
         "\n    if page_table", "    out = _buffers.setdefault(pool.shape, torch.empty(pool.shape, "
         "dtype=dtype))\n    if page_table", "companion: pages"),
    _one("pages of the model's dtype", "out = torch.empty(pool.shape, dtype=dtype, device",
         "out = torch.empty(pool.shape, dtype=torch.float32, device",
         "companion: pages of a short table"),
    _one("no pages, no launch", "if page_table.numel() > 0:", "if True:", "companion: pages empty"),
    _one("debug compares pages", 'if SWITCH == "debug":\n            _compare_pages',
         "if False:\n            _compare_pages", "companion: pages debug"),
    _one("debug compares outside of captures", "    if _capturing():\n        return\n", "",
         "companion: pages debug"),
    _one("one line in the log (pages)", '    if not _told:\n        _tell("pages", pool)',
         '    _tell("pages", pool)', "companion: pages in the log"),
    _one("models without latent attention", "    if rank is None or rope is None:\n"
         "        return", "    if False:\n        return",
         "companion: models without latent attention"),
    _one("a page begun is in use", "used = -(-lengths.clamp(min=0) // size)",
         "used = lengths.clamp(min=0) // size", "mode: decode, CUDA graphs, pages of 16"),
    _one("entries behind a length are none", "device=table.device) < used[:, None]",
         "device=table.device) <= used[:, None]", "mode: extend with prefixes, pages of 16"),
    _one("at most the pool (pages)", "if listed.shape[0] * size >= pool.shape[0]:", "if False:",
         "companion: pages whole"),
    _one("each page at its own place", "    out.view(-1, size, 1, pool.shape[2])[listed] = part",
         "    out.view(-1, size, 1, pool.shape[2])[: len(listed)] = part",
         "mode: target verify, pages of 16"),
    # the kernels
    _one("64-bit source addresses", "source = row.to(tl.int64) * pool_stride",
         "source = row * pool_stride", "kernel: addresses beyond two to the 31"),
    _one("64-bit target addresses", "target = row.to(tl.int64) * WIDTH", "target = row * WIDTH",
         "kernel: addresses beyond two to the 31"),
    _one("rows may be strided", "source = row.to(tl.int64) * pool_stride",
         "source = row.to(tl.int64) * WIDTH", "kernel: strides"),
    _one("at most the pool (kernel)", "whole = SCATTER and used >= pool_rows",
         "whole = SCATTER and used > 2 * pool_rows", "kernel: counts"),
    _one("compact never converts the pool in order", "whole = SCATTER and used >= pool_rows",
         "whole = used >= pool_rows - 1", "kernel: counts"),
    _one("the tail is not written (kernel)", "live = (chunk < total)[:, None]",
         "live = (chunk < limit * per_row)[:, None]", "kernel: tail"),
    _one("programs take turns", "            chunk = ahead\n", "            chunk += 1\n",
         "kernel: few programs"),
    _one("entries go along (list)", "            chunk = ahead\n            page = next_page\n",
         "            chunk = ahead\n", "kernel: few programs"),
    _one("rows of a page (list)", "row = page * PAGE + place % PAGE", "row = page * PAGE",
         "kernel: pages"),
    _one("an entry of a list of pages that is none is not followed", "            if TABLE:\n",
         "            if TABLE and False:\n", "kernel: pages that are none"),
    _one("a list is dense", "table.shape[0] == 1 and table.stride(1) == 1",
         "table.shape[0] == 1", "kernel: pages that are none"),
    _one("each row at its own place (kernel)", "            if SCATTER:\n                target",
         "            if not SCATTER:\n                target", "kernel: counts"),
    _one("a page begun is in use (kernel)", "(tl.maximum(length, 0) + PAGE - 1) // PAGE",
         "tl.maximum(length, 0) // PAGE", "kernel: pages behind"),
    _one("no columns behind the table", "// PAGE, columns).to", "// PAGE, 99).to",
         "kernel: pages behind"),
    _one("at most the pool (kernel for pages)", "    whole = rows >= pool_rows",
         "    whole = rows > 8 * pool_rows", "kernel: pages whole"),
    _one("rows are summed in 64 bits", "rows = tl.sum(used.to(tl.int64))", "rows = tl.sum(used)",
         "kernel: pages of more than two to the 32"),
    _one("64-bit page addresses", "_page_in_pool(page, pool_rows // PAGE).to(tl.int64)",
         "_page_in_pool(page, pool_rows // PAGE)", "kernel: page addresses beyond two to the 31"),
    _one("pages may be strided", "source = row * pool_stride + column",
         "source = row * WIDTH + column", "kernel: pages of formats and widths"),
    _one("an entry that is no page is not followed", "(page >= 0) & (page < pages)",
         "page <= pages", "kernel: pages that are none"),
    _one("rows of a page", ".to(tl.int64) * PAGE + place % PAGE", ".to(tl.int64) * PAGE",
         "kernel: pages behind"),
    _one("programs share all rows", "position = tl.program_id(0) * share",
         "position = tl.program_id(0) * (share + GRAIN)", "kernel: pages of formats and widths"),
    _one("one request ends where the next begins", "                first = last\n",
         "                first = last + 1\n", "kernel: pages behind"),
    _one("each request by its own row of the table", "                entries = table + at",
         "                entries = table + 0 * at", "kernel: pages behind"),
    _one("entries go along", "                page = next_page\n", "", "kernel: pages"),
    _one("a share ends", "                live = (chunk < limit)[:, None]\n",
         "                live = (chunk >= 0)[:, None]\n", "kernel: pages behind"),
    _one("NaN of e4m3fn", "(bits & 0x7F) == 0x7F, float", "(bits & 0xFF) == 0x7F, float",
         "kernel: every byte"),
    _one("NaN of e4m3fnuz", "tl.where(bits == 0x80, float", "tl.where(bits == 0x7F, float",
         "kernel: every byte"),
    _one("bias of e4m3fn", "value = value * 256.0", "value = value * 128.0", "kernel: every byte"),
    _one("bias of e4m3fnuz", "value = value * 128.0", "value = value * 256.0",
         "kernel: every byte"),
    _one("sign", "(bits & 0x80) << 8", "(bits & 0x00) << 8", "kernel: every byte"),
    _one("narrowing rounds to even", " + ((size >> 20) & 1)) >> 20", ") >> 20",
         "kernel: narrowing"),
    _one("narrowing has a largest value", "TOO_LARGE, code)", "code, TOO_LARGE)",
         "kernel: narrowing"),
    _one("narrowing keeps NaN", "size > 0x7F800000, 0x7F", "size > 0x7F800000, 0x7E",
         "kernel: narrowing"),
    _one("narrowing has subnormals", "size < 0x3C800000", "size < 0x3C000000",
         "kernel: narrowing"),
)  # fmt: skip


def by_mode(broken: Mutation, release: Releases) -> str:
    """Run a mode of ``verify`` with a broken companion; return what it says is wrong."""
    name = broken.check.removeprefix("mode: ")
    every = [*SCENARIOS, *PAGED_SCENARIOS]
    scenario = next(scenario for scenario in every if scenario.name == name)
    codemod = "fa3_kv_gather" if scenario in PAGED_SCENARIOS else "mla_kv_gather"
    both = sources(release, broken.release, codemod)
    row = examine(scenario, both.original, both.patched, broken.companion())
    assert row.state in ("equal", "untouched", "differs"), row
    return row.detail if row.state == "differs" else ""


def by_itself(broken: Mutation) -> str:
    """Run a check of ``test_companion`` on a broken companion; return how it fails."""
    source = broken.companion()
    check = test_companion.CHECKS[broken.check.removeprefix("companion: ")]
    try:
        check(lambda **options: load_companion(source, **options))
    except (Exception, pytest.fail.Exception) as error:
        return type(error).__name__
    return ""


def in_the_interpreter(wanted: list[int]) -> None:
    """Run kernel checks on broken companions; print a line each, before and after."""
    for at in wanted:
        broken = MUTATIONS[at]
        print(f"{at} crashed", flush=True)
        check = test_companion_kernels.CHECKS[broken.check.removeprefix("kernel: ")]
        try:
            check(test_companion_kernels.load(broken.companion()))
        except Exception as error:
            print(f"{at} {type(error).__name__}", flush=True)
        else:
            print(f"{at} ", flush=True)


@pytest.fixture(scope="module")
def kernels_said() -> dict[int, str]:
    """Run all kernel mutations in processes of their own: a wild address ends one of them."""
    left = [at for at, broken in enumerate(MUTATIONS) if broken.check.startswith("kernel: ")]
    said: dict[int, str] = {}
    here = Path(__file__)
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([str(here.parent.parent), str(here.parent)]),
        "PYTHONWARNINGS": "ignore",
    }
    while left:
        done = subprocess.run(
            [sys.executable, str(here), *map(str, left)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            at, _, outcome = line.partition(" ")
            said[int(at)] = outcome
        assert left[0] in said, done.stderr
        left = [at for at in left if at not in said]
    return said


@pytest.fixture(scope="module")
def report() -> Iterator[list[tuple[str, str, str]]]:
    """Collect rows of the table and print it at the end."""
    rows: list[tuple[str, str, str]] = []
    yield rows
    print("\n\nrule broken in the companion | check that turned red | how")
    for row in sorted(rows, key=lambda row: row[1]):
        print(f"{row[0]:<56} | {row[1]:<58} | {row[2]}")


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(
            at,
            id=f"{broken.rule} - {broken.check}",
            marks=[pytest.mark.wheels] if broken.check.startswith("mode: ") else [],
        )
        for at, broken in enumerate(MUTATIONS)
    ],
)
def test_a_broken_rule_is_seen(
    at: int, request: pytest.FixtureRequest, report: list[tuple[str, str, str]]
) -> None:
    broken = MUTATIONS[at]
    broken.companion()
    kind = broken.check.partition(":")[0]
    if kind == "kernel":
        if find_spec("triton") is None:
            pytest.skip("Triton is not installed: its kernels are not run here")
        how = request.getfixturevalue("kernels_said")[at]
    elif kind == "mode":
        try:
            how = by_mode(broken, request.getfixturevalue("release"))
        finally:  # one mutation leaves its decision on the class
            if "_kv_gather" in vars(BatchMLAPagedAttentionWrapper):
                del BatchMLAPagedAttentionWrapper._kv_gather
    else:
        how = by_itself(broken)
    assert how, f"{broken.rule}: {broken.check} did not notice"
    report.append((broken.rule, broken.check, how))


def test_every_check_has_a_mutation() -> None:
    """What no mutation turns red proves nothing; the exceptions are tables of decisions."""
    used = {broken.check for broken in MUTATIONS}
    for kind, checks in (
        ("companion", test_companion.CHECKS),
        ("kernel", test_companion_kernels.CHECKS),
    ):
        unused = {name for name in checks if f"{kind}: {name}" not in used}
        assert unused <= {"compact", "decisions", "replan", "scatter", "scatter whole", "switch",
                          "widths", "wrappers"}  # fmt: skip


if __name__ == "__main__":
    in_the_interpreter([int(at) for at in sys.argv[1:]])
