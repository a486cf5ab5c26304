"""The companion by itself: decisions, counts, guards. Each check takes a way to load the module,
so that ``test_mutation`` can run it on a companion that was broken on purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import codemods.runtime  # noqa: E402
from rewriter.probes.equivalence.attention import BatchMLAPagedAttentionWrapper  # noqa: E402
from rewriter.probes.equivalence.loading import load_companion, on_a_gpu  # noqa: E402
from rewriter.probes.equivalence.tensors import OnHost, same_bits  # noqa: E402

COMPANION = Path(codemods.runtime.__file__).with_name("kv_gather.py").read_bytes()

Load = Callable[..., ModuleType]
ROWS, WIDTH = 12, 6


def load(**options: Any) -> ModuleType:
    """Load the companion as it is in this checkout."""
    return load_companion(COMPANION, **options)


def backend(
    module: ModuleType,
    dtype: torch.dtype = torch.float8_e4m3fn,
    rows: int = ROWS,
    width: int = WIDTH,
    model: torch.dtype = torch.bfloat16,
    hybrid: bool = False,
) -> tuple[Any, torch.Tensor]:
    """Return a backend that was attached to a pool, and the pool's first layer."""
    keys = torch.randn(rows, 1, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    pool = SimpleNamespace(kv_buffer=[keys.view(torch.uint8)], dtype=dtype)
    config = SimpleNamespace(kv_lora_rank=WIDTH - 2, qk_rope_head_dim=2)
    made = SimpleNamespace()
    held = SimpleNamespace(full_kv_pool=pool, kv_buffer=None, dtype=None) if hybrid else pool
    module.attach(made, SimpleNamespace(token_to_kv_pool=held, model_config=config, dtype=model))
    return made, keys


def wrapper(listed: torch.Tensor | None = None) -> BatchMLAPagedAttentionWrapper:
    """Return an eager wrapper, or one for graphs with ``listed`` as its index buffer."""
    workspace = torch.zeros(1)
    if listed is None:
        return BatchMLAPagedAttentionWrapper(workspace)
    return BatchMLAPagedAttentionWrapper(workspace, use_cuda_graph=True, kv_indices=listed)


def ints(*numbers: int) -> torch.Tensor:
    """Return an int32 tensor."""
    return torch.tensor(numbers, dtype=torch.int32)


def graph_companion(load: Load) -> ModuleType:
    """Load the companion with a GPU's paths."""
    module = load()
    on_a_gpu(module)
    return module


def check_hybrid_pools(load: Load) -> None:
    """The MLA layers of a hybrid model's pool are found inside it."""
    made, _ = backend(load(), hybrid=True)
    assert made._kv_gather_pool is not None
    assert made._kv_gather_pool.rows == ROWS


def check_unknown_pools(load: Load) -> None:
    """A pool without ``kv_buffer``, or an empty one, is left alone."""
    module = load()
    config = SimpleNamespace(kv_lora_rank=4, qk_rope_head_dim=2)
    for pool in (SimpleNamespace(), SimpleNamespace(kv_buffer=[], dtype=torch.float8_e5m2)):
        made = SimpleNamespace()
        runner = SimpleNamespace(token_to_kv_pool=pool, model_config=config, dtype=torch.bfloat16)
        module.attach(made, runner)
        assert made._kv_gather_pool is None


def check_compact(load: Load) -> None:
    """Eager: sequential indices, and the rows in the order of the plan; the tail is not read."""
    module = load()
    made, keys = backend(module)
    chosen = wrapper()
    rows = ints(7, 3, 3, 2**31 - 1)
    with OnHost():
        given = module.plan(chosen, rows, ints(0, 2, 3), made)
        got = module.gather(chosen, keys, torch.bfloat16)
    assert given.tolist() == [0, 1, 2, 3]
    assert given.dtype == rows.dtype
    assert same_bits(got[:3], keys.to(torch.bfloat16)[[7, 3, 3]])


def check_empty(load: Load) -> None:
    """No rows: no launch, an empty result."""
    module = load()
    made, keys = backend(module)
    chosen = wrapper()
    module._fused = lambda tensor: True
    module._convert_fused = lambda *arguments: pytest.fail("a kernel was launched for no rows")
    assert module.plan(chosen, ints(), ints(0), made).shape == (0,)
    assert module.gather(chosen, keys, torch.bfloat16).shape == (0, 1, WIDTH)


def check_tail_on_a_device(load: Load) -> None:
    """Without Triton on a device nothing is read on the host, and the tail reads row 0."""
    module = load()
    module._on_host = lambda tensor: False
    made, keys = backend(module)
    chosen = wrapper()
    module.plan(chosen, ints(7, 3, 2**31 - 1), ints(0, 2), made)
    got = module.gather(chosen, keys, torch.bfloat16)
    assert same_bits(got, keys.to(torch.bfloat16)[[7, 3, 0]])


def check_scatter(load: Load) -> None:
    """Graphs: indices as given, each row at its own place, all else zero; count and rows of the
    last plan, in the memory of the first."""
    module = graph_companion(load)
    made, keys = backend(module)
    bound = torch.zeros(20, dtype=torch.int32)
    chosen = wrapper(bound)
    rows = ints(7, 3, 3, 9)
    assert module.plan(chosen, rows, ints(0, 2, 3), made) is rows
    bound[:4] = rows
    cell = chosen._kv_gather.count
    got = module.gather(chosen, keys, torch.bfloat16)
    whole = keys.to(torch.bfloat16)
    expected = torch.zeros_like(whole)
    expected[[3, 7]] = whole[[3, 7]]
    assert same_bits(got, expected)
    assert module.plan(chosen, bound, ints(0, 4), made) is bound
    assert chosen._kv_gather.count is cell
    assert cell.tolist() == [4]
    assert module.gather(chosen, keys, torch.bfloat16) is got


def check_scatter_whole(load: Load) -> None:
    """As many rows as the pool, or more: the pool once, whatever the indices say."""
    module = graph_companion(load)
    made, keys = backend(module)
    bound = torch.zeros(3 * ROWS, dtype=torch.int32)
    chosen = wrapper(bound)
    for count in (ROWS, 2 * ROWS):
        module.plan(chosen, bound, ints(0, count), made)
        got = module.gather(chosen, keys, torch.bfloat16)
        assert same_bits(got, keys.to(torch.bfloat16))
        got.zero_()


def check_one_buffer(load: Load) -> None:
    """All graph wrappers over pools of one size share one zeroed buffer; other sizes do not."""
    module = graph_companion(load)
    made, _ = backend(module)
    larger, _ = backend(module, rows=ROWS + 1)
    taken = []
    with OnHost():
        for owner in (made, made, larger):
            chosen = wrapper(torch.zeros(4, dtype=torch.int32))
            module.plan(chosen, ints(1), ints(0, 1), owner)
            taken.append(chosen._kv_gather.buffer)
    assert taken[0] is taken[1]
    assert taken[2].shape == (ROWS + 1, 1, WIDTH)
    assert not taken[0].count_nonzero()
    assert taken[0].dtype == torch.bfloat16


def check_other_shape(load: Load) -> None:
    """A pool that is not what the constructor saw is handed over as it is."""
    module = graph_companion(load)
    made, keys = backend(module)
    chosen = wrapper(torch.zeros(4, dtype=torch.int32))
    module.plan(chosen, ints(1), ints(0, 1), made)
    other = torch.cat([keys.view(torch.uint8)] * 2).view(keys.dtype)
    assert module.gather(chosen, other, torch.bfloat16) is other


def check_other_dtype(load: Load) -> None:
    """A query of another dtype than the model's gets the pool as it is."""
    module = graph_companion(load)
    made, keys = backend(module)
    chosen = wrapper(torch.zeros(4, dtype=torch.int32))
    module.plan(chosen, ints(1), ints(0, 1), made)
    assert module.gather(chosen, keys, torch.float16) is keys


def check_decisions(load: Load) -> None:
    """The table in the docstring of ``decide``."""
    module = load()
    mode, pool = module.Mode, module.Pool(ROWS, WIDTH, torch.float8_e4m3fn, torch.bfloat16)
    for listed, graph, elsewhere, fused, expected in (
        (3, False, False, False, mode.COMPACT),
        (ROWS - 1, False, False, True, mode.COMPACT),
        (ROWS, False, False, True, mode.WHOLE),
        (3 * ROWS, False, False, True, mode.WHOLE),
        (3, False, True, True, mode.UNTOUCHED),
        (3, True, False, True, mode.SCATTER),
        (3 * ROWS, True, False, True, mode.SCATTER),
        (3, True, False, False, mode.UNTOUCHED),
        (3, True, True, True, mode.UNTOUCHED),
    ):
        assert module.decide(pool, listed, graph, elsewhere, fused) is expected
        assert module.decide(None, listed, graph, elsewhere, fused) is mode.UNTOUCHED
    assert load(switch="off").decide(pool, 3, False, False, True).value == "untouched"


def check_replan(load: Load) -> None:
    """A decision holds until the next plan, no longer."""
    module = load()
    made, keys = backend(module)
    chosen = wrapper()
    few, many = ints(1, 2), torch.arange(ROWS, dtype=torch.int32)
    for rows, compact in ((few, True), (many, False), (few, True)):
        given = module.plan(chosen, rows, ints(0, len(rows)), made)
        assert (given is rows) is not compact
        assert (module.gather(chosen, keys, torch.bfloat16) is keys) is not compact
    elsewhere = module.plan(chosen, few, ints(0, 2), made, SimpleNamespace())
    assert elsewhere is few
    assert module.gather(chosen, keys, torch.bfloat16) is keys
    module = graph_companion(load)
    made, keys = backend(module)
    chosen = wrapper(few)
    module.plan(chosen, few, ints(0, 2), made)
    assert module.gather(chosen, keys, torch.bfloat16) is not keys
    module.plan(chosen, few, ints(0, 2), made, SimpleNamespace())
    assert module.gather(chosen, keys, torch.bfloat16) is keys


def check_debug(load: Load) -> None:
    """``debug`` names the row where a conversion differs from the whole cast."""
    module = load(switch="debug")
    made, keys = backend(module)
    chosen = wrapper()
    module.plan(chosen, ints(7, 3), ints(0, 2), made)
    module.gather(chosen, keys, torch.bfloat16)
    right = module._convert_torch

    def wrong(pool: Any, rows: Any, count: Any, out: Any, scatter: bool) -> None:
        right(pool, rows, count, out, scatter)
        out[1, 0, 2] += 1

    module._convert_torch = wrong
    with pytest.raises(RuntimeError, match=r"row 3 \(place 1 of 2\) differs .* in 1 of 6 values"):
        module.gather(chosen, keys, torch.bfloat16)


def check_one_line(load: Load) -> None:
    """One line in the log when patched code first runs, none after it."""
    module = load()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    module.logger = logging.Logger("heard", logging.INFO)
    module.logger.addHandler(handler)
    made, keys = backend(module)
    chosen = wrapper()
    module.plan(chosen, ints(7, 3), ints(0, 2), made)
    assert not lines
    for _ in range(3):
        module.gather(chosen, keys, torch.bfloat16)
    assert len(lines) == 1
    assert "compact" in lines[0]
    assert f"{ROWS} rows" in lines[0]


def check_writer(load: Load) -> None:
    """Keys are narrowed before the pool's method, where that is what the method would do."""
    module = graph_companion(load)
    written: list[tuple[Any, ...]] = []
    method = lambda *arguments: written.append(arguments)  # noqa: E731
    made, _ = backend(module)
    nope, rope = torch.randn(3, 1, 4).to(torch.bfloat16), torch.randn(3, 1, 2).to(torch.bfloat16)
    write = module.writer(made, method)
    write("layer", "loc", nope, rope, "more")
    layer, loc, *parts, more = written.pop()
    assert (layer, loc, more) == ("layer", "loc", "more")
    for part, keys in zip(parts, (nope, rope), strict=True):
        assert part.dtype == torch.float8_e4m3fn
        assert same_bits(part.float(), keys.to(torch.float8_e4m3fn).float())
    turned = torch.randn(4, 1, 3).to(torch.bfloat16).permute(2, 1, 0)
    for keys in ((nope[:0], rope[:0]), (nope.float(), rope.float()), (nope[:, 0], rope[:, 0]),
                 (nope, rope.half()), (nope, rope[:1]), (turned, rope),
                 (nope[..., 0], rope[..., 0]),
                 (nope.expand(3, 2, 4), rope.expand(3, 2, 2))):  # fmt: skip
        write("layer", "loc", *keys)
        assert all(a is b for a, b in zip(written.pop()[2:], keys, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.version, "hip", "6.4")
        write("layer", "loc", nope, rope)
    assert written.pop()[2] is nope
    module._capturing = lambda: False
    write("layer", "loc", nope, rope)
    assert written.pop()[2] is nope
    assert module.writer(backend(module, torch.float8_e5m2)[0], method) is method
    assert module.writer(backend(module, torch.bfloat16, width=2 * WIDTH)[0], method) is method
    off = load(switch="off")
    assert off.writer(backend(off)[0], method) is method


NO_PAGE = 2**31 - 1


def paged(
    pages: int = 8, size: int = 4, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Any, torch.Tensor]:
    """Return a backend with pages of ``size`` tokens, and one layer's keys."""
    generator = torch.Generator().manual_seed(2)
    keys = torch.randn(pages * size, 1, WIDTH, generator=generator).to(dtype)
    return SimpleNamespace(page_size=size), keys


def table_of(*rows: tuple[int, ...], columns: int = 0) -> torch.Tensor:
    """Return a page table: a slice of a wider one, with no pages behind those of a request."""
    columns = columns or max(len(row) for row in rows) + 1
    wide = torch.full((len(rows) + 1, columns + 3), NO_PAGE, dtype=torch.int32)
    for at, row in enumerate(rows):
        wide[at, : len(row)] = ints(*row)
    return wide[: len(rows), :columns]


def check_pages(load: Load) -> None:
    """Whole pages in use are converted, and no others; entries behind a length are not read."""
    for size in (1, 4, 16):
        module = load()
        owner, keys = paged(size=size)
        table = table_of((7, 3, 5), (), (2, 7))
        lengths = ints(2 * size + 1, 0, size, 99)[:3]
        with OnHost():
            got = module.pages(owner, keys, table, lengths, torch.bfloat16)
            again = module.pages(owner, keys, table, lengths, torch.bfloat16)
        expected = torch.full_like(got, float("nan")).view(8, size, 1, WIDTH)
        used = [2, 3, 5, 7]
        expected[used] = keys.to(torch.bfloat16).view(8, size, 1, WIDTH)[used]
        assert same_bits(got.view(8, size, 1, WIDTH), expected)
        assert got.stride() == keys.to(torch.bfloat16).stride()
        assert got.data_ptr() != again.data_ptr(), "nothing is kept between two calls"


def check_pages_of_a_short_table(load: Load) -> None:
    """Lengths that reach beyond the table's columns: what there is of it is converted."""
    module = load()
    owner, keys = paged()
    with OnHost():
        got = module.pages(owner, keys, table_of((7,), (3,), columns=1), ints(9, 4), torch.float16)
    assert same_bits(got[28:], keys.to(torch.float16)[28:])
    assert got[:12].isnan().all()


def check_pages_whole(load: Load) -> None:
    """As many rows as the pool, or more: the whole pool, whatever the entries say."""
    module = load()
    owner, keys = paged(pages=2)
    for rows in (((0, 0),), ((0, 1), (0,), (0,))):
        lengths = ints(*(4 * len(row) for row in rows))
        got = module.pages(owner, keys, table_of(*rows), lengths, torch.bfloat16)
        assert same_bits(got, keys.to(torch.bfloat16))


def check_pages_empty(load: Load) -> None:
    """No request, or none with keys: no launch where there is no table, nothing converted."""
    module = load()
    owner, keys = paged()
    module._fused = lambda tensor: True
    module._convert_pages_fused = lambda *arguments: pytest.fail("launched for no pages")
    for shape in ((0, 3), (2, 0)):
        table = torch.zeros(shape, dtype=torch.int32)
        lengths = torch.zeros(shape[0], dtype=torch.int32)
        assert module.pages(owner, keys, table, lengths, torch.bfloat16).shape == keys.shape
    module._fused = lambda tensor: False
    with OnHost():
        got = module.pages(owner, keys, table_of((), ()), ints(0, -1), torch.bfloat16)
    assert got.isnan().all()


def check_pages_left_alone(load: Load) -> None:
    """What the kernel is not right for is handed over as it is, for the cast to convert."""
    module = load()
    owner, keys = paged()
    table, lengths = table_of((7,), (3,)), ints(4, 4)
    given = (owner, keys, table, lengths, torch.bfloat16)
    assert module.pages(*given) is not keys
    fourth = SimpleNamespace(page_size=4, fa_impl_ver=4)
    third = SimpleNamespace(page_size=4, fa_impl_ver=3)
    assert module.pages(third, *given[1:]) is not keys
    twice = keys.view(torch.uint8).view(-1, 2, WIDTH).view(keys.dtype)
    spread = torch.zeros(32, 1, 2 * WIDTH, dtype=torch.uint8).view(keys.dtype)[:, :, ::2]
    for changed, what in (
        ({"whole": True}, "another kernel reads by another table"),
        ({0: fourth}, "FlashAttention 4"),
        ({0: SimpleNamespace(page_size=5)}, "rows that make no whole pages"),
        ({1: keys.to(torch.bfloat16)}, "a pool in the query's dtype"),
        ({1: keys.to(torch.float16)}, "a pool that is not FP8"),
        ({4: torch.float8_e5m2}, "a query in FP8"),
        ({4: torch.float8_e4m3fn}, "a query in the pool's dtype"),
        ({1: keys[..., 0]}, "a pool of two dimensions"),
        ({1: keys[..., None]}, "a pool of four dimensions"),
        ({1: twice}, "several heads"),
        ({1: spread}, "elements with gaps"),
        ({2: table[0]}, "a table of one dimension"),
        ({3: lengths[:, None]}, "lengths of two dimensions"),
        ({3: lengths[:1]}, "a request without a length"),
    ):
        places = [changed.get(at, thing) for at, thing in enumerate(given)]
        named = {name: value for name, value in changed.items() if isinstance(name, str)}
        assert module.pages(*places, **named) is places[1], what
    off = load(switch="off")
    assert off.pages(*given) is keys
    module._on_host = lambda tensor: False
    assert module.pages(*given) is keys, "a GPU without Triton"


def check_pages_debug(load: Load) -> None:
    """``debug`` names the page where a conversion differs from the whole cast."""
    module = load(switch="debug")
    module._capturing = lambda: False
    owner, keys = paged()
    given = (owner, keys, table_of((7, 2), (3,)), ints(8, 1), torch.bfloat16)
    module.pages(*given)
    right = module._convert_pages_torch

    def wrong(pool: Any, table: Any, lengths: Any, out: Any, size: int) -> None:
        right(pool, table, lengths, out, size)
        out[13, 0, 1] += 1

    module._convert_pages_torch = wrong
    with pytest.raises(RuntimeError, match="page 3 of 4 tokens differs from the whole cast"):
        module.pages(*given)
    module._capturing = lambda: True
    module.pages(*given)


def check_pages_in_the_log(load: Load) -> None:
    """One line in the log when patched code first runs, none after it."""
    module = load()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    module.logger = logging.Logger("heard", logging.INFO)
    module.logger.addHandler(handler)
    owner, keys = paged()
    for _ in range(2):
        module.pages(owner, keys, table_of((7,)), ints(1), torch.bfloat16)
    assert len(lines) == 1
    assert "first mode pages" in lines[0]


def check_models_without_latent_attention(load: Load) -> None:
    """A backend that serves both kinds of models is made with a model that has no latent keys."""
    module = load()
    made = SimpleNamespace()
    module.attach(made, SimpleNamespace(model_config=SimpleNamespace(), dtype=torch.bfloat16))
    assert made._kv_gather_pool is None
    assert module.writer(made, "method") == "method"


def check_switch(load: Load) -> None:
    """A switch that is none of the three words is refused at import."""
    assert load(switch=" Debug ").SWITCH == "debug"
    with pytest.raises(ValueError, match="must be on, off or debug, not 'of'"):
        load(switch="of")


CHECKS: dict[str, Callable[[Load], None]] = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


@pytest.mark.parametrize("name", CHECKS)
def test_companion(name: str) -> None:
    CHECKS[name](load)


def test_it_imports_nothing_of_ours() -> None:
    import ast

    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(COMPANION))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    allowed = {"__future__", "logging", "os", "dataclasses", "enum", "functools", "typing"}
    assert imported - allowed <= {"torch", "triton", "triton.language"}


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Draw requests' rows (repeats and shared prefixes included) and a tail behind them."""
    lengths = draw(st.lists(st.integers(0, 6), max_size=5))
    rows = [draw(st.integers(0, ROWS - 1)) for _ in range(sum(lengths))]
    return lengths, rows, draw(st.integers(0, 4))


@settings(deadline=None, max_examples=60)
@given(
    plans=st.lists(plans(), min_size=1, max_size=4),
    graph=st.booleans(),
    strided=st.booleans(),
    dtype=st.sampled_from([torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz]),
    model=st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_every_plan_reads_what_the_whole_cast_reads(
    plans: list[tuple[list[int], list[int], int]],
    graph: bool,
    strided: bool,
    dtype: torch.dtype,
    model: torch.dtype,
) -> None:
    module = graph_companion(load) if graph else load()
    made, keys = backend(module, dtype, model=model)
    if strided:
        keys = torch.stack([keys.view(torch.uint8)] * 3, 1)[:, 1].view(dtype)
    whole = keys.to(model)
    bound = torch.full((64,), 2**31 - 1, dtype=torch.int32)
    chosen = wrapper(bound if graph else None)
    for lengths, rows, tail in plans:
        indices = ints(*rows, *[2**31 - 1] * tail)
        indptr = torch.cat([ints(0), ints(*lengths).cumsum(0).int()])
        planned = module.plan(chosen, indices, indptr, made)
        bound[: len(planned)] = planned
        got = module.gather(chosen, keys, model)
        read = got.to(model)[planned[: len(rows)].long()]
        assert same_bits(read, whole[rows])
