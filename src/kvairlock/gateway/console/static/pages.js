// The pages of one node, as typed arrays: stage, generation and time of the last change of each.
//
// They are changed in place, since a map may have a hundred thousand pages and four changes a
// second. Whoever draws takes the runs that changed since they were drawn last. A tab that is hidden
// draws nothing, so there are never more of them than pages: after that they are one run, all pages.

export const UNTOLD = -1;

// Returns the map after an event `pages`; `now` is this page's clock in milliseconds.
export function apply(map, told, now) {
  const next = told.extent === "whole" ? fresh(told) : map;
  if (!next) return map; // changes to what is not known: the whole comes first
  const spans = new Int32Array(bytes(told.spans));
  const stages = new Int8Array(bytes(told.stages));
  const generations = new BigInt64Array(bytes(told.generations));
  const ages = new Uint32Array(bytes(told.ages_ms));
  let read = 0;
  for (let i = 0; i < spans.length; i += 2) {
    const [first, count] = [spans[i], spans[i + 1]];
    for (let page = first; page < first + count; page += 1, read += 1) {
      count_(next.counts, next.stage[page], -1);
      count_(next.counts, stages[read], 1);
      next.stage[page] = stages[read];
      next.generation[page] = generations[read];
      next.changedAt[page] = now - ages[read];
    }
    note(next, first, count);
  }
  next.watchedSince = now - told.watched_ms;
  return next;
}

// Returns the runs [first, count] that changed since they were taken last.
export function take(map) {
  const runs = map.runs;
  Object.assign(map, { runs: [], runPages: 0 });
  return runs;
}

// What is known of one page, or null.
export function page(map, number, now) {
  if (number < 0 || number >= map.poolPages || map.stage[number] === UNTOLD) return null;
  const ageMs = Math.max(0, now - map.changedAt[number]);
  return {
    number,
    stage: map.stage[number],
    generation: map.generation[number],
    ageMs,
    // Before the view began nobody looked. A quarter of a second is what maps are apart.
    atLeast: map.changedAt[number] <= map.watchedSince + 250,
  };
}

function fresh(told) {
  return {
    poolPages: told.pool_pages,
    stage: new Int8Array(told.pool_pages).fill(UNTOLD),
    generation: new BigInt64Array(told.pool_pages),
    changedAt: new Float64Array(told.pool_pages),
    counts: new Map(),
    watchedSince: 0,
    runs: [],
    runPages: 0,
  };
}

function note(map, first, count) {
  map.runs.push([first, count]);
  map.runPages += count;
  if (map.runPages > map.poolPages) Object.assign(map, { runs: [[0, map.poolPages]], runPages: map.poolPages });
}

function count_(counts, stage, by) {
  if (stage !== UNTOLD) counts.set(stage, (counts.get(stage) ?? 0) + by);
}

function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) found[i] = text.charCodeAt(i);
  return found.buffer;
}
