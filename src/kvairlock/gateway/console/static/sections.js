// Everything that is a table: from the figures to its rows. Each entry of SECTIONS says which parts
// of the figures a table is made from, and how; a table is filled only when one of them changed.

import { clock, duration, list, number, share, tokens, words } from "./words.js";

const YES_NO = { closed: "good", half_open: "warn", open: "bad" };
const IN_USE = (pages) => Object.values(pages).reduce((sum, count) => sum + count, 0);

export const SECTIONS = [
  { table: "outcomes", of: ["outcomes", "retries"], rows: outcomes, empty: "no request yet" },
  { table: "refusal-table", of: ["refusals"], rows: refusals, empty: "nothing was refused" },
  { table: "held", of: ["nodes"], rows: held, empty: "no node" },
  { table: "drained", of: ["nodes"], rows: drained, empty: "no drain has ended" },
  { table: "routes", of: ["routes", "stack"], rows: routes, empty: "no route" },
  { table: "violations", of: ["violations"], rows: violations, empty: "none: what is promised is held" },
  { table: "reads", of: ["coverage"], rows: reads, empty: "no route" },
  { table: "relaxed", of: ["coverage"], rows: relaxed, empty: "none: every guard enforces in full" },
  { table: "waivers", of: ["waivers"], rows: waivers, empty: "none" },
  { table: "breaker-table", of: ["routes"], rows: breakers, empty: "no route" },
  { table: "drill-table", of: ["drills"], rows: drills, empty: "no result was posted to this gateway" },
];

export function tiles({ stack, nodes = [], violations = [], routes = [] }) {
  const up = nodes.filter((node) => node.state === "up").length;
  const open = routes.filter((route) => route.breaker !== "closed").length;
  return [
    ["Routes up", `${stack.routes_up} of ${stack.routes}`, stack.routes_up === stack.routes ? "good" : "bad"],
    ["Nodes up", `${up} of ${nodes.length}`, up === nodes.length ? "good" : "bad"],
    ["Context published", tokens(stack.published_tokens), stack.published_tokens ? "" : "bad"],
    ["Commitment", `${words(stack.commitment)}${violations.length ? `, ${violations.length} ways` : ""}`, violations.length ? "bad" : "good"],
    ["Breakers not closed", number(open), open ? "bad" : "good"],
    ["Requests in flight", number(stack.in_flight), ""],
    ["Drill mode", stack.drill_mode, stack.drill_mode === "on" ? "warn" : ""],
    ["Guards off", list(stack.guards_off), stack.guards_off.length ? "bad" : "good"],
  ];
}

// Stages of the hand-over, in its order; a node that tells of another one adds a row.
const FLOW = ["offered", "granted", "reported", "recovering", "confirmed", "closed"];

export function flow({ nodes = [] }) {
  const told = nodes.flatMap((node) => Object.keys(node.requests ?? {}));
  const stages = [...new Set([...FLOW, ...told])];
  const most = Math.max(1, ...nodes.flatMap((node) => Object.values(node.requests ?? {})));
  return {
    titles: ["Stage", ...nodes.map((node) => node.node)],
    rows: stages.map((stage) => [
      words(stage),
      ...nodes.map((node) => {
        const count = node.requests ? node.requests[stage] ?? 0 : null;
        return { text: number(count), share: (count ?? 0) / most };
      }),
    ]),
  };
}

function outcomes({ outcomes: ended = {}, retries }) {
  const rows = Object.entries(ended).map(([name, count]) => [words(name), number(count)]);
  return rows.length ? [...rows, ["second attempts", number(retries)]] : rows;
}

function refusals({ refusals: found = [] }) {
  const most = Math.max(1, ...found.map((row) => row.count));
  return found.map((row) => [
    words(row.reason),
    words(row.stage),
    row.fault,
    { text: number(row.count), share: row.count / most },
  ]);
}

function held({ nodes = [] }) {
  return nodes.map((node) => {
    if (!node.pages) return [node.node, "unknown", "unknown", "unknown", ""];
    const { draining = 0, quarantined = 0 } = node.pages;
    const back = draining + quarantined;
    return [
      node.node,
      number(draining),
      { text: number(quarantined), mood: quarantined ? "bad" : "" },
      number(node.windows_draining),
      { text: share(back, IN_USE(node.pages)), share: back / IN_USE(node.pages) },
    ];
  });
}

function drained({ nodes = [] }) {
  return nodes.flatMap((node) => {
    if (node.drains == null) return [[node.node, "not stated", "", "", "", "", ""]];
    const all = node.drains.reduce((sum, drain) => sum + drain.count, 0);
    return node.drains.map((drain) => [
      node.node,
      words(drain.cause),
      { text: words(drain.fence), mood: drain.fence === "unproven" ? "bad" : "" },
      number(drain.count),
      { text: share(drain.count, all), share: drain.count / all },
      duration(drain.mean_ms),
      drain.p95_ms == null ? "over 5 min" : duration(drain.p95_ms),
    ]);
  });
}

function routes({ routes: all = [], stack = {} }) {
  const promised = stack.promised_tokens || stack.published_tokens;
  return all.map((route) => [
    route.route,
    {
      text: tokens(route.longest_tokens),
      share: promised ? route.longest_tokens / promised : 0,
      mood: route.longest_tokens < promised ? "warn" : "",
    },
    route.limit ? words(route.limit) : "unknown",
    stack.promised_tokens ? tokens(promised) : `${tokens(promised)} (as measured)`,
    route.closed ? { text: `no: ${route.closed}`, mood: "bad" } : { text: "yes", mood: "good" },
  ]);
}

function violations({ violations: found = [] }) {
  return found.map((one) => [
    { text: words(one.kind), mood: "bad" },
    one.route ?? one.node ?? "the stack",
    one.message,
  ]);
}

function reads({ coverage = [] }) {
  return coverage.map((route) => {
    if (route.pages_read == null) return [route.route, "not stated", "", "", "", "", ""];
    const { verified, by_generation, local, observed, uncovered } = route.reads;
    const cell = (count, mood) => ({
      text: count ? `${number(count)} (${share(count, route.pages_read)})` : "0",
      mood: count ? mood : "",
      share: count / (route.pages_read || 1),
    });
    return [
      route.route, number(route.pages_read), cell(verified, "good"), cell(by_generation, "warn"),
      cell(local, ""), cell(observed, "warn"), cell(uncovered, "bad"),
    ];
  });
}

function relaxed({ coverage = [] }) {
  return coverage.flatMap((route) => [
    ...route.relaxed.map((one) => [
      route.route, one.node, words(one.guard),
      { text: words(one.mode), mood: one.mode === "disabled" ? "bad" : "warn" },
      one.checks, one.waiver || "none: drill mode",
    ]),
    ...route.unstated.map((node) => [route.route, node, { text: "not stated", mood: "bad" }, "", "", ""]),
  ]);
}

function waivers({ waivers: all = [] }) {
  return all.map((one) => [
    one.name,
    { text: words(one.state), mood: one.state === "in_force" ? "warn" : "" },
    list(one.relaxes), one.conditions, one.owner, clock(one.expires_unix_s),
  ]);
}

function breakers({ routes: all = [] }) {
  return all.map((route) => [
    route.route,
    { text: words(route.breaker), mood: YES_NO[route.breaker] ?? "bad" },
    route.unkept ? `${route.outlined}; it is not kept: ${route.unkept}` : route.outlined,
    route.missing.length ? list(route.missing) : "nothing",
  ]);
}

const CAME_OUT = { held: "good", "failed as expected": "good" };

function drills({ drills: results = [] }) {
  return results.map((one) => [
    one.drill, one.round, list(one.guards_off),
    { text: one.outcome, mood: CAME_OUT[one.outcome] ?? "bad" },
    duration(1000 * one.seconds), clock(one.at_unix_s),
  ]);
}
