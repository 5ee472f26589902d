// The console: key -> stream -> store -> what is shown. Nothing is drawn from an event; each frame
// draws what the state is by then, so that many events in a row cost one drawing.

import { Atlas } from "./atlas.js";
import { showHistory } from "./history.js";
import { makeNews, newsOf } from "./news.js";
import { SECTIONS, flow, tiles } from "./sections.js";
import { makeStore } from "./store.js";
import { Refused, events } from "./stream.js";
import { fill, head, setText } from "./tables.js";
import { duration, number } from "./words.js";

const KEY = "kvairlock-console-key";
const THEME = "kvairlock-console-theme";
const SILENT_MS = 3000;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

const $ = (id) => document.getElementById(id);
const store = makeStore();
const atlas = new Atlas($("maps"), $("stages"), (stage) => store.tell({ name: "alone", stage }));
const announce = makeNews($("news"));
let stop = new AbortController();

// The stream

async function follow(key) {
  stop.abort();
  const mine = (stop = new AbortController());
  for (let failures = 0; !mine.signal.aborted; failures += 1) {
    store.tell({ name: "connection", state: failures ? "connecting again" : "connecting" });
    const why = await once(key, mine.signal, () => { failures = -1; });
    if (why.wantsKey || mine.signal.aborted) return;
    store.tell({ name: "connection", state: "lost", why: why.message });
    await pause(RETRY_MS[Math.min(Math.max(0, failures), RETRY_MS.length - 1)]);
  }
}

// Follows one stream to its end, and returns why it ended.
async function once(key, signal, opened) {
  try {
    for await (const event of events(key, signal)) {
      if (event.name === "hello") open(key, opened);
      if (event.name === "end") return new Refused(0, event.told.why);
      if (event.name) store.tell(event);
    }
    return new Refused(0, "the stream ended");
  } catch (error) {
    if (!(error instanceof Refused)) {
      store.tell({ name: "connection", state: "lost", why: "this page has a fault; the browser's console says which" });
      throw error;
    }
    if (error.wantsKey && !signal.aborted) shut(error.message);
    return error;
  }
}

function open(key, opened) {
  opened();
  sessionStorage.setItem(KEY, key);
  const came = $("main").hidden;
  $("door").hidden = true;
  $("main").hidden = false;
  $("forget").hidden = false;
  setText($("door-error"), "");
  if (came) $("main").focus();
  store.tell({ name: "connection", state: "live" });
}

function shut(why) {
  stop.abort();
  sessionStorage.removeItem(KEY);
  $("door").hidden = false;
  $("main").hidden = true;
  $("forget").hidden = true;
  setText($("door-error"), why);
  store.tell({ name: "connection", state: "off" });
  $("key").focus();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// What is shown

const dirty = new Set();
let asked = false;

store.listen((state, before, action) => {
  announce(newsOf(state, before));
  dirty.add(action.name === "sign" ? "figures" : action.name);
  for (const part of Object.keys(state.figures)) {
    if (state.figures[part] !== before.figures[part]) dirty.add(part);
  }
  if (!asked) requestAnimationFrame(show);
  asked = true;
});

function show() {
  asked = false;
  const { state } = store;
  showConnection(state);
  if (state.figures.stack) {
    if (["stack", "nodes", "violations", "routes"].some((part) => dirty.has(part))) showTiles(state);
    if (["pages", "unknown", "alone", "nodes", "hello"].some((part) => dirty.has(part))) atlas.show(state);
    if (dirty.has("nodes")) showFlow(state);
    if (dirty.has("figures")) showHistory(state.history);
    for (const section of SECTIONS) {
      if (section.of.some((part) => dirty.has(part))) {
        fill($(section.table), section.rows(state.figures), section.empty);
      }
    }
    const { cells, ms } = atlas.drawn;
    setText($("instrument"), `last drawn: ${number(cells)} pages in ${ms.toFixed(1)} ms`);
  }
  dirty.clear();
}

function showConnection(state) {
  const { state: name, why } = state.connection;
  const silentMs = performance.now() - state.heardAt;
  const silent = name === "live" && silentMs > SILENT_MS;
  const element = $("connection");
  element.dataset.state = silent ? "silent" : name;
  document.body.dataset.old = name === "live" && !silent ? "" : "old";
  const text = silent ? `silent for ${duration(silentMs)}: what is shown is old` : name;
  setText(element, why ? `${text}: ${why}` : text);
}

function showTiles(state) {
  setText($("model"), state.figures.stack.model);
  const list = $("tiles");
  tiles(state.figures).forEach(([title, text, mood], at) => {
    const tile = list.children[at] ?? list.appendChild(newTile());
    setText(tile.firstChild, title);
    setText(tile.lastChild, text);
    tile.dataset.mood = mood;
  });
}

function newTile() {
  const tile = document.createElement("div");
  tile.append(document.createElement("dt"), document.createElement("dd"));
  return tile;
}

function showFlow(state) {
  const { titles, rows } = flow(state.figures);
  head($("flow"), titles);
  fill($("flow"), rows);
}

// What people do

function theme(name) {
  if (name === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = name;
  sessionStorage.setItem(THEME, name);
  repaint();
}

function repaint() {
  if (store.state.figures.stack) atlas.repaint(store.state);
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  $("key").value = "";
  setText($("door-error"), "");
  if (/^[\x21-\x7e]+$/.test(key)) follow(key);
  else setText($("door-error"), "this is no API key: it has letters, digits and dashes only");
});
$("forget").addEventListener("click", () => shut(""));
$("theme").addEventListener("change", () => theme($("theme").value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
addEventListener("resize", () => dirty.add("alone") && requestAnimationFrame(show));
setInterval(() => {
  showConnection(store.state);
  for (const figure of atlas.figures.values()) if (figure.canvas.map) figure.canvas.tell();
}, 1000);

$("theme").value = sessionStorage.getItem(THEME) ?? "system";
theme($("theme").value);
const kept = sessionStorage.getItem(KEY);
if (kept) follow(kept);
else $("key").focus();
