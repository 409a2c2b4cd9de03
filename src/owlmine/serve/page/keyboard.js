/** Lists of buttons that take one place in the order of focus; arrow keys move inside them. */

const STEPS = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 });

/**
 * @param {HTMLElement} list
 * @param {(button: HTMLButtonElement) => void} [onMove]  called when an arrow key has moved the focus
 */
export function roveFocus(list, onMove) {
  list.addEventListener("keydown", (event) => {
    const all = buttons(list);
    const at = all.indexOf(/** @type {HTMLButtonElement} */ (event.target));
    const to = at < 0 || event.altKey || event.ctrlKey || event.metaKey ? undefined : target(event.key, at, all.length);
    if (to === undefined) return;
    event.preventDefault();
    all[to].focus();
    onMove?.(all[to]);
  });
  list.addEventListener("focusin", ({ target: button }) => {
    if (button instanceof HTMLButtonElement && buttons(list).includes(button)) holdFocus(list, button);
  });
}

/**
 * Makes a button the one that the Tab key reaches: this one, or the first.
 *
 * @param {HTMLElement} list
 * @param {HTMLButtonElement} [button]
 */
export function holdFocus(list, button) {
  const all = buttons(list);
  for (const other of all) other.tabIndex = other === (button ?? all[0]) ? 0 : -1;
}

/** @param {HTMLElement} list */
function buttons(list) {
  return Array.from(list.children, (item) => item.querySelector("button")).filter((button) => button !== null);
}

/**
 * @param {string} key
 * @param {number} at
 * @param {number} length
 */
function target(key, at, length) {
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  const step = STEPS[key];
  return step === undefined ? undefined : Math.min(Math.max(at + step, 0), length - 1);
}
