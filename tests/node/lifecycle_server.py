"""A server of known truth for the life of a process: ``lifecycle_server.py MODE --port P --name N``.

Modes: ok; crash (exit 3 with a log line); oom; bad_flag; never_ready; stubborn (ignores SIGTERM and
has a child that does too); dies_later (ends on GET /die); forks (a child in a session of its own);
dies_asked, fails_asked and hangs_asked (on GET /server_info, which a dead or hanging scheduler does not answer).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


def child():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("--port", type=int)
    parser.add_argument("--name")
    parser.add_argument("--pids")
    args = parser.parse_args()
    if args.mode == "child":
        child()
    if args.mode == "crash":
        print("loading weights\nRuntimeError: the shards do not match", flush=True)
        sys.exit(3)
    if args.mode == "oom":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", flush=True)
        sys.exit(1)
    if args.mode == "bad_flag":
        print("launch_server.py: error: unrecognized arguments: --speculative-ddtree-budget 8", flush=True)
        sys.exit(2)
    if args.mode == "never_ready":
        time.sleep(600)
    children = []
    if args.mode in {"stubborn", "forks"}:
        command = [sys.executable, __file__, "child"]
        children = [subprocess.Popen(command, start_new_session=args.mode == "forks").pid]
    if args.mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.pids:
        with open(args.pids, "w") as out:
            json.dump([os.getpid(), *children], out)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.path == "/server_info" and args.mode
            if self.path == "/die" or asked == "dies_asked":
                os._exit(9)
            if asked == "fails_asked":
                self.send_error(500)
                return
            if asked == "hangs_asked":
                time.sleep(600)
            body = json.dumps({"data": [{"id": args.name}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    print("ready", flush=True)
    HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
