"""The conversations that record.py records: what a model replies, how its agent is set up, and what humans say."""


def call(name, args, id):
    return {"name": name, "args": args, "id": id}


def says(text, *calls, invalid=()):
    return {"text": text, "calls": list(calls), "invalid": list(invalid)}


OSLO = call("weather", {"city": "Oslo"}, "c1")
SUM = call("add", {"a": 2, "b": 3}, "c2")
LETTER = call("send_letter", {"to": "Ada", "text": "All is well."}, "c3")
ADA = call("Person", {"name": "Ada", "age": 36}, "p1")
BAD = call("Person", {"name": "Ada", "age": "old"}, "p0")
NOTE = call("note", {"name": "Ada"}, "n1")
TO_SUPPORT = call("transfer_to_support", {}, "h1")
ASK = call("ask", {"task": "How is Oslo?"}, "t1")
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

    # States, prompts and hooks of one's own.
    dict(name="hooks that write to a state of one's own", tools=["weather"], options=dict(desk=True, log=True),
         script=[says("", OSLO), says("Warm."), says("Bye.")], turns=[HI, {"input": "Bye"}]),
    dict(name="a tool that updates the state", tools=["note", "add"], options=dict(desk=True),
         script=[says("", NOTE, SUM), says("Hello Ada.")], turns=[HI]),
    dict(name="a state that comes with the input", options=dict(desk=True), script=[says("Hello.")],
         turns=[{"input": "Hi", "state": {"customer": "Ada", "log": ["before"]}}]),
    dict(name="a prompt made of state and context", tools=["note"],
         options=dict(desk=True, prompt_of_desk=True, context={"language": "Norwegian"}),
         script=[says("", NOTE), says("Hei Ada.")], turns=[HI]),
    dict(name="a hook that asks the model twice", options=dict(ask_twice=True), script=[says("One."), says("Two.")],
         turns=[HI]),
    dict(name="a hook that calls a tool before the model", tools=["weather"], options=dict(call_first=True),
         script=[says("Warm.")], turns=[HI]),
    dict(name="hooks around a tool that change call and result", tools=["add"],
         options=dict(around=["brackets", "again_with_ones"]), script=[says("", SUM), says("2.")], turns=[HI]),
    dict(name="a hook around a tool that does not call it", tools=["weather"], options=dict(around=["only_oslo"]),
         script=[says("", OSLO, call("weather", {"city": "Rome"}, "c4")), says("Warm.")], turns=[HI]),
    dict(name="a hook around a tool that calls another one after an error", tools=["fail", "add"],
         options=dict(around=["second_try"]),
         script=[says("", call("fail", {"reason": "no paper"}, "c1")), says("4.")], turns=[HI]),
    dict(name="hooks around an edited call", tools=["add"], options=dict(approve=["add"], around=["brackets"]),
         script=[says("", SUM), says("2.")], turns=[HI, decide(edit("add", {"a": 1, "b": 1}))]),
    dict(name="hooks beside an approval", tools=["send_letter"],
         options=dict(desk=True, log=True, approve=["send_letter"]),
         script=[says("I wrote.", LETTER), says("Posted.")], turns=[HI, decide(APPROVE)]),
    dict(name="the last messages of a long conversation", options=dict(last=3),
         script=[says("One."), says("Two."), says("Three.")], turns=[HI, {"input": "Two?"}, {"input": "Three?"}]),
    dict(name="the last messages of a turn that is longer", tools=["weather", "add"], options=dict(last=3),
         script=[says("", OSLO), says("", SUM), says("Done.")], turns=[HI]),

    # Approvals: what is stored of edits.
    dict(name="edited arguments that the tool does not take", tools=["add"], options=dict(approve=["add"]),
         script=[says("", SUM), says("So be it.")], turns=[HI, decide(edit("add", {"a": "two"}))]),
    dict(name="a call edited to an unknown tool", tools=["add"], options=dict(approve=["add"]),
         script=[says("", SUM), says("So be it.")], turns=[HI, decide(edit("teleport", {}))]),
    dict(name="edited calls beside an approved one", tools=["add", "send_letter"],
         options=dict(approve=["add", "send_letter"]), script=[says("", SUM, LETTER), says("Done."), says("Bye.")],
         turns=[HI, decide(edit("add", {"a": 1, "b": 1}), APPROVE), {"input": "Again"}]),
    dict(name="an edited call that counts for a limit", tools=["add", "weather"],
         options=dict(approve=["add"], tool_limit=dict(run=1)),
         script=[says("", SUM), says("", OSLO), says("Done.")], turns=[HI, decide(edit("weather", {"city": "Rome"}))]),

    # Limits: both at once, and counts over turns.
    dict(name="limits of model and tools in a thread", tools=["weather", "add"],
         options=dict(model_limit=dict(thread=5), tool_limit=dict(thread=2)),
         script=[says("", OSLO, SUM), says("Two."), says("", call("add", {"a": 1, "b": 1}, "c6")), says("No more.")],
         turns=[HI, {"input": "More"}]),

    # Where a tool sends its own agent.
    dict(name="a tool that goes to the end of its agent", tools=["go"],
         script=[says("", call("go", {"to": "end"}, "c1")), says("Still here.")], turns=[HI]),
    dict(name="a tool that goes to the model of its agent", tools=["go"],
         script=[says("", call("go", {"to": "model"}, "c1")), says("Once.")], turns=[HI]),
    dict(name="a tool that goes to a hook of its agent", tools=["go", "add"], options=dict(desk=True, close=True),
         script=[says("", call("go", {"to": "close"}, "c1"), SUM), says("Done.")], turns=[HI]),

    # Several agents.
    dict(name="a hand-off", graph="swarm", script=[says("", TO_SUPPORT), says("Support here.")], turns=[HI]),
    dict(name="a hand-off whose agent goes on in the next turn", graph="swarm",
         script=[says("", TO_SUPPORT), says("Support here."), says("", OSLO), says("Warm.")],
         turns=[HI, {"input": "And Oslo?"}]),
    dict(name="a hand-off there and back", graph="swarm",
         script=[says("", TO_SUPPORT), says("", call("transfer_to_sales", {}, "h2")), says("Sales here.")], turns=[HI]),
    dict(name="a hand-off after a tool", graph="swarm",
         script=[says("", OSLO), says("Over.", TO_SUPPORT), says("Support here.")], turns=[HI]),
    dict(name="a hand-off beside a tool call", graph="swarm",
         script=[says("", OSLO, TO_SUPPORT), says("Support here.")], turns=[HI]),
    dict(name="a supervisor and its worker", graph="supervisor",
         script=[says("", ASK), says("", OSLO), says("It is warm."), says("Take a hat.")], turns=[HI]),
    dict(name="a worker that waits for an approval", graph="supervisor", options=dict(approve=["send_letter"]),
         script=[says("", ASK), says("I wrote.", LETTER), says("Posted."), says("Done.")], turns=[HI, decide(APPROVE)]),
    dict(name="an agent inside a graph that waits for an approval", graph="nested", tools=["send_letter"],
         options=dict(approve=["send_letter"]), script=[says("I wrote.", LETTER), says("Posted.")],
         turns=[HI, decide(edit("send_letter", {"to": "Bob", "text": "Hello."}))]),

    # Replies that cannot be used.
    dict(name="arguments that are no JSON", tools=["add"],
         script=[says("", invalid=[call("add", "{\"a\": 2, \"b", "c1")]), says("5.")], turns=[HI]),
    dict(name="a tool that fails by default", tools=["fail"],
         script=[says("", call("fail", {"reason": "no paper"}, "c1")), says("It failed.")], turns=[HI]),
    dict(name="five wrong structured responses", options=dict(respond=True),
         script=[says("", call("Person", {"name": "Ada"}, f"p{n}")) for n in range(5)] + [says("", ADA)], turns=[HI]),
    dict(name="a response by schema", options=dict(respond_by_schema=True),
         script=[says('{"name": "Ada", "age": 36}')], turns=[HI]),
    dict(name="a response by schema after tools", tools=["weather"], options=dict(respond_by_schema=True),
         script=[says("", OSLO), says('{"name": "Ada", "age": 36}')], turns=[HI]),
    dict(name="a wrong response by schema", options=dict(respond_by_schema=True),
         script=[says('{"name": "Ada"}'), says('{"name": "Ada", "age": 36}')], turns=[HI]),
]
