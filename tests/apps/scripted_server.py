"""A server on loopback that speaks OpenAI's protocol and says what it was told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Reply = str | list[tuple[str, str, dict[str, Any]]]
"""Words, or calls: id, tool and arguments."""


class ScriptedServer:
    """Gives one reply after the other; `requests` are what it was asked."""

    def __init__(self, replies: list[Reply]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(asked)
                outer.keys.append(self.headers.get("authorization", ""))
                reply = outer.replies.pop(0)
                if asked.get("stream"):
                    self._stream(reply)
                else:
                    self._whole(reply)

            def _whole(self, reply: Reply) -> None:
                finish = "stop" if isinstance(reply, str) else "tool_calls"
                choice = {"index": 0, "message": _message(reply), "finish_reason": finish}
                self._send("application/json", json.dumps(_envelope("", choice)).encode())

            def _stream(self, reply: Reply) -> None:
                chunks = [
                    json.dumps(_envelope(".chunk", {"index": 0, "delta": d, "finish_reason": f}))
                    for d, f in _deltas(reply)
                ]
                body = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
                self._send("text/event-stream", body.encode())

            def _send(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @contextmanager
    def serving(self) -> Iterator[ScriptedServer]:
        thread = Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _envelope(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "x",
        "object": f"chat.completion{kind}",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }


def _message(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    return {"role": "assistant", "content": None, "tool_calls": _calls(reply)}


def _calls(reply: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {
            "index": at,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for at, (call_id, name, arguments) in enumerate(reply)
    ]


def _deltas(reply: Reply) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    if isinstance(reply, str):
        for word in reply.split(" "):
            yield {"content": f"{word} "}, None
        yield {}, "stop"
    else:
        yield {"tool_calls": _calls(reply)}, None
        yield {}, "tool_calls"
