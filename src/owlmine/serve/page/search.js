/** The view that answers one query as it is typed, and gives the reasons. */

import { AnswerList, spoken } from "./answers.js";
import { byId, fill, h } from "./dom.js";
import { FileChooser, rowChooser } from "./file-chooser.js";
import { holdFocus, roveFocus } from "./keyboard.js";
import { Latest, pause } from "./latest.js";
import { classHead, panelHead, reasonsOf, similarClasses } from "./reasons.js";
import { ServiceError } from "./service.js";
import { requested } from "./settings.js";
import { count, counted, visible } from "./text.js";
import { formatQuery, InputError, parseQuery } from "./vectors.js";

/** @import { Route } from "./route.js" */
/** @import { Service } from "./service.js" */
/** @import { ClassInfo, ModelInfo, Prediction, Query } from "./types.js" */

/** @typedef {{asked: string, query: Query, prediction: Prediction, reasons: boolean}} Answered  `reasons`: has them */

// Shorter than the time between two keys of a quick typist would ask for each letter.
const TYPING = 120;
const SPEAKING = 800;
const NARROW = "(max-width: 54rem)";

export class SearchView {
  #service;
  #go;
  #query = byId("query", HTMLTextAreaElement);
  #panel = byId("reasons");
  #wide = byId("answers");
  #list;
  #file;
  #answering = new Latest();
  #explaining = new Latest();
  #speaking = new Latest();
  #narrow = matchMedia(NARROW);
  /** @type {ModelInfo | null} */
  #model = null;
  /** @type {Route | null} */
  #route = null;
  /** @type {Answered | null} */
  #answer = null;

  /**
   * @param {Service} service
   * @param {(change: Partial<Route>) => void} go  changes what the page shows
   */
  constructor(service, go) {
    this.#service = service;
    this.#go = go;
    this.#list = new AnswerList(byId("list"), (key, byArrow) => this.#choose(key, byArrow));
    this.#file = new FileChooser(byId("query-file"), {
      controls: (rows) => rowChooser(rows, (row) => this.#ask(formatQuery(rows.at(row)))),
      onRows: (rows) => rows && this.#ask(formatQuery(rows.at(0))),
    });
    this.#query.addEventListener("input", () => go({ text: this.#query.value }));
    this.#query.addEventListener("keydown", (event) => this.#fromQuery(event));
    byId("search").addEventListener("keydown", (event) => this.#escape(event));
    this.#wide.addEventListener("keydown", (event) => this.#escape(event));
    this.#narrow.addEventListener("change", () => this.#placePanel());
    roveFocus(byId("examples"));
  }

  /** Puts the focus into the text. */
  focus() {
    this.#query.focus();
  }

  /**
   * @param {ModelInfo} model
   * @param {Route} route
   */
  async show(model, route) {
    if (model !== this.#model) this.#describe(model);
    this.#model = model;
    this.#route = route;
    if (this.#query.value !== route.text) this.#query.value = route.text;
    this.#list.select(route.key);
    const asked = JSON.stringify([model.name, model.version, route.text, requested(model, route)]);
    if (asked !== this.#answer?.asked) return this.#predict(asked, model, route);
    // Another text may be on its way that has been taken back.
    this.#answering.cancel();
    this.#wide.removeAttribute("aria-busy");
    return this.#explain(model, route);
  }

  hide() {
    this.#answering.cancel();
    this.#explaining.cancel();
  }

  /** @param {ModelInfo} model */
  #describe(model) {
    byId("query-label").textContent = model.takes === "text" ? "Text" : "Vector";
    byId("query-hint").textContent = hint(model);
    this.#query.classList.toggle("numbers", model.takes !== "text");
    this.#file.show(model.takes);
    const examples = byId("examples");
    fill(examples, ...model.examples.map((example) => h("li", {}, this.#example(formatQuery(example)))));
    examples.hidden = model.examples.length === 0;
    holdFocus(examples);
    this.#answer = null;
  }

  /** @param {string} text */
  #example(text) {
    return h(
      "button",
      { type: "button", title: "Try this example", onclick: () => this.#ask(text) },
      h("bdi", {}, visible(text)),
    );
  }

  /** @param {string} text */
  #ask(text) {
    this.#go({ text, key: "" });
  }

  /**
   * @param {string} asked
   * @param {ModelInfo} model
   * @param {Route} route
   */
  async #predict(asked, model, route) {
    this.#wide.setAttribute("aria-busy", "true");
    try {
      const answer = await this.#answering.run((signal) => this.#fetchAnswer(asked, model, route, signal));
      if (answer === null) this.#showEmpty(model);
      else if (answer) this.#showAnswer(answer, model, route);
    } catch (error) {
      this.#answer = null;
      this.#showMessage(explained(error), "error");
    }
  }

  /**
   * @param {string} asked
   * @param {ModelInfo} model
   * @param {Route} route
   * @param {AbortSignal} signal
   * @returns {Promise<Answered | null>} null without a query
   */
  async #fetchAnswer(asked, model, route, signal) {
    if (!route.text.trim()) return null;
    await pause(TYPING, signal);
    const query = parseQuery(route.text, model.takes);
    const [prediction] = await this.#service.predict(
      model.name,
      { queries: [query], ...requested(model, route) },
      signal,
    );
    return { asked, query, prediction, reasons: false };
  }

  /**
   * @param {Answered} answer
   * @param {ModelInfo} model
   * @param {Route} route
   */
  #showAnswer(answer, model, route) {
    const { known, classes } = answer.prediction;
    const gone = has(this.#answer, route.key) && !has(answer, route.key);
    this.#answer = answer;
    this.#wide.removeAttribute("aria-busy");
    this.#list.show(classes);
    byId("message").hidden = true;
    if (!known) this.#showMessage(unknown(model));
    else if (!classes.length) this.#showMessage("No class is that probable. Lower the minimum in the settings.");
    else this.#speak(spoken(classes));
    this.#placePanel();
    if (!route.key) this.#closePanel(classes.length > 0);
    // Open reasons follow the text: to the best class, once theirs is no answer any more.
    if (gone) this.#go({ key: classes[0]?.key ?? "" });
    else void this.#explain(model, route);
  }

  /** @param {ModelInfo} model */
  #showEmpty(model) {
    this.#answer = null;
    const classes = counted(model.classes, "class", "classes");
    const points = counted(model.points, "training point", "training points");
    this.#showMessage(`Answers appear here as you type. The model knows ${classes}, from ${points}.`);
  }

  /**
   * @param {string} text
   * @param {string} [kind]
   */
  #showMessage(text, kind = "empty") {
    this.#wide.removeAttribute("aria-busy");
    this.#explaining.cancel();
    this.#closePanel();
    this.#list.show([]);
    const message = byId("message");
    message.className = `message ${kind}`;
    message.textContent = text;
    message.hidden = false;
    this.#speak(text);
  }

  /** @param {string} text */
  #speak(text) {
    void this.#speaking.run(async (signal) => {
      await pause(SPEAKING, signal);
      byId("status").textContent = text;
    });
  }

  /**
   * @param {string} key
   * @param {boolean} byArrow
   */
  #choose(key, byArrow) {
    const open = this.#route?.key ?? "";
    if (byArrow && !open) return;
    this.#go({ key: key === open && !byArrow ? "" : key });
  }

  /**
   * Shows why the chosen class is in the answer, and its similar classes.
   *
   * @param {ModelInfo} model
   * @param {Route} route
   */
  async #explain(model, route) {
    const answer = this.#answer;
    if (!route.key || !answer) {
      this.#explaining.cancel();
      if (!route.key && this.#panel.querySelector(".class-head")) this.#closePanel(true);
      return;
    }
    this.#panel.setAttribute("aria-busy", "true");
    try {
      const found = await this.#explaining.run(async (signal) => {
        await this.#fetchReasons(model, route, answer, signal);
        return this.#service.classInfo(model.name, route.key, signal);
      });
      if (found) this.#showPanel(found, answer);
    } catch (error) {
      const hadFocus = this.#panel.contains(document.activeElement);
      fill(
        this.#panel,
        panelHead("Reasons", () => this.#close()),
        h("p", { class: "message error", role: "alert" }, explained(error)),
      );
      this.#openPanel();
      if (hadFocus) this.#panel.querySelector("button")?.focus();
    }
  }

  /**
   * The reasons of all classes of the answer come together, so that going from class to class takes no time.
   *
   * @param {ModelInfo} model
   * @param {Route} route
   * @param {Answered} answer
   * @param {AbortSignal} signal
   */
  async #fetchReasons(model, route, answer, signal) {
    if (answer.reasons || !has(answer, route.key)) return;
    const request = { queries: [answer.query], ...requested(model, route), reasons: true };
    const [prediction] = await this.#service.predict(model.name, request, signal);
    answer.prediction = prediction;
    answer.reasons = true;
  }

  /**
   * @param {ClassInfo} found
   * @param {Answered} answer
   */
  #showPanel(found, answer) {
    const own = answer.prediction.classes.find(({ key }) => key === found.key);
    const hadFocus = this.#panel.contains(document.activeElement);
    fill(
      this.#panel,
      classHead(found, own, () => this.#close()),
      own?.reasons
        ? reasonsOf(answer.query, own.reasons)
        : h("p", { class: "note" }, "This class is not among the answers."),
      similarClasses(found, (key) => this.#go({ key })),
    );
    this.#openPanel();
    // The button that was pressed is gone.
    if (hadFocus) this.#panel.querySelector("button")?.focus();
  }

  #openPanel() {
    this.#panel.hidden = false;
    this.#panel.removeAttribute("aria-busy");
    this.#placePanel();
  }

  /** @param {boolean} [choice]  whether there are classes to choose from */
  #closePanel(choice = false) {
    this.#panel.hidden = this.#narrow.matches || !choice;
    this.#panel.removeAttribute("aria-busy");
    fill(this.#panel, h("p", { class: "note" }, "Choose a class to see why it is in the answer."));
    this.#placePanel();
  }

  /** On narrow screens reasons stand under their class; beside the list they would be out of sight. */
  #placePanel() {
    const item = this.#narrow.matches ? this.#list.item(this.#route?.key ?? "") : undefined;
    const parent = item ?? this.#wide;
    if (this.#panel.parentElement !== parent) parent.append(this.#panel);
  }

  #close() {
    this.#list.focus();
    this.#go({ key: "" });
  }

  /** @param {KeyboardEvent} event */
  #fromQuery(event) {
    const { selectionStart, selectionEnd, value } = this.#query;
    const atEnd = selectionStart === value.length && selectionEnd === value.length;
    const best = this.#answer?.prediction.classes[0];
    if (!best || event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#list.focus();
      if (!this.#route?.key) this.#go({ key: best.key });
    } else if (event.key === "ArrowDown" && atEnd) {
      event.preventDefault();
      this.#list.focus();
    }
  }

  /** @param {KeyboardEvent} event */
  #escape(event) {
    if (event.key !== "Escape") return;
    if (this.#route?.key) this.#close();
    else this.focus();
  }
}

/**
 * @param {Answered | null} answer
 * @param {string} wanted
 */
function has(answer, wanted) {
  return answer?.prediction.classes.some(({ key }) => key === wanted) ?? false;
}

/** @param {ModelInfo} model */
function hint({ takes, features }) {
  const last = count(features - 1);
  if (takes === "sparse vectors") {
    return `This model takes sparse vectors: index:value index:value …, or JSON, with features from 0 to ${last}.`;
  }
  return takes === "dense vectors" ? `This model takes dense vectors: ${count(features)} numbers, or JSON.` : "";
}

/** @param {ModelInfo} model */
function unknown({ takes }) {
  if (takes === "text") return "The model knows none of these words.";
  return "The model knows none of these features.";
}

/** @param {unknown} error */
function explained(error) {
  if (error instanceof InputError || error instanceof ServiceError) return visible(error.message);
  throw error;
}
