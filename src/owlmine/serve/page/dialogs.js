/** The dialogs of the page, and the line that says when the service is in trouble. */

import { byId, fill, h } from "./dom.js";
import { ServiceError, UNREACHABLE } from "./service.js";

/**
 * Asks for an API key.
 *
 * @param {string} why  what the service said; empty if no key was tried
 * @returns {Promise<string>}
 */
export function askKey(why) {
  const dialog = byId("key-dialog", HTMLDialogElement);
  const input = byId("key", HTMLInputElement);
  byId("key-why").textContent = why || "This service asks for a key.";
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  byId("key-cancel").onclick = () => dialog.close();
  return new Promise((resolve, reject) => {
    const closed = () => {
      if (dialog.returnValue === "key") resolve(input.value.trim());
      else reject(new ServiceError(401, "This service answers only with a key."));
    };
    dialog.addEventListener("close", closed, { once: true });
  });
}

/** @param {HTMLElement} button */
export function startKeysDialog(button) {
  button.addEventListener("click", () => byId("keys-dialog", HTMLDialogElement).showModal());
}

/**
 * @param {ServiceError} error
 * @param {() => void} retry
 */
export function showTrouble(error, retry) {
  const line = byId("trouble");
  fill(
    line,
    h("span", {}, `${described(error.status)} The page retries automatically.`),
    h("button", { type: "button", onclick: retry }, "Try now"),
  );
  line.hidden = false;
}

export function hideTrouble() {
  const line = byId("trouble");
  line.hidden = true;
  fill(line);
}

/** @param {number} status */
function described(status) {
  if (status === UNREACHABLE) return "The service does not answer.";
  if (status === 429) return "The service has more requests than it can answer.";
  return "The service is not ready.";
}
