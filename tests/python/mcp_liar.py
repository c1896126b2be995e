"""A server that breaks the rules of MCP in the way that its argument names."""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HUGE = 100_000_000
PIECE = b"x" * 1_000_000


def result(request, way):
    """What is given back, or none for what is left without a response."""
    method = request.get("method")
    if method == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "liar", "version": "1"},
        }
    if method == "tools/list":
        if way == "endless":
            page = int((request.get("params") or {}).get("cursor", 0))
            return {"tools": [tool(f"tool{page}")], "nextCursor": str(page + 1)}
        if way == "odd":
            odd = {"name": "number", "inputSchema": {"type": "number"}}
            return {"tools": [odd, tool("same"), tool("same"), tool("x" * 200), tool("")]}
        if way == "no_list":
            return {"tools": "none"}
        return {"tools": [tool("talk")]}
    if method == "tools/call" and way == "wrong_result":
        return {"content": 5}
    return None


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def talk(way):
    """On standard input and output."""
    if way.startswith("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        with open(os.environ["NOTES"], "w") as notes:
            notes.write(f"{os.getpid()} {child.pid}\n")
    if way == "noise":
        print("Welcome!\n\n{]\n{}", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or way == "silent":
            continue
        if request.get("method") == "tools/call" and way in ("noise", "stubborn"):
            write({"id": request["id"], "result": {"content": []}})
        elif request.get("method") == "tools/call" and way == "huge":
            for _ in range(HUGE // len(PIECE)):
                sys.stdout.buffer.write(PIECE)
        else:
            given = result(request, way)
            if given is not None:
                write({"id": request["id"], "result": given})
    if way.startswith("stubborn"):
        time.sleep(3600)


def write(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    way = ""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        if "id" not in request:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
        elif request["method"] == "tools/call" and self.way in ("huge", "huge_stream"):
            self.flood("text/event-stream" if self.way == "huge_stream" else "application/json")
        elif request["method"] == "tools/call" and self.way == "hangs":
            if request["params"].get("arguments", {}).get("hang"):
                time.sleep(3600)
            self.reply(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}}).encode())
        elif self.way == "elsewhere" and self.path == "/mcp":
            self.send_response(307)
            self.send_header("location", os.environ["ELSEWHERE"])
            self.send_header("content-length", "0")
            self.end_headers()
        else:
            message = {"jsonrpc": "2.0", "id": request["id"], "result": result(request, self.way)}
            self.reply(json.dumps(message).encode())

    def reply(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def flood(self, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        written = 0
        try:
            self.wfile.write(b"data: ")
            while written < HUGE:
                written += self.wfile.write(PIECE)
        except OSError:
            pass
        with open(os.environ["NOTES"], "w") as notes:
            notes.write(f"{written}\n")
        self.close_connection = True

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


if sys.argv[1] == "http":
    Http.way = sys.argv[2]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
else:
    talk(sys.argv[1])
