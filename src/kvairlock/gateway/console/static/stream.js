// The one stream of the console: server-sent events, read with fetch. EventSource cannot send an
// Authorization header, and a key in an address would end up in logs.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  // Whether another key is needed: with this one there is no use in trying again.
  get wantsKey() {
    return this.status === 401 || this.status === 403;
  }
}

// Yield {name, told} for each event until the stream ends.
export async function* events(key, signal) {
  const response = await fetch("/console/live", {
    headers: { authorization: `Bearer ${key}` },
    cache: "no-store",
    credentials: "omit",
    signal,
  });
  if (!response.ok) throw new Refused(response.status, await reason(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) yield parse(part);
  }
}

export function parse(text) {
  const event = { name: "", told: null };
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    if (line.startsWith("data: ")) event.told = JSON.parse(line.slice(6));
  }
  return event;
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the gateway answers with ${response.status}`;
  }
}
