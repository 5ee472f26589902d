// The picture of the last two minutes, and the table with the same in figures.

import { HISTORY, refusedEachSecond } from "./store.js";
import { fill, setText } from "./tables.js";
import { number } from "./words.js";

const WIDTH = 480;
const HEIGHT = 140;
const EDGE = 6;

export function showHistory(history) {
  const inFlight = history.map((point) => point.inFlight);
  const refused = refusedEachSecond(history);
  const most = Math.max(1, ...inFlight, ...refused);
  draw("line-in-flight", inFlight, most);
  draw("line-refused", refused, most);
  setText(document.getElementById("history-most"), number(most));
  fill(document.getElementById("recent"), [
    ["Requests in flight", number(inFlight.at(-1)), number(Math.max(0, ...inFlight))],
    ["Refused each second", rate(refused.at(-1)), rate(Math.max(0, ...refused))],
  ]);
}

function draw(id, values, most) {
  const points = values.map((value, at) => {
    const x = WIDTH - ((values.length - 1 - at) * WIDTH) / (HISTORY - 1);
    const y = HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * value) / most;
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  document.getElementById(id).setAttribute("points", points.join(" "));
}

const rate = (value = 0) => value.toFixed(value && value < 10 ? 1 : 0);
