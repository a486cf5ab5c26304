"""Answer sglang's native endpoints by arithmetic: a token is a function of what came before."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def tokens(ids: list[int], count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        found.append((sum(ids) + 31 * len(found) + 7 * sum(found)) % 997)
    return found


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._send(json.dumps({"model_path": "stand-in"}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path != "/generate":
            self._send(b"ok")
        elif body.get("stream"):
            self._stream(body)
        else:
            counts = [p["max_new_tokens"] for p in body["sampling_params"]]
            pairs = zip(body["input_ids"], counts, strict=True)
            self._send(json.dumps([{"output_ids": tokens(i, n)} for i, n in pairs]).encode())

    def _send(self, raw: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, body: dict) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        ids = tokens(body["input_ids"], body["sampling_params"]["max_new_tokens"])
        for n in range(1, len(ids) + 1):
            reason = {"type": "length"} if n == len(ids) else None
            meta = {
                "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": n,
                "finish_reason": reason,
            }
            event = {"text": "", "output_ids": ids[:n], "meta_info": meta}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
            time.sleep(0.001)
        self.wfile.write(b"data: [DONE]\n\n")


if __name__ == "__main__":
    if "--fail" in sys.argv:
        sys.exit(sys.argv[sys.argv.index("--fail") + 1])
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
