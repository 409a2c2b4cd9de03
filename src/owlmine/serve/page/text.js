/** Numbers and foreign text as people can read them. */

// Controls, marks of direction, invisible spaces and separators, and halves of surrogate pairs.
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u206f\ufeff\ufff9-\ufffb]|\p{Surrogate}/gu;
const DELETE = 0x7f;
const CONTROL_PICTURES = 0x2400;

/**
 * Foreign text with a visible sign for each character that could hide or rearrange others.
 *
 * @param {string} text
 */
export function visible(text) {
  return text.replace(INVISIBLE, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(CONTROL_PICTURES + code);
    if (code === DELETE) return "␡";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/**
 * The same for longer texts, whose line ends and tabs stay.
 *
 * @param {string} text
 */
export function visibleLines(text) {
  return text.replace(/[^\t\n\r]+/g, visible);
}

/**
 * A share as a percentage: 97%, 6.0%, <0.1%.
 *
 * @param {number} share
 */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1%";
  // 99.97% must not read as certain.
  if (value < 10 || (value > 99 && value < 100)) return `${Math.min(value, 99.9).toFixed(value === 0 ? 0 : 1)}%`;
  return `${Math.round(value)}%`;
}

/** @param {number} number */
export function count(number) {
  return number.toLocaleString("en");
}

/**
 * `1 class`, `2 classes`.
 *
 * @param {number} number
 * @param {string} one
 * @param {string} many
 */
export function counted(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * An effect with its sign: +0.31, −0.02.
 *
 * @param {number} number
 */
export function signed(number) {
  const digits = Math.abs(number).toFixed(2);
  if (Number(digits) === 0) return "0.00";
  return `${number < 0 ? "−" : "+"}${digits}`;
}
