/** The page: which model and view the address names, and the views that show it. */

import { AboutView } from "./about.js";
import { askKey, hideTrouble, showTrouble, startKeysDialog } from "./dialogs.js";
import { byId, fill, h } from "./dom.js";
import { Latest, pause } from "./latest.js";
import { ManyView } from "./many.js";
import { formatRoute, parseRoute, VIEWS } from "./route.js";
import { SearchView } from "./search.js";
import { Service, ServiceError } from "./service.js";
import { Settings } from "./settings.js";
import { visible } from "./text.js";
import { startTheme } from "./theme.js";

/** @import { Route } from "./route.js" */
/** @import { ModelEntry, ModelInfo } from "./types.js" */

const UNREADY_WAIT = 2000;
// Browsers refuse addresses that change with every key.
const REMEMBERING = 300;

class Page {
  #service = new Service({ askKey, onTrouble: showTrouble, onRecovery: hideTrouble });
  #opening = new Latest();
  #remembering = new Latest();
  #settings = new Settings((choice) => this.go(choice));
  #search = new SearchView(this.#service, (change) => this.go(change));
  #many = new ManyView(this.#service);
  #about = new AboutView(this.#service, byId("about"));
  #chooser = byId("model", HTMLSelectElement);
  /** @type {ModelInfo | null} */
  #model = null;
  #route = parseRoute(location.hash);

  start() {
    startTheme(byId("theme"));
    startKeysDialog(byId("keys"));
    addEventListener("hashchange", () => this.#follow());
    this.#chooser.addEventListener("change", () => this.go({ model: this.#chooser.value, text: "", key: "" }));
    for (const view of VIEWS) byId(`to-${view}`).addEventListener("click", (event) => this.#turnTo(view, event));
    addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.#focus();
    });
    void this.#open();
  }

  /**
   * Changes what the page shows. Other models and views are steps in the browser's history, words are not.
   *
   * @param {Partial<Route>} change
   */
  go(change) {
    const before = this.#route;
    this.#route = { ...before, ...change };
    const step = this.#route.model !== before.model || this.#route.view !== before.view;
    void this.#remembering.run(async (signal) => {
      if (step) {
        history.replaceState(null, "", formatRoute(before));
        history.pushState(null, "", formatRoute(this.#route));
      } else {
        await pause(REMEMBERING, signal);
        history.replaceState(null, "", formatRoute(this.#route));
      }
    });
    this.#show();
  }

  /**
   * Without reading the address again, which may lack a long text.
   *
   * @param {Route["view"]} view
   * @param {MouseEvent} event
   */
  #turnTo(view, event) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // Another tab or window.
    event.preventDefault();
    this.go({ view });
  }

  #focus() {
    if (this.#route.view === "search") this.#search.focus();
    if (this.#route.view === "many") this.#many.focus();
  }

  #follow() {
    if (!location.hash.startsWith("#/")) return; // A link inside the page.
    const route = parseRoute(location.hash);
    this.#route = { ...route, model: route.model || this.#route.model };
    this.#show();
  }

  #show() {
    if (this.#model && this.#model.name === this.#route.model) this.#showView(this.#model);
    else void this.#open();
  }

  /** Finds the model that the address names, and opens it when it is ready. */
  async #open() {
    const main = byId("main");
    main.setAttribute("aria-busy", "true");
    try {
      await this.#opening.run(async (signal) => {
        const entry = await this.#readyModel(signal);
        this.#model = await this.#service.model(entry.name, signal);
        this.#route = { ...this.#route, model: entry.name };
        if (byId("loading").hidden === false && matchMedia("(hover: hover)").matches)
          queueMicrotask(() => this.#focus());
        byId("loading").hidden = true;
        main.removeAttribute("aria-busy");
        this.#showView(this.#model);
      });
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#showError(error);
    }
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<ModelEntry>}
   */
  async #readyModel(signal) {
    for (;;) {
      const models = await this.#service.models(signal);
      if (!models.length) throw new ServiceError(404, "The service has no model.");
      const wanted = models.find(({ name }) => name === this.#route.model) ?? models[0];
      this.#showModels(models, wanted.name);
      if (wanted.ready) return wanted;
      if (wanted.problem) throw new ServiceError(500, `${wanted.name} cannot be opened: ${wanted.problem}`);
      byId("loading").textContent = `${visible(wanted.name)} is being loaded…`;
      await pause(UNREADY_WAIT, signal);
    }
  }

  /**
   * @param {ModelEntry[]} models
   * @param {string} chosen
   */
  #showModels(models, chosen) {
    const option = (/** @type {ModelEntry} */ { name, ready }) =>
      h("option", { value: name, selected: name === chosen }, `${visible(name)}${ready ? "" : " (loading)"}`);
    fill(this.#chooser, ...models.map(option));
    byId("chooser").hidden = false;
  }

  /** @param {ModelInfo} model */
  #showView(model) {
    const route = this.#route;
    document.title = `${visible(model.name)} – owlmine`;
    this.#chooser.value = model.name;
    for (const view of VIEWS) {
      const link = byId(`to-${view}`, HTMLAnchorElement);
      link.href = formatRoute({ ...route, view });
      if (view === route.view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      byId(view).hidden = view !== route.view;
    }
    byId("answers").hidden = route.view !== "search";
    byId("table").hidden = route.view !== "many";
    if (route.view === "about") byId("settings").hidden = true;
    else this.#settings.show(model, route);
    if (route.view === "search") void this.#search.show(model, route);
    else this.#search.hide();
    if (route.view === "many") this.#many.show(model, route);
    if (route.view === "about") this.#about.show(model);
  }

  /** @param {ServiceError} error */
  #showError(error) {
    const again = h("button", { type: "button", class: "primary", onclick: () => void this.#open() }, "Try again");
    fill(byId("loading"), h("span", { class: "error" }, visible(error.message)), " ", again);
    byId("loading").hidden = false;
    for (const view of [...VIEWS, "settings", "answers", "table"]) byId(view).hidden = true;
    byId("main").removeAttribute("aria-busy");
  }
}

new Page().start();
