// All page maps, one figure for each node, and the table of counts beside them, which is their
// legend too: what a map shows as colours is there as figures.

import { MapCanvas } from "./canvas.js";
import { look } from "./stages.js";
import { head, setText } from "./tables.js";
import { number, words } from "./words.js";

export class Atlas {
  constructor(root, table, choose) {
    this.root = root;
    this.table = table;
    this.choose = choose;
    this.figures = new Map();
  }

  // Colours are read from the legend's own cells: whatever the theme is, they are those on screen.
  readPalette() {
    const found = new Map();
    for (const swatch of this.table.querySelectorAll(".swatch")) {
      found.set(swatch.dataset.stage, getComputedStyle(swatch).backgroundColor);
    }
    const root = getComputedStyle(this.root);
    this.palette = {
      surface: root.backgroundColor,
      ink: root.color,
      focus: root.outlineColor,
      stage: (name) => found.get(name) ?? root.outlineColor,
    };
  }

  show(state) {
    const nodes = state.figures.nodes ?? [];
    this.showTable(state, nodes);
    if (!this.palette) this.readPalette();
    this.forgetOthers(nodes);
    for (const node of nodes) this.showNode(state, node);
  }

  // Draws again in another theme.
  repaint(state) {
    this.readPalette();
    this.show(state);
  }

  showNode(state, node) {
    const figure = this.figures.get(node.node) ?? this.add(node);
    const map = state.maps.get(node.node);
    figure.body.hidden = !map;
    setText(figure.title, `${node.node}, ${node.role}${map ? `: ${number(map.poolPages)} pages` : ""}`);
    setText(figure.absent, map ? "" : `No map: ${node.map || (node.state === "up" ? "waiting for the first one" : node.state)}`);
    if (map) figure.canvas.show(map, this.palette, state.stages, state.alone);
  }

  add(node) {
    const root = document.createElement("figure");
    const title = document.createElement("figcaption");
    const absent = document.createElement("p");
    const body = document.createElement("div");
    const canvas = document.createElement("canvas");
    const readout = document.createElement("p");
    title.id = `map-${node.node}`;
    readout.className = "readout";
    body.className = "map";
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "slider");
    canvas.setAttribute("aria-roledescription", "page map");
    canvas.setAttribute("aria-labelledby", title.id);
    canvas.ariaValueMin = "0";
    body.append(canvas);
    root.append(title, absent, body, readout);
    this.root.append(root);
    const figure = { root, title, absent, body, canvas: new MapCanvas(canvas, readout) };
    this.figures.set(node.node, figure);
    return figure;
  }

  forgetOthers(nodes) {
    const names = new Set(nodes.map((node) => node.node));
    for (const [name, figure] of this.figures) {
      if (names.has(name)) continue;
      figure.root.remove();
      this.figures.delete(name);
    }
  }

  showTable(state, nodes) {
    head(this.table, ["Stage", ...nodes.map((node) => node.node), "Meaning"]);
    const body = this.table.tBodies[0];
    state.stages.forEach((name, index) => {
      const row = body.rows[index] ?? this.addRow(body, name);
      const button = row.querySelector("button");
      button.ariaPressed = String(state.alone === name);
      while (row.cells.length > nodes.length + 2) row.deleteCell(1);
      while (row.cells.length < nodes.length + 2) row.insertCell(1);
      nodes.forEach((node, at) => setText(row.cells[at + 1], this.count(state, node, index, name)));
    });
    while (body.rows.length > state.stages.length) body.deleteRow(-1);
  }

  // What the map shows, so that picture and table never differ; else what the node reports.
  count(state, node, index, name) {
    const map = state.maps.get(node.node);
    return number(map ? map.counts.get(index) ?? 0 : node.pages?.[name]);
  }

  addRow(body, name) {
    const row = body.insertRow();
    const title = row.appendChild(document.createElement("th"));
    const button = document.createElement("button");
    const swatch = document.createElement("span");
    title.scope = "row";
    button.type = "button";
    button.className = "stage";
    swatch.className = `swatch stage-${name}`;
    swatch.dataset.stage = name;
    swatch.textContent = look(name).letter;
    swatch.ariaHidden = "true";
    button.append(swatch, words(name));
    button.addEventListener("click", () => this.choose(name));
    title.append(button);
    row.insertCell().textContent = look(name).meaning;
    return row;
  }

  // What drawing takes: the slowest of the last drawings, for the line at the foot of the page.
  get drawn() {
    const all = [...this.figures.values()].map((figure) => figure.canvas.drawn);
    return all.reduce((most, one) => (one.ms > most.ms ? one : most), { cells: 0, ms: 0 });
  }
}
