/** The view that answers many queries, as a table and as a file. */

import { csv, download } from "./csv.js";
import { byId, fill, h } from "./dom.js";
import { FileChooser } from "./file-chooser.js";
import { Latest } from "./latest.js";
import { ServiceError } from "./service.js";
import { requested } from "./settings.js";
import { count, counted, percent, visible } from "./text.js";
import { formatQuery, InputError, parseQuery } from "./vectors.js";

/** @import { Cell } from "./csv.js" */
/** @import { Route } from "./route.js" */
/** @import { Service } from "./service.js" */
/** @import { Answer, ModelInfo, PredictRequest, Prediction, Query } from "./types.js" */

/** @typedef {{shown: string, query: Query | InputError}} Line */
/** @typedef {{line: Line, prediction?: Prediction, error?: string}} Result */

const CHUNK = 32;
const CHUNK_CHARACTERS = 200_000;
// A browser shows so many rows quickly; the file has all.
const SHOWN_ROWS = 500;
const HEAD = ["row", "query", "rank", "key", "name", "score", "probability", "error"];

export class ManyView {
  #service;
  #lines = byId("lines", HTMLTextAreaElement);
  #table = byId("table");
  #file;
  #running = new Latest();
  /** @type {ModelInfo | null} */
  #model = null;
  /** @type {Route | null} */
  #route = null;
  /** @type {Result[]} */
  #results = [];

  /** @param {Service} service */
  constructor(service) {
    this.#service = service;
    this.#file = new FileChooser(byId("lines-file"), { onRows: (rows) => (this.#lines.disabled = rows !== null) });
    const form = byId("run").closest("form");
    form?.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#run();
    });
    this.#lines.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.#run();
    });
    byId("stop").addEventListener("click", () => this.#stop());
    byId("download").addEventListener("click", () => download(`${this.#model?.name}.csv`, csv(rowsOf(this.#results))));
  }

  focus() {
    this.#lines.focus();
  }

  /**
   * @param {ModelInfo} model
   * @param {Route} route
   */
  show(model, route) {
    if (model !== this.#model) this.#describe(model);
    this.#model = model;
    this.#route = route;
  }

  /** @param {ModelInfo} model */
  #describe(model) {
    this.#stop();
    this.#results = [];
    fill(this.#table);
    byId("download").hidden = true;
    byId("progress-text").textContent = "";
    const vectors = model.takes !== "text";
    byId("lines-label").textContent = vectors ? "Vectors, one per line" : "Texts, one per line";
    byId("lines-hint").textContent = vectors
      ? `This model takes ${model.takes}, with ${count(model.features)} features.`
      : "";
    this.#lines.classList.toggle("numbers", vectors);
    this.#file.show(model.takes);
  }

  #stop() {
    this.#running.cancel();
    this.#showRunning(false);
  }

  async #run() {
    const [model, route] = [this.#model, this.#route];
    if (!model || !route) return;
    const lines = this.#file.rows ? fromFile(this.#file.rows) : fromText(this.#lines.value, model);
    if (!lines.length) {
      this.#say("Paste at least one query.");
      this.#lines.focus();
      return;
    }
    this.#results = [];
    this.#showRunning(true);
    const body = this.#newTable(model);
    await this.#running
      .run(async (signal) => {
        for await (const results of answered(this.#service, model, lines, requested(model, route), signal)) {
          signal.throwIfAborted();
          this.#add(results, lines.length, body);
        }
        this.#showRunning(false);
      })
      .catch((error) => {
        if (!(error instanceof ServiceError)) throw error;
        this.#showRunning(false);
        this.#say(visible(error.message));
      });
  }

  /**
   * @param {Result[]} results
   * @param {number} total
   * @param {HTMLTableSectionElement} body
   */
  #add(results, total, body) {
    const shown = results.slice(0, Math.max(SHOWN_ROWS - this.#results.length, 0));
    body.append(...shown.map((result, place) => tableRow(result, this.#results.length + place + 1)));
    this.#results.push(...results);
    byId("download").hidden = false;
    byId("progress", HTMLProgressElement).value = this.#results.length / total;
    const errors = this.#results.filter(({ error }) => error !== undefined).length;
    const answers = `${count(this.#results.length)} of ${counted(total, "query", "queries")}`;
    const more =
      this.#results.length > SHOWN_ROWS ? `; the table shows the first ${count(SHOWN_ROWS)}, the file has all` : "";
    this.#say(`${answers}${errors ? `, ${counted(errors, "error", "errors")}` : ""}${more}`);
  }

  /** @param {string} text */
  #say(text) {
    byId("progress-text").textContent = text;
    byId("status").textContent = text;
  }

  /** @param {boolean} running */
  #showRunning(running) {
    byId("stop").hidden = !running;
    byId("run", HTMLButtonElement).disabled = running;
    byId("progress").hidden = !running;
  }

  /** @param {ModelInfo} model */
  #newTable(model) {
    const value = model.probabilities ? "probabilities" : "scores";
    const titles = ["", model.takes === "text" ? "Text" : "Vector", `Classes with ${value}`];
    const body = h("tbody");
    const head = h(
      "tr",
      {},
      ...titles.map((title) => h("th", { scope: "col" }, title || h("span", { class: "hidden" }, "Row"))),
    );
    fill(this.#table, h("table", {}, h("thead", {}, head), body));
    this.#table.hidden = false;
    return body;
  }
}

/**
 * @param {string} text
 * @param {ModelInfo} model
 * @returns {Line[]}
 */
function fromText(text, model) {
  const lines = text.split(/\r\n|\n|\r/).filter((line) => line.trim());
  return lines.map((line) => ({ shown: line, query: parsed(line, model) }));
}

/**
 * @param {string} line
 * @param {ModelInfo} model
 */
function parsed(line, model) {
  try {
    return parseQuery(line, model.takes);
  } catch (error) {
    if (error instanceof InputError) return error;
    throw error;
  }
}

/**
 * @param {{length: number, at: (row: number) => Query}} rows
 * @returns {Line[]}
 */
function fromFile(rows) {
  return Array.from({ length: rows.length }, (_, row) => {
    const query = rows.at(row);
    return { shown: formatQuery(query), query };
  });
}

/**
 * Answers in order, a chunk at a time. A line that the service refuses is reported, and does not stop the others.
 *
 * @param {Service} service
 * @param {ModelInfo} model
 * @param {Line[]} lines
 * @param {Omit<PredictRequest, "queries">} options
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Result[]>}
 */
async function* answered(service, model, lines, options, signal) {
  for (const chunk of chunks(lines)) yield await answerChunk(service, model, chunk, options, signal);
}

/**
 * @param {Service} service
 * @param {ModelInfo} model
 * @param {Line[]} lines
 * @param {Omit<PredictRequest, "queries">} options
 * @param {AbortSignal} signal
 * @returns {Promise<Result[]>}
 */
async function answerChunk(service, model, lines, options, signal) {
  const sent = lines.filter(({ query }) => !(query instanceof InputError));
  /** @type {Map<Line, Result>} */
  const results = new Map(
    lines.map((line) => [line, { line, error: line.query instanceof InputError ? line.query.message : undefined }]),
  );
  if (sent.length) {
    try {
      const queries = sent.map(({ query }) => /** @type {Query} */ (query));
      const predictions = await service.predict(model.name, { queries, ...options }, signal);
      sent.forEach((line, place) => results.set(line, { line, prediction: predictions[place] }));
    } catch (error) {
      if (!(error instanceof ServiceError) || ![413, 422].includes(error.status)) throw error;
      if (lines.length === 1) return [{ line: lines[0], error: error.message }];
      const half = Math.ceil(lines.length / 2);
      const parts = [lines.slice(0, half), lines.slice(half)];
      const [first, second] = [
        await answerChunk(service, model, parts[0], options, signal),
        await answerChunk(service, model, parts[1], options, signal),
      ];
      return [...first, ...second];
    }
  }
  return [...results.values()];
}

/** @param {Line[]} lines */
function* chunks(lines) {
  let start = 0;
  while (start < lines.length) {
    let [end, characters] = [start + 1, lines[start].shown.length];
    while (end < lines.length && end - start < CHUNK && characters + lines[end].shown.length <= CHUNK_CHARACTERS) {
      characters += lines[end].shown.length;
      end += 1;
    }
    yield lines.slice(start, end);
    start = end;
  }
}

/**
 * @param {Result} result
 * @param {number} number
 */
function tableRow({ line, prediction, error }, number) {
  return h(
    "tr",
    {},
    h("td", { class: "number" }, count(number)),
    h("th", { scope: "row", dir: "auto" }, h("div", { class: "shown" }, visible(line.shown))),
    h("td", {}, error === undefined ? classes(prediction) : h("span", { class: "error" }, visible(error))),
  );
}

/** @param {Prediction | undefined} prediction */
function classes(prediction) {
  if (!prediction?.known) return h("span", { class: "note" }, "the model knows none of its features");
  if (!prediction.classes.length) return h("span", { class: "note" }, "no class is that probable");
  return h("ul", { class: "chips" }, ...prediction.classes.map((answer) => h("li", {}, ...chip(answer))));
}

/** @param {Answer} answer */
function chip({ name, probability, score }) {
  return [
    h("bdi", {}, visible(name)),
    " ",
    h("small", {}, probability === null ? score.toFixed(2) : percent(probability)),
  ];
}

/**
 * One line per class; one for a query without any.
 *
 * @param {Result[]} results
 * @returns {Cell[][]}
 */
function rowsOf(results) {
  /** @param {Result} result @param {number} place @returns {Cell[][]} */
  const rows = ({ line, prediction, error }, place) => {
    const start = [place + 1, line.shown];
    const found = prediction?.classes ?? [];
    if (!found.length) return [[...start, null, null, null, null, null, error ?? null]];
    return found.map(({ key, name, score, probability }, rank) => [
      ...start,
      rank + 1,
      key,
      name,
      score,
      probability,
      null,
    ]);
  };
  return [HEAD, ...results.flatMap(rows)];
}
