"""The client against a real server: what it counts, when, and every way to fail."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_sglang_server import Behaviour, serving

from rewriter.errors import UsageError
from rewriter.probes.load import client
from rewriter.probes.load.client import LoadError
from rewriter.probes.load.connection import address
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.streams import Endpoint

BOTH = pytest.mark.parametrize("endpoint", ["native", "openai"])
PROMPT = (5, 6, 7)


@BOTH
def test_tokens_are_counted_by_the_server(endpoint: Endpoint) -> None:
    with serving(Behaviour(per_chunk=3)) as served:
        reply = client.generate(served.url, PROMPT, 10, endpoint=endpoint)
    assert reply.completion_tokens == 10
    assert len(reply.arrivals) == 4
    assert reply.prompt_tokens == 3
    assert reply.finish_reason == "length"
    assert len(reply.text.split()) == 10


def test_a_greedy_reply_is_asked_for() -> None:
    with serving() as served:
        client.generate(served.url, PROMPT, 4)
        client.generate(served.url, "some text", 4)
        client.generate(served.url, PROMPT, 4, endpoint="openai", model="GLM-5", logprobs=True)
        (native, text), (openai,) = served.bodies("/generate"), served.bodies("/v1/completions")
    assert native == {
        "input_ids": [5, 6, 7],
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True},
    }
    assert text["text"] == "some text"
    assert openai["prompt"] == [5, 6, 7]
    assert openai["model"] == "GLM-5"
    assert openai["temperature"] == 0
    assert openai["ignore_eos"] is True
    assert openai["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert openai["logprobs"] == 1


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("per_chunk", [1, 2, 7])
def test_ids_and_logprobs_are_whole_in_either_style(incremental: bool, per_chunk: int) -> None:
    with serving() as served:
        whole = client.generate(served.url, PROMPT, 9, logprobs=True)
        served.behaviour.incremental = incremental
        served.behaviour.per_chunk = per_chunk
        reply = client.generate(served.url, PROMPT, 9, logprobs=True)
    assert reply.output_ids == whole.output_ids
    assert reply.logprobs == whole.logprobs == (-0.25,) * 9
    assert reply.output_ids is not None
    assert len(reply.output_ids) == 9
    assert reply.text == whole.text


@BOTH
def test_nan_is_no_number(endpoint: Endpoint) -> None:
    with serving(Behaviour(nan=True)) as served:
        reply = client.generate(served.url, PROMPT, 3, endpoint=endpoint, logprobs=True)
    assert reply.logprobs == (None, None, None)


def test_an_openai_stream_without_usage_in_its_chunks() -> None:
    with serving(Behaviour(continuous=False)) as served:
        reply = client.generate(served.url, PROMPT, 6, endpoint="openai")
    assert reply.completion_tokens == 6
    assert len(reply.arrivals) == 6
    assert reply.output_ids is None


@BOTH
def test_times_are_those_of_the_server(endpoint: Endpoint) -> None:
    with serving(Behaviour(first=0.05, gap=0.005)) as served:
        reply = client.generate(served.url, PROMPT, 21, endpoint=endpoint)
        (sent,) = served.sent
    gap = 1e3 * (sent[-1] - sent[0]) / 20
    assert reply.tpot_ms == pytest.approx(gap, rel=0.15)
    assert reply.ttft_ms > 50
    assert reply.latency_s * 1e3 / 21 == pytest.approx(reply.e2e_ms_per_token)
    assert reply.e2e_ms_per_token == pytest.approx((reply.ttft_ms + 20 * gap) / 21, rel=0.15)
    assert len(reply.itl_ms) == 20
    assert sum(reply.itl_ms) == pytest.approx(20 * (reply.tpot_ms or 0))


def test_a_single_token_has_no_time_after_the_first() -> None:
    reply = Reply(1, 1, (1,), None, "", "length", None, 0.0, (0.5,))
    assert reply.tpot_ms is None
    assert reply.itl_ms == ()


FAULTS: list[tuple[dict[str, object], str, str]] = [
    ({"vanish_after": 4}, "broken", "after 4 tokens"),
    ({"stall_after": 4}, "stalled", "nothing came for 0.3 s"),
    ({"garbage_after": 4}, "garbage", "no JSON: b'<html>proxy</html>'"),
    ({"report_after": 4}, "server", "CUDA out of memory"),
]


@BOTH
@pytest.mark.parametrize(("fault", "kind", "words"), FAULTS)
def test_what_had_arrived_is_kept(
    endpoint: Endpoint, fault: dict[str, object], kind: str, words: str
) -> None:
    with (
        serving(Behaviour(**fault)) as served,  # type: ignore[arg-type]
        pytest.raises(LoadError, match=words) as caught,
    ):
        client.generate(served.url, PROMPT, 10, endpoint=endpoint, stall_s=0.3)
    assert caught.value.kind == kind
    assert caught.value.reply is not None
    assert caught.value.reply.completion_tokens == 4
    assert caught.value.reply.finish_reason == ""
    assert "\n" not in str(caught.value)


def test_a_request_that_is_given_up_says_why() -> None:
    with (
        serving(Behaviour(abort_after=2)) as served,
        pytest.raises(LoadError, match="gave the request up: NaN detected"),
    ):
        client.generate(served.url, PROMPT, 10)


def test_nothing_before_the_first_token() -> None:
    with (
        serving(Behaviour(vanish_after=0)) as served,
        pytest.raises(LoadError, match=r"closed|ended") as caught,
    ):
        client.generate(served.url, PROMPT, 10)
    assert caught.value.reply is None


@BOTH
@pytest.mark.parametrize("status", [400, 422, 500, 503])
def test_a_refusal_is_quoted(endpoint: Endpoint, status: int) -> None:
    with (
        serving(Behaviour(status=status)) as served,
        pytest.raises(LoadError, match=f"HTTP {status}: no such thing") as caught,
    ):
        client.generate(served.url, PROMPT, 10, endpoint=endpoint)
    assert caught.value.status == status


def test_nobody_there() -> None:
    with serving() as served:
        url = served.url
    with pytest.raises(LoadError, match="is it running") as caught:
        client.generate(url, PROMPT, 10)
    assert caught.value.kind == "refused"


@contextmanager
def answering(raw: bytes, hold: bool = False) -> Iterator[str]:
    """Answer one connection with these bytes, and close it or hold it open."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.sendall(raw)
            if hold:
                done.wait(10)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        thread.join()
        listener.close()


def read_request(connection: socket.socket) -> None:
    """Take a whole request: closing over unread bytes takes the answer back as well."""
    with connection.makefile("rb") as file:
        length = 0
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        file.read(length)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
META = b'"prompt_tokens": 3, "completion_tokens": 1, "finish_reason": null'


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (b"", "broken", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "garbage", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "garbage", "expected an event"),
        (HEAD, "broken", "ended without a finish_reason"),
        (HEAD + b"data: [1, 2]\n\n", "garbage", "no object"),
        (HEAD + b'data: {"text": "a"}\n\n', "garbage", "no meta_info"),
        (HEAD + b'data: {"meta_info": {}}\n\n', "garbage", "completion_tokens is None"),
        (HEAD + b'data: {"meta_info": {' + META + b"}}\n\n", "broken", "after 1 tokens"),
        (HEAD + b'data: {"meta_info": {"completion_tokens": -1}}\n\n', "garbage", "is -1"),
        (
            HEAD + b'data: {"meta_info": {' + META + b'}, "output_ids": ["a"]}\n\n',
            "garbage",
            "not whole numbers",
        ),
        (
            HEAD
            + b'data: {"meta_info": {"prompt_tokens": 1, "completion_tokens": 0, '
            + b'"finish_reason": {"type": "stop"}}}\n\ndata: [DONE]\n\n',
            "garbage",
            "no completion token",
        ),
    ],
)
def test_nonsense(raw: bytes, kind: str, words: str) -> None:
    with answering(raw) as url, pytest.raises(LoadError, match=words) as caught:
        client.generate(url, PROMPT, 10, stall_s=5)
    assert caught.value.kind == kind


def test_pings_are_no_tokens() -> None:
    """A proxy that keeps the connection alive does not hide a stall."""
    listener = socket.create_server(("127.0.0.1", 0))

    def ping() -> None:
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.sendall(HEAD)
            give_up = time.monotonic() + 5
            while time.monotonic() < give_up:
                try:
                    connection.sendall(b": ping\n\n")
                except OSError:
                    return
                time.sleep(0.02)

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(LoadError, match=r"no token came for 0\.3 s") as caught:
        client.generate(url, PROMPT, 10, stall_s=0.3)
    assert caught.value.kind == "stalled"
    thread.join()
    listener.close()


@pytest.mark.parametrize("old", [False, True])
def test_what_a_server_says_about_itself(old: bool) -> None:
    with serving(Behaviour(old=old)) as served:
        assert client.server_info(served.url)["version"] == "0.5.9"
        assert client.model_info(served.url) == {"ok": True}


def test_an_answer_that_is_no_document() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
    with answering(raw) as url, pytest.raises(LoadError, match="no JSON"):
        client.server_info(url)
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"
    with answering(raw) as url, pytest.raises(LoadError, match="no JSON object"):
        client.server_info(url)
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nConnection: close\r\n\r\n{}"
    with answering(raw) as url, pytest.raises(LoadError, match="ended inside"):
        client.server_info(url)


def test_a_key_is_sent_and_a_wrong_one_told() -> None:
    with serving(Behaviour(key="secret")) as served:
        assert client.generate(served.url, PROMPT, 3, api_key="secret").completion_tokens == 3
        with pytest.raises(LoadError, match="HTTP 401: Unauthorized"):
            client.generate(served.url, PROMPT, 3)


def test_the_cache_is_flushed_once_the_last_request_is_gone() -> None:
    with serving(Behaviour(busy=2)) as served:
        client.flush_cache(served.url)
        assert len(served.bodies("/flush_cache")) == 3


def test_a_server_in_use_is_not_measured() -> None:
    with (
        serving(Behaviour(busy=10**6)) as served,
        pytest.raises(LoadError, match="other requests are running"),
    ):
        client.flush_cache(served.url, patience_s=0.2)


def test_a_profile_is_asked_for_with_what_the_release_knows() -> None:
    with serving() as served:
        client.start_profile(served.url, output_dir="/tmp/p", num_steps=5, profile_by_stage=True)
        (body,) = served.bodies("/start_profile")
    assert body == {
        "output_dir": "/tmp/p",
        "num_steps": 5,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
        "profile_by_stage": True,
    }


def test_each_chunk_can_be_acted_on() -> None:
    seen: list[int] = []
    with serving() as served:
        client.generate(served.url, PROMPT, 4, on_chunk=seen.append)
    assert seen == [1, 2, 3, 4]


def test_waiting_for_a_server() -> None:
    with serving() as served:
        assert client.wait_ready(served.url, 5) < 5
    with pytest.raises(LoadError, match=r"not ready in 0.2 s; last: .*is it running"):
        client.wait_ready(served.url, 0.2, every_s=0.05)
    with pytest.raises(LoadError, match="process ended"):
        client.wait_ready(served.url, 5, alive=lambda: False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://server", "http://server:80"),
        ("https://server/base/", "https://server:443/base"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses(url: str, expected: str) -> None:
    assert str(address(url)) == expected


@pytest.mark.parametrize("url", ["", "ftp://server", "http://", "http://server:port", "http://[::"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="no URL"):
        address(url)
