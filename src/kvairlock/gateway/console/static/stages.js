// The stages of a page as people see them. The gateway says how stages are numbered (`hello`); this
// table says how each is shown. Colour is never alone: a letter where a cell has room for one, a
// mark where it has room for that, and the table of counts beside the maps always.
//
// Colours are in style.css (`.stage-NAME`), so that both themes have their own.

export const STAGES = {
  free: { letter: "", mark: "none", meaning: "nobody's, zeroed" },
  reserved: { letter: "R", mark: "none", meaning: "given to a request, nothing in it yet" },
  filling: { letter: "F", mark: "bar", meaning: "prefill computes into it" },
  landing: { letter: "L", mark: "dot", meaning: "granted, waits for bytes and verdict" },
  sealed: { letter: "S", mark: "none", meaning: "filled, on its way to decode" },
  readable: { letter: "A", mark: "none", meaning: "admitted, may be read" },
  shared: { letter: "H", mark: "dot", meaning: "a prefix that its scope may read" },
  draining: { letter: "D", mark: "slash", meaning: "its request ended, somebody may still reach it" },
  quarantined: { letter: "Q", mark: "cross", meaning: "nobody vouches for what is in it" },
  fenced: { letter: "N", mark: "slash", meaning: "out of everybody's reach, not zeroed yet" },
  scrubbed: { letter: "C", mark: "none", meaning: "zeroed, about to be free" },
  withdrawn: { letter: "W", mark: "cross", meaning: "taken out of use by an operator" },
};

// A stage that this page does not know is shown as what it is: unknown, and alarming.
export const UNKNOWN = { letter: "?", mark: "cross", meaning: "a stage that this page does not know" };

export const look = (name) => STAGES[name] ?? UNKNOWN;
