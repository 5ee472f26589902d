// One node's page map on a canvas: a cell for each page, row by row. Only cells that changed are
// drawn again; the whole is drawn when its size, its theme or what is shown alone changes.
//
// The canvas is a slider to keyboards and screen readers: its value is the page that is looked at,
// and its value as text is that page's stage and generation. It is said again when they change; how
// long they have been so changes all the time, and stands below the map only.

import { look } from "./stages.js";
import { UNTOLD, page as pageOf, take } from "./pages.js";
import { setText } from "./tables.js";
import { duration, number, words } from "./words.js";

const CELL_MAX = 24;
const CELL_MIN = 2;
const HEIGHT = 320; // what a map should fit in; beyond CELL_MIN it grows
const LETTER_FROM = 12;
const MARK_FROM = 6;
const GAP_FROM = 4;

export class MapCanvas {
  constructor(canvas, readout) {
    this.canvas = canvas;
    this.readout = readout;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.cursor = 0;
    this.drawn = { cells: 0, ms: 0 };
    canvas.addEventListener("pointermove", (event) => this.pointAt(event));
    canvas.addEventListener("pointerdown", (event) => this.pointAt(event));
    canvas.addEventListener("keydown", (event) => this.press(event));
    canvas.addEventListener("blur", () => this.unmark());
    canvas.addEventListener("pointerleave", () => document.activeElement === canvas || this.unmark());
    canvas.addEventListener("focus", () => this.look(this.cursor));
  }

  // Takes note of what is to be shown; draws what follows from it.
  show(map, palette, stages, alone) {
    const began = performance.now();
    const isOther = map !== this.map || palette !== this.palette || alone !== this.alone;
    Object.assign(this, { map, palette, stages, alone });
    const resized = this.fit();
    const runs = take(map);
    if (isOther || resized) this.wipe();
    const cells = this.drawRuns(isOther || resized ? [[0, map.poolPages]] : runs);
    if (this.marked !== undefined) this.mark();
    if (cells) this.drawn = { cells, ms: performance.now() - began };
    if (cells) this.canvas.dataset[isOther || resized ? "wholeMs" : "drawMs"] = this.drawn.ms.toFixed(2);
    this.tell();
  }

  fit() {
    const width = Math.max(120, this.canvas.parentElement.clientWidth);
    const ratio = window.devicePixelRatio || 1;
    if (width === this.width && ratio === this.ratio && this.pages === this.map.poolPages) return false;
    Object.assign(this, { width, ratio, pages: this.map.poolPages });
    const ideal = Math.floor(Math.sqrt((width * HEIGHT) / this.pages));
    this.cell = Math.min(CELL_MAX, Math.max(CELL_MIN, ideal));
    this.columns = Math.max(1, Math.floor(width / this.cell));
    this.rows = Math.ceil(this.pages / this.columns);
    const height = this.rows * this.cell;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.canvas.ariaValueMax = String(this.pages - 1);
    return true;
  }

  wipe() {
    this.pen.fillStyle = this.palette.surface;
    this.pen.fillRect(0, 0, this.width, this.rows * this.cell);
  }

  // Draws stage by stage, since changing the colour costs more than a rectangle.
  drawRuns(runs) {
    const byStage = new Map();
    let cells = 0;
    for (const [first, count] of runs) {
      for (let page = first; page < first + count; page += 1) {
        const stage = this.map.stage[page];
        if (!byStage.has(stage)) byStage.set(stage, []);
        byStage.get(stage).push(page);
      }
      cells += count;
    }
    for (const [stage, pages] of byStage) this.drawStage(stage, pages);
    return cells;
  }

  drawStage(stage, pages) {
    const name = this.stages[stage];
    const side = this.cell - (this.cell >= GAP_FROM ? 1 : 0);
    const shown = this.alone === null || this.alone === name;
    const known = stage !== UNTOLD;
    this.pen.globalAlpha = 1;
    this.pen.fillStyle = this.palette.surface;
    if (!shown || !known) this.rects(pages, side);
    this.pen.globalAlpha = shown ? 1 : 0.12;
    this.pen.fillStyle = known ? this.palette.stage(name) : this.palette.surface;
    this.rects(pages, side);
    if (shown && known) this.drawMarks(look(name), pages, side);
    this.pen.globalAlpha = 1;
  }

  // Cells without a gap that are neighbours in a row are one rectangle: of a hundred thousand small
  // cells, most of which are in one stage, that leaves a few hundred.
  rects(pages, side) {
    const joins = side === this.cell;
    for (let at = 0; at < pages.length; ) {
      const first = pages[at];
      const rowEnd = first + this.columns - (first % this.columns);
      let past = at + 1;
      while (joins && pages[past] === first + past - at && pages[past] < rowEnd) past += 1;
      const { x, y } = this.place(first);
      this.pen.fillRect(x, y, side + (past - at - 1) * this.cell, side);
      at = past;
    }
  }

  drawMarks(style, pages, side) {
    if (this.cell >= LETTER_FROM) return this.drawLetters(style.letter, pages, side);
    if (this.cell < MARK_FROM || style.mark === "none") return undefined;
    this.pen.strokeStyle = this.palette.ink;
    this.pen.lineWidth = 1;
    this.pen.beginPath();
    for (const page of pages) this.addMark(style.mark, this.place(page), side);
    return this.pen.stroke();
  }

  drawLetters(letter, pages, side) {
    if (!letter) return;
    this.pen.fillStyle = this.palette.ink;
    this.pen.font = `600 ${Math.floor(side * 0.65)}px system-ui, sans-serif`;
    this.pen.textAlign = "center";
    this.pen.textBaseline = "middle";
    for (const page of pages) {
      const { x, y } = this.place(page);
      this.pen.fillText(letter, x + side / 2, y + side / 2 + 0.5);
    }
  }

  addMark(mark, { x, y }, side) {
    const lines = {
      bar: [[0, 0.5, 1, 0.5]],
      dot: [[0.35, 0.5, 0.65, 0.5], [0.5, 0.35, 0.5, 0.65]],
      slash: [[0, 1, 1, 0]],
      cross: [[0, 1, 1, 0], [0, 0, 1, 1]],
    };
    for (const [x1, y1, x2, y2] of lines[mark] ?? []) {
      this.pen.moveTo(x + x1 * side, y + y1 * side);
      this.pen.lineTo(x + x2 * side, y + y2 * side);
    }
  }

  place(page) {
    return { x: (page % this.columns) * this.cell, y: Math.floor(page / this.columns) * this.cell };
  }

  // Pointer and keys

  pointAt(event) {
    if (!this.map) return;
    const column = Math.floor(event.offsetX / this.cell);
    const page = Math.floor(event.offsetY / this.cell) * this.columns + column;
    if (column < this.columns && page < this.pages) this.look(page);
  }

  press(event) {
    if (!this.map) return;
    const last = this.pages - 1;
    const to = {
      ArrowLeft: this.cursor - 1,
      ArrowRight: this.cursor + 1,
      ArrowUp: this.cursor - this.columns,
      ArrowDown: this.cursor + this.columns,
      PageUp: this.cursor - 8 * this.columns,
      PageDown: this.cursor + 8 * this.columns,
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.look(Math.min(last, Math.max(0, to)));
  }

  look(page) {
    if (!this.map) return;
    this.unmark();
    this.cursor = page;
    this.mark();
    this.tell();
  }

  mark() {
    const { x, y } = this.place(this.cursor);
    this.pen.strokeStyle = this.palette.focus;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(x, y, Math.max(4, this.cell - 1), Math.max(4, this.cell - 1));
    this.marked = this.cursor;
  }

  // Draws again what the frame around the page that was looked at has covered.
  unmark() {
    if (this.marked === undefined || !this.map) return;
    const reach = Math.ceil(5 / this.cell);
    const [row, column] = [Math.floor(this.marked / this.columns), this.marked % this.columns];
    const from = Math.max(0, column - reach);
    const { x, y } = this.place(this.marked);
    this.pen.fillStyle = this.palette.surface;
    this.pen.fillRect(x - 2, y - 2, Math.max(8, this.cell + 4), Math.max(8, this.cell + 4));
    for (let r = Math.max(0, row - reach); r <= Math.min(this.rows - 1, row + reach); r += 1) {
      const first = r * this.columns + from;
      const past = Math.min(r * this.columns + Math.min(this.columns, column + reach + 1), this.pages);
      if (past > first) this.drawRuns([[first, past - first]]);
    }
    this.marked = undefined;
  }

  tell() {
    const found = pageOf(this.map, this.cursor, performance.now());
    const text = `page ${number(this.cursor)}: ${found ? this.describe(found) : "not told yet"}`;
    setText(this.readout, found ? `${text}, for ${age(found)}` : text);
    if (this.canvas.ariaValueText === text) return;
    this.canvas.ariaValueNow = String(this.cursor);
    this.canvas.ariaValueText = text;
  }

  describe({ stage, generation }) {
    return `${words(this.stages[stage] ?? "unknown")}, generation ${generation}`;
  }
}

const age = ({ atLeast, ageMs }) => `${atLeast ? "at least " : ""}${duration(ageMs)}`;
