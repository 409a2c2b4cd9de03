/** Jobs that overtake each other. */

/**
 * Runs only the newest of several jobs: starting one aborts the one before, whose answer is dropped.
 */
export class Latest {
  #controller = new AbortController();

  /**
   * @template T
   * @param {(signal: AbortSignal) => Promise<T>} job
   * @returns {Promise<T | undefined>} undefined if another job started, or `cancel` was called
   */
  async run(job) {
    const { signal } = this.#restart();
    try {
      const result = await job(signal);
      return signal.aborted ? undefined : result;
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    }
  }

  cancel() {
    this.#restart();
  }

  #restart() {
    this.#controller.abort();
    this.#controller = new AbortController();
    return this.#controller;
  }
}

/**
 * Waits; rejects when the signal aborts.
 *
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
