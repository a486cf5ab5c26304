"""fa3_kv_gather on our own sources, in the shapes of releases and of forks, rewritten and run."""

from __future__ import annotations

import ast
from functools import cache

import black
import paged_sources as sources
import pytest
from test_mla_kv_gather import changed, same_tree

from rewriter import catalog, engine
from rewriter.model import State

CODEMOD = catalog.load("fa3_kv_gather")


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


# --- what changes, line by line ------------------------------------------------------------


def method(table: str, lengths: str) -> list[str]:
    """Return the change of one method of an early release."""
    pool = "forward_batch.token_to_kv_pool"
    return [
        f"-            {pool}.set_mla_kv_buffer(",
        f"+            _kv_gather.writer(self, {pool}.set_mla_kv_buffer)(",
        f"-        keys = {pool}.get_key_buffer(",
        "+        keys = _kv_gather.pages(",
        "+            self,",
        f"+            {pool}.get_key_buffer(",
        "+        ),",
        f"+            {table},",
        f"+            {lengths},",
        "+            q.dtype,",
        "+            whole=cascade,",
    ]


def test_the_whole_change_of_an_early_release() -> None:
    before = sources.backend()
    lines = changed(before, rewritten(before))
    assert lines == [
        "+from sglang.srt.layers.attention import _rewriter_kv_gather as _kv_gather",
        "+        _kv_gather.attach(self, model_runner)",
        *method("page_table", "cache_seqlens"),
        *method("metadata.page_table", "metadata.cache_seqlens"),
    ]


def test_the_whole_change_of_a_late_cast() -> None:
    before = sources.backend(**sources.EPOCHS["0.5.23"])
    lines = changed(before, rewritten(before))
    start = lines.index("-        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(")
    assert lines[start : start + 9] == [
        "-        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(",
        "+        keys = _kv_gather.pages(",
        "+            self,",
        "+            self.token_to_kv_pool.get_key_buffer(layer.layer_id),",
        "+            page_table,",
        "+            cache_seqlens,",
        "+            q.dtype,",
        "+            whole=split or cascade,",
        "+        ).to(",
    ]


# --- every shape, rewritten and run --------------------------------------------------------

_SHAPES = {
    **{f"release {name}": shape for name, shape in sources.EPOCHS.items()},
    **{f"cast, {name}": {"cast": name} for name in sources.CASTS if name != "none"},
    **{f"cut, {name}": {"cut": name} for name in sources.CUTS},
    **{f"kernels, {name}": {"extend": name} for name in ("one", "positional", "parallel")},
}
SHAPES = {sources.backend(**arguments): name for name, arguments in _SHAPES.items()}


@pytest.fixture(params=SHAPES.values())
def shape(request: pytest.FixtureRequest) -> str:
    return next(text for text, name in SHAPES.items() if name == request.param)


@pytest.mark.parametrize("method", ["extend", "decode"])
@pytest.mark.parametrize(
    "served", [{}, {"local": True}, {"branches": True}, {"split": True}, {"layer_id": 1}],
    ids=lambda served: next(iter(served), "plain"),
)  # fmt: skip
def test_runs_as_the_original_with_the_kernels_own_pages(
    shape: str, method: str, served: dict[str, bool]
) -> None:
    """Undo the companion's work in the log of the rewritten module: the original's is left."""
    before = sources.run(shape, method, **served)
    after = sources.run(rewritten(shape), method, **served)
    assert after[0] == ("attach", "runner")
    asked = next(entry for entry in after if entry[0] == "pages")
    kernels = [entry for entry in after if entry[0] == "kernel"]
    whole = bool(asked[5])
    assert whole is (len(kernels) > 1), "several tables: the pool as before"
    if not whole:
        assert asked[2:4] == kernels[0][3:5], "the table and the lengths that the kernel gets"
    undone = [
        tuple(part.replace("pages of ", "") if isinstance(part, str) else part for part in entry)
        for entry in after[1:]
        if entry[0] not in ("pages", "writer")
    ]
    assert undone == [entry for entry in before if whole or entry[0] != "converted"]


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


# --- nothing to patch, and what is refused -------------------------------------------------


def test_the_pool_as_it_is_needs_no_patch() -> None:
    found = examined(sources.backend(cast="none"))
    assert (found.state, found.patched) == (State.UPSTREAM, None)
    assert "gets the pool's pages without a change of dtype" in found.reason


def test_a_pool_that_is_half_of_the_keys_is_not_upstream() -> None:
    text = sources.backend(cast="none")
    assert text.count("v_cache=latent_pages,") > 1
    found = examined(text.replace("v_cache=latent_pages,", "v_cache=self.latent,", 1))
    assert found.state is State.DRIFTED
    assert "neither the pool's buffer nor a cast of it" in found.reason


def test_only_one_path_without_a_cast_has_drifted() -> None:
    found = examined(sources.backend(decode_cast="none"))
    assert found.state is State.DRIFTED
    assert "only some places are as upstream left them" in found.reason


def test_a_class_beside_with_the_same_methods_is_left_alone() -> None:
    text = sources.backend()
    other = text[text.index("class FlashAttentionBackend") :].replace(
        "class FlashAttentionBackend", "class MusaFlashAttentionBackend"
    )
    after = rewritten(f"{text}\n\n{other}")
    assert after.endswith(other)
    assert after.count("_kv_gather.pages(") == 2


CUT = "rope_pages = ropes.view(-1, self.page_size, 1, layer.width - layer.rank)"
BEFORE_CUT = "        ropes = keys[:, :, layer.rank :]\n"
EDITED = {
    "another buffer's pages": (
        "keys = forward_batch.token_to_kv_pool.get_key_buffer(",
        "keys = self.shadow.of(",
        "neither the pool's buffer nor a cast of it (another patch of the same idea?)",
    ),
    "keys beside": (
        BEFORE_CUT, f"        self.seen = keys\n{BEFORE_CUT}",
        "the converted keys go elsewhere than to `flash_attn_with_kvcache`",
    ),
    "keys in a nested function": (
        BEFORE_CUT, f"        self.later(lambda: look(keys))\n{BEFORE_CUT}",
        "the converted keys go elsewhere",
    ),
    "keys half from elsewhere": (
        "v_cache=latent_pages,", "v_cache=self.latent,",
        "neither the pool's buffer nor a cast of it",
    ),
    "keys from two sources": (
        BEFORE_CUT, f"        if cascade:\n            keys = self.other\n{BEFORE_CUT}",
        "neither the pool's buffer nor a cast of it",
    ),
    "rows cut off": (
        "keys[:, :, layer.rank :]", "keys[4:, :, layer.rank :]",
        "the converted keys are cut by rows",
    ),
    "pages of another size": (
        CUT, CUT.replace("self.page_size", "1"), "not cut into pages of `self.page_size`",
    ),
    "pages of no size": (CUT, "rope_pages = ropes", "not cut into pages of `self.page_size`"),
    "cut twice": (
        CUT, CUT + ".view(-1, self.page_size, 1, 2)", "not cut into pages of `self.page_size`",
    ),
    "the pool in part": (
        ".get_key_buffer(\n            layer.layer_id\n        ).to(",
        ".get_key_buffer(\n            layer.layer_id\n        )[1:].to(",
        "what is converted is not the pool's buffer alone",
    ),
    "more than a dtype": (
        ").to(q.dtype)", ").to(q.dtype, copy=True)", "takes more than a dtype",
    ),
    "a device": (").to(q.dtype)", ").to(q.device)", "is no dtype by its name"),
    "a dtype that is called for": (
        ").to(q.dtype)", ").to(self.wanted())", "is no dtype by its name",
    ),
    "a second cast": (
        BEFORE_CUT,
        "        other = self.token_to_kv_pool.get_key_buffer(0).to(q.dtype)\n" + BEFORE_CUT,
        "a conversion of the pool that reaches no `flash_attn_with_kvcache`",
    ),
    "the pool read beside": (
        BEFORE_CUT, "        self.look(self.token_to_kv_pool.get_key_buffer(0))\n" + BEFORE_CUT,
        "the pool's buffer goes elsewhere",
    ),
    "the pool read in part": (
        BEFORE_CUT, "        self.token_to_kv_pool.get_mla_kv_buffer(layer)\n" + BEFORE_CUT,
        "the pool is read in a way that is not known",
    ),
    "the pool's method kept": (
        BEFORE_CUT, "        read = self.token_to_kv_pool.get_key_buffer\n" + BEFORE_CUT,
        "a method is not called where it is named",
    ),
    "no table": ("    page_table=page_table,\n", "", "has no argument `page_table`"),
    "no lengths": ("    cache_seqlens=cache_seqlens,\n", "", "has no argument `cache_seqlens`"),
    "a table that is made": (
        "    page_table=page_table,\n", "    page_table=page_table.int(),\n",
        "`page_table` of `flash_attn_with_kvcache` is no plain name",
    ),
    "a table bound behind the cast": (
        BEFORE_CUT, f"        page_table = metadata.page_table\n{BEFORE_CUT}",
        "`page_table`, is bound behind the place",
    ),
    "lengths bound behind the cast at times": (
        BEFORE_CUT, f"        if layer.local:\n            cache_seqlens = None\n{BEFORE_CUT}",
        "`cache_seqlens`, is bound behind the place",
    ),
    "a table changed behind the cast": (
        BEFORE_CUT, f"        page_table[0] = 1\n{BEFORE_CUT}", "may be changed in the method",
    ),
    "lengths changed behind the cast": (
        BEFORE_CUT, f"        cache_seqlens.add_(1)\n{BEFORE_CUT}", "may be changed in the method",
    ),
    "a table of the module": (
        "    page_table=page_table,\n", "    page_table=TABLE,\n", "comes from cannot be told",
    ),
    "new keys": (
        "    causal=not cascade,\n        )\n        if", "    k=k,\n        )\n        if",
        "gets an argument that is not known",
    ),
    "keys by another order": (
        "    causal=not cascade,\n        )\n        if",
        "    cache_batch_idx=k,\n        )\n        if",
        "gets an argument that is not known",
    ),
    "arguments that cannot be told": (
        "    causal=not cascade,\n        )\n        if", "    **self.more,\n        )\n        if",
        "gets an argument that is not known",
    ),
    "two tables at once": (
        "        if cascade:\n            other", "        for _ in (0,):\n            other",
        "several kernels read the converted keys by tables of their own",
    ),
    "no table at all times": (
        "        result = flash", "        if cascade:\n            pass\n        if layer.local:"
        "\n          result = flash", "every `flash_attn_with_kvcache` that reads",
    ),
    "a condition that is computed": (
        "        if cascade:\n            other",
        "        if self.look(cascade):\n            other",
        "the condition is no plain name",
    ),
    "a condition bound behind the cast": (
        "        if cascade:\n            other",
        "        cascade = self.look(cascade)\n        if cascade:\n            other",
        "the condition, `cascade`, is bound behind the place",
    ),
    "the kernel under another name": (
        "        result = flash_attn_with_kvcache(", "        attend = flash_attn_with_kvcache\n"
        "        result = attend(", "the converted keys go elsewhere",
    ),
    "another kernel": (
        "        result = flash_attn_with_kvcache(", "        result = attend_to_pages(",
        "the converted keys go elsewhere",
    ),
    "the constructor of another kind": (
        "        super().__init__()\n", "        super().__init__(model_runner)\n",
        "has no `super().__init__()`",
    ),
    "the method renamed": (
        "    def forward_extend(", "    def forward_extend_pages(",
        "`FlashAttentionBackend.forward_extend` is not defined",
    ),
    "the parts of the keys by name": (
        "layer, forward_batch.out_cache_loc, k, k_rope",
        "layer, forward_batch.out_cache_loc, k, cache_k_rope=k_rope",
        "the keys' two parts are not the third and fourth argument",
    ),
}  # fmt: skip
"""An edit of ``forward_extend`` or the constructor, and why it is refused."""


@pytest.mark.parametrize("name", EDITED)
def test_what_is_not_known_is_refused(name: str) -> None:
    old, new, reason = EDITED[name]
    text = sources.backend()
    assert old in text
    edited = text.replace(old, new, 1)
    if name == "no table at all times":
        edited = edited.replace("        if cascade:\n            other", "        if True:\n"
                                "         if cascade:\n            other", 1)  # fmt: skip
    ast.parse(edited)
    found = examined(edited)
    assert found.state is State.DRIFTED
    assert found.patched is None
    assert reason in found.reason
