"""A completion server with as few or as many doors as a test says, on a thread."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ddtree_tune.core.template import ChatTemplate

EXTENSIONS = {"return_spec_tokens_details", "ignore_eos"}
SPEC = {"spec_verify_ct": 4, "spec_correct_drafts_histogram": [0, 0, 0, 4]}


class DoorServer:
    """Answers each message or prompt with sixteen words; a token is a character of what is asked."""

    def __init__(
        self,
        *,
        models=("m",),
        chat=True,
        native=True,
        strict=False,
        template=None,
        info=None,
        key=None,
        locked=False,
        counts=True,
        says="word " * 16,
        ends="length",
    ):
        self.listed = models and {"data": [{"id": one} for one in models]}
        """What ``/v1/models`` answers."""
        self.chat = chat
        self.native = native
        self.strict = strict
        """Refuse fields beyond OpenAI's."""
        self.template = template and ChatTemplate(json.dumps({"chat_template": template}))
        self.info = info
        self.key = key
        self.locked = locked
        """Refuse even to list the models."""
        self.counts = counts
        """Say how long a prompt is."""
        self.says = says
        self.ends = ends
        self.asked = []
        """(path, body) of every completion."""

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
            def do_GET(self):
                if owner.locked:
                    self._json({"error": "no key"}, 401)
                    return
                body = {"/v1/models": owner.listed}
                body["/server_info"] = owner.info
                self._json(body.get(self.path))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.asked.append((self.path, body))
                if owner.key and self.headers["Authorization"] != f"Bearer {owner.key}":
                    self._json({"error": "no key"}, 401)
                elif self.path == "/v1/chat/completions" and owner.chat:
                    if owner.strict and (EXTENSIONS & set(body) or "continuous_usage_stats" in body["stream_options"]):
                        self._json({"error": {"message": "unknown field"}}, 400)
                    else:
                        self._events(owner._chat(body))
                elif self.path == "/generate" and owner.native == "broken":
                    self._json({"error": "the scheduler is gone"}, 500)
                elif self.path == "/generate" and owner.native:
                    self._events(owner._native(body))
                else:
                    self._json(None)

            def _json(self, body, status=200):
                data = json.dumps(body or {"detail": "Not Found"}).encode()
                self.send_response(status if body else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _events(self, events):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for event in [*map(json.dumps, events), "[DONE]"]:
                    self.wfile.write(f"data: {event}\n\n".encode())

            def log_message(self, *_):
                pass

        return Handler

    def _chat(self, body):
        asked = self.template.render(body["messages"]) if self.template else body["messages"][0]["content"]
        usage = {"prompt_tokens": len(asked) if self.counts else None, "completion_tokens": 16}
        yield {"choices": [{"delta": {"content": self.says}, "finish_reason": self.ends}]}
        yield {"choices": [], "usage": usage}

    def _native(self, body):
        meta = {
            "prompt_tokens": len(body["text"]) if self.counts else None,
            "completion_tokens": 16,
            "finish_reason": {"type": self.ends},
        }
        yield {"text": self.says, "meta_info": meta | SPEC}
