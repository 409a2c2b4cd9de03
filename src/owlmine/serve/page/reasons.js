/** Why a class is in the answer: parts of its score, words, training points that voted; and classes like it. */

import { barList, sum } from "./bars.js";
import { h } from "./dom.js";
import { highlighted } from "./highlight.js";
import { holdFocus, roveFocus } from "./keyboard.js";
import { count, counted, percent, signed, visible, visibleLines } from "./text.js";

/** @import { Segment } from "./bars.js" */
/** @import { Answer, ClassInfo, Query, Reasons, SimilarClass, Voter } from "./types.js" */

/** How words count, with the judge whose colour they share. */
const EFFECTS = /** @type {const} */ ([
  { field: "linear", judge: "linear", title: "linear classifiers" },
  { field: "name", judge: "names", title: "class name" },
  { field: "dense", judge: "dense", title: "dense model" },
]);
const FIRST_WORDS = 8;
const FIRST_VOTERS = 5;

/**
 * The head of the panel: the class itself.
 *
 * @param {{key: string, name: string, examples: number}} found
 * @param {Answer | undefined} answer  undefined if the class is not in the answer
 * @param {() => void} onClose
 */
export function classHead(found, answer, onClose) {
  const facts = [counted(found.examples, "training example", "training examples")];
  if (answer?.probability !== null && answer?.probability !== undefined) facts.unshift(percent(answer.probability));
  return panelHead(
    found.name,
    onClose,
    h(
      "p",
      { class: "note" },
      found.key !== found.name && h("bdi", { class: "key" }, visible(found.key)),
      facts.join(" · "),
    ),
  );
}

/**
 * @param {string} title
 * @param {() => void} onClose
 * @param {...Node} rest
 */
export function panelHead(title, onClose, ...rest) {
  return h(
    "header",
    { class: "class-head" },
    h("h2", {}, h("bdi", {}, visible(title))),
    h(
      "button",
      { type: "button", class: "icon close", title: "Close (Esc)", onclick: onClose },
      h("span", { "aria-hidden": "true" }, "×"),
      h("span", { class: "hidden" }, "Close reasons"),
    ),
    ...rest,
  );
}

/**
 * @param {Query} query
 * @param {Reasons} reasons
 */
export function reasonsOf(query, reasons) {
  const effects = effectsOf(reasons);
  return h(
    "div",
    { class: "why" },
    notes(reasons),
    typeof query === "string" && effects.length > 0 && passage(query, effects),
    parts(reasons),
    effects.length > 0 && words(effects, typeof query === "string" ? "Words" : "Features"),
    reasons.voters.length > 0 && voters(reasons.voters),
  );
}

/**
 * @param {ClassInfo} found
 * @param {(key: string) => void} onChoose
 */
export function similarClasses(found, onChoose) {
  if (!found.similar.length) return null;
  const list = h("ol", { class: "similar" }, ...found.similar.map((other) => h("li", {}, similar(other, onChoose))));
  roveFocus(list);
  holdFocus(list);
  return h("section", {}, h("h3", {}, "Similar classes"), list);
}

/**
 * @param {SimilarClass} other
 * @param {(key: string) => void} onChoose
 */
function similar({ key, name, cosine, examples }, onChoose) {
  const title = `${key === name ? "" : `${visible(key)}, `}${counted(examples, "training example", "training examples")}`;
  return h(
    "button",
    { type: "button", title, onclick: () => onChoose(key) },
    h("bdi", {}, visible(name)),
    h("small", {}, cosine.toFixed(2)),
  );
}

/** @param {Reasons} reasons */
function notes({ spelled_by: spelled, suggested_by: judges }) {
  const texts = [
    spelled.length > 0 && `Its name is in the text: ${spelled.map(visible).join(", ")}`,
    judges.length > 0 && `Suggested by ${judges.join(", ")}`,
  ];
  const items = texts.filter((text) => text !== false).map((text) => h("li", {}, text));
  return items.length > 0 && h("ul", { class: "badges" }, ...items);
}

/**
 * @typedef {object} Effect  of a word or of a feature
 * @property {string} word
 * @property {Segment[]} segments
 * @property {number} total
 * @property {[number, number][]} spans
 */

/**
 * @param {Reasons} reasons
 * @returns {Effect[]}
 */
function effectsOf({ words: ofWords, features }) {
  return [...ofWords, ...features].map((effects) => {
    const segments = EFFECTS.map(({ field, judge }) => ({ judge, value: effects[field] ?? 0 }));
    const word = effects.word ?? `feature ${effects.feature}`;
    return { word, segments, total: sum(segments), spans: effects.spans ?? [] };
  });
}

/**
 * @param {string} query
 * @param {Effect[]} effects
 */
function passage(query, effects) {
  const [good, bad] = ["for", "against"].map((side) => h("mark", { class: side, style: { "--strength": 0.5 } }, side));
  const key = h("p", { class: "note" }, "Words ", good, " and ", bad, " this class");
  return h("section", {}, h("h3", {}, "Your text"), highlighted(query, effects), key);
}

/** @param {Reasons} reasons */
function parts({ parts: all, score }) {
  const rows = all.map(({ name, title, score: value }) => ({
    label: visible(title),
    segments: [{ judge: name, value }],
    value: signed(value),
  }));
  const total = h("p", { class: "total" }, h("span", {}, "Score"), h("span", {}, signed(score)));
  return h("section", {}, h("h3", {}, "Parts of the score"), barList(rows, { tall: true }), total);
}

/**
 * @param {Effect[]} effects
 * @param {string} title
 */
function words(effects, title) {
  const used = EFFECTS.filter((_, place) => effects.some(({ segments }) => segments[place].value !== 0));
  const rows = effects.map(({ word, segments, total }) => ({ label: visible(word), segments, value: signed(total) }));
  return h(
    "section",
    {},
    h("h3", {}, title),
    h("ul", { class: "legend" }, ...used.map(({ judge, title: by }) => h("li", { "data-judge": judge }, by))),
    barList(rows, { first: FIRST_WORDS }),
  );
}

/** @param {Voter[]} all */
function voters(all) {
  const rows = all.map(({ judge, row, id, text, cosine, share }) => ({
    above: text === null ? undefined : h("p", { class: "voter", dir: "auto" }, visibleLines(text)),
    label: `${id === null ? `row ${count(row)}` : visible(id)}, cosine ${cosine.toFixed(2)}`,
    segments: [{ judge, value: share }],
    value: percent(share),
  }));
  return h(
    "section",
    {},
    h("h3", {}, "Training points that voted, with their share of all votes"),
    barList(rows, { first: FIRST_VOTERS }),
  );
}
