/** Light or dark: as the system is set, until the button says otherwise. */

import { fill, h, svg } from "./dom.js";
import { Memory } from "./memory.js";

const STORED = "owlmine.theme";
const MEMORY = new Memory("localStorage");
const SUN =
  "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M16 4l-1.4 1.4M5.4 14.6 4 16";
const MOON = "M16.5 12.2A7 7 0 0 1 7.8 3.5a7 7 0 1 0 8.7 8.7z";

/** @param {HTMLElement} button */
export function startTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const chosen = MEMORY.get(STORED);
    const dark = chosen ? chosen === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    const next = dark ? "Light colours" : "Dark colours";
    button.title = next;
    fill(
      button,
      h("span", { class: "hidden" }, next),
      svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: dark ? SUN : MOON })),
    );
  };
  button.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme === "dark";
    MEMORY.set(STORED, dark ? "light" : "dark");
    show();
  });
  system.addEventListener("change", show);
  show();
}
