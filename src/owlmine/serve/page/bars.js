/** Lists of bars to both sides of zero: what counts for a class to the right, what counts against it to the left. */

import { h, svg } from "./dom.js";
import { count } from "./text.js";

/**
 * @typedef {{judge: string, value: number}} Segment  the judge gives the colour
 * @typedef {{least: number, width: number}} Range
 *
 * @typedef {object} Row
 * @property {string} label
 * @property {Segment[]} segments
 * @property {string} value
 * @property {Node} [above]  what stands above the row
 */

const THICKNESS = 8;

/**
 * @param {Row[]} rows  on one scale
 * @param {object} [options]
 * @param {number} [options.first]  how many rows are shown until the rest is asked for
 * @param {boolean} [options.tall]  whether labels stand above their bars
 */
export function barList(rows, { first = rows.length, tall = false } = {}) {
  const range = rangeOf(rows.map(({ segments }) => segments));
  const items = rows.map((row) => item(row, range));
  const list = h("ul", { class: tall ? "bars tall" : "bars" }, ...items.slice(0, first));
  const rest = items.slice(first);
  if (!rest.length) return list;
  const more = h("button", { type: "button", class: "quiet" }, `Show ${count(rest.length)} more`);
  const last = h("li", { class: "more" }, more);
  more.addEventListener("click", () => {
    last.replaceWith(...rest);
    // The button is gone; the next Tab goes on from here.
    rest[0].tabIndex = -1;
    rest[0].focus();
  });
  list.append(last);
  return list;
}

/** @param {Segment[]} segments */
export function sum(segments) {
  return segments.reduce((total, { value }) => total + value, 0);
}

/**
 * @param {Row} row
 * @param {Range} range
 */
function item({ label, segments, value, above }, range) {
  return h(
    "li",
    {},
    above,
    h("bdi", { class: "label" }, label),
    bar(segments, range),
    h("span", { class: "value" }, value),
  );
}

/**
 * The range of all bars; it always contains zero.
 *
 * @param {Segment[][]} bars
 * @returns {Range}
 */
function rangeOf(bars) {
  const least = Math.min(0, ...bars.map((bar) => sum(bar.filter(({ value }) => value < 0))));
  const most = Math.max(0, ...bars.map((bar) => sum(bar.filter(({ value }) => value > 0))));
  return { least, width: most - least || 1 };
}

/**
 * One bar, stacked from zero outwards. It repeats the number beside it, so it is hidden from screen readers.
 *
 * @param {Segment[]} segments
 * @param {Range} range
 */
function bar(segments, { least, width }) {
  const place = (/** @type {number} */ value) => (value - least) / width;
  let [left, right] = [0, 0];
  const rectangles = segments.map(({ judge, value }) => {
    const start = value < 0 ? (left += value) : right;
    if (value > 0) right += value;
    const size = { x: share(place(start)), width: share(Math.abs(value) / width), height: THICKNESS };
    return svg("rect", { ...size, "data-judge": judge });
  });
  const zero = share(place(0));
  const line = svg("line", { x1: zero, x2: zero, y1: -2, y2: THICKNESS + 2 });
  return svg("svg", { class: "bar-drawing", "aria-hidden": "true", height: THICKNESS }, ...rectangles, line);
}

/** @param {number} part */
function share(part) {
  return `${(part * 100).toFixed(2)}%`;
}
