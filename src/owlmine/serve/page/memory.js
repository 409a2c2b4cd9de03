/** What the browser remembers for the page; where it refuses to, the page remembers it until it is closed. */

export class Memory {
  /** @type {Map<string, string>} */
  #own = new Map();
  #kind;

  /** @param {"localStorage" | "sessionStorage"} kind */
  constructor(kind) {
    this.#kind = kind;
  }

  /** @param {string} name */
  get(name) {
    try {
      return window[this.#kind].getItem(name);
    } catch {
      return this.#own.get(name) ?? null;
    }
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  set(name, value) {
    this.#own.set(name, value);
    try {
      window[this.#kind].setItem(name, value);
    } catch {
      // It is remembered above.
    }
  }
}
