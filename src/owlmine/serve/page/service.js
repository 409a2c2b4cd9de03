/** Requests to the service. What passes on its own, such as a service that restarts, is waited for. */

import { pause } from "./latest.js";
import { Memory } from "./memory.js";

/** @import { ClassInfo, ModelEntry, ModelInfo, Prediction, PredictRequest } from "./types.js" */

export const UNREACHABLE = 0;
const PASSING = [UNREACHABLE, 429, 502, 503, 504];
const FIRST_WAIT = 1;
const LONGEST_WAIT = 15;
const KEY = "owlmine.key";
const MEMORY = new Memory("sessionStorage");

/** An answer that is an error, or no answer. */
export class ServiceError extends Error {
  /**
   * @param {number} status  0: no answer
   * @param {string} message
   * @param {number} [wait]  the seconds after which the service asked to be tried again
   * @param {boolean} [passes]  whether trying again may help
   */
  constructor(status, message, wait, passes = PASSING.includes(status)) {
    super(message);
    this.status = status;
    this.wait = wait;
    this.passes = passes;
  }
}

/**
 * @typedef {object} Surroundings
 * @property {(why: string) => Promise<string>} askKey  asks for an API key; rejects if there is none
 * @property {(error: ServiceError, retry: () => void) => void} onTrouble  before each wait
 * @property {() => void} onRecovery  when the service answers again
 */

export class Service {
  #surroundings;
  #failures = 0;
  #waiting = 0;
  /** @type {Promise<void> | null} one wait for all requests */
  #wait = null;
  /** @type {Promise<void> | null} one question for all requests */
  #question = null;

  /** @param {Surroundings} surroundings */
  constructor(surroundings) {
    this.#surroundings = surroundings;
  }

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<ModelEntry[]>}
   */
  async models(signal) {
    return (await this.#json("v1/models", { signal })).models;
  }

  /**
   * @param {string} model
   * @param {AbortSignal} [signal]
   * @returns {Promise<ModelInfo>}
   */
  model(model, signal) {
    return this.#json(path(model), { signal });
  }

  /**
   * @param {string} model
   * @param {PredictRequest} request
   * @param {AbortSignal} [signal]
   * @returns {Promise<Prediction[]>}
   */
  async predict(model, request, signal) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify(request);
    return (await this.#json(`${path(model)}/predict`, { method: "POST", headers, body, signal })).predictions;
  }

  /**
   * @param {string} model
   * @param {string} key
   * @param {AbortSignal} [signal]
   * @returns {Promise<ClassInfo>}
   */
  classInfo(model, key, signal) {
    return this.#json(`${path(model)}/class?${new URLSearchParams({ key })}`, { signal });
  }

  /**
   * @param {string} model
   * @param {string} file
   * @param {AbortSignal} [signal]
   * @returns {Promise<Blob>}
   */
  async picture(model, file, signal) {
    return (await this.#answer(`${path(model)}/pictures/${encodeURIComponent(file)}`, { signal })).blob();
  }

  /**
   * @param {string} url
   * @param {RequestInit} options
   */
  async #json(url, options) {
    return (await this.#answer(url, options)).json();
  }

  /**
   * The answer to a request, however often it must be asked for; rejects for other errors and when the signal aborts.
   *
   * @param {string} url
   * @param {RequestInit} options
   */
  async #answer(url, options) {
    for (;;) {
      const key = MEMORY.get(KEY);
      try {
        const response = await request(url, options, key);
        this.#recover();
        return response;
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        if (error.status === 401) await this.#newKey(error, key);
        else if (error.passes) await this.#passed(error, options.signal);
        else throw error;
      }
    }
  }

  /**
   * Resolves when there is another key than the one that was refused.
   *
   * @param {ServiceError} error
   * @param {string | null} refused
   */
  async #newKey(error, refused) {
    if (MEMORY.get(KEY) !== refused) return;
    this.#question ??= this.#surroundings
      .askKey(refused === null ? "" : error.message)
      .then((key) => MEMORY.set(KEY, key))
      .finally(() => (this.#question = null));
    await this.#question;
  }

  /**
   * Resolves when it is time to try again.
   *
   * @param {ServiceError} error
   * @param {AbortSignal | null} [signal]
   */
  async #passed(error, signal) {
    this.#waiting += 1;
    try {
      await unlessAborted((this.#wait ??= this.#pause(error)), signal);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** @param {ServiceError} error */
  async #pause(error) {
    const seconds = error.wait ?? Math.min(FIRST_WAIT * 2 ** this.#failures, LONGEST_WAIT);
    this.#failures += 1;
    const early = new AbortController();
    this.#surroundings.onTrouble(error, () => early.abort());
    await pause(seconds * 1000, early.signal).catch(() => undefined);
    this.#wait = null;
    // All who waited have given up: somebody must still find out when the service is back.
    if (!this.#waiting) void this.#answer("health", {});
  }

  #recover() {
    if (this.#failures) this.#surroundings.onRecovery();
    this.#failures = 0;
  }
}

/** @param {string} model */
function path(model) {
  return `v1/models/${encodeURIComponent(model)}`;
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | null} [signal]
 * @returns {Promise<T>}
 */
function unlessAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => reject(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
  });
}

/**
 * One request; rejects with a ServiceError if the answer is none or an error.
 *
 * @param {string} url
 * @param {RequestInit} options
 * @param {string | null} key
 */
async function request(url, options, key) {
  const headers = new Headers(options.headers);
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  let response;
  try {
    response = await fetch(url, { ...options, headers });
  } catch (error) {
    options.signal?.throwIfAborted();
    throw new ServiceError(UNREACHABLE, error instanceof Error ? error.message : String(error));
  }
  if (response.ok) return response;
  const wait = retryAfter(response);
  const own = (await response.json().catch(() => null))?.error?.message;
  const message = own ?? `The service answered ${response.status} ${response.statusText}`;
  // A service that could not answer in time says no time to try again: it would take as long.
  const passes = PASSING.includes(response.status) && (wait !== undefined || own === undefined);
  throw new ServiceError(response.status, message, wait, passes);
}

/** @param {Response} response */
function retryAfter(response) {
  const seconds = Number(response.headers.get("Retry-After") || NaN);
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, FIRST_WAIT), LONGEST_WAIT) : undefined;
}
