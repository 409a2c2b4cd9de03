/** Tables as CSV files (RFC 4180), safe to open in a spreadsheet. */

// A spreadsheet reads a cell that begins like this as a formula.
const FORMULA = /^[=+\-@\t\r]/;
const MARK = "\uFEFF"; // Says UTF-8 to spreadsheets.

/** @typedef {string | number | null} Cell */

/** @param {Cell[][]} rows */
export function csv(rows) {
  return MARK + rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** @param {Cell} value */
function cell(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * Hands a file to the person.
 *
 * @param {string} name
 * @param {string} content
 */
export function download(name, content) {
  const url = URL.createObjectURL(new Blob([content], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // Later, since the browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
