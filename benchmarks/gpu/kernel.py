"""The companion's kernels on this GPU: right bit for bit, and timed against copy bandwidth.

    python benchmarks/gpu/kernel.py [--mla] [--only pages] [--tune]

Kernel time from the profiler, the median. Rows are random (the worst case) or neighbours; before
each run the L2 cache is filled by a read (``clean``) or by a write, whose dirty lines the timed
kernel then has to make room for (``dirty``, as triton.testing does). A row of 576 counts 576 bytes
read and 1,152 written. ``--mla`` also times FlashInfer's MLA over rows in place and over rows
moved together, the two forms that a CUDA graph could use, and its native FP8 MLA where it has one.

The pages kernel gets random pages in a slice of a wider table, garbage behind every length.
``--tune`` times it over launch shapes, with and without programmatic dependent launches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import product
from statistics import median
from types import SimpleNamespace

import torch

from codemods.runtime import kv_gather

POOL, WIDTH = 495_553, 576
SIZES = (512, 8_192, 65_536, 262_144)
PAGED_POOL = 495_616  # whole pages of 64
MIXED = tuple(1 + (37 * i * i * i) % 9_973 for i in range(64))
BATCHES = {
    "1 x 512": (512,), "1 x 8192": (8_192,), "1 x 65536": (65_536,), "8 x 8192": (8_192,) * 8,
    "1 x 262144": (262_144,), "64 mixed": MIXED,
}  # fmt: skip


def kernel_us(
    run: Callable[[], object], name: str, *, clean: bool = True, times: int = 15
) -> float:
    """Return the median GPU time in us of the kernels whose name holds ``name``."""
    flush = torch.ones(64 * 2**20, dtype=torch.float32, device="cuda")  # summed without a cast

    def once() -> None:
        if clean:
            flush.sum()
        else:
            flush.zero_()
        run()

    for _ in range(4):
        once()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiled:
        for _ in range(times):
            once()
        torch.cuda.synchronize()
    events = profiled.profiler.kineto_results.events()
    cuda = torch.profiler.DeviceType.CUDA
    found = [e.duration_ns() for e in events if e.device_type() == cuda and name in e.name()]
    return median(found) / 1e3


def copy_gb_s() -> float:
    """Return the bandwidth of a copy of 2 GiB, bytes read and written."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_(0, 255)
    target = torch.empty_like(source)
    times: list[float] = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * source.numel() / median(times) / 1e6


def narrowing() -> None:
    """Check every 16-bit float against torch's own conversion on this GPU."""
    codes = torch.arange(65536, dtype=torch.int32, device="cuda").to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        keys = codes.view(dtype).view(-1, 1, 512)
        parts = (keys, keys[:, :, :64])
        kv_gather._past_range(keys.device)
        same = [
            torch.equal(made.view(torch.uint8), part.to(torch.float8_e4m3fn).view(torch.uint8))
            for made, part in zip(kv_gather.narrow(*parts), parts, strict=True)
        ]
        print(f"narrow {dtype}: all 65,536 values as torch gives them: {all(same)}")


def converting(bandwidth: float) -> None:
    """Check and time both forms over row counts."""
    pool = torch.empty(POOL, 1, WIDTH, dtype=torch.float8_e4m3fn, device="cuda")
    for part in pool.split(65_536):
        part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.bfloat16))
    whole = pool.to(torch.bfloat16)
    shared = torch.zeros_like(whole)
    cast = kernel_us(lambda: pool.to(torch.bfloat16), "direct_copy_kernel", times=6)
    print(f"torch's cast of the whole pool: {cast:.0f} us")
    print(f"{'rows':>8} {'form':<8} {'rows are':<10} {'L2':<6} {'us':>8} {'of copy':>8}  right")
    for size in SIZES:
        scattered = torch.randperm(POOL - 1, device="cuda")[:size].to(torch.int32)
        run = torch.arange(1000, 1000 + size, dtype=torch.int32, device="cuda")
        count = torch.tensor([size], dtype=torch.int32, device="cuda")
        dense = torch.zeros(size, 1, WIDTH, dtype=torch.bfloat16, device="cuda")
        for scatter, kind, rows in (
            (False, "random", scattered), (True, "random", scattered), (True, "neighbours", run),
        ):  # fmt: skip
            out = shared if scatter else dense

            def once(rows=rows, out=out, scatter=scatter, count=count) -> None:  # type: ignore[no-untyped-def]
                kv_gather.convert(pool, rows, count, out, scatter)

            once()
            got = out[rows.long()] if scatter else out
            right = torch.equal(got, whole[rows.long()])
            for clean in (True, False):
                us = kernel_us(once, "_convert_kernel", clean=clean)
                share = 3 * WIDTH * size / us / 1e3 / bandwidth
                form = "scatter" if scatter else "compact"
                cache = "clean" if clean else "dirty"
                print(
                    f"{size:>8} {form:<8} {kind:<10} {cache:<6} {us:>8.2f} {share:>8.0%}  {right}"
                )


def paged_batch(lengths: tuple[int, ...], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return page table and lengths on the GPU: every page once, in random order."""
    used = [-(-length // size) for length in lengths]
    pages = torch.randperm(PAGED_POOL // size, device="cuda").to(torch.int32)
    wide = torch.full((len(used), 300_000), 2**31 - 1, dtype=torch.int32, device="cuda")
    for row, part in zip(wide, pages[: sum(used)].split(used), strict=True):
        row[: len(part)] = part
    return wide[:, : max(used)], torch.tensor(lengths, dtype=torch.int32, device="cuda")


def paged_pool() -> torch.Tensor:
    """Return a pool of random keys whose rows make whole pages."""
    pool = torch.empty(PAGED_POOL, 1, WIDTH, dtype=torch.float8_e4m3fn, device="cuda")
    for part in pool.split(65_536):
        part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.bfloat16))
    return pool


def paging(bandwidth: float) -> None:
    """Check and time the pages kernel over batches and page sizes."""
    pool = paged_pool()
    whole = pool.to(torch.bfloat16)
    cast = kernel_us(lambda: pool.to(torch.bfloat16), "direct_copy_kernel", times=6)
    print(f"torch's cast of the whole pool: {cast:.0f} us")
    print(f"{'batch':<11} {'page':>4} {'rows':>8} {'L2':<6} {'us':>8} {'of copy':>8}  right")
    for (name, lengths), size in product(BATCHES.items(), (1, 64)):
        table, count = paged_batch(lengths, size)
        backend = SimpleNamespace(page_size=size)

        def once(backend=backend, table=table, count=count) -> torch.Tensor:  # type: ignore[no-untyped-def]
            return kv_gather.pages(backend, pool, table, count, torch.bfloat16)

        listed = kv_gather._pages_in_use(table, count, size)
        rows = (listed[:, None] * size + torch.arange(size, device="cuda")).flatten()
        right = torch.equal(once()[rows], whole[rows])
        for clean in (True, False):
            us = kernel_us(once, "_convert_pages_kernel", clean=clean)
            share = 3 * WIDTH * len(rows) / us / 1e3 / bandwidth
            cache = "clean" if clean else "dirty"
            print(
                f"{name:<11} {size:>4} {len(rows):>8} {cache:<6} {us:>8.2f} {share:>8.0%}  {right}"
            )


def tuning() -> None:
    """Time the pages kernel over launch shapes: us with a clean L2 cache, one batch a column."""
    pool = paged_pool()
    device = kv_gather._device
    batches = {(n, s): paged_batch(lengths, s) for n, lengths in BATCHES.items() for s in (1, 64)}
    print("PDL  programs chunks grain  " + "  ".join(f"{n}/{s}" for n, s in batches))
    pdl_there = device(pool.get_device())[2]
    for pdl, programs, chunks, grain in product(
        (True, False) if pdl_there else (False,), (4, 8, 16), (128, 256, 512), (32, 64, 256)
    ):
        processors, native, _ = device(pool.get_device())
        kv_gather._device = lambda index, found=(processors, native, pdl): found  # type: ignore[misc,assignment]
        kv_gather._PROGRAMS_PER_SM, kv_gather._CHUNKS, kv_gather._GRAIN = programs, chunks, grain
        times = []
        for (name, size), (table, count) in batches.items():
            backend = SimpleNamespace(page_size=size)
            us = kernel_us(
                lambda b=backend, t=table, c=count: kv_gather.pages(b, pool, t, c, torch.bfloat16),  # type: ignore[misc]
                "_convert_pages_kernel",
            )
            times.append(f"{us:>{len(name) + len(str(size)) + 1}.2f}")
        print(f"{pdl!s:<5}{programs:>8} {chunks:>6} {grain:>5}  " + "  ".join(times), flush=True)


def attention() -> None:
    """Time MLA over BF16 rows in place and moved together, and FlashInfer's own FP8 MLA.

    The last (``native``) reads the FP8 pool itself; FlashInfer has it since 0.6.13, for SM90.
    Beside it stands what it competes with: the scatter form's conversion and MLA over the rows.
    """
    import inspect

    import flashinfer

    wrapper_type = flashinfer.mla.BatchMLAPagedAttentionWrapper
    native = "ckv_scale" in inspect.signature(wrapper_type.run).parameters

    def i32(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device="cuda")

    keys = torch.randn(POOL, 1, WIDTH, device="cuda").to(torch.bfloat16)
    pool = keys.to(torch.float8_e4m3fn)
    keys.copy_(pool)
    shared = torch.zeros_like(keys)
    workspace = torch.empty(384 * 2**20, dtype=torch.uint8, device="cuda")

    def planned(batch: int, rows: int, indices: torch.Tensor, dtype: torch.dtype):  # type: ignore[no-untyped-def]
        wrapper = wrapper_type(workspace, backend="fa3" if dtype != torch.bfloat16 else "auto")
        steps = i32(*range(batch + 1))
        wrapper.plan(
            steps, steps * rows, indices, i32(*[rows] * batch), 16, 512, 64, 1, False, 1 / 16,
            torch.bfloat16, dtype,
        )  # fmt: skip
        return wrapper

    print(f"FlashInfer {flashinfer.__version__}; native FP8 MLA: {native}; us")
    print("batch     rows  in place  together  convert  convert + MLA   native  difference")
    for batch, rows in ((1, 215), (1, 512), (1, 8192), (1, 65536), (8, 512), (8, 8192), (8, 32768)):
        total = batch * rows
        query = torch.randn(batch, 16, WIDTH, dtype=torch.bfloat16, device="cuda")
        nope, rope = query[:, :, :512].contiguous(), query[:, :, 512:].contiguous()
        scattered = torch.randperm(POOL, device="cuda")[:total].to(torch.int32)
        together = torch.arange(total, dtype=torch.int32, device="cuda")

        def run(wrapper, rows_of, scales=(), nope=nope, rope=rope):  # type: ignore[no-untyped-def]
            return wrapper.run(nope, rope, rows_of[:, :, :512], rows_of[:, :, 512:], **dict(scales))

        times: list[float] = []
        for indices in (scattered, together):
            wrapper = planned(batch, rows, indices, torch.bfloat16)
            times.append(kernel_us(lambda w=wrapper: run(w, keys), "MLA"))  # type: ignore[misc]
        count = i32(total)
        convert = kernel_us(
            lambda r=scattered, c=count: kv_gather.convert(pool, r, c, shared, True),  # type: ignore[misc]
            "_convert_kernel",
        )
        line = (
            f"{batch:>5} {rows:>8} {times[0]:>9.2f} {times[1]:>9.2f} {convert:>8.2f}"
            f" {convert + times[0]:>14.2f}"
        )
        if native:
            scales = {"ckv_scale": 1.0, "kpe_scale": 1.0}
            own = planned(batch, rows, scattered, torch.float8_e4m3fn)
            us = kernel_us(lambda w=own, s=scales: run(w, pool, s), "MLA")  # type: ignore[misc]
            there = run(planned(batch, rows, scattered, torch.bfloat16), keys).float()
            here = run(own, pool, scales).float()
            line += f" {us:>8.2f}  {float((here - there).norm() / there.norm()):.1e}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mla", action="store_true")
    parser.add_argument("--only", choices=("rows", "pages"))
    parser.add_argument("--tune", action="store_true")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("needs a GPU")
    bandwidth = copy_gb_s()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth:.0f} GB/s")
    narrowing()
    if asked.only != "pages":
        converting(bandwidth)
    if asked.only != "rows":
        paging(bandwidth)
    if asked.tune:
        tuning()
    if asked.mla:
        attention()


if __name__ == "__main__":
    main()
