// What a screen reader is told unasked: what an operator has to know at once, and nothing else. A
// page that reads out every figure that changes could not be listened to.

const QUIET_MS = 4000; // between two announcements; what happens meanwhile is said together

export function makeNews(element) {
  let waiting = [];
  let timer = null;
  const speak = () => {
    element.textContent = waiting.join(". ");
    waiting = [];
    timer = setTimeout(() => {
      timer = null;
      if (waiting.length) speak();
    }, QUIET_MS);
  };
  return (sentences) => {
    waiting.push(...sentences);
    if (waiting.length && timer === null) speak();
  };
}

// What is new between two states, as sentences.
export function newsOf(state, before) {
  const said = [];
  if (state.connection.state !== before.connection.state) said.push(`Console ${state.connection.state}`);
  if (before.figures.stack) {
    said.push(...differing(state, before, "nodes", "node", "state", "Node"));
    said.push(...differing(state, before, "routes", "route", "breaker", "Breaker of"));
    const [now, then] = [state.figures.violations ?? [], before.figures.violations ?? []];
    if (now.length > then.length) said.push(`${now.length} violations of the commitment`);
  }
  return said;
}

function differing(state, before, part, name, field, title) {
  const was = new Map((before.figures[part] ?? []).map((one) => [one[name], one[field]]));
  return (state.figures[part] ?? [])
    .filter((one) => was.has(one[name]) && was.get(one[name]) !== one[field])
    .map((one) => `${title} ${one[name]} is ${one[field].replace("_", "-")}`);
}
