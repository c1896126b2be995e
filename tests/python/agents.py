"""The official client of A2A talks to two agents of a server: to one that replies, and to one that asks back."""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, TaskState
from google.protobuf import json_format

from common import same

BASE, AGENT, APPROVE = sys.argv[1:]


def said(*parts, **more):
    message = Message(role=Role.ROLE_USER, message_id=str(uuid.uuid4()), parts=parts, **more)
    return SendMessageRequest(message=message)


def data(fields):
    return json_format.ParseDict({"data": fields}, Part())


async def scenario():
    async with httpx.AsyncClient(timeout=60) as http:

        async def agent(id, streaming):
            card = await A2ACardResolver(http, f"{BASE}/a2a/{id}").get_agent_card()
            return ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)

        async def send(client, request):
            return [event async for event in client.send_message(request)]

        client = await agent(AGENT, False)
        [sent] = await send(client, said(Part(text="hello")))
        same(sent.task.status.state, TaskState.TASK_STATE_COMPLETED)
        same([part.text for message in sent.task.history for part in message.parts], ["hello", "echo: hello"])
        found = await client.get_task(GetTaskRequest(id=sent.task.id))
        same(found.artifacts[0].parts[0].text, "echo: hello")

        client = await agent(AGENT, True)
        events = await send(client, said(Part(text="again"), context_id=sent.task.context_id))
        same(events[0].task.status.state, TaskState.TASK_STATE_SUBMITTED)
        same(events[-2].artifact_update.artifact.parts[0].text, "echo: again")
        same(events[-1].status_update.status.state, TaskState.TASK_STATE_COMPLETED)

        client = await agent(APPROVE, False)
        [asked] = await send(client, said(data({"request": "pay"})))
        same(asked.task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
        [ended] = await send(client, said(Part(text="yes"), task_id=asked.task.id, context_id=asked.task.context_id))
        same((ended.task.id, ended.task.status.state), (asked.task.id, TaskState.TASK_STATE_COMPLETED))
        assert "answer=yes" in ended.task.artifacts[0].parts[0].text


asyncio.run(scenario())
