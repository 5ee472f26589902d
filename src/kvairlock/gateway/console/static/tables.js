// Tables that are filled again and again without being made anew: only cells that differ are
// touched, so that focus, selection and a screen reader's place in the table stay where they are.
//
// A cell is a text, or {text, mood, share}: mood is "good", "warn" or "bad" and always comes with
// words that say the same; share in 0..1 draws a bar behind the text.

export function fill(table, rows, empty = "none") {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0]?.cells.length ?? 1;
  if (!rows.length) return fillEmpty(body, columns, empty);
  if (body.dataset.empty) clear(body);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => fillRow(body.rows[at] ?? body.insertRow(), cells));
}

export function head(table, titles) {
  const row = table.tHead.rows[0] ?? table.tHead.insertRow();
  while (row.cells.length > titles.length) row.deleteCell(-1);
  titles.forEach((title, at) => {
    const cell = row.cells[at] ?? row.appendChild(document.createElement("th"));
    cell.scope = "col";
    setText(cell, title);
  });
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function fillRow(row, cells) {
  while (row.cells.length > cells.length) row.deleteCell(-1);
  cells.forEach((cell, at) => {
    const { text, mood = "", share } = typeof cell === "object" ? cell : { text: String(cell) };
    const element = row.cells[at] ?? addCell(row, at);
    setText(element, text);
    if (element.dataset.mood !== mood) element.dataset.mood = mood;
    const part = share == null ? "" : Math.min(1, share).toFixed(3);
    if (element.dataset.share !== part) {
      element.dataset.share = part;
      element.style.setProperty("--share", part || "0");
    }
  });
}

function addCell(row, at) {
  const cell = document.createElement(at ? "td" : "th");
  if (!at) cell.scope = "row";
  return row.appendChild(cell);
}

function fillEmpty(body, columns, empty) {
  if (body.dataset.empty === empty) return;
  clear(body);
  body.dataset.empty = empty;
  const cell = body.insertRow().insertCell();
  cell.colSpan = columns;
  cell.textContent = empty;
}

function clear(body) {
  delete body.dataset.empty;
  body.replaceChildren();
}
