"""The Python programs of the page "Coming from LangGraph" do what the Rust programs beside them are tested to do.

The first argument is the path of the page, the second the URL of the bundled server.
"""

import re
import sys
from pathlib import Path

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from common import same

CONFIG = {"configurable": {"thread_id": "1"}}


class Scripted(BaseChatModel):
    """Replies in turn."""

    replies: list

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **more):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **more):
        return ChatResult(generations=[ChatGeneration(message=self.replies.pop(0))])


def calling(name, call):
    return AIMessage("", tool_calls=[{"name": name, "args": call, "id": name}])


def saved(program):
    """Its graph with a memory of what it did, as it is behind a server."""
    program["graph"].checkpointer = InMemorySaver()
    return program["graph"]


def post(program):
    graph = saved(program)
    asked = graph.invoke({"topic": "Tea"}, CONFIG)
    same(asked["__interrupt__"][0].value, {"publish?": "Tea is worth a post."})
    graph.invoke(Command(resume=False), CONFIG)
    same(graph.invoke(Command(resume=True), CONFIG)["body"], "Tea is worth a post.")


def an_agent(program):
    call = {"restaurant": "Noma", "guests": 2}
    model = Scripted(replies=[calling("book", call), calling("Booking", call)])
    graph = program["graph"](model)
    graph.checkpointer = InMemorySaver()
    graph.invoke({"messages": "Noma, for two."}, CONFIG)
    done = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    same(done["structured_response"].guests, 2)


def map_and_reduce(program):
    done = program["graph"].invoke({"topics": ["tea", "coffee"]})
    same(done["best"], "Have you heard of coffee?")


def subgraphs(program):
    same(program["graph"].invoke({"text": " hi "})["text"], "HI")


def a_test(program):
    program["test_a_letter_is_posted_once_somebody_agrees"]()


page = Path(sys.argv[1]).read_text()
*programs, client = re.findall(r"```python\n(.*?)```", page, re.S)
checks = [post, an_agent, map_and_reduce, subgraphs, a_test]
same(len(programs), len(checks))
for text, check in zip(programs, checks):
    program = {"__name__": check.__name__}
    exec(compile(text, check.__name__, "exec"), program)
    check(program)
# The last one of the page is a client of a server.
exec(compile(client.replace("http://localhost:2024", sys.argv[2]), "client", "exec"), {"__name__": "client"})
