// What both pages show: a conversation, open interrupts, the state, and buttons for what one can do.
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

export const options = new URLSearchParams(location.search);
export const graph = options.get("graph") ?? "agent";

/** The thread of the page's address, which a reload keeps. */
export function useThread() {
  const [thread, setThread] = useState(options.get("thread"));
  const remember = (id) => {
    setThread(id);
    const address = new URL(location.href);
    address.searchParams.set("thread", id);
    history.replaceState(null, "", address);
  };
  return [thread, remember];
}

/** A message of a user, or for a graph without messages the JSON that was typed. */
export const inputOf = (text) =>
  graph === "agent" ? { messages: [{ type: "human", content: text }] } : JSON.parse(text);

/**
 * `messages`: [{ id, type, text }]. `actions` of a message: edit, regenerate, and where there are
 * several versions of it `versions` with `choose`.
 */
export function Chat({ messages, interrupts, values, isLoading, error, actions, send, stop, resume }) {
  const [text, setText] = useState("");
  // Every rendering of the conversation, for whoever wants to know how it came to be.
  const shown = JSON.stringify(messages.map((one) => one.text));
  useEffect(() => {
    (window.rendered ??= []).push(JSON.parse(shown));
  }, [shown]);
  return (
    <main>
      {/* Above what grows: a button that moves away between press and release is not clicked. */}
      <input id="text" value={text} onChange={(event) => setText(event.target.value)} />
      <button id="send" onClick={() => send(text)}>Send</button>
      <button id="stop" onClick={stop}>Stop</button>
      <button id="resume" onClick={() => resume(interrupts)}>Resume</button>
      <ol>
        {messages.map((message, index) => (
          <Message key={message.id ?? index} message={message} actions={actions(message, index)} text={text} />
        ))}
      </ol>
      <ul>{interrupts.map((one) => <li key={one.id} className="interrupt">{JSON.stringify(one.value)}</li>)}</ul>
      <pre id="values">{JSON.stringify(values)}</pre>
      <p id="state">{isLoading ? "busy" : "idle"}</p>
      <p id="error">{error ? String(error.message ?? error) : ""}</p>
    </main>
  );
}

function Message({ message, actions, text }) {
  const { edit, regenerate, versions, version, choose } = actions;
  return (
    <li className={message.type}>
      <span className="text">{message.text}</span>
      {edit && <button className="edit" onClick={() => edit(text)}>Edit</button>}
      {regenerate && <button className="regenerate" onClick={regenerate}>Regenerate</button>}
      {versions?.map((one) => (
        <button className="version" key={one} disabled={one === version} onClick={() => choose(one)}>{one}</button>
      ))}
    </li>
  );
}

export function show(page) {
  createRoot(document.getElementById("root")).render(page);
}
