"""The figures of the field report's alternatives, reproduced or corrected one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from rewriter.errors import UsageError
from rewriter.probes.memory import backends, formulas, gpus
from rewriter.probes.memory.deployment import Deployment, cell_of
from rewriter.probes.models import MODELS
from rewriter.probes.trace.pool import GB, GIB

GLM = MODELS["GLM-5"]
POOL = 495_552
FP8 = formulas.cell(GLM, GLM.row)
BF16 = formulas.cell(GLM, 2 * GLM.row)
MEMORY = POOL * FP8


def report(**changes: object) -> Deployment:
    """The field report's server."""
    flashinfer = backends.backend_named("flashinfer")
    values: dict[str, object] = {
        "model": GLM,
        "arch": "sm120",
        "release": Version("0.5.9"),
        "memory": float(MEMORY),
        "bandwidth": 1792.0,
        "kv": "fp8",
        "backend": flashinfer,
        "gpus": 8,
        "step_ms": 95.6,
        "measured_cast_ms": 1938.0 / 30,
        "codemods": ("mla_kv_gather",),
        **changes,
    }
    return Deployment(**values)  # type: ignore[arg-type]


def test_fp8_memory_is_gib_and_holds_the_index_cache() -> None:
    rows = POOL * GLM.layers * GLM.row
    index = POOL * GLM.index_bytes_per_token
    assert round(rows / GB, 3) == 22.264
    assert round(rows / GIB, 3) == 20.735
    assert round(index / GB, 3) == 5.102
    assert round(index / GIB, 3) == 4.752
    assert round(MEMORY / GB, 3) == 27.366
    assert round(MEMORY / GIB, 3) == 25.487  # the report's "25.5 GB"


def test_bf16_does_not_double_the_index_cache() -> None:
    assert round(POOL * BF16 / GB, 3) == 49.631  # not 51
    assert round(POOL * BF16 / GIB, 2) == 46.22


def test_a_shadow_takes_44_53_gb() -> None:
    shadow = POOL * GLM.layers * GLM.row * 2
    assert round(shadow / GB, 2) == 44.53
    assert round(shadow / GIB, 2) == 41.47  # the report's "41.7 GB"


def test_bf16_in_the_same_memory_is_feasible() -> None:
    tokens = formulas.tokens_in(MEMORY, BF16)
    assert tokens == 273_248
    assert round(tokens / POOL, 2) == 0.55
    assert tokens > GLM.max_context  # type: ignore[operator]


def test_fp8_and_its_shadow_in_the_same_memory() -> None:
    assert formulas.tokens_in(MEMORY, formulas.cell(GLM, 3 * GLM.row)) == 188_629


def test_the_cast_allocates_571_mb() -> None:
    scratch = formulas.cast_scratch(GLM, POOL)
    assert round(scratch / GB, 3) == 0.571
    assert round(scratch / GIB, 3) == 0.532


def test_the_step_without_the_cast() -> None:
    at = report()
    assert round(at.cast_ms, 1) == 64.6
    assert at.rest_ms is not None
    assert round(at.rest_ms, 1) == 31.0
    assert round(1000 / at.rest_ms, 1) == 32.3  # tokens a second


@pytest.mark.parametrize(
    ("pool", "cast", "step"),
    [(202_752, 26.4, 57), (131_072, 17.1, 48), (65_536, 8.5, 39.5), (32_768, 4.3, 35.3)],
)
def test_smaller_pools(pool: int, cast: float, step: float) -> None:
    at = report()
    found = at.cast_of(pool)
    assert round(found, 1) == cast
    assert at.rest_ms is not None
    assert at.rest_ms + found == pytest.approx(step, abs=0.5)


def test_32k_is_faster_than_the_patch_was() -> None:
    at = report()
    assert at.rest_ms is not None
    step = at.rest_ms + at.cast_of(32_768)
    assert 95.6 / step == pytest.approx(2.7, abs=0.05)
    assert step < 74.03


def test_the_cast_by_rate_is_near_the_measured_one() -> None:
    assert report(measured_cast_ms=None).cast_ms == pytest.approx(64.6, rel=0.02)


def test_memory_is_not_the_casts_limit() -> None:
    floor = formulas.floor_cast_ms(78, POOL, GLM.row, 1800)
    assert floor / 78 * 1e3 == pytest.approx(475.7, abs=0.1)
    assert floor / report().cast_ms == pytest.approx(0.574, abs=0.001)


@pytest.mark.parametrize("rows", [215, 500])
def test_a_true_gather_is_free(rows: int) -> None:
    bytes_a_layer = rows * GLM.row * 5
    assert 0.6e6 < bytes_a_layer < 1.5e6
    moved = formulas.patched_ms(78, rows, GLM.row, 1792) - 78 * formulas.GATHER_LAUNCH_US / 1e3
    assert moved / 78 < 1e-3  # below 1 us a layer


def test_the_gather_fits_what_was_measured_on_an_h200() -> None:
    assert formulas.patched_ms(78, 15, 576, 4800) == pytest.approx(7.17 - 6.60, abs=0.03)
    assert formulas.patched_ms(78, 8015, 576, 4800) == pytest.approx(8.60 - 7.70, abs=0.1)


def test_issue_35291() -> None:
    r1 = MODELS["DeepSeek-R1"]
    fa3 = backends.backend_named("fa3")
    assert fa3 is not None
    at = Deployment(
        r1, "sm90", Version("0.5.9"), 131_072.0 * cell_of(r1, fa3, "fp8", False), 4800.0, "fp8",
        fa3, step_ms=31.52, measured_cast_ms=13.77,
    )  # fmt: skip
    assert at.rest_ms == pytest.approx(17.75)
    by_rate = Deployment(at.model, at.arch, at.release, at.memory, 4800.0, "fp8", fa3)
    assert by_rate.cast_ms == pytest.approx(13.77, rel=0.02)


@pytest.mark.parametrize(
    ("name", "fp8", "bf16", "index", "packed"),
    [
        ("GLM-5", 44_928, 89_856, 10_296, 51_168),
        ("DeepSeek-V3", 35_136, 70_272, 0, None),
        ("DeepSeek-R1", 35_136, 70_272, 0, None),
        ("DeepSeek-V3.2", 35_136, 70_272, 8_052, 40_016),
        ("Kimi-K2", 35_136, 70_272, 0, None),
        ("GLM-4.7-Flash", 27_072, 54_144, 0, None),
    ],
)
def test_bytes_a_token(name: str, fp8: int, bf16: int, index: int, packed: int | None) -> None:
    model = MODELS[name]
    assert formulas.cell(model, model.row) == fp8 + index
    assert formulas.cell(model, 2 * model.row) == bf16 + index
    if packed is not None:
        assert formulas.packed_row(model) == 656
        assert formulas.cell(model, 656) == packed + index


def test_packed_rows_are_undercounted_by_11_percent_until_0_5_16() -> None:
    assert formulas.cell(GLM, 656) / FP8 - 1 == pytest.approx(0.113, abs=0.001)


def test_a_draft_layer_has_rows_and_an_index() -> None:
    assert formulas.cell(GLM, GLM.row, drafts=True) == FP8 + GLM.row + 132


@given(
    model=st.sampled_from(list(MODELS.values())),
    memory=st.integers(1, 2**38),
    page=st.sampled_from([1, 32, 64, 128]),
)
def test_a_shadow_never_holds_more_than_bf16(model: object, memory: int, page: int) -> None:
    sizes = [formulas.cell(model, n * model.row) for n in (1, 2, 3)]  # type: ignore[arg-type, attr-defined]
    fp8, bf16, shadow = (formulas.tokens_in(memory, size, page) for size in sizes)
    assert fp8 >= bf16 >= shadow
    assert all(count % page == 0 for count in (fp8, bf16, shadow))
    assert shadow * sizes[2] <= memory


@pytest.mark.parametrize(
    ("text", "expected"),
    [("96GB", 96e9), ("96 GiB", 96 * 2**30), ("95.6gib", 95.6 * 2**30), ("1,024 MiB", 2**30)],
)
def test_sizes_have_units(text: str, expected: float) -> None:
    assert gpus.size(text, "--weights") == expected


@pytest.mark.parametrize("text", ["96", "96 G", "GB", "-3GB", "96GB!"])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="GiB"):
        gpus.size(text, "--weights")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"), ("6000", "RTX PRO 6000"),
        ("h200", "H200"), ("NVIDIA H200 NVL", "H200"), ("H20", "H20"), ("NVIDIA H20", "H20"),
        ("A100", "A100 80GB PCIe"), ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"), ("4090", "RTX 4090"),
    ],
)  # fmt: skip
def test_gpus_are_found_by_words_of_their_name(said: str, name: str) -> None:
    assert gpus.gpu_named(said).name == name


@pytest.mark.parametrize("said", ["Voodoo 3", "!", "", "H201", "H2000", "L40", "GB200", "H", "RTX"])
def test_another_gpu_is_not_taken_for_one_that_is_like_it(said: str) -> None:
    with pytest.raises(UsageError, match=r"is not one of .*H200"):
        gpus.gpu_named(said)


def test_every_known_gpu_has_a_bandwidth_and_is_found_by_its_name() -> None:
    for name, gpu in gpus.known().items():
        assert gpu.bandwidth > 0
        assert gpus.gpu_named(name) == gpu


@pytest.mark.parametrize("text", ["sm120", "SM120", "12.0", "120"])
def test_architectures_in_any_spelling(text: str) -> None:
    assert gpus.architecture(text) == "sm120"


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(UsageError, match="sm70"):
        gpus.architecture("sm70")
