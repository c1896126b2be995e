"""A server of the official MCP package, on standard input and output or over HTTP."""

import asyncio
import os
import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from starlette.responses import PlainTextResponse

server = MCPServer("tools")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Fails."""
    raise ToolError(why)


@server.tool(name="draw.it")
def draw() -> Image:
    """Draws a picture."""
    return Image(data=b"123456", format="png")


@server.tool()
def environment() -> str:
    """Names the variables of its environment, and its process."""
    names = sorted(name for name in os.environ if name != "LC_CTYPE")
    return f"{os.getpid()} {' '.join(names)}"


@server.tool()
def crash() -> str:
    """Ends the process."""
    os._exit(3)


@server.tool()
async def wait() -> str:
    """Says that it began, and notes when it is cancelled."""
    try:
        open(os.environ["NOTES"] + ".began", "w").close()
        await asyncio.sleep(3600)
        return "awake"
    except asyncio.CancelledError:
        open(os.environ["NOTES"] + ".cancelled", "w").close()
        raise


def with_key(app):
    """The app for those who have the key."""

    async def guarded(scope, receive, send):
        if scope["type"] == "http" and (b"x-key", b"secret") not in scope["headers"]:
            await PlainTextResponse("no key", 401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


if sys.argv[1:] == ["http"]:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(with_key(server.streamable_http_app()), log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])
else:
    server.run()
