// The hook of the SDK, which speaks in runs and their streams.
import { useStream } from "@langchain/langgraph-sdk/react";
import { Chat, graph, inputOf, options, show, useThread } from "./chat.jsx";

function Page() {
  const [threadId, onThreadId] = useThread();
  const stream = useStream({
    apiUrl: options.get("server"), assistantId: graph, threadId, onThreadId,
    reconnectOnMount: true, fetchStateHistory: true,
  });
  const actions = (message, index) => {
    const about = stream.getMessagesMetadata(message, index);
    const checkpoint = about?.firstSeenState?.parent_checkpoint;
    return {
      edit: message.type === "human" && checkpoint !== undefined &&
        ((text) => stream.submit(inputOf(text), { checkpoint })),
      regenerate: message.type === "ai" && checkpoint &&
        (() => stream.submit(undefined, { checkpoint })),
      versions: about?.branchOptions, version: about?.branch,
      choose: stream.setBranch,
    };
  };
  const resume = (interrupts) => {
    const answers = interrupts.map((one) => [one.id, `yes ${one.value}`]);
    const resume = answers.length > 1 ? Object.fromEntries(answers) : "yes";
    return stream.submit(undefined, { command: { resume } });
  };
  // Without a checkpoint the hook shows the newest version as soon as the run has ended, whichever it went on from.
  const checkpoint = stream.branch ? stream.history.at(-1)?.checkpoint : undefined;
  const send = (text) => stream.submit(inputOf(text), checkpoint && { checkpoint });
  return (
    <Chat
      messages={stream.messages.map((one) => ({ id: one.id, type: one.type, text: one.content }))}
      interrupts={stream.interrupts} values={stream.values} isLoading={stream.isLoading} error={stream.error}
      actions={actions} send={send} stop={() => stream.stop()} resume={resume}
    />
  );
}

show(<Page />);
