"""Plain HTTP to one server: every way to fail becomes a LoadError."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rewriter.errors import UsageError
from rewriter.probes.load.failures import LoadError

_LINE_LIMIT = 64 * 2**20
"""Bytes of one line; a cumulative chunk of 200,000 tokens is some 2 MB."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, and how to name it in a message."""

    host: str
    port: int
    path: str
    secure: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def address(url: str) -> Address:
    """Return the address in ``http://host:port/path``; the scheme may be left out.

    Raises:
        UsageError: it is not such a URL.
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is no URL of a server; give one like http://127.0.0.1:30000")
    secure = parts.scheme == "https"
    default = 443 if secure else 80
    return Address(parts.hostname, port or default, parts.path.rstrip("/"), secure)


@contextmanager
def translated(where: str, timeout_s: float) -> Iterator[None]:
    """Turn what sockets and http.client raise into a LoadError that names the place."""
    try:
        yield
    except TimeoutError as error:
        raise LoadError("stalled", f"{where}: nothing came for {timeout_s:g} s") from error
    except http.client.IncompleteRead as error:
        raise LoadError("broken", f"{where}: the connection ended inside the answer") from error
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
        raise LoadError("broken", f"{where}: the server closed the connection") from error
    except http.client.HTTPException as error:
        what = f"{type(error).__name__} {str(error)[:80]}".rstrip()
        raise LoadError("garbage", f"{where}: the answer is not HTTP ({what})") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise LoadError("refused", f"{where}: no connection: {reason}; is it running?") from error


def _open(at: Address, timeout_s: float) -> http.client.HTTPConnection:
    if at.secure:
        return http.client.HTTPSConnection(at.host, at.port, timeout=timeout_s)
    return http.client.HTTPConnection(at.host, at.port, timeout=timeout_s)


@contextmanager
def exchange(
    url: str,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    api_key: str | None = None,
    timeout_s: float,
) -> Iterator[tuple[http.client.HTTPResponse, float]]:
    """Send a request; give the response of status 200 and the moment before it was sent.

    Args:
        timeout_s: seconds that connecting, or any one wait for bytes, may take.

    Raises:
        LoadError: no connection, another status (its text is quoted), or no HTTP at all.
    """
    at = address(url)
    where = f"{method} {at}{path}"
    connection = _open(at, timeout_s)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    payload = None if body is None else json.dumps(body).encode()
    response: http.client.HTTPResponse | None = None
    try:
        with translated(where, timeout_s):
            connection.connect()
            started = time.perf_counter()
            connection.request(method, at.path + path, payload, headers)
            response = connection.getresponse()
            if response.status != 200:
                _refuse(where, response)
        yield response, started
    finally:
        if response is not None:
            response.close()  # it holds the socket once the connection has handed it over
        connection.close()


def _refuse(where: str, response: http.client.HTTPResponse) -> None:
    said = _message(response.read(4096))
    told = f": {said}" if said else f" ({response.reason})" if response.reason else ""
    raise LoadError("status", f"{where}: HTTP {response.status}{told}", status=response.status)


def _message(raw: bytes) -> str:
    """Return what an error's body says, on one line: sglang's and FastAPI's JSON, or text."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        value: Any = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:300]
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return " ".join(str(value).split())[:300]


def read_whole(response: http.client.HTTPResponse, where: str, timeout_s: float) -> bytes:
    """Return the whole body; raises LoadError."""
    with translated(where, timeout_s):
        return response.read()


def lines(
    response: http.client.HTTPResponse, where: str, timeout_s: float
) -> Iterator[tuple[bytes, float]]:
    """Yield each line with the ``perf_counter`` of the read that brought it.

    Raises:
        LoadError: the stream broke or stalled, or a line has no end.
    """
    kept = b""
    while True:
        with translated(where, timeout_s):
            piece = response.read1(65536)
        now = time.perf_counter()
        if not piece:
            break
        *whole, kept = (kept + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r"), now
        if len(kept) > _LINE_LIMIT:
            raise LoadError("garbage", f"{where}: a line of over {_LINE_LIMIT >> 20} MiB")
    if kept:
        yield kept.rstrip(b"\r"), now
