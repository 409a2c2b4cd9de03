/** Vectors as people paste them: `3:0.5 17:1`, `0.1 0.2 0.3`, or JSON. */

/** @import { Query, SparseVector, Takes } from "./types.js" */

/** Something that a person typed or chose is not what the model takes. */
export class InputError extends Error {}

/**
 * A query as a person wrote it.
 *
 * @param {string} text
 * @param {Takes} takes
 * @returns {Query}
 */
export function parseQuery(text, takes) {
  if (takes === "text") return text;
  const trimmed = text.trim();
  const vector = /^[[{]/.test(trimmed) ? fromJson(trimmed) : fromNumbers(trimmed);
  return suited(vector, takes);
}

/**
 * A query as a person would write it.
 *
 * @param {Query} query
 */
export function formatQuery(query) {
  if (typeof query === "string") return query;
  if (Array.isArray(query)) return query.map(shortest).join(" ");
  return query.indices.map((index, place) => `${index}:${shortest(query.values[place])}`).join(" ");
}

/**
 * A vector in the form that the model takes.
 *
 * @param {number[] | SparseVector} vector
 * @param {Takes} takes
 * @returns {Query}
 */
export function suited(vector, takes) {
  if (takes === "dense vectors") {
    if (Array.isArray(vector)) return vector;
    throw new InputError("Found index:value pairs; wanted one number for each feature.");
  }
  return Array.isArray(vector) ? nonZero(vector) : vector;
}

/**
 * @param {string} text
 * @param {string} [wanted]
 */
export function parseNumber(text, wanted = "a number") {
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number)) throw new InputError(`Found ${quoted(text)}; wanted ${wanted}.`);
  return number;
}

/**
 * `3:0.5`, with features counted from `first`.
 *
 * @param {string} text
 * @param {number} [first]
 * @returns {[index: number, value: number]}
 */
export function parsePair(text, first = 0) {
  const [left, right, ...rest] = text.split(":");
  const index = Number(left) - first;
  if (left === "" || !Number.isSafeInteger(index) || index < 0 || right === undefined || rest.length) {
    throw new InputError(`Found ${quoted(text)}; wanted index:value, with indices from ${first}.`);
  }
  return [index, parseNumber(right, `a number after ${index + first}:`)];
}

/**
 * @param {[index: number, value: number][]} pairs
 * @returns {SparseVector}
 */
export function sparse(pairs) {
  const ordered = [...pairs].sort(([one], [other]) => one - other);
  const repeated = ordered.find(([index], place) => place > 0 && ordered[place - 1][0] === index);
  if (repeated) throw new InputError(`Found index ${repeated[0]} twice; wanted each index once.`);
  return { indices: ordered.map(([index]) => index), values: ordered.map(([, value]) => value) };
}

/** @param {string} text */
function fromNumbers(text) {
  const words = text.split(/[\s,;]+/).filter(Boolean);
  return words.some((word) => word.includes(":"))
    ? sparse(words.map((word) => parsePair(word)))
    : words.map((word) => parseNumber(word));
}

/**
 * @param {string} text
 * @returns {number[] | SparseVector}
 */
function fromJson(text) {
  const given = parsedJson(text);
  const vector = given.vector ?? given;
  if (Array.isArray(vector)) return vector.map((value) => numberOf(value));
  const { indices, values } = vector;
  if (!Array.isArray(indices) || !Array.isArray(values) || indices.length !== values.length) {
    throw new InputError(
      'Found other JSON; wanted numbers in [ ], or {"indices": [], "values": []} of the same length.',
    );
  }
  return sparse(indices.map((index, place) => parsePair(`${numberOf(index)}:${numberOf(values[place])}`)));
}

/** @param {string} text */
function parsedJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InputError(`Found JSON that cannot be read (${/** @type {Error} */ (error).message}); wanted a vector.`);
  }
}

/** @param {unknown} value */
function numberOf(value) {
  if (typeof value === "number") return value;
  throw new InputError(`Found ${JSON.stringify(value)}; wanted a number.`);
}

/**
 * @param {number[]} numbers
 * @returns {SparseVector}
 */
function nonZero(numbers) {
  const indices = [...numbers.keys()].filter((index) => numbers[index] !== 0);
  return { indices, values: indices.map((index) => numbers[index]) };
}

/** @param {string} text */
function quoted(text) {
  return `“${text.length > 40 ? `${text.slice(0, 40)}…` : text}”`;
}

/**
 * The shortest digits that give the same number; a number of 32 bits needs fewer of them.
 *
 * @param {number} value
 */
function shortest(value) {
  if (Math.fround(value) !== value) return String(value);
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].find((length) => Math.fround(Number(value.toPrecision(length))) === value);
  return String(digits ? Number(value.toPrecision(digits)) : value);
}
