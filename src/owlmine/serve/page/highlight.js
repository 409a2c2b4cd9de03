/** A query with the words marked that count for a class, or against it. */

import { h } from "./dom.js";
import { visibleLines } from "./text.js";

/**
 * @typedef {object} Effect
 * @property {string} word
 * @property {number} total  above 0: counts for the class
 * @property {[number, number][]} spans  where it stands in the query, in characters of Unicode
 */

// Weaker effects would give marks that nobody can see.
const FAINTEST = 0.02;

/**
 * @param {string} query
 * @param {Effect[]} effects
 */
export function highlighted(query, effects) {
  const characters = Array.from(query);
  const strongest = Math.max(...effects.map(({ total }) => Math.abs(total)));
  const marks = effects
    .filter(({ total }) => Math.abs(total) > FAINTEST * strongest)
    .flatMap(({ spans, total }) => spans.map(([start, end]) => ({ start, end, strength: total / strongest })))
    .sort((one, other) => one.start - other.start || other.end - one.end);
  /** @type {(string | Node)[]} */
  const pieces = [];
  let at = 0;
  for (const { start, end, strength } of marks) {
    if (start < at) continue; // Words of a sequence that is marked already.
    pieces.push(slice(characters, at, start), marked(slice(characters, start, end), strength));
    at = end;
  }
  pieces.push(slice(characters, at, characters.length));
  return h("p", { class: "passage", dir: "auto" }, ...pieces);
}

/**
 * @param {string} text
 * @param {number} strength  -1 to 1
 */
function marked(text, strength) {
  const side = strength < 0 ? "against" : "for";
  return h("mark", { class: side, style: { "--strength": Math.abs(strength).toFixed(2) } }, text);
}

/**
 * @param {string[]} characters
 * @param {number} start
 * @param {number} end
 */
function slice(characters, start, end) {
  return visibleLines(characters.slice(start, end).join(""));
}
