// All that the page knows, in one place. `reduce` is pure but for the arrays of page maps (pages.js
// says why); everything that is shown is made from this state and nothing else.

import { apply } from "./pages.js";

export const HISTORY = 240; // two minutes of figures twice a second
const SECOND = 1000;

export const INITIAL = {
  connection: { state: "off", why: "" },
  heardAt: 0,
  stages: [],
  maps: new Map(),
  figures: {},
  history: [],
  alone: null, // the stage that is shown alone
};

export function reduce(state, action, now) {
  switch (action.name) {
    case "connection":
      return { ...state, connection: { state: action.state, why: action.why ?? "" } };
    case "alone":
      return { ...state, alone: state.alone === action.stage ? null : action.stage };
    case "hello":
      return { ...state, heardAt: now, stages: action.told.stages, maps: new Map(), figures: {} };
    case "pages":
      return { ...state, heardAt: now, maps: withMap(state.maps, action.told, now) };
    case "unknown":
      return { ...state, heardAt: now, maps: without(state.maps, action.told.node) };
    case "figures":
      return withFigures({ ...state, heardAt: now }, action.told, now);
    case "sign":
      return withFigures({ ...state, heardAt: now }, {}, now);
    default:
      return { ...state, heardAt: now };
  }
}

export function makeStore() {
  let state = INITIAL;
  const listeners = [];
  return {
    get state() {
      return state;
    },
    tell(action) {
      const before = state;
      state = reduce(state, action, performance.now());
      for (const listener of listeners) listener(state, before, action);
    },
    listen: (listener) => listeners.push(listener),
  };
}

function withMap(maps, told, now) {
  const map = apply(maps.get(told.node), told, now);
  return map ? new Map(maps).set(told.node, map) : maps;
}

function without(maps, node) {
  const next = new Map(maps);
  next.delete(node);
  return next;
}

function withFigures(state, told, now) {
  const figures = { ...state.figures, ...told };
  const point = {
    at: now,
    inFlight: figures.stack?.in_flight ?? 0,
    refused: (figures.refusals ?? []).reduce((sum, row) => sum + row.count, 0),
  };
  const history = [...state.history, point].slice(-HISTORY);
  return { ...state, figures, history };
}

// Refusals a second between each point and the one about a second before it.
export function refusedEachSecond(history) {
  let from = 0;
  return history.map((point) => {
    while (point.at - history[from].at > SECOND + 250) from += 1;
    const before = history[from];
    const seconds = Math.max(1, (point.at - before.at) / SECOND);
    return Math.max(0, point.refused - before.refused) / seconds;
  });
}
