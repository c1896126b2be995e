"""The official client of MCP finds the assistants of a server as tools and calls them."""

import asyncio
import json
import sys

from mcp import Client
from mcp.shared.exceptions import MCPError

from common import same


async def scenario():
    async with Client(sys.argv[1] + "/mcp") as client:
        same(client.server_info.name, "Backstitch")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        same(tools["agent"].input_schema["required"], ["messages"])
        called = await client.call_tool("counter", {"count": 1, "log": []})
        assert not called.is_error
        same(json.loads(called.content[0].text), {"count": 1112, "log": ["first", "left", "right", "last"]})
        said = await client.call_tool("agent", {"messages": "hello"})
        same(json.loads(said.content[0].text)["messages"][-1]["content"], "echo: hello")
        failed = await client.call_tool("failing", {"fail": True})
        same((failed.is_error, failed.content[0].text), (True, "ValueError"))
        try:
            await client.call_tool("nope", {})
        except MCPError as error:
            same(str(error), "Unknown tool: nope")
        else:
            raise AssertionError("there is no such tool")


asyncio.run(scenario())
