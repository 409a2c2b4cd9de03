/** A button that opens a file of vectors, and what it says about the file. */

import { fill, h } from "./dom.js";
import { count, visible } from "./text.js";
import { ENDINGS, readRows } from "./vector-files.js";
import { InputError } from "./vectors.js";

/** @import { Rows } from "./vector-files.js" */
/** @import { Takes } from "./types.js" */

export class FileChooser {
  /** @type {Rows | null} */
  rows = null;
  /** @type {File | null} */
  #file = null;
  #place;
  #controls;
  #onRows;
  /** @type {Takes} */
  #takes = "text";

  /**
   * @param {HTMLElement} place
   * @param {object} parts
   * @param {(rows: Rows) => HTMLElement} [parts.controls]  what stands beside the file's name
   * @param {(rows: Rows | null) => void} parts.onRows  called with the rows of a file, and with null when it is removed
   */
  constructor(place, { controls, onRows }) {
    this.#place = place;
    this.#controls = controls;
    this.#onRows = onRows;
  }

  /** @param {Takes} takes */
  show(takes) {
    if (takes === this.#takes && this.#place.hasChildNodes()) return;
    this.#takes = takes;
    this.#place.hidden = takes === "text";
    this.#remove();
  }

  /**
   * The control that had the focus is replaced: another one gets it.
   *
   * @param {() => void} replace
   */
  #keepFocus(replace) {
    const had = this.#place.contains(document.activeElement);
    replace();
    if (had) this.#place.querySelector(/** @type {"input"} */ ("input, button, select"))?.focus();
  }

  /** @param {string} [error] */
  #offer(error) {
    const input = h("input", {
      type: "file",
      class: "hidden",
      accept: ENDINGS.join(","),
      id: `${this.#place.id}-input`,
    });
    input.addEventListener("change", () => input.files?.[0] && this.#open(input.files[0]));
    fill(
      this.#place,
      input,
      h("label", { for: input.id, class: "button" }, "Open a file…"),
      h("span", { class: "note" }, "npy, csv, svmlight or jsonl; only rows that are predicted are sent"),
      error && h("p", { class: "error", role: "alert" }, visible(error)),
    );
  }

  /**
   * @param {File} file
   * @param {number} [first]
   */
  async #open(file, first) {
    try {
      this.rows = await readRows(file, this.#takes, first);
      this.#file = file;
      this.#keepFocus(() => this.rows && this.#describe(this.rows));
      this.#onRows(this.rows);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.#remove(error.message);
    }
  }

  /** @param {Rows} rows */
  #describe(rows) {
    fill(
      this.#place,
      h(
        "span",
        { class: "note" },
        h("bdi", {}, visible(rows.name)),
        `: ${count(rows.length)} ${rows.length === 1 ? "row" : "rows"}`,
      ),
      this.#controls?.(rows),
      rows.first !== undefined && this.#firstFeature(rows.first),
      h("button", { type: "button", class: "quiet", onclick: () => this.#remove() }, "Remove file"),
    );
  }

  /** @param {number} first */
  #firstFeature(first) {
    const select = h(
      "select",
      {},
      ...[0, 1].map((number) => h("option", { value: number, selected: number === first }, String(number))),
    );
    select.addEventListener("change", () => this.#file && this.#open(this.#file, Number(select.value)));
    return h("label", { class: "note" }, "Features counted from ", select);
  }

  /** @param {string} [error] */
  #remove(error) {
    const had = this.rows !== null;
    this.rows = null;
    this.#file = null;
    this.#keepFocus(() => this.#offer(error));
    if (had) this.#onRows(null);
  }
}

/**
 * Chooses a row of a file: a number, and buttons to the rows beside it.
 *
 * @param {Rows} rows
 * @param {(row: number) => void} onRow
 */
export function rowChooser(rows, onRow) {
  const input = h("input", { type: "number", min: 1, max: rows.length, value: 1, "aria-label": "Row" });
  const go = (/** @type {number} */ row) => {
    const chosen = Math.min(Math.max(Math.round(row) || 1, 1), rows.length);
    input.value = String(chosen);
    onRow(chosen - 1);
  };
  input.addEventListener("change", () => go(Number(input.value)));
  const step = (/** @type {number} */ by, /** @type {string} */ title, /** @type {string} */ sign) =>
    h(
      "button",
      { type: "button", class: "icon", title, "aria-label": title, onclick: () => go(Number(input.value) + by) },
      sign,
    );
  return h("span", { class: "rows" }, step(-1, "Previous row", "‹"), input, step(1, "Next row", "›"));
}
