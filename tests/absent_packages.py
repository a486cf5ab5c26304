"""Stand-ins for what sglang imports and a machine for tests has not: every name is there.

Run as a ``sitecustomize`` behind an overlay's. Only packages that are not installed are stood in
for; torch, Triton and numpy are the real ones.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAMES = """
IPython PIL aiohttp anthropic av blobfile compressed_tensors cuda cutlass datasets decord
dill einops fastapi flashinfer gguf grpc grpc_health grpc_reflection hf_transfer
huggingface_hub interegular llguidance modelscope multipart ninja openai openai_harmony
orjson outlines outlines_core partial_json_parser prometheus_client psutil py_spy pybase64
pydantic pynvml quack regex requests safetensors scipy sentencepiece setproctitle sgl_kernel
smg_grpc_proto soundfile starlette tiktoken timm tokenizers torch_memory_saver torchao
torchaudio torchcodec torchvision tqdm transformers tvm_ffi uvicorn uvloop xgrammar zmq
"""
NAMES = frozenset(_NAMES.split())
"""What sglang 0.5.9 requires, by the names that are imported."""


class _Anything(type):
    """A class that is base, decorator, function, mapping and context, whatever is asked of it."""

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **_: Any) -> Any:
        return super().__new__(cls, name, bases, space)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, space)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __call__(cls, *given: Any, **named: Any) -> Any:
        if "_stands_in" not in cls.__dict__:  # a class of sglang's, of such a base
            return super().__call__(*given, **named)
        if cls.__name__ == "dumps":
            return b""
        if len(given) == 1 and not named and callable(given[0]):
            return given[0]  # as a decorator
        return _anything(cls.__name__)

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, key: object) -> bool:
        return False

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __setitem__(cls, key: object, value: object) -> None: ...

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__

    def __lt__(cls, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


def _anything(name: str) -> Any:
    space = {"_stands_in": True, "__init_subclass__": classmethod(lambda cls, **_: None)}
    return _Anything(name, (), space)


class _Package(ModuleType):
    __path__: list[str] = []  # noqa: RUF012  # a package without a place

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)


class Finder:
    """The last finder: it is asked for what no other one found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in NAMES:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


if __name__ == "sitecustomize":
    sys.meta_path.append(Finder())
