// The hook of the package for React, which speaks the event-streaming protocol.
import { useEffect, useState } from "react";
import { useStream, useMessageMetadata } from "@langchain/react";
import { Chat, graph, inputOf, options, show, useThread } from "./chat.jsx";

function Page() {
  const [threadId, onThreadId] = useThread();
  const stream = useStream({
    apiUrl: options.get("server"), assistantId: graph, threadId, onThreadId,
    transport: options.get("transport") ?? "sse",
  });
  const [origins, setOrigins] = useState({});
  const [branch, setBranch] = useState(null);
  const messages = branch ? branch.values.messages.map(plain) : stream.messages.map((one) => ({ id: one.id, type: one.type, text: one.text }));
  const submit = (input, forkFrom) => {
    setBranch(null);
    return stream.submit(input, forkFrom ? { forkFrom } : undefined);
  };
  // This hook has no branches: what other versions there are is read from the history.
  const choose = async () => {
    const states = await stream.client.threads.getHistory(stream.threadId, { limit: 100 });
    const now = JSON.stringify(messages.map((one) => one.text));
    const other = states.find((state) => {
      const texts = (state.values.messages ?? []).map((one) => one.content);
      return state.next.length === 0 && texts.length === messages.length && JSON.stringify(texts) !== now;
    });
    setBranch(other);
  };
  const actions = (message) => ({
    edit: message.type === "human" && message.id in origins && ((text) => submit(inputOf(text), origins[message.id])),
    regenerate: message.type === "ai" && message.id in origins && (() => submit(null, origins[message.id])),
    versions: message.type === "human" ? ["other"] : undefined, choose,
  });
  const resume = (interrupts) => (interrupts.length > 1
    ? stream.respondAll(Object.fromEntries(interrupts.map((one) => [one.id, `yes ${one.value}`])))
    // By its id: after a reload the hook shows it before its own stream has reached it.
    : stream.respond("yes", { interruptId: interrupts[0].id }));
  return (
    <>
      <Chat
        messages={messages} interrupts={stream.interrupts} values={stream.values} isLoading={stream.isLoading}
        error={stream.error} actions={actions} resume={resume} stop={() => stream.stop()}
        send={(text) => submit(inputOf(text), branch?.checkpoint.checkpoint_id)}
      />
      {messages.map((one) => <Origin key={one.id} stream={stream} id={one.id} tell={setOrigins} />)}
    </>
  );
}

const plain = (one) => ({ id: one.id, type: one.type, text: one.content });

/** Finds the checkpoint that a message was made on. */
function Origin({ stream, id, tell }) {
  const parent = useMessageMetadata(stream, id)?.parentCheckpointId;
  useEffect(() => {
    if (parent) tell((known) => (known[id] === parent ? known : { ...known, [id]: parent }));
  }, [id, parent]);
  return null;
}

show(<Page />);
