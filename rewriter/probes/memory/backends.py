"""sglang's attention backends for MLA decode: which converts the whole pool, which runs where.

Read from the released sources of 0.4.2 to 0.5.23; each entry names its place in one of them. A
later release is judged as 0.5.23.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from packaging.version import Version

from rewriter.probes.models import Model

NEWEST = Version("0.5.23")
"""The last release that was read."""

FIRST = Version("0.4.6.post5")
"""The first release with the fault."""

SM12X = ("sm120", "sm121")
SM10X = ("sm100", "sm103")
ANYWHERE = ("sm80", "sm86", "sm89", "sm90", *SM10X, *SM12X)


@dataclass(frozen=True)
class Backend:
    """One backend.

    Attributes:
        name: as ``--attention-backend`` takes it, or what it is called in the report.
        flags: what to start the server with.
        archs: architectures it runs on.
        since, until: first and last release that has it for this use.
        kv: KV dtypes; ``fp8`` is fp8_e4m3, ``bf16`` the model's own.
        pages: page sizes it takes; empty for any.
        casts_since: first release in which it converts an FP8 pool; None: it never does.
        sparse: True: for models with an indexer alone; None: for all.
        packed: whether its FP8 rows are packed (656 bytes).
        limits: what else it asks for, in words.
        source: where that stands.
        measured: what is known of its own time.
    """

    name: str
    flags: str
    archs: Collection[str]
    since: Version
    until: Version | None
    kv: Collection[str]
    pages: tuple[int, ...]
    source: str
    casts_since: Version | None = None
    sparse: bool | None = None
    packed: bool = False
    limits: str = ""
    measured: str = ""

    @property
    def flag(self) -> str:
        """The name that ``--attention-backend`` takes."""
        return self.name.split()[0]

    def casts(self, release: Version, kv: str) -> bool:
        """Whether it converts the whole pool in every layer of every step."""
        return kv == "fp8" and self.casts_since is not None and release >= self.casts_since


def _backend(name: str, since: str, until: str | None = None, **more: object) -> Backend:
    values: dict[str, object] = {"flags": f"--attention-backend {name}", "pages": (), **more}
    if "casts_since" in values:
        values["casts_since"] = Version(str(values["casts_since"]))
    end = Version(until) if until else None
    return Backend(name, since=Version(since), until=end, **values)  # type: ignore[arg-type]


_ALL = ("fp8", "bf16")
BACKENDS = (
    _backend(
        "flashinfer", "0.4.6.post5", archs=ANYWHERE, kv=_ALL, casts_since="0.4.6.post5",
        source="0.5.9 srt/layers/attention/flashinfer_mla_backend.py:575, 639; "
        "0.5.23 :761, 822",
    ),
    _backend(
        "fa3", "0.4.6.post5", archs=("sm90",), kv=_ALL, casts_since="0.4.8.post1",
        source="0.5.9 srt/layers/attention/flashattention_backend.py:999, 1274; "
        "0.5.23 :1944, 2350",
    ),
    _backend(
        "dsa flashinfer_sparse_mla", "0.5.17", archs=SM12X, kv=("fp8",), pages=(64,),
        sparse=True, packed=True,
        flags="--attention-backend dsa",
        limits="full-graph capture hung in sglang#29580",
        source="0.5.17 srt/arg_groups/overrides.py:1602, default for GLM with FP8 KV on SM12x",
    ),
    _backend(
        "dsa trtllm", "0.5.9", archs=SM10X, kv=_ALL, pages=(64,), sparse=True,
        flags="--attention-backend {dsa} --{dsa}-prefill-backend trtllm "
        "--{dsa}-decode-backend trtllm",
        source="0.5.10 srt/server_args.py:1466, default of sparse models with FP8 KV there",
    ),
    _backend(
        "dsa", "0.5.3", archs=("sm90", *SM10X), kv=_ALL, pages=(64,), sparse=True, packed=True,
        flags="--attention-backend {dsa}",
        source="0.5.9 srt/server_args.py:1205, default of sparse models; "
        "page 64: srt/mem_cache/memory_pool.py:1778",
    ),
    _backend(
        "trtllm_mla", "0.4.10.post1", archs=SM10X, kv=_ALL, pages=(32, 64),
        source="0.5.9 srt/server_args.py:1880; 0.5.23 srt/arg_groups/overrides.py:1212",
    ),
    _backend(
        "trtllm_mla (XQA)", "0.5.9", archs=SM12X, kv=("fp8",), pages=(32, 64),
        flags="--attention-backend trtllm_mla",
        limits="FP8 queries and keys, one query token a request (no speculation), no sinks",
        source="0.5.9 srt/server_args.py:1880; 0.5.23 srt/arg_groups/overrides.py:1212",
    ),
    _backend(
        "cutedsl_mla", "0.5.13", archs=SM10X, kv=_ALL, pages=(32, 64),
        limits="decode alone",
        source="0.5.23 srt/arg_groups/overrides.py, _cutedsl_prefill_backend_fill",
    ),
    _backend(
        "tokenspeed_mla", "0.5.12", "0.5.22", archs=(*SM10X, *SM12X), kv=("fp8",),
        pages=(32, 64),
        limits="an alias of cutedsl_mla from 0.5.23",
        source="0.5.12 srt/server_args.py:2734",
    ),
    _backend(
        "flashmla", "0.4.6.post5", archs=("sm90",), kv=_ALL, pages=(64,),
        source="0.5.9 srt/server_args.py:1861; sglang#35291",
        measured="31.52 -> 17.68 ms on 8 x H200, DeepSeek-R1, 0.5 ms over BF16 KV (sglang#35291)",
    ),
    _backend(
        "cutlass_mla", "0.4.6.post5", "0.5.19", archs=SM10X, kv=_ALL, pages=(128,),
        limits="never with sparse attention's page of 64",
        source="0.5.9 srt/server_args.py:1870; "
        "page 64 is the DSA pool's assert, srt/mem_cache/memory_pool.py:1778",
        sparse=False,
    ),
    _backend(
        "triton", "0.4.6.post5", archs=ANYWHERE, kv=_ALL,
        source="0.5.9 srt/server_args.py:1833, default off SM90 and SM100; converts in its kernel",
    ),
)  # fmt: skip

_NOPE_128_ONLY = Version("0.5.9")
"""It pins flashinfer 0.6.3, whose mla.py:86 asks for qk_nope_head_dim == 128; 0.5.10 does not."""


def backend_named(name: str) -> Backend | None:
    """Return a backend by the name that sglang's flag takes."""
    plain = {"nsa": "dsa", "flashinfer_sparse_mla": "dsa flashinfer_sparse_mla"}.get(name, name)
    return next((b for b in BACKENDS if b.name == plain), None)


def obstacle(backend: Backend, model: Model, arch: str, release: Version, kv: str) -> str:
    """Say why a backend cannot serve; empty if it can.

    Args:
        backend, model: which.
        arch: ``sm90``, …
        release: of sglang.
        kv: ``fp8`` or ``bf16``.
    """
    if release < backend.since:
        return f"comes with sglang {backend.since}"
    if backend.until is not None and release > backend.until:
        return f"left sglang after {backend.until}"
    if arch not in backend.archs:
        return f"runs on {', '.join(a.upper() for a in backend.archs)}, not on {arch.upper()}"
    if kv not in backend.kv:
        return f"takes {' or '.join(backend.kv).upper()} KV alone"
    if backend.sparse is True and not model.indexed:
        return "is for sparse attention alone"
    if backend.sparse is False and model.indexed:
        return (
            f"pages of {backend.pages[0]} meet the 64 of the sparse model's own pool "
            "(srt/mem_cache/memory_pool.py:1778)"
        )
    if backend.name.startswith("trtllm_mla") and release <= _NOPE_128_ONLY:
        return _nope_obstacle(model)
    return ""


def _nope_obstacle(model: Model) -> str:
    if model.qk_nope_head_dim == 128:
        return ""
    return (
        f"qk_nope_head_dim is {model.qk_nope_head_dim}, and flashinfer 0.6.3, which "
        f"{_NOPE_128_ONLY} pins, takes 128 alone (mla.py:86); 0.5.10 lifted that"
    )


def packs_rows(model: Model, arch: str, release: Version) -> bool:
    """Whether the FP8 pool of a sparse model has packed rows whatever backend decodes.

    Its layout follows the DSA backend alone, even where another attention backend is named:
    packed unless that is ``trtllm`` (0.5.9 srt/model_executor/model_runner_kv_cache_mixin.py:213),
    the default on SM10x and SM12x from 0.5.10, and on SM12x for GLM until 0.5.16.
    """
    if not model.indexed:
        return False
    if release < Version("0.5.10") or arch not in (*SM10X, *SM12X):
        return True
    return arch in SM12X and release >= Version("0.5.17") and _glm(model)


def _glm(model: Model) -> bool:
    return "glm" in model.name.casefold()


def default(model: Model, arch: str, release: Version, kv: str) -> Backend:
    """Return the backend that sglang takes if none is named.

    0.5.9 srt/server_args.py:1205 (sparse models), :1277, :1821-1833; 0.5.23
    srt/arg_groups/model_override_base.py:335-351. For a sparse model on SM12x before 0.5.17 the
    default has no kernel known to run there; the field report's server was told ``flashinfer``.
    """
    for name in _preferred(model, arch, release, kv):
        found = backend_named(name)
        if found is not None and not obstacle(found, model, arch, release, kv):
            return found
    return next(b for b in BACKENDS if b.name == "flashinfer")


def _preferred(model: Model, arch: str, release: Version, kv: str) -> tuple[str, ...]:
    if model.indexed:
        if arch in SM12X:
            glm = ("dsa flashinfer_sparse_mla",) if _glm(model) else ()
            return (*glm, "flashinfer")
        return ("dsa trtllm", "dsa") if release >= Version("0.5.10") and kv == "fp8" else ("dsa",)
    if arch == "sm90":
        return ("fa3",)
    if arch in SM10X:
        family = any(word in model.name.casefold() for word in ("deepseek", "kimi-k2"))
        native = family and release >= Version("0.5.3.post2")
        return ("trtllm_mla", "flashinfer") if native else ("flashinfer",)
    return ("triton",)
