/** The best classes of a query: a list of buttons with bars. Rows keep their places, so that bars move as one types. */

import { fill, h, setProperties } from "./dom.js";
import { holdFocus, roveFocus } from "./keyboard.js";
import { count, counted, percent, visible } from "./text.js";

/** @import { Answer } from "./types.js" */

/**
 * @typedef {object} Row
 * @property {HTMLLIElement} item
 * @property {HTMLButtonElement} button
 * @property {HTMLElement} name
 * @property {HTMLElement} key
 * @property {HTMLElement} share
 */

export class AnswerList {
  #list;
  #onChoose;
  /** @type {Row[]} */
  #rows = [];
  /** @type {Answer[]} */
  #answers = [];
  #selected = "";

  /**
   * @param {HTMLElement} list
   * @param {(key: string, byArrow: boolean) => void} onChoose
   */
  constructor(list, onChoose) {
    this.#list = list;
    this.#onChoose = onChoose;
    roveFocus(list, (button) => this.#choose(button, true));
  }

  /** @param {Answer[]} answers */
  show(answers) {
    this.#answers = answers;
    while (this.#rows.length < answers.length) this.#rows.push(this.#newRow());
    const best = Math.max(...answers.map(({ score }) => score), Number.MIN_VALUE);
    answers.forEach((answer, place) => showRow(this.#rows[place], answer, best));
    fill(this.#list, ...this.#rows.slice(0, answers.length).map(({ item }) => item));
    this.select(this.#selected);
    holdFocus(this.#list, this.#rows[Math.max(this.#place(this.#selected), 0)]?.button);
  }

  /**
   * Marks a class as the one whose reasons are shown.
   *
   * @param {string} key  empty: none
   */
  select(key) {
    this.#selected = key;
    this.#answers.forEach((answer, place) => {
      this.#rows[place].button.setAttribute("aria-expanded", String(answer.key === key));
    });
  }

  /**
   * The row of a class, to put something under it.
   *
   * @param {string} key
   */
  item(key) {
    return this.#rows[this.#place(key)]?.item;
  }

  /** Moves the focus to the selected class, or to the best. */
  focus() {
    this.#rows[Math.max(this.#place(this.#selected), 0)]?.button.focus();
  }

  /** @param {string} key */
  #place(key) {
    return this.#answers.findIndex((answer) => answer.key === key);
  }

  /** @returns {Row} */
  #newRow() {
    const name = h("bdi", { class: "name" });
    const key = h("bdi", { class: "key" });
    const share = h("span", { class: "share" });
    const button = h(
      "button",
      { type: "button", class: "answer", "aria-controls": "reasons" },
      h("span", { class: "words" }, name, " ", key),
      share,
      h("span", { class: "bar", "aria-hidden": "true" }),
    );
    button.addEventListener("click", () => this.#choose(button, false));
    return { item: h("li", {}, button), button, name, key, share };
  }

  /**
   * @param {HTMLButtonElement} button
   * @param {boolean} byArrow
   */
  #choose(button, byArrow) {
    const place = this.#rows.findIndex((row) => row.button === button);
    this.#onChoose(this.#answers[place].key, byArrow);
  }
}

/**
 * @param {Row} row
 * @param {Answer} answer
 * @param {number} best  the highest score
 */
function showRow(row, answer, best) {
  const { key, name, score, probability, examples } = answer;
  row.name.textContent = visible(name);
  row.key.textContent = key === name ? "" : visible(key);
  row.share.textContent = probability === null ? score.toFixed(2) : percent(probability);
  row.button.title = `${counted(examples, "training example", "training examples")}, score ${score.toFixed(3)}`;
  const share = probability ?? Math.max(score / best, 0);
  setProperties(row.button, { "--share": share });
}

/**
 * What a screen reader says about answers.
 *
 * @param {Answer[]} answers
 */
export function spoken(answers) {
  if (!answers.length) return "No class.";
  const { name, probability, score } = answers[0];
  const value = probability === null ? `score ${score.toFixed(2)}` : percent(probability);
  return `${answers.length === 1 ? "1 class" : `${count(answers.length)} classes`}. Best: ${visible(name)}, ${value}.`;
}
