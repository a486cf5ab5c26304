"""Which backend casts, serves and is the default, by release and architecture."""

from __future__ import annotations

import pytest
from packaging.version import Version

from rewriter.probes.memory.backends import (
    BACKENDS,
    NEWEST,
    backend_named,
    default,
    obstacle,
    packs_rows,
)
from rewriter.probes.models import MODELS, Model

GLM, V3, V32, FLASH = (
    MODELS[n] for n in ("GLM-5", "DeepSeek-V3", "DeepSeek-V3.2", "GLM-4.7-Flash")
)


def casts(name: str, release: str, kv: str = "fp8") -> bool:
    backend = backend_named(name)
    assert backend is not None
    return backend.casts(Version(release), kv)


def why_not(name: str, model: Model, arch: str, release: str, kv: str = "fp8") -> str:
    backend = backend_named(name)
    assert backend is not None
    return obstacle(backend, model, arch, Version(release), kv)


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("flashinfer", "0.4.6.post5", True),
        ("flashinfer", "0.5.23", True),
        ("fa3", "0.4.8", False),
        ("fa3", "0.4.8.post1", True),
        ("fa3", "0.5.23", True),
        ("triton", "0.5.9", False),
        ("flashmla", "0.5.9", False),
        ("trtllm_mla", "0.5.9", False),
    ],
)
def test_who_casts(name: str, release: str, expected: bool) -> None:
    assert casts(name, release) is expected
    assert not casts(name, release, "bf16")


@pytest.mark.parametrize(
    ("model", "arch", "release", "kv", "expected"),
    [
        (V3, "sm90", "0.5.9", "fp8", "fa3"),
        (V3, "sm90", "0.5.23", "fp8", "fa3"),
        (V3, "sm100", "0.5.9", "fp8", "trtllm_mla"),
        (V3, "sm100", "0.5.2", "fp8", "flashinfer"),
        (FLASH, "sm100", "0.5.9", "fp8", "flashinfer"),
        (V3, "sm120", "0.5.9", "fp8", "triton"),
        (V3, "sm80", "0.5.9", "fp8", "triton"),
        (V32, "sm90", "0.5.9", "fp8", "dsa"),
        (V32, "sm100", "0.5.9", "fp8", "dsa"),
        (V32, "sm100", "0.5.10", "fp8", "dsa trtllm"),
        (GLM, "sm120", "0.5.16", "fp8", "flashinfer"),
        (GLM, "sm120", "0.5.17", "fp8", "dsa flashinfer_sparse_mla"),
        (GLM, "sm121", "0.5.23", "fp8", "dsa flashinfer_sparse_mla"),
        (GLM, "sm120", "0.5.23", "bf16", "flashinfer"),
        (V32, "sm120", "0.5.23", "fp8", "flashinfer"),
    ],
)
def test_defaults(model: Model, arch: str, release: str, kv: str, expected: str) -> None:
    assert default(model, arch, Version(release), kv).name == expected


def test_hoppers_default_is_the_faulty_path() -> None:
    assert default(V3, "sm90", NEWEST, "fp8").casts(NEWEST, "fp8")


@pytest.mark.parametrize(
    ("name", "model", "arch", "release", "words"),
    [
        # E15: the check is flashinfer 0.6.3's, which 0.5.9 pins; gone in 0.5.10.
        ("trtllm_mla (XQA)", GLM, "sm120", "0.5.9", "qk_nope_head_dim is 192"),
        ("trtllm_mla (XQA)", GLM, "sm120", "0.5.10", ""),
        ("trtllm_mla (XQA)", V3, "sm120", "0.5.9", ""),
        ("trtllm_mla (XQA)", V3, "sm120", "0.5.8", "comes with sglang 0.5.9"),
        ("trtllm_mla", GLM, "sm90", "0.5.10", "not on SM90"),
        # E14: page 64 is the sparse pool's, cutlass_mla wants 128.
        ("cutlass_mla", GLM, "sm100", "0.5.9", "pages of 128 meet the 64"),
        ("cutlass_mla", V3, "sm100", "0.5.9", ""),
        ("cutlass_mla", V3, "sm100", "0.5.20", "left sglang after 0.5.19"),
        ("cutedsl_mla", V3, "sm100", "0.5.12", "comes with sglang 0.5.13"),
        ("tokenspeed_mla", V3, "sm120", "0.5.22", ""),
        ("tokenspeed_mla", V3, "sm120", "0.5.23", "left sglang after 0.5.22"),
        ("flashmla", V3, "sm90", "0.5.9", ""),
        ("flashmla", V3, "sm100", "0.5.9", "not on SM100"),
        ("fa3", V3, "sm120", "0.5.9", "not on SM120"),
        ("dsa", V3, "sm90", "0.5.9", "sparse attention alone"),
        ("dsa", V32, "sm90", "0.5.2", "comes with sglang 0.5.3"),
        ("dsa flashinfer_sparse_mla", GLM, "sm120", "0.5.16", "comes with sglang 0.5.17"),
        ("triton", GLM, "sm80", "0.5.9", ""),
    ],
)
def test_obstacles(name: str, model: Model, arch: str, release: str, words: str) -> None:
    found = why_not(name, model, arch, release)
    assert (words in found) if words else found == ""


def test_a_backend_for_fp8_alone_refuses_bf16() -> None:
    assert "FP8 KV alone" in why_not("tokenspeed_mla", V3, "sm120", "0.5.12", "bf16")


@pytest.mark.parametrize(
    ("arch", "release", "expected"),
    [("sm90", "0.5.23", True), ("sm120", "0.5.9", True), ("sm120", "0.5.10", False),
     ("sm120", "0.5.17", True), ("sm100", "0.5.17", False)],
)  # fmt: skip
def test_the_rows_of_a_sparse_models_pool(arch: str, release: str, expected: bool) -> None:
    assert packs_rows(GLM, arch, Version(release)) is expected
    assert not packs_rows(V3, arch, Version(release))


def test_every_backend_says_where_that_stands() -> None:
    assert all(backend.source for backend in BACKENDS)
    assert len({backend.name for backend in BACKENDS}) == len(BACKENDS)
