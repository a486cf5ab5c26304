"""A real HTTP server on the loopback address that speaks sglang's API, with chosen faults.

Its replies follow sglang 0.5: ``/generate`` sends text and ids so far, ``/v1/completions`` deltas
and usage. It notes when it sent each token, so that a test knows the delays that really were.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO: dict[str, Any] = {
    "version": "0.5.9",
    "model_path": "/models/zai-org/GLM-5",
    "served_model_name": "GLM-5",
    "attention_backend": "flashinfer",
    "decode_attention_backend": None,
    "kv_cache_dtype": "fp8_e4m3",
    "page_size": 64,
    "tp_size": 8,
    "max_total_num_tokens": 495_552,
    "port": 30000,
    "random_seed": 1,
    "api_key": "hidden",
    "internal_states": [{"memory_usage": {"token_capacity": 495_552}}],
}


@dataclass
class Behaviour:
    """What the server does; delays in seconds.

    Attributes:
        first, gap: before the first token, and before each other one.
        info: what ``/server_info`` answers.
        vanish_after, stall_after, garbage_after, report_after, abort_after: tokens after which
            the connection is cut, nothing more comes, nonsense comes, the server reports an
            error, or gives the request up.
        faulty_from: the request (from 0) from which those happen.
        status: what ``/generate`` answers instead of 200; ``flush_status`` for ``/flush_cache``.
        busy: how often ``/flush_cache`` says that requests are running.
        old: whether only the endpoints' older names exist.
        incremental: ids and text since the last chunk, as ``--incremental-streaming-output``.
        nan: whether log-probabilities are NaN.
        finish: the finish_reason.
        short: how many tokens fewer come than were asked for.
        cached: tokens of the prompt said to come from the cache.
        twist: added to every token id, so that tokens differ; from ``twist_from`` on.
        per_chunk: tokens in a chunk.
        continuous: whether the OpenAI endpoint counts in every chunk.
        key: the API key that is wanted.
    """

    first: float = 0.0
    gap: float = 0.0
    info: dict[str, Any] = field(default_factory=lambda: dict(INFO))
    vanish_after: int | None = None
    stall_after: int | None = None
    garbage_after: int | None = None
    report_after: int | None = None
    abort_after: int | None = None
    faulty_from: int = 0
    status: int = 200
    flush_status: int = 200
    busy: int = 0
    old: bool = False
    incremental: bool = False
    nan: bool = False
    finish: str = "length"
    short: int = 0
    cached: int = 0
    twist: int = 0
    twist_from: int = 0
    per_chunk: int = 1
    continuous: bool = True
    key: str | None = None


@dataclass
class Served:
    """A running server: where it is, what it was asked, when it sent what."""

    url: str
    behaviour: Behaviour
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    sent: list[list[float]] = field(default_factory=list)
    going: bool = True

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body in self.requests if asked == path]


@contextmanager
def serving(behaviour: Behaviour | None = None, port: int = 0) -> Iterator[Served]:
    """Serve on a port of 127.0.0.1, a free one for 0, until the block ends."""
    served = Served("", behaviour or Behaviour())
    server = _Server(("127.0.0.1", port), _handler(served))
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.going = False
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that leave."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            served.requests.append((self.path, {}))
            old = {"/get_server_info": served.behaviour.info, "/get_model_info": {"ok": True}}
            new = {"/server_info": served.behaviour.info, "/model_info": {"ok": True}}
            known = old if served.behaviour.old else {**old, **new}
            if self.path in known:
                self._answer(200, json.dumps(known[self.path]).encode())
            else:
                self._answer(404, b'{"detail":"Not Found"}')

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else {}
            served.requests.append((self.path, body))
            how = served.behaviour
            if how.key and self.headers.get("Authorization") != f"Bearer {how.key}":
                self._answer(401, b'{"error":"Unauthorized"}')
            elif self.path == "/flush_cache":
                self._flush()
            elif self.path == "/start_profile":
                self._answer(200, b"Start profiling.\n")
            elif how.status != 200:
                self._answer(how.status, b'{"error":{"message":"no such thing"}}')
            else:
                self._stream(body)

        def _flush(self) -> None:
            how = served.behaviour
            status = 400 if how.busy else how.flush_status
            how.busy = max(0, how.busy - 1)
            self._answer(status, b"Cache flushed.\n" if status == 200 else b"")

        def _answer(self, status: int, raw: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def _event(self, data: object) -> None:
            raw = data if isinstance(data, bytes) else json.dumps(data).encode()
            line = b"data: " + raw + b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

        def _stream(self, body: dict[str, Any]) -> None:
            how = served.behaviour
            native = self.path == "/generate"
            asked = body["sampling_params"]["max_new_tokens"] if native else body["max_tokens"]
            number = len(served.sent)
            times: list[float] = []
            served.sent.append(times)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            make = _native if native else _openai
            count = asked - how.short
            done = 0
            while done < count:
                _wait(served, how.first if not done else how.gap)
                if number >= how.faulty_from and self._fault(done):
                    return
                new = min(count - done, how.per_chunk)
                done += new
                self._event(make(how, body, done, done == count, new))
                times.append(time.perf_counter())
            if not native:
                usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
                self._event({"choices": [], "usage": usage})
            self._event(b"[DONE]")
            self.wfile.write(b"0\r\n\r\n")

        def _fault(self, done: int) -> bool:
            """Do what goes wrong after so many tokens; whether the stream is over."""
            how = served.behaviour
            if done == how.vanish_after:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return True
            if done == how.stall_after:
                while served.going:
                    time.sleep(0.01)
                self.close_connection = True
                return True
            if done == how.garbage_after:
                self._event(b"<html>proxy</html>")
            if done == how.report_after:
                self._event({"error": {"message": "CUDA out of memory"}})
            if done == how.abort_after:
                reason = {"type": "abort", "message": "NaN detected", "status_code": 500}
                meta = {"prompt_tokens": 1, "completion_tokens": done, "finish_reason": reason}
                self._event({"text": "", "output_ids": [], "meta_info": meta})
            return False

    return Handler


def _wait(served: Served, seconds: float) -> None:
    if seconds and served.going:
        time.sleep(seconds)


def token(how: Behaviour, prompt: Any, at: int) -> int:
    """Return the greedy token at a position: a function of the prompt alone."""
    first = prompt[0] if not isinstance(prompt, str) else len(prompt)
    return (first * 31 + len(prompt) + at * at) % 1000 + (how.twist if at >= how.twist_from else 0)


def _native(how: Behaviour, body: dict[str, Any], done: int, last: bool, new: int) -> object:
    prompt: Any = body.get("input_ids", body.get("text"))
    ids = [token(how, prompt, at) for at in range(done)]
    value = math.nan if how.nan else -0.25
    logprobs = [[value - 0.01 * how.twist, each, None] for each in ids]
    start = done - new if how.incremental else 0
    meta: dict[str, Any] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": done,
        "cached_tokens": how.cached,
        "finish_reason": {"type": how.finish, "length": done} if last else None,
    }
    if body.get("return_logprob"):
        meta["output_token_logprobs"] = logprobs[start:]
    text = "".join(f"{each} " for each in ids[start:])
    return {"text": text, "output_ids": ids[start:], "meta_info": meta}


def _openai(how: Behaviour, body: dict[str, Any], done: int, last: bool, new: int) -> object:
    ids = [token(how, body["prompt"], at) for at in range(done - new, done)]
    choice: dict[str, Any] = {"text": "".join(f"{each} " for each in ids), "index": 0}
    choice["finish_reason"] = how.finish if last else None
    if body.get("logprobs") is not None:
        choice["logprobs"] = {"token_logprobs": [None if how.nan else -0.25 for _ in ids]}
    event: dict[str, Any] = {"choices": [choice]}
    if how.continuous:
        event["usage"] = {"prompt_tokens": len(body["prompt"]), "completion_tokens": done}
    return event
