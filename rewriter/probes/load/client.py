"""A small client of a running sglang: its native and its OpenAI endpoint, streamed.

Only the standard library's ``http.client``; one connection a request, no proxies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from rewriter.probes.load.connection import address, exchange, lines, read_whole
from rewriter.probes.load.failures import LoadError
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.streams import PATHS, Endpoint, Gathering, gather

__all__ = [
    "LoadError",
    "Reply",
    "flush_cache",
    "generate",
    "model_info",
    "server_info",
    "start_profile",
    "wait_ready",
]

ANSWER_S = 30.0
"""Seconds that a question about the server may take."""

STALL_S = 120.0
"""Seconds without a token after which a reply counts as stalled; a cold server compiles first."""


def generate(
    url: str,
    prompt: Sequence[int] | str,
    tokens: int,
    *,
    endpoint: Endpoint = "native",
    model: str = "default",
    logprobs: bool = False,
    api_key: str | None = None,
    stall_s: float = STALL_S,
    on_chunk: Callable[[int], None] | None = None,
) -> Reply:
    """Stream one greedy reply of ``tokens`` tokens (temperature 0, end of text ignored).

    Args:
        prompt: token ids or text.
        model: what the OpenAI endpoint is told; a server with one model takes any name.
        logprobs: ask for each token's log-probability.
        stall_s: seconds without a token that count as a stall.
        on_chunk: called with the number of chunks so far as each arrives, e.g. to start a
            profile once decoding is under way.

    Raises:
        LoadError: the server refused, failed, stalled, broke off or talked nonsense; what had
            arrived is its ``reply``.
    """
    path = PATHS[endpoint]
    body = (
        _native_body(prompt, tokens, logprobs)
        if endpoint == "native"
        else _openai_body(prompt, tokens, logprobs, model)
    )
    where = f"POST {address(url)}{path}"
    with exchange(url, "POST", path, body, api_key=api_key, timeout_s=stall_s) as (
        response,
        started,
    ):
        return gather(
            endpoint,
            lines(response, where, stall_s),
            Gathering(where, started, logprobs),
            stall_s=stall_s,
            on_chunk=on_chunk,
        )


def _native_body(prompt: Sequence[int] | str, tokens: int, logprobs: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }
    if isinstance(prompt, str):
        body["text"] = prompt
    else:
        body["input_ids"] = list(prompt)
    if logprobs:
        body["return_logprob"] = True
    return body


def _openai_body(
    prompt: Sequence[int] | str, tokens: int, logprobs: bool, model: str
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if logprobs:
        body["logprobs"] = 1
    return body


def server_info(
    url: str, *, api_key: str | None = None, timeout_s: float = ANSWER_S
) -> dict[str, Any]:
    """Return the server's arguments, state and version as it tells them.

    Raises:
        LoadError: it tells nothing, or no JSON object.
    """
    # `/server_info` came with 0.5.6; the older name stayed.
    return _ask(url, ("/server_info", "/get_server_info"), api_key, timeout_s)


def model_info(
    url: str, *, api_key: str | None = None, timeout_s: float = ANSWER_S
) -> dict[str, Any]:
    """Return the model's path and kind as the server tells them; raises LoadError."""
    return _ask(url, ("/model_info", "/get_model_info"), api_key, timeout_s)


def _ask(url: str, paths: tuple[str, ...], api_key: str | None, timeout_s: float) -> dict[str, Any]:
    *first, last = paths
    for path in first:
        try:
            return _document(url, path, api_key, timeout_s)
        except LoadError as error:
            if error.status != 404:
                raise
    return _document(url, last, api_key, timeout_s)


def _document(url: str, path: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    where = f"GET {address(url)}{path}"
    with exchange(url, "GET", path, api_key=api_key, timeout_s=timeout_s) as (response, _):
        raw = read_whole(response, where, timeout_s)
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise LoadError("garbage", f"{where}: no JSON: {raw[:60]!r}") from error
    if not isinstance(value, dict):
        raise LoadError("garbage", f"{where}: no JSON object: {raw[:60]!r}")
    return value


def flush_cache(
    url: str, *, api_key: str | None = None, patience_s: float = 5.0, timeout_s: float = ANSWER_S
) -> None:
    """Empty the server's prefix cache.

    sglang answers 400 while a request is in the batch, and the last one's end may be a moment
    away: it is asked again for ``patience_s`` seconds.

    Raises:
        LoadError: it still refuses, so somebody else is using the server; or it fails otherwise.
    """
    give_up = time.monotonic() + patience_s
    while True:
        try:
            with exchange(url, "POST", "/flush_cache", api_key=api_key, timeout_s=timeout_s):
                return
        except LoadError as error:
            if error.status != 400:
                raise
            if time.monotonic() >= give_up:
                raise LoadError(
                    "status",
                    f"{address(url)}: the cache cannot be flushed: other requests are running; "
                    "measure an idle server",
                    status=400,
                ) from error
        time.sleep(0.1)


def start_profile(
    url: str,
    *,
    output_dir: str | None = None,
    num_steps: int | None = None,
    activities: Sequence[str] = ("CPU", "GPU"),
    with_stack: bool = False,
    record_shapes: bool = False,
    api_key: str | None = None,
    timeout_s: float = ANSWER_S,
    **more: object,
) -> None:
    """Start the server's profiler; it writes into a folder of the SERVER's machine.

    Args:
        output_dir: that folder; default the server's.
        num_steps: forward steps until it stops by itself; 0.5.15 and earlier record one fewer.
        with_stack: record Python stacks: most of a trace's size.
        more: further fields that the server's release knows (``profile_by_stage``, …).

    Raises:
        LoadError: it refuses.
    """
    body: dict[str, object] = {
        "output_dir": output_dir,
        "num_steps": num_steps,
        "activities": list(activities),
        "with_stack": with_stack,
        "record_shapes": record_shapes,
        **more,
    }
    sent = {key: value for key, value in body.items() if value is not None}
    with exchange(url, "POST", "/start_profile", sent, api_key=api_key, timeout_s=timeout_s):
        return


def wait_ready(
    url: str,
    timeout_s: float,
    *,
    alive: Callable[[], bool] = lambda: True,
    api_key: str | None = None,
    every_s: float = 0.3,
) -> float:
    """Wait until the server answers; return the seconds that it took.

    Args:
        alive: asked between tries; False (the process is gone) ends the wait at once.

    Raises:
        LoadError: it did not come up in ``timeout_s`` seconds, or is gone; the last failure
            stands in the message.
    """
    began = time.monotonic()
    last = "not asked yet"
    while time.monotonic() - began < timeout_s:
        if not alive():
            raise LoadError("broken", f"{address(url)}: the server's process ended ({last})")
        try:
            model_info(url, api_key=api_key, timeout_s=min(5.0, timeout_s))
        except LoadError as error:
            last = str(error)
        else:
            return time.monotonic() - began
        time.sleep(every_s)
    raise LoadError("refused", f"{address(url)}: not ready in {timeout_s:g} s; last: {last}")
