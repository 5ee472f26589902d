// The one stream of the console: server-sent events, read with fetch. EventSource cannot send an
// Authorization header, and a key in an address would end up in logs.
//
// Something comes every second. Where nothing comes for ten, the connection is dead even if nobody
// has closed it (a laptop that slept, a router that forgot), and is given up.

const SILENT_MS = 10_000;

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

// Yield {name, told} for each event until the stream ends. Throws Refused if there is none, or no
// more of it; whatever else is thrown is a fault of the page.
export async function* events(key, signal) {
  const over = new AbortController();
  try {
    const response = await heard(open(key, AbortSignal.any([signal, over.signal])));
    if (!response.ok) throw new Refused(response.status, await heard(reason(response)));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await heard(reader.read());
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) yield parse(part);
    }
  } finally {
    over.abort();
  }
}

const open = (key, signal) =>
  fetch("/console/live", {
    headers: { authorization: `Bearer ${key}` },
    cache: "no-store",
    credentials: "omit",
    signal,
  });

async function heard(coming) {
  let timer;
  const silence = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Refused(0, "nothing came for ten seconds")), SILENT_MS);
  });
  try {
    return await Promise.race([coming, silence]);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(0, "the gateway cannot be reached");
  } finally {
    clearTimeout(timer);
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
