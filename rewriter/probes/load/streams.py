"""Server-sent events of sglang's two endpoints, gathered into a Reply."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rewriter.probes.load.failures import Kind, LoadError
from rewriter.probes.load.reply import Reply

Endpoint = Literal["native", "openai"]
PATHS: Mapping[Endpoint, str] = {"native": "/generate", "openai": "/v1/completions"}


@dataclass
class Gathering:
    """A reply in the making; ``where`` begins its messages."""

    where: str
    started: float
    logprobs_wanted: bool = False
    prompt_tokens: int | None = None
    tokens: int = 0
    ids: list[int] | None = None
    logprobs: list[float | None] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    cached: int | None = None
    arrivals: list[float] = field(default_factory=list)

    def reply(self) -> Reply:
        """Return what has arrived so far."""
        ids = None if self.ids is None else tuple(self.ids)
        return Reply(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.tokens,
            output_ids=ids,
            logprobs=tuple(self.logprobs) if self.logprobs_wanted else None,
            text=self.text,
            finish_reason=self.finish,
            cached_tokens=self.cached,
            started=self.started,
            arrivals=tuple(self.arrivals),
        )

    def fail(self, kind: Kind, what: str) -> LoadError:
        """Return the error, with what had arrived."""
        kept = self.reply() if self.arrivals else None
        return LoadError(kind, f"{self.where}: {what}{self.progress()}", reply=kept)

    def progress(self) -> str:
        """Say how far a reply came."""
        return f" (after {self.tokens} tokens)" if self.tokens else " (before the first token)"

    def arrived(self, tokens: int, now: float) -> bool:
        """Note a count of tokens so far; return whether it grew."""
        if tokens < self.tokens:
            raise self.fail("garbage", f"the count of tokens fell to {tokens}")
        if tokens == self.tokens:
            return False
        self.tokens = tokens
        self.arrivals.append(now)
        return True


def gather(
    endpoint: Endpoint,
    stream: Iterable[tuple[bytes, float]],
    gathering: Gathering,
    *,
    stall_s: float,
    on_chunk: Callable[[int], None] | None = None,
) -> Reply:
    """Read a stream to its end and return the reply.

    Args:
        stream: lines with the time of their arrival (seconds).
        gathering: an empty one.
        stall_s: seconds without a token, comments and pings notwithstanding, that are too long.
        on_chunk: called with the number of chunks so far at each chunk that brought tokens.

    Raises:
        LoadError: with what had arrived.
    """
    take = _native if endpoint == "native" else _openai
    last = gathering.started
    try:
        for line, now in stream:
            event = _event(line, gathering)
            if event is _DONE:
                break
            if event is not None and take(event, now, gathering):
                last = now
                if on_chunk is not None:
                    on_chunk(len(gathering.arrivals))
            elif now - last > stall_s:
                raise gathering.fail("stalled", f"no token came for {stall_s:g} s")
    except LoadError as error:
        if error.reply is not None or not gathering.arrivals:
            raise
        told = f"{error}{gathering.progress()}"
        raise LoadError(error.kind, told, reply=gathering.reply()) from error
    return _ended(gathering)


def _ended(gathering: Gathering) -> Reply:
    if not gathering.finish:
        raise gathering.fail("broken", "the stream ended without a finish_reason")
    if not gathering.arrivals:
        raise gathering.fail("garbage", "the server counted no completion token")
    return gathering.reply()


_DONE: dict[str, Any] = {}


def _event(line: bytes, gathering: Gathering) -> dict[str, Any] | None:
    """Return the document of a data line, ``_DONE`` at the end mark, None for another line."""
    if not line or line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    head, _, data = line.partition(b":")
    data = data.strip()
    if head != b"data":
        raise gathering.fail("garbage", f"expected an event, found {line[:60]!r}")
    if data == b"[DONE]":
        return _DONE
    try:
        value = json.loads(data)
    except ValueError as error:
        raise gathering.fail("garbage", f"an event is no JSON: {data[:60]!r}") from error
    if not isinstance(value, dict):
        raise gathering.fail("garbage", f"an event is no object: {data[:60]!r}")
    if value.get("error"):
        said = value["error"]
        told = said.get("message", said) if isinstance(said, dict) else said
        raise gathering.fail("server", f"the server reported: {str(told)[:300]}")
    return value


def _native(event: Mapping[str, Any], now: float, gathering: Gathering) -> bool:
    """Take one chunk of ``/generate``: text and ids so far, or, if incremental, since the last."""
    meta = event.get("meta_info")
    if not isinstance(meta, Mapping):
        raise gathering.fail("garbage", "a chunk has no meta_info")
    before = gathering.tokens
    grew = gathering.arrived(_count(meta, "completion_tokens", gathering), now)
    gathering.prompt_tokens = _count(meta, "prompt_tokens", gathering)
    cached = meta.get("cached_tokens")
    gathering.cached = cached if isinstance(cached, int) else gathering.cached
    _take_ids(event.get("output_ids"), before, gathering)
    _take_logprobs(meta.get("output_token_logprobs"), gathering)
    text = event.get("text")
    if isinstance(text, str):
        longer = text.startswith(gathering.text)
        gathering.text = text if longer else gathering.text + text
    _finish(meta.get("finish_reason"), gathering)
    return grew


def _take_ids(ids: object, before: int, gathering: Gathering) -> None:
    if not isinstance(ids, list):
        return
    if not all(isinstance(token, int) for token in ids):
        raise gathering.fail("garbage", "output_ids are not whole numbers")
    kept = gathering.ids or []
    # `--incremental-streaming-output` (before 0.5.10 `--stream-output`) sends the new ones alone.
    if len(ids) != gathering.tokens and len(ids) == gathering.tokens - before:
        kept.extend(ids)
        gathering.ids = kept
    else:
        gathering.ids = list(ids)


def _take_logprobs(found: object, gathering: Gathering) -> None:
    if not gathering.logprobs_wanted or not isinstance(found, list):
        return
    values = [_logprob(entry) for entry in found]
    whole = len(values) >= gathering.tokens
    gathering.logprobs = values if whole else gathering.logprobs + values


def _logprob(entry: object) -> float | None:
    value = entry[0] if isinstance(entry, list) and entry else entry
    if isinstance(value, (int, float)) and not math.isnan(value):
        return float(value)
    return None


def _openai(event: Mapping[str, Any], now: float, gathering: Gathering) -> bool:
    """Take one chunk of ``/v1/completions``: a delta of text, and usage as the server counts."""
    choices = event.get("choices")
    if not isinstance(choices, list):
        raise gathering.fail("garbage", "a chunk has no choices")
    usage = event.get("usage")
    choice = choices[0] if choices else {}
    delta = choice.get("text") or "" if isinstance(choice, Mapping) else ""
    gathering.text += delta
    grew = False
    if isinstance(usage, Mapping):
        gathering.prompt_tokens = _count(usage, "prompt_tokens", gathering)
        count = _count(usage, "completion_tokens", gathering)
        if choices:
            grew = gathering.arrived(count, now)
        else:
            gathering.tokens = count  # the last word, after the tokens
    elif delta:
        gathering.arrivals.append(now)
        grew = True
    if isinstance(choice, Mapping):
        _take_openai_logprobs(choice.get("logprobs"), gathering)
        _finish(choice.get("finish_reason"), gathering)
    return grew


def _take_openai_logprobs(found: object, gathering: Gathering) -> None:
    if gathering.logprobs_wanted and isinstance(found, Mapping):
        values = found.get("token_logprobs")
        gathering.logprobs += [_logprob(value) for value in values or ()]


def _count(where: Mapping[str, Any], key: str, gathering: Gathering) -> int:
    value = where.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise gathering.fail("garbage", f"{key} is {value!r}, expected a count")
    return value


def _finish(reason: object, gathering: Gathering) -> None:
    if reason is None:
        return
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    if kind == "abort":
        said = reason.get("message") if isinstance(reason, Mapping) else None
        raise gathering.fail("server", f"the server gave the request up: {said or 'no reason'}")
    gathering.finish = str(kind)
