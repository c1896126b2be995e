"""Runs the conversations below with `create_agent` of the Python package `langchain` and writes what came of them to
recorded.json, which the test agents.rs compares with this library's agent.

    pip install langchain==1.4.7 langgraph==1.2.22 && python record.py

Sentences that the package makes up are not recorded: what is no text of the script, of the input or of a tool becomes
"(own words)".
"""

import json
import pathlib
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    after_model,
    before_model,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel


class Script(BaseChatModel):
    """Replies with the messages of a script, one after another."""

    replies: list[Any]
    position: int = 0
    shown: list[Any] = []

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **kwargs):
        return self

    def bind(self, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.shown.append(list(messages))
        reply = self.replies[self.position]
        self.position += 1
        return ChatResult(generations=[ChatGeneration(message=reply)])


results = []


def result(text):
    results.append(text)
    return text


@tool
def add(a: int, b: int) -> str:
    """Adds two whole numbers."""
    return result(f"{a} + {b} = {a + b}")


@tool
def weather(city: str) -> str:
    """Looks up the weather in a city."""
    return result(f"21 degrees in {city}")


@tool
def send_letter(to: str, text: str) -> str:
    """Sends a letter."""
    return result(f"Posted to {to}: {text}")


@tool
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@tool(return_direct=True)
def lookup(key: str) -> str:
    """Looks up a value."""
    return result(f"{key} is 42")


TOOLS = {t.name: t for t in [add, weather, send_letter, fail, lookup]}


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    nick: str | None = None


def call(name, args, id):
    return {"name": name, "args": args, "id": id}


def says(text, *calls, invalid=()):
    return {"text": text, "calls": list(calls), "invalid": list(invalid)}


OSLO = call("weather", {"city": "Oslo"}, "c1")
SUM = call("add", {"a": 2, "b": 3}, "c2")
LETTER = call("send_letter", {"to": "Ada", "text": "All is well."}, "c3")
ADA = call("Person", {"name": "Ada", "age": 36}, "p1")
BAD = call("Person", {"name": "Ada", "age": "old"}, "p0")
HI = {"input": "Hi"}


def decide(*decisions):
    return {"resume": {"decisions": list(decisions)}}


APPROVE = {"type": "approve"}


def edit(name, args):
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


CASES = [
    dict(name="a plain reply", script=[says("Hello!")], turns=[HI]),
    dict(name="a name and a prompt", options=dict(name="bob", prompt="Be brief."), script=[says("Hello!")], turns=[HI]),
    dict(name="one tool call", tools=["weather"], script=[says("Let me see.", OSLO), says("Warm.")], turns=[HI]),
    dict(name="two tool calls in parallel", tools=["weather", "add"],
         script=[says("", OSLO, SUM), says("Warm, and 5.")], turns=[HI]),
    dict(name="two rounds of tool calls", tools=["weather", "add"],
         script=[says("", OSLO), says("", SUM), says("Done.")], turns=[HI]),
    dict(name="a second turn", tools=["weather"], script=[says("", OSLO), says("Warm."), says("Bye.")],
         turns=[HI, {"input": "Bye"}]),
    dict(name="a tool that fails", tools=["fail"], options=dict(errors=True),
         script=[says("", call("fail", {"reason": "no paper"}, "c1")), says("It failed.")], turns=[HI]),
    dict(name="a tool that fails the run", tools=["fail"], options=dict(errors=False),
         script=[says("", call("fail", {"reason": "no paper"}, "c1"))], turns=[HI]),
    dict(name="an unknown tool", tools=["weather"],
         script=[says("", call("teleport", {}, "c1")), says("I cannot.")], turns=[HI]),
    dict(name="arguments that do not fit", tools=["add"],
         script=[says("", call("add", {"a": "two"}, "c1")), says("", SUM), says("5.")], turns=[HI]),
    dict(name="a tool whose result ends the agent", tools=["lookup"],
         script=[says("", call("lookup", {"key": "x"}, "c1"))], turns=[HI]),
    dict(name="a direct tool beside another", tools=["lookup", "add"],
         script=[says("", call("lookup", {"key": "x"}, "c1"), SUM), says("Both.")], turns=[HI]),
    dict(name="an approved call", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Posted.")], turns=[HI, decide(APPROVE)]),
    dict(name="a rejected call with a reason", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("As you wish.")],
         turns=[HI, decide({"type": "reject", "message": "Too short."})]),
    dict(name="a rejected call without a reason", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("As you wish.")], turns=[HI, decide({"type": "reject"})]),
    dict(name="an edited call", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Posted.")],
         turns=[HI, decide(edit("send_letter", {"to": "Bob", "text": "Hello."}))]),
    dict(name="a call edited to another tool", tools=["send_letter", "weather"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Warm.")], turns=[HI, decide(edit("weather", {"city": "Rome"}))]),
    dict(name="a call to which the human responds", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Good.")],
         turns=[HI, decide({"type": "respond", "message": "I posted it myself."})]),
    dict(name="decisions about some of the calls", tools=["send_letter", "weather", "add"],
         options=dict(approve=["send_letter", "add"]),
         script=[says("", LETTER, OSLO, SUM), says("Done.")],
         turns=[HI, decide({"type": "reject", "message": "No."}, APPROVE)]),
    dict(name="approvals in two rounds", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("", LETTER), says("", call("send_letter", {"to": "Eve", "text": "x"}, "c4")), says("Done.")],
         turns=[HI, decide(edit("send_letter", {"to": "Bob", "text": "Hello."})), decide(APPROVE)]),
    dict(name="too few decisions, then enough", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Posted.")], turns=[HI, decide(), decide(APPROVE)]),
    dict(name="too many decisions", tools=["send_letter"], options=dict(approve=["send_letter"]),
         script=[says("I wrote.", LETTER)], turns=[HI, decide(APPROVE, APPROVE)]),
    dict(name="a decision that is not allowed", tools=["send_letter"],
         options=dict(approve=["send_letter"], allowed=["approve", "reject"]),
         script=[says("I wrote.", LETTER)], turns=[HI, decide(edit("send_letter", {"to": "Bob", "text": "x"}))]),
    dict(name="a structured response", options=dict(respond=True), script=[says("", ADA)], turns=[HI]),
    dict(name="a structured response after a wrong one", options=dict(respond=True),
         script=[says("", BAD), says("", ADA)], turns=[HI]),
    dict(name="two structured responses at once", options=dict(respond=True),
         script=[says("", ADA, call("Person", {"name": "Eve", "age": 9}, "p2")), says("", call("Person", {"name": "Ada", "age": 36}, "p3"))],
         turns=[HI]),
    dict(name="a structured response after tools", tools=["weather"], options=dict(respond=True),
         script=[says("", OSLO), says("", ADA)], turns=[HI]),
    dict(name="a structured response beside a tool call", tools=["weather"], options=dict(respond=True),
         script=[says("", OSLO, ADA)], turns=[HI]),
    dict(name="a wrong structured response beside a tool call", tools=["weather"], options=dict(respond=True),
         script=[says("", OSLO, BAD), says("", ADA)], turns=[HI]),
    dict(name="a structured response of a second turn", tools=["weather"], options=dict(respond=True),
         script=[says("", ADA), says("", OSLO), says("", call("Person", {"name": "Eve", "age": 9, "nick": "E"}, "p2"))],
         turns=[HI, {"input": "And Eve?"}]),
    dict(name="a limit of model calls in a run", tools=["weather"], options=dict(model_limit=dict(run=2)),
         script=[says("", OSLO), says("", SUM), says("never")], turns=[HI]),
    dict(name="a limit of model calls in a thread", options=dict(model_limit=dict(thread=1)),
         script=[says("Hello!"), says("never")], turns=[HI, {"input": "More"}]),
    dict(name="a limit of tool calls", tools=["weather", "add"], options=dict(tool_limit=dict(run=1)),
         script=[says("", OSLO, SUM), says("Only one.")], turns=[HI]),
    dict(name="a limit of tool calls that ends", tools=["weather", "add"], options=dict(tool_limit=dict(run=1, end=True)),
         script=[says("", OSLO, SUM)], turns=[HI]),
    dict(name="a limit of one tool in a thread", tools=["weather", "add"],
         options=dict(tool_limit=dict(thread=1, tool="weather")),
         script=[says("", OSLO), says("One."), says("", call("weather", {"city": "Rome"}, "c5"), SUM), says("Two.")],
         turns=[HI, {"input": "More"}]),
    dict(name="a summary", options=dict(summary=dict(messages=4, keep=2)),
         script=[says("One."), says("Two."), says("They greeted."), says("Three.")],
         turns=[HI, {"input": "Again"}, {"input": "Once more"}]),
    dict(name="a summary that keeps calls with their results", tools=["weather"],
         options=dict(summary=dict(messages=4, keep=2)),
         script=[says("One."), says("", OSLO), says("They greeted."), says("Warm.")],
         turns=[HI, {"input": "Oslo?"}]),
    dict(name="a hook that ends before the model", options=dict(stop_before=True), script=[says("never")], turns=[HI]),
    dict(name="a hook that ends after the model", tools=["weather"], options=dict(stop_after=True),
         script=[says("", OSLO)], turns=[HI]),
]


def reply(one, usage=None):
    return AIMessage(content=one["text"], tool_calls=one["calls"], invalid_tool_calls=one["invalid"])


def middleware_of(options, model):
    out = []
    if "errors" in options and options["errors"]:
        out.append(ToolErrorMiddleware(on_error=lambda error, request: f"Error: failed: {error}"))
    if "approve" in options:
        allowed = options.get("allowed", ["approve", "edit", "reject", "respond"])
        on = {name: {"allowed_decisions": allowed} for name in options["approve"]}
        out.append(HumanInTheLoopMiddleware(interrupt_on=on))
    if limit := options.get("model_limit"):
        out.append(ModelCallLimitMiddleware(run_limit=limit.get("run"), thread_limit=limit.get("thread")))
    if limit := options.get("tool_limit"):
        out.append(ToolCallLimitMiddleware(
            run_limit=limit.get("run"), thread_limit=limit.get("thread"), tool_name=limit.get("tool"),
            exit_behavior="end" if limit.get("end") else "continue"))
    if summary := options.get("summary"):
        out.append(SummarizationMiddleware(
            model=model, trigger=("messages", summary["messages"]), keep=("messages", summary["keep"])))
    if options.get("stop_before"):
        @before_model(can_jump_to=["end"])
        def stop_before(state, runtime):
            return {"jump_to": "end", "messages": [AIMessage("Closed.")]}
        out.append(stop_before)
    if options.get("stop_after"):
        @after_model(can_jump_to=["end"])
        def stop_after(state, runtime):
            return {"jump_to": "end"}
        out.append(stop_after)
    return out


def plain(message, known):
    text = message.content
    if text not in known:
        ends = [one for one in results if one and isinstance(text, str) and text.endswith(one)]
        text = "(own words) " + ends[0] if ends else "(own words)"
    out = {"type": message.type, "content": text}
    if message.name:
        out["name"] = message.name
    if getattr(message, "tool_calls", None):
        out["tool_calls"] = [{"name": c["name"], "args": c["args"], "id": c["id"]} for c in message.tool_calls]
    if message.type == "tool":
        out["tool_call_id"] = message.tool_call_id
        out["status"] = message.status
    return out


def run(case):
    results.clear()
    options = case.get("options", {})
    model = Script(replies=[reply(one) for one in case["script"]], shown=[])
    keywords = {}
    if "name" in options:
        keywords["name"] = options["name"]
    if "prompt" in options:
        keywords["system_prompt"] = options["prompt"]
    if options.get("respond"):
        keywords["response_format"] = ToolStrategy(Person)
    agent = create_agent(
        model, [TOOLS[name] for name in case.get("tools", [])], middleware=middleware_of(options, model),
        checkpointer=InMemorySaver(), **keywords)
    config = {"configurable": {"thread_id": "1"}}
    known = {one["text"] for one in case["script"]} | {"Closed.", options.get("prompt"), "Error: failed: no paper"}
    turns = []
    for turn in case["turns"]:
        if "input" in turn:
            known.add(turn["input"])
            given = {"messages": [HumanMessage(turn["input"])]}
        else:
            known |= {d.get("message") for d in turn["resume"]["decisions"] if d["type"] == "respond"}
            given = Command(resume=turn["resume"])
        failed = False
        before = len(model.shown)
        try:
            agent.invoke(given, config)
        except Exception as error:
            failed = True
            print("   ", case["name"], type(error).__name__)
        known |= set(results)
        state = agent.get_state(config)
        values = state.values
        response = values.get("structured_response")
        interrupts = [i.value for i in state.interrupts]
        for value in interrupts:
            for action in value["action_requests"]:
                action["description"] = "(own words)"
        turns.append({
            **turn,
            "failed": failed,
            "messages": [plain(m, known) for m in values["messages"]],
            "structured_response": response.model_dump() if response else None,
            "interrupts": interrupts,
            "shown": [[plain(m, known) for m in shown] for shown in model.shown[before:]],
        })
    known.discard(None)
    return {**case, "known": sorted(known), "results": list(results), "turns": turns}


recorded = []
for case in CASES:
    recorded.append(run(case))
path = pathlib.Path(__file__).with_name("recorded.json")
path.write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in recorded) + "\n]\n")
print(len(recorded), "conversations")
