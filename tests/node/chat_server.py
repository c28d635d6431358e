"""A chat endpoint that answers by script, on a thread: real sockets, known replies."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ChatServer:
    """Answers each prompt with what ``script(prompt, max_tokens)`` says, as (fields, finish_reason).

    ``fields`` is one chunk's delta, or a list of chunks as (field, text, tokens so far).
    """

    def __init__(self, script, *, delay_s=0.0):
        self.asked = []
        """The body of every request."""
        self.in_flight = 0
        self.most_in_flight = 0
        self._script = script
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.base_url = ""

    @contextlib.contextmanager
    def running(self):
        """Serve until the block ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.base_url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _handler(self):
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with owner._lock:
                    owner.asked.append(body)
                    owner.in_flight += 1
                    owner.most_in_flight = max(owner.most_in_flight, owner.in_flight)
                time.sleep(owner._delay_s)
                answer = owner._script(body["messages"][-1]["content"], body["max_tokens"])
                with owner._lock:  # before the answer goes out: the client's next request may be here at once
                    owner.in_flight -= 1
                with contextlib.suppress(ConnectionError):  # a client may leave
                    owner._answer(self, body, *answer)

            def log_message(self, *_):
                pass

        return Handler

    def _answer(self, handler, body, fields, finish):
        if finish == "error":
            handler.send_error(503, "overloaded")
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        used = body["max_tokens"] if finish == "length" else 7
        chunks = (
            fields
            if isinstance(fields, list)
            else [(name, text, None) for name, text in fields.items()] or [("", "", None)]
        )
        events = [
            {"choices": [{"delta": {name: text}, "finish_reason": None}]}
            | ({} if tokens is None else {"usage": {"completion_tokens": tokens}})
            for name, text, tokens in chunks
        ] + [
            {
                "choices": [{"delta": {}, "finish_reason": finish}],
                "usage": {"completion_tokens": chunks[-1][2] or used},
            },
        ]
        for event in events:
            handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        if finish is not None:
            handler.wfile.write(b"data: [DONE]\n\n")
