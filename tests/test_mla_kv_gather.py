"""mla_kv_gather on our own sources, in the shapes of every epoch and of forks.

Each rewritten module is also run with stand-ins: its wrappers must be handed what the companion
returned, planned with what it said, and everything else must go on as in the original.
"""

from __future__ import annotations

import ast
import difflib
from functools import cache
from types import SimpleNamespace
from typing import Any

import black
import pytest
import sources

from rewriter import catalog, engine
from rewriter.model import State

CODEMOD = catalog.load("mla_kv_gather")


def examined(text: str) -> engine.Examination:
    return engine.examine(CODEMOD, sources.PATH, text.encode())


@cache
def rewritten(text: str) -> str:
    """Return the rewritten module, after checking that once is enough and that it comes out."""
    after = engine.apply(CODEMOD, sources.PATH, text.encode())
    assert engine.apply(CODEMOD, sources.PATH, after) is after
    again = examined(after.decode())
    assert (again.state, again.exact) == (State.APPLIED, True)
    assert again.pristine == text.encode()
    return after.decode()


def changed(before: str, after: str) -> list[str]:
    """Return the changed lines as a diff has them, without context."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def same_tree(left: str, right: str) -> bool:
    return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))


# --- what changes, line by line ------------------------------------------------------------

IMPORT = ["+from sglang.srt.layers.attention import _rewriter_kv_gather as _kv_gather"]
ATTACH = ["+        _kv_gather.attach(self, model_runner)"]
PLAN = [
    "-                kv_indices,",
    "+                _kv_gather.plan(wrapper, kv_indices, kv_indptr, self.attn_backend),",
]
PAGED = [
    "-                kv_indices,",
    "+                _kv_gather.plan(",
    "+                    wrapper_paged,",
    "+                    kv_indices,",
    "+                    kv_indptr,",
    "+                    self.attn_backend,",
    "+                ),",
]


def cast(indent: int, wrapper: str, pool: str, old: str, new: str) -> list[str]:
    """Return the change of a cast on one line: what stood before and behind ``gather``."""
    space, deeper = " " * indent, " " * (indent + 4)
    return [
        f"-{space}{old}",
        f"+{space}k_buf = _kv_gather.gather(",
        f"+{deeper}{wrapper},",
        f"+{deeper}{pool}.get_key_buffer(layer.layer_id),",
        f"+{deeper}q.dtype,",
        f"+{space}{new}",
    ]


WRAPPED = "k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id).to("
ONE_LINE = "k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)"


def test_the_whole_change_of_a_stable_release() -> None:
    before = sources.backend()
    pool = "forward_batch.token_to_kv_pool"
    assert changed(before, rewritten(before)) == [
        *IMPORT,
        *ATTACH,
        *cast(8, "prefill_wrapper_paged", pool, WRAPPED, ").to("),
        *cast(8, "decode_wrapper", pool, WRAPPED, ").to("),
        *PLAN,
        *PLAN,
        *PAGED,
    ]


def test_the_whole_change_of_a_late_release() -> None:
    before = sources.backend(**sources.EPOCHS["E10"])
    pool = "self.token_to_kv_pool"
    fast = [line[:1] + "    " + line[1:] for line in PAGED]
    assert changed(before, rewritten(before)) == [
        *IMPORT,
        *ATTACH,
        *cast(12, "prefill_wrapper_paged", pool, ONE_LINE, ").to(q.dtype)"),
        *cast(8, "decode_wrapper", pool, ONE_LINE, ").to(q.dtype)"),
        *PLAN,
        *PLAN,
        *fast,
        *PAGED,
    ]


def test_the_whole_change_of_the_release_with_pages() -> None:
    before = sources.backend(**sources.EPOCHS["E3"])
    pool = "forward_batch.token_to_kv_pool"
    named = [
        "-                kv_indices=kv_indices,",
        "+                kv_indices=_kv_gather.plan(",
        *PAGED[2:-1],
        "+                    page_size=self.page_size,",
        PAGED[-1],
    ]
    assert changed(before, rewritten(before)) == [
        *IMPORT,
        *ATTACH,
        *cast(8, "prefill_wrapper_paged", pool, WRAPPED, ").to("),
        *cast(8, "decode_wrapper", pool, WRAPPED, ").to("),
        *PLAN,
        *PLAN,
        *named,
    ]


def test_indices_of_another_buffer_are_told_to_the_companion() -> None:
    before = sources.backend(prefill_plan="context parallel")
    lines = changed(before, rewritten(before))
    assert lines[-7:] == [*PAGED[1:-1], "+                    extra,", PAGED[-1]]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "two steps",
            [
                "-        k_buf = k_buf.to(wanted)",
                "+        k_buf = _kv_gather.gather(decode_wrapper, k_buf, wanted).to(wanted)",
            ],
        ),
        ("keyword", cast(
            8, "decode_wrapper", "self.token_to_kv_pool",
            ONE_LINE.replace("(q.", "(dtype=q."), ").to(dtype=q.dtype)",
        )),
        ("both arms", 2 * cast(
            12, "decode_wrapper", "self.token_to_kv_pool", ONE_LINE, ").to(q.dtype)"
        )),
        (
            "comments inside",
            [
                "-            self.token_to_kv_pool  # of this rank",
                "-            .get_key_buffer(layer.layer_id)",
                "+            _kv_gather.gather(",
                "+                decode_wrapper,",
                "+                self.token_to_kv_pool  # of this rank",
                "+            .get_key_buffer(layer.layer_id),",
                "+                q.dtype,",
                "+            )",
            ],
        ),
    ],
)  # fmt: skip
def test_the_casts_of_forks(name: str, lines: list[str]) -> None:
    before = sources.backend(decode=name)
    start = len([*IMPORT, *ATTACH]) + 6
    assert changed(before, rewritten(before))[start:][: len(lines)] == lines


# --- every shape, rewritten and run --------------------------------------------------------

_SHAPES: dict[str, dict[str, Any]] = {
    "renamed row pointers": {"pointers": "row_starts"},
    **{f"indices, {n}": {"prefill_indices": n, "decode_indices": n} for n in sources.INDICES},
    **{f"plan, {n}": {"prefill_plan": n} for n in sources.PLANS},
    **{f"cast, {n}": {"extend": n, "decode": n} for n in sources.CASTS if n != "none"},
    **{name: shape for name, shape in sources.EPOCHS.items() if name != "E1"},
}
SHAPES = {sources.backend(**arguments): name for name, arguments in _SHAPES.items()}


@pytest.fixture(params=SHAPES.values())
def shape(request: pytest.FixtureRequest) -> str:
    return next(text for text, name in SHAPES.items() if name == request.param)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("extra", [False, True], ids=["plain", "other buffer"])
def test_runs_as_the_original_but_for_what_the_companion_returns(
    shape: str, layer: int, extra: bool
) -> None:
    """Undo the companion's work in the log of the rewritten module: the original's is left."""
    other = SimpleNamespace(dcp_kv_indices=[7, 8], kv_indptr_cpu=[0, 2, 5]) if extra else None
    before = sources.run(shape, extra=other, layer_id=layer)
    after = sources.run(rewritten(shape), extra=other, layer_id=layer)
    assert after[0] == ("attach", "runner")
    undone: list[Any] = []
    kept: Any = None
    for kind, name, *rest in after[1:]:
        if kind == "keeps":
            kept = (name, rest[0])
            assert rest[1] == 5, "the row pointers are those of this batch"
        elif kind == "plan" and kept:
            assert kept[0] == name, "the wrapper that is planned is the one that was asked about"
            undone.append(("plan", name, kept[1]))
            kept = None
        elif kind == "gathers":
            undone.append(("converted", rest[0]))
        elif kind == "run":
            undone.append((kind, name, *(r.removeprefix("rows of ") for r in rest)))
        else:
            undone.append((kind, name, *rest))
    assert undone == before


def test_every_plan_is_asked_about_and_no_pool_is_converted_whole(shape: str) -> None:
    log = sources.run(rewritten(shape))
    plans = [entry for entry in log if entry[0] == "plan"]
    assert len([entry for entry in log if entry[0] == "keeps"]) == len(plans) == 4
    assert [e for e in log if e[0] == "converted"] in ([], [("converted", "dcp")])
    assert [e[1] for e in log if e[0] == "gathers"][-1] == "decode"


@pytest.mark.parametrize("width", [79, 120])
def test_a_formatter_before_changes_nothing_that_matters(shape: str, width: int) -> None:
    formatted = black.format_str(shape, mode=black.Mode(line_length=width))
    assert same_tree(rewritten(formatted), rewritten(shape))


@pytest.mark.parametrize("width", [79, 120])
def test_a_formatter_after_leaves_it_applied(shape: str, width: int) -> None:
    formatted = black.format_str(rewritten(shape), mode=black.Mode(line_length=width))
    found = examined(formatted)
    assert found.state is State.APPLIED
    assert same_tree(found.pristine.decode(), shape)
    assert engine.apply(CODEMOD, sources.PATH, formatted.encode()) == formatted.encode()


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_newlines_are_kept(newline: str) -> None:
    text = sources.backend().replace("\n", newline)
    assert rewritten(text) == rewritten(sources.backend()).replace("\n", newline)


def test_a_bom_tabs_and_a_missing_newline_are_kept() -> None:
    text = "\ufeff" + sources.backend().replace("    ", "\t").rstrip("\n")
    after = rewritten(text)
    assert after.startswith("\ufefffrom __future__")
    assert "\t\t_kv_gather.attach(self, model_runner)\n" in after
    assert not after.endswith("\n")


# --- nothing to patch, and what is refused -------------------------------------------------


def test_the_pool_as_it_is_needs_no_patch() -> None:
    text = sources.backend(**sources.EPOCHS["E1"])
    found = examined(text)
    assert found.state is State.UPSTREAM
    assert found.patched is None
    assert found.reason == "`run` gets the pool's rows without a change of dtype"
    with pytest.raises(ValueError, match="is upstream"):
        engine.apply(CODEMOD, sources.PATH, text.encode())


def test_only_one_path_without_a_cast_has_drifted() -> None:
    found = examined(sources.backend(extend="none"))
    assert found.state is State.DRIFTED
    assert "only some places are as upstream left them" in found.reason


def refused(text: str, reason: str, line: str | None = None) -> None:
    found = examined(text)
    assert found.state is State.DRIFTED
    assert found.patched is None
    assert reason in found.reason
    if line is not None:
        assert found.nearest is not None
        assert line in found.nearest.text
        assert text.splitlines()[found.nearest.line - 1].strip() == found.nearest.text


@pytest.mark.parametrize("path", ["extend", "decode"])
@pytest.mark.parametrize("name", sources.REFUSED_CASTS)
def test_casts_that_cannot_be_followed_are_refused(name: str, path: str) -> None:
    _, reason = sources.REFUSED_CASTS[name]
    refused(sources.backend(**{path: name}), reason)
    assert (
        f"cast in `FlashInferMLAAttnBackend.forward_{path}`: "
        in examined(sources.backend(**{path: name})).reason
    )


EDITED = {
    "no run": ("decode_wrapper.run(", "decode_wrapper.go(", "no call of `run`", None),
    "run without keys": (
        "q[0], q[1], k_buf[:, :, : layer.v_head_dim], k_buf[:, :, layer.v_head_dim :])",
        "q[0], q[1])",
        "no argument `ckv_cache`",
        "decode_wrapper.run(q[0], q[1])",
    ),
    "starred run": (
        "q[0], q[1], k_buf[:, :, : layer.v_head_dim]",
        "*q, k_buf[:, :, : layer.v_head_dim]",
        "no argument `ckv_cache`",
        "decode_wrapper.run(*q",
    ),
    "wrapper bound too late": (
        "        decode_wrapper = self.decode_wrapper\n",
        "",
        "where the wrapper of `run`, `decode_wrapper`, comes from cannot be told",
        "return decode_wrapper.run(",
    ),
    "wrapper of a call": (
        "return decode_wrapper.run(",
        "return self.wrapper(layer).run(",
        "the wrapper of `run` is no plain name",
        "self.wrapper(layer).run(",
    ),
    "another gather in the plan": (
        "        if not init_metadata_replay:",
        "        kv_indices = np.arange(len(kv_indices))\n        if not init_metadata_replay:",
        "the plan gets sequential indices (another patch of the same idea?)",
        "np.arange(len(kv_indices))",
    ),
    "a plan of another kind as well": (
        "        if not init_metadata_replay:",
        "        planned(wrapper, kv_indices)\n        if not init_metadata_replay:",
        "a call plans a wrapper in a way that is not known",
        "planned(wrapper, kv_indices)",
    ),
    "a plan under another name": (
        "        if not init_metadata_replay:",
        "        wrapper.begin(kv_indptr, kv_indices)\n        if not init_metadata_replay:",
        "a call plans a wrapper in a way that is not known",
        "wrapper.begin(kv_indptr, kv_indices)",
    ),
    "no plan": ("wrapper_paged.plan(", "wrapper_paged.begin(", "no plan call", None),
    "no row pointers": (
        "np.cumsum(lens)\n        kv_indptr = kv_indptr[: len(lens) + 1]\n        kv_indices = "
        "np.zeros(int(kv_indptr[-1]), dtype=np.int32)\n        fill(kv_indices, lens)\n"
        "        if use_ragged",
        "sums(lens)\n        kv_indptr = kv_indptr[: len(lens) + 1]\n        kv_indices = "
        "np.zeros(int(kv_indptr[-1]), dtype=np.int32)\n        fill(kv_indices, lens)\n"
        "        if use_ragged",
        "expected one local tensor of row pointers behind the plan, found none",
        None,
    ),
    "constructor of another kind": (
        "        super().__init__()\n",
        "        super().__init__(model_runner)\n",
        "has no `super().__init__()`",
        "super().__init__(model_runner)",
    ),
    "class renamed": (
        "class FlashInferMLAIndicesUpdaterPrefill:",
        "class FlashInferMLAIndicesUpdaterExtend:",
        "`FlashInferMLAIndicesUpdaterPrefill.call_begin_forward` is not defined",
        "def call_begin_forward(",
    ),
    "method renamed": (
        "    def forward_decode(",
        "    def forward_decode_rows(",
        "`FlashInferMLAAttnBackend.forward_decode` is not defined",
        "def forward_decode_rows(",
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_what_is_not_known_is_refused(name: str) -> None:
    old, new, reason, line = EDITED[name]
    text = sources.backend()
    assert text.count(old) == 1
    refused(text.replace(old, new), reason, line)


def test_a_neighbour_with_the_old_text_is_left_alone() -> None:
    """Case 14: the named definition changed, a new class holds the old one."""
    text = sources.backend(decode="helper method")
    old = sources.backend()
    start = old.index("class FlashInferMLAAttnBackend")
    end = old.index("class FlashInferMLAIndicesUpdaterDecode")
    neighbour = old[start:end].replace("FlashInferMLAAttnBackend", "OldBackend")
    refused(text + "\n\n" + neighbour, "neither the pool's buffer nor a cast of it")
    after = rewritten(old + "\n\n" + neighbour)
    assert after.endswith(neighbour)


def test_a_text_patch_of_the_same_idea_is_told_for_what_it_is() -> None:
    text = sources.backend(decode="gathered by another patch", extend="gathered by another patch")
    text = text.replace(
        "        if not init_metadata_replay:",
        "        self.rows, kv_indices = kv_indices, np.arange(len(kv_indices))\n"
        "        if not init_metadata_replay:",
    )
    found = examined(text)
    assert found.state is State.DRIFTED
    told = [site.reason for site in found.sites if site.state is State.DRIFTED]
    assert len(told) == 3
    assert all("another patch of the same idea?" in reason for reason in told)


@pytest.mark.parametrize("missing", [0, 1, 2, 3, 4, 5])
def test_one_site_left_out_is_partial(missing: int) -> None:
    """Section 1.5: a half-applied state compiles and reads wrong rows; it must be told."""
    before = sources.backend()
    after = rewritten(before)
    blocks = list(difflib.SequenceMatcher(None, before.splitlines(True), after.splitlines(True))
                  .get_opcodes())  # fmt: skip
    edits = [block for block in blocks if block[0] != "equal"]
    assert len(edits) == 7
    lines = after.splitlines(True)
    _, i, j, k, m = edits[missing]
    half = "".join(lines[:k] + before.splitlines(True)[i:j] + lines[m:])
    found = examined(half)
    assert found.state is State.PARTIAL
    assert found.patched is None
    assert found.reason.startswith("6 of 7 places are ours; not: ")
    assert [s.state for s in found.sites].count(State.APPLIED) == 6
