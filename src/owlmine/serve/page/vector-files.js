/** Files of vectors, read in the browser: npy, csv, svmlight and its relative with a header, JSON lines. */

import { InputError, parseNumber, parsePair, parseQuery, sparse, suited } from "./vectors.js";

/** @import { Query, Takes } from "./types.js" */

/**
 * @typedef {object} Rows
 * @property {string} name  of the file
 * @property {number} length
 * @property {(row: number) => Query} at
 * @property {number} [first]  the number of the first feature, where the file does not say it
 */

export const ENDINGS = [".npy", ".csv", ".tsv", ".svmlight", ".svm", ".libsvm", ".txt", ".jsonl", ".ndjson"];

const MAGIC = "\x93NUMPY";

/** @type {Record<string, {size: number, read: (data: DataView, at: number, little: boolean) => number}>} */
const NUMBERS = {
  f4: { size: 4, read: (data, at, little) => data.getFloat32(at, little) },
  f8: { size: 8, read: (data, at, little) => data.getFloat64(at, little) },
  i1: { size: 1, read: (data, at) => data.getInt8(at) },
  i2: { size: 2, read: (data, at, little) => data.getInt16(at, little) },
  i4: { size: 4, read: (data, at, little) => data.getInt32(at, little) },
  i8: { size: 8, read: (data, at, little) => Number(data.getBigInt64(at, little)) },
  u1: { size: 1, read: (data, at) => data.getUint8(at) },
  u2: { size: 2, read: (data, at, little) => data.getUint16(at, little) },
  u4: { size: 4, read: (data, at, little) => data.getUint32(at, little) },
};

/**
 * @param {File} file
 * @param {Takes} takes
 * @param {number} [first]  the number of the first feature in svmlight files; chosen by the file if not given
 * @returns {Promise<Rows>}
 */
export async function readRows(file, takes, first) {
  const ending = file.name.slice(file.name.lastIndexOf(".")).toLowerCase();
  if (!ENDINGS.includes(ending))
    throw new InputError(`${file.name}: wanted a file that ends in ${ENDINGS.join(", ")}.`);
  try {
    const rows = await readers(ending)(file, takes, first);
    if (!rows.length) throw new InputError("Found no rows; wanted at least one.");
    return rows;
  } catch (error) {
    throw error instanceof InputError ? new InputError(`${file.name}: ${error.message}`) : error;
  }
}

/** @param {string} ending */
function readers(ending) {
  if (ending === ".npy") return readNpy;
  if (ending === ".csv" || ending === ".tsv") return readTable;
  return ending === ".jsonl" || ending === ".ndjson" ? readJsonLines : readSvmlight;
}

/**
 * @param {File} file
 * @param {Takes} takes
 * @returns {Promise<Rows>}
 */
async function readNpy(file, takes) {
  const data = new DataView(await file.arrayBuffer());
  const { type, little, fortran, shape, start } = npyHeader(data);
  const [length, width] = shape.length === 1 ? [1, shape[0]] : shape;
  const { size, read } = type;
  if (data.byteLength < start + length * width * size) throw new InputError("The file is cut off.");
  const [rowStep, columnStep] = fortran ? [1, length] : [width, 1];
  const at = (/** @type {number} */ row) =>
    Array.from({ length: width }, (_, column) =>
      read(data, start + (row * rowStep + column * columnStep) * size, little),
    );
  return { name: file.name, length, at: (row) => suited(at(row), takes) };
}

/** @param {DataView} data */
function npyHeader(data) {
  const latin = (/** @type {number} */ from, /** @type {number} */ to) =>
    String.fromCharCode(...new Uint8Array(data.buffer, from, Math.max(Math.min(to, data.byteLength) - from, 0)));
  if (data.byteLength < 12 || latin(0, 6) !== MAGIC) throw new InputError("Found no NumPy array; wanted one.");
  const wide = data.getUint8(6) > 1;
  const start = wide ? 12 + data.getUint32(8, true) : 10 + data.getUint16(8, true);
  const header = latin(wide ? 12 : 10, start);
  const [, order = "", name = ""] = /'descr':\s*'([<>|=]?)(\w+)'/.exec(header) ?? [];
  const shape = (/'shape':\s*\(([\d, ]*)\)/.exec(header)?.[1] ?? "")
    .split(",")
    .filter((part) => part.trim())
    .map(Number);
  const type = NUMBERS[name];
  if (!type)
    throw new InputError(`Found an array of type ${name || "unknown"}; wanted ${Object.keys(NUMBERS).join(", ")}.`);
  if (shape.length !== 1 && shape.length !== 2)
    throw new InputError(`Found ${shape.length} dimensions; wanted rows and columns.`);
  return { type, little: order !== ">", fortran: /'fortran_order':\s*True/.test(header), shape, start };
}

/**
 * @param {File} file
 * @param {Takes} takes
 * @returns {Promise<Rows>}
 */
async function readTable(file, takes) {
  const lines = linesOf(await file.text());
  const separator = ["\t", ";", ","].find((mark) => lines[0]?.text.includes(mark)) ?? ",";
  const cells = lines.map(({ text, number }) => ({
    number,
    cells: text.split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")),
  }));
  const titles = cells[0]?.cells.some((cell) => cell !== "" && Number.isNaN(Number(cell)));
  const rows = (titles ? cells.slice(1) : cells).map((row) =>
    inLine(row.number, () => row.cells.map((cell) => parseNumber(cell))),
  );
  return listed(
    file,
    rows.map((row) => suited(row, takes)),
  );
}

/**
 * @param {File} file
 * @param {Takes} takes
 * @returns {Promise<Rows>}
 */
async function readJsonLines(file, takes) {
  return listed(
    file,
    linesOf(await file.text()).map(({ text, number }) => inLine(number, () => parseQuery(text, takes))),
  );
}

/**
 * Lines of labels and `index:value`. A header with two or three numbers says that features are counted from 0.
 *
 * @param {File} file
 * @param {Takes} takes
 * @param {number} [first]
 * @returns {Promise<Rows>}
 */
async function readSvmlight(file, takes, first) {
  const all = linesOf(await file.text()).map(({ text, number }) => ({ number, text: text.replace(/#.*/, "") }));
  const header = /^\s*\d+(\s+\d+){1,2}\s*$/.test(all[0]?.text ?? "");
  const lines = header ? all.slice(1) : all;
  const counted = first ?? (header || lines.some(({ text }) => /\s0+:/.test(text)) ? 0 : 1);
  const rows = lines.map(({ text, number }) => inLine(number, () => suited(sparse(pairs(text, counted)), takes)));
  return { ...listed(file, rows), first: header ? undefined : counted };
}

/**
 * @param {string} line
 * @param {number} first
 */
function pairs(line, first) {
  const words = line.split(/\s+/).filter((word) => word && !word.startsWith("qid:"));
  const labels = words[0]?.includes(":") ? 0 : 1;
  return words.slice(labels).map((word) => parsePair(word, first));
}

/**
 * @param {File} file
 * @param {Query[]} queries
 * @returns {Rows}
 */
function listed(file, queries) {
  return { name: file.name, length: queries.length, at: (row) => queries[row] };
}

/** @param {string} text */
function linesOf(text) {
  return text
    .split(/\r\n|\n|\r/)
    .map((line, place) => ({ text: line, number: place + 1 }))
    .filter(({ text: line }) => line.trim());
}

/**
 * @template T
 * @param {number} number
 * @param {() => T} read
 */
function inLine(number, read) {
  try {
    return read();
  } catch (error) {
    throw error instanceof InputError ? new InputError(`Line ${number}: ${error.message}`) : error;
  }
}
