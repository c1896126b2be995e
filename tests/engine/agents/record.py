"""Runs the conversations of conversations.py with `create_agent` of the Python package `langchain` (programs.py) and
writes what came of them to recorded.json, which the test agents.rs compares with this library's agent.

    pip install langchain==1.4.7 langgraph==1.2.22 && python record.py

Sentences that the package makes up are not recorded: what is no text of the script, of the input or of a tool becomes
"(own words)".
"""

import json
import pathlib

from conversations import CASES
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command
from programs import Script, program, results


def reply(one, usage=None):
    return AIMessage(content=one["text"], tool_calls=one["calls"], invalid_tool_calls=one["invalid"])


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


# Channels that are compared by themselves.
APART = ["messages", "structured_response"]


def run(case):
    results.clear()
    options = case.get("options", {})
    model = Script(replies=[reply(one) for one in case["script"]], shown=[])
    graph = program(case, model)
    config = {"configurable": {"thread_id": "1"}}
    known = {one["text"] for one in case["script"]}
    known |= {"Closed.", "Sure?", "Only Oslo.", options.get("prompt"), "Error: failed: no paper"}
    known |= {f"{name} takes over." for name in ["sales", "support"]}
    known |= {f"Speak Norwegian to {name}." for name in ["nobody", "Ada"]}
    known |= {f"[{text}]" for text in ["1 + 1 = 2", "2 + 3 = 5", "21 degrees in Oslo"]}
    turns = []
    for turn in case["turns"]:
        if "input" in turn:
            known.add(turn["input"])
            given = {"messages": [HumanMessage(turn["input"])], **turn.get("state", {})}
        else:
            known |= {d.get("message") for d in turn["resume"]["decisions"] if d["type"] == "respond"}
            given = Command(resume=turn["resume"])
        failed, output = False, {}
        before = len(model.shown)
        try:
            output = graph.invoke(given, config, context=options.get("context"))
        except Exception as error:
            failed = True
            print("   ", case["name"], type(error).__name__, str(error)[:80])
        known |= set(results)
        # In a hand-over an agent's task is a text of a tool call.
        known |= {c["args"]["task"] for one in case["script"] for c in one["calls"] if "task" in c["args"]}
        state = graph.get_state(config)
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
            "channels": {key: value for key, value in values.items() if key not in APART},
            "output": sorted(key for key in output if not key.startswith("__")),
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
