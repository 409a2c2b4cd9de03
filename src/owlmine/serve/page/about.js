/** The view of a model: its figures, judges and thresholds, evaluation pictures, index, and its card. */

import { barList } from "./bars.js";
import { fill, h } from "./dom.js";
import { Latest } from "./latest.js";
import { markdown } from "./markdown.js";
import { ServiceError } from "./service.js";
import { count, percent, visible } from "./text.js";

/** @import { Service } from "./service.js" */
/** @import { ModelInfo } from "./types.js" */

export class AboutView {
  #service;
  #place;
  #loading = new Latest();
  /** @type {ModelInfo | null} */
  #model = null;

  /**
   * @param {Service} service
   * @param {HTMLElement} place
   */
  constructor(service, place) {
    this.#service = service;
    this.#place = place;
  }

  /** @param {ModelInfo} model */
  show(model) {
    if (model === this.#model) return;
    this.#model = model;
    const pictures = model.pictures.map((file) => ({ file, place: figure(file) }));
    fill(
      this.#place,
      tiles(model),
      h("article", { class: "card markdown" }, ...markdown(model.card)),
      h("div", { class: "facts" }, judges(model), thresholds(model), index(model)),
      ...pictures.map(({ place }) => place),
    );
    void this.#loading.run((signal) => Promise.all(pictures.map((wanted) => this.#draw(model, wanted, signal))));
  }

  /**
   * A picture is fetched like everything else: the browser's own request for an `img` would not send the API key.
   *
   * @param {ModelInfo} model
   * @param {{file: string, place: HTMLElement}} wanted
   * @param {AbortSignal} signal
   */
  async #draw(model, { file, place }, signal) {
    try {
      const src = await dataUrl(await this.#service.picture(model.name, file, signal));
      const image = h("img", { src, alt: `Evaluation: ${visible(file)}` });
      await image.decode();
      place.prepend(image);
    } catch (error) {
      if (!(error instanceof ServiceError || error instanceof DOMException)) throw error;
      place.prepend(h("p", { class: "note" }, "This picture cannot be shown here."));
    }
  }
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

/** @param {string} file */
function figure(file) {
  return h("figure", { class: "card" }, h("figcaption", { class: "note" }, visible(file)));
}

/** @param {ModelInfo} model */
function tiles({ classes, points, features, figures }) {
  const sizes = { classes, "training points": points, features };
  const shown = [
    ...Object.entries(sizes).map(([name, size]) => [name, count(size)]),
    // Figures at k are in percent.
    ...Object.entries(figures).map(([name, value]) => [
      name,
      name.includes("@") ? `${value.toFixed(1)}%` : figure4(value),
    ]),
  ];
  const tile = (/** @type {string[]} */ [name, value]) => h("div", {}, h("dt", {}, visible(name)), h("dd", {}, value));
  return h("dl", { class: "tiles" }, ...shown.map(tile));
}

/** @param {ModelInfo} model */
function judges({ judges: all }) {
  if (!all.length) return null;
  const rows = [{ name: "dense", title: "dense model", weight: 1 }, ...all].map(({ name, title, weight }) => ({
    label: visible(title),
    segments: [{ judge: name, value: weight }],
    value: String(Number(weight.toPrecision(3))),
  }));
  return h("section", { class: "card" }, h("h2", {}, "Weights of the judges"), barList(rows, { tall: true }));
}

/** @param {ModelInfo} model */
function thresholds({ thresholds: all }) {
  if (!all.length) return null;
  const head = ["Precision", "Minimum probability", "Answers kept"].map((title) => h("th", { scope: "col" }, title));
  const rows = all.map(({ precision, threshold, kept }) => [percent(precision), threshold.toFixed(3), percent(kept)]);
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Thresholds"),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...head)),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))))),
    ),
  );
}

/** @param {ModelInfo} model */
function index({ index: figures }) {
  if (!figures) return null;
  const rows = Object.entries(figures).map(([name, value]) => [
    h("dt", {}, visible(name)),
    h("dd", {}, visible(shown(value))),
  ]);
  return h("section", { class: "card" }, h("h2", {}, "Index"), h("dl", {}, ...rows.flat()));
}

/** @param {unknown} value */
function shown(value) {
  if (typeof value === "number") return figure4(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {number} value */
function figure4(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}
