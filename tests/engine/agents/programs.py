"""The programs that record.py runs: tools, hooks and agents of the Python package `langchain`."""

import operator
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    after_agent,
    after_model,
    before_agent,
    before_model,
    dynamic_prompt,
    wrap_model_call,
    wrap_tool_call,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.tools import InjectedState, InjectedToolCallId
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, trim_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict


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


@tool
def note(name: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Notes the customer's name."""
    return Command(update={"customer": name, "messages": [ToolMessage(result("Noted."), tool_call_id=tool_call_id)]})


@tool
def go(to: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Goes to a node of its own agent."""
    to = {"end": "__end__", "model": "model", "close": "close.after_agent"}[to]
    return Command(goto=to, update={"messages": [ToolMessage(result("Going."), tool_call_id=tool_call_id)]})


def hand_off(to):
    @tool(f"transfer_to_{to}", description="Hands the conversation over.")
    def transfer(state: Annotated[dict, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        done = ToolMessage(f"{to} takes over.", name=f"transfer_to_{to}", tool_call_id=tool_call_id)
        return Command(goto=to, graph=Command.PARENT, update={"messages": [*state["messages"], done]})
    return transfer


TOOLS = {t.name: t for t in [add, weather, send_letter, fail, lookup, note, go]}


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    nick: str | None = None


class Desk(AgentState):
    customer: NotRequired[str]
    log: Annotated[list[str], operator.add]


class Settings(TypedDict):
    language: str


@before_agent(state_schema=Desk)
def open(state, runtime):
    return {"log": [f"open: {len(state['messages'])} messages"]}


@before_model(state_schema=Desk)
def count(state, runtime):
    return {"log": [f"before: {len(state['messages'])} messages"]}


@after_model(state_schema=Desk)
def log_reply(state, runtime):
    return {"log": [f"reply: {state['messages'][-1].content}"]}


@after_agent(state_schema=Desk)
def close(state, runtime):
    return {"log": [f"close: {len(state['messages'])} messages"]}


@before_model(can_jump_to=["end"])
def stop_before(state, runtime):
    return {"jump_to": "end", "messages": [AIMessage("Closed.")]}


@after_model(can_jump_to=["end"])
def stop_after(state, runtime):
    return {"jump_to": "end"}


@after_model(can_jump_to=["model"])
def ask_twice(state, runtime):
    if len(state["messages"]) < 3:
        return {"jump_to": "model", "messages": [HumanMessage("Sure?")]}
    return None


@before_model(can_jump_to=["tools"])
def call_first(state, runtime):
    if len(state["messages"]) == 1:
        return {"jump_to": "tools", "messages": [AIMessage("", tool_calls=[OSLO])]}
    return None


@wrap_tool_call
def brackets(request, handler):
    done = handler(request)
    return done.model_copy(update={"content": f"[{done.content}]"})


@wrap_tool_call
def again_with_ones(request, handler):
    handler(request)
    return handler(request.override(tool_call={**request.tool_call, "args": {"a": 1, "b": 1}}))


@wrap_tool_call
def only_oslo(request, handler):
    call = request.tool_call
    if call["args"].get("city") != "Oslo":
        return ToolMessage("Only Oslo.", name=call["name"], tool_call_id=call["id"])
    return handler(request)


@wrap_tool_call
def second_try(request, handler):
    try:
        return handler(request)
    except ValueError:
        call = {**request.tool_call, "name": "add", "args": {"a": 2, "b": 2}}
        return handler(request.override(tool_call=call, tool=add))


@dynamic_prompt
def prompt_of_desk(request):
    return f"Speak {request.runtime.context['language']} to {request.state.get('customer', 'nobody')}."


OSLO = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}
AROUND = {hook.name: hook for hook in [brackets, again_with_ones, only_oslo, second_try]}


def last_messages(most):
    @wrap_model_call
    def trim(request, handler):
        shown = trim_messages(
            request.messages, strategy="last", token_counter=len, max_tokens=most, start_on="human")
        return handler(request.override(messages=shown))
    return trim


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
    if options.get("log"):
        out += [open, count, log_reply, close]
    if options.get("close"):
        out.append(close)
    if options.get("prompt_of_desk"):
        out.append(prompt_of_desk)
    if "last" in options:
        out.append(last_messages(options["last"]))
    out += [AROUND[name] for name in options.get("around", [])]
    hooks = {"stop_before": stop_before, "stop_after": stop_after, "ask_twice": ask_twice, "call_first": call_first}
    out += [hook for name, hook in hooks.items() if options.get(name)]
    return out


def agent_of(options, tools, model, **keywords):
    if "name" in options:
        keywords["name"] = options["name"]
    if "prompt" in options:
        keywords["system_prompt"] = options["prompt"]
    if options.get("respond"):
        keywords["response_format"] = ToolStrategy(Person)
    if options.get("respond_by_schema"):
        keywords["response_format"] = ProviderStrategy(Person)
    if options.get("desk"):
        keywords["state_schema"] = Desk
    if "context" in options:
        keywords["context_schema"] = Settings
    return create_agent(model, tools, middleware=middleware_of(options, model), **keywords)


def whose_turn(state):
    spoken = [m.name for m in state["messages"] if m.type == "ai"]
    return spoken[-1] if spoken else "sales"


def swarm(model, checkpointer):
    """Two agents that hand over to each other; the one that spoke last goes on."""
    sales = agent_of(dict(name="sales"), [hand_off("support"), weather], model)
    support = agent_of(dict(name="support"), [hand_off("sales"), weather], model)
    graph = StateGraph(AgentState)
    graph.add_node("sales", sales)
    graph.add_node("support", support)
    graph.add_conditional_edges(START, whose_turn, ["sales", "support"])
    return graph.compile(checkpointer=checkpointer)


def supervisor(options, model, checkpointer):
    """An agent with a tool that is an agent."""
    worker = agent_of({**options, "name": "worker"}, [weather, send_letter, fail], model)

    @tool
    def ask(task: str) -> str:
        """Gives a task to a worker."""
        return worker.invoke({"messages": [HumanMessage(task)]})["messages"][-1].content
    return agent_of(dict(name="lead"), [ask], model, checkpointer=checkpointer)


def nested(options, tools, model, checkpointer):
    """An agent that is the only node of a graph."""
    graph = StateGraph(AgentState)
    graph.add_node("inner", agent_of(options, tools, model))
    graph.add_edge(START, "inner")
    return graph.compile(checkpointer=checkpointer)


def program(case, model):
    options = case.get("options", {})
    tools = [TOOLS[name] for name in case.get("tools", [])]
    checkpointer = InMemorySaver()
    match case.get("graph"):
        case "swarm":
            return swarm(model, checkpointer)
        case "supervisor":
            return supervisor(options, model, checkpointer)
        case "nested":
            return nested(options, tools, model, checkpointer)
    return agent_of(options, tools, model, checkpointer=checkpointer)
