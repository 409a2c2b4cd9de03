/** How many classes are shown, from which probability on, and how much rare ones are lifted. */

import { byId, fill, h } from "./dom.js";
import { SIZES } from "./route.js";
import { percent } from "./text.js";

/** @import { Route } from "./route.js" */
/** @import { ModelInfo } from "./types.js" */

/** @typedef {Pick<Route, "k" | "least" | "tail">} Choice */

export class Settings {
  #k = byId("k", HTMLSelectElement);
  #least = byId("least", HTMLInputElement);
  #tail = byId("tail", HTMLInputElement);
  #more = byId("more");
  #sliders = byId("sliders");
  /** @type {ModelInfo["thresholds"]} */
  #thresholds = [];

  /** @param {(choice: Choice) => void} onChange */
  constructor(onChange) {
    fill(this.#k, ...SIZES.map((size) => h("option", { value: size }, String(size))));
    const form = byId("settings", HTMLFormElement);
    this.#more.addEventListener("click", () => {
      this.#sliders.hidden = !this.#sliders.hidden;
      this.#more.setAttribute("aria-expanded", String(!this.#sliders.hidden));
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      this.#describe();
      onChange({ k: Number(this.#k.value), least: Number(this.#least.value), tail: Number(this.#tail.value) });
    });
  }

  /**
   * @param {ModelInfo} model
   * @param {Choice} choice
   */
  show(model, choice) {
    byId("settings").hidden = false;
    // Both need probabilities.
    this.#more.hidden = !model.probabilities;
    this.#sliders.hidden = !model.probabilities || this.#more.getAttribute("aria-expanded") === "false";
    this.#thresholds = model.thresholds;
    this.#k.value = String(choice.k);
    this.#least.value = String(choice.least);
    this.#tail.value = String(choice.tail);
    this.#describe();
  }

  #describe() {
    const least = Number(this.#least.value);
    byId("least-value").textContent = `${Math.round(least * 100)}%`;
    byId("least-hint").textContent = expectation(least, this.#thresholds);
    byId("tail-value").textContent = Number(this.#tail.value).toFixed(1);
  }
}

/**
 * What a minimum probability means, by what was measured on held-out points.
 *
 * @param {number} least
 * @param {ModelInfo["thresholds"]} thresholds
 */
function expectation(least, thresholds) {
  const reached = thresholds.filter(({ threshold }) => threshold <= least);
  if (!least || !reached.length) return "Classes below it are left out.";
  const { precision, kept } = reached.reduce((best, other) => (other.precision > best.precision ? other : best));
  return `On held-out points, ${percent(precision)} of the answers above it were right; ${percent(kept)} of all answers remain.`;
}

/**
 * The settings as a request has them.
 *
 * @param {ModelInfo} model
 * @param {Choice} choice
 */
export function requested(model, { k, least, tail }) {
  return {
    k: Math.min(k, model.classes),
    ...(model.probabilities && least && { threshold: least }),
    ...(model.probabilities && tail && { tail }),
  };
}
