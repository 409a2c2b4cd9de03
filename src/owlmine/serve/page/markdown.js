/**
 * The Markdown of model cards as elements: headings, paragraphs, lists, tables, quotes, code, emphasis, links.
 * Everything else, markup above all, stays text.
 */

import { h } from "./dom.js";
import { visibleLines } from "./text.js";

const FENCE = /^```/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s*(?:[-*+]|\d+[.)])\s+(.*)$/;
const NUMBERED = /^\s*\d+[.)]\s/;
const QUOTE = /^>\s?(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*\|?\s*$/;
const INLINE = /`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;

/**
 * @param {string} text
 * @returns {Node[]}
 */
export function markdown(text) {
  const lines = text.split(/\r\n|\n|\r/).map(visibleLines);
  const nodes = [];
  while (lines.length) {
    if (lines[0].trim()) nodes.push(block(lines));
    else lines.shift();
  }
  return nodes;
}

/**
 * Takes one block from the front of the lines, at least a line long.
 *
 * @param {string[]} lines
 * @returns {Node}
 */
function block(lines) {
  const [first, second = ""] = lines;
  if (FENCE.test(first)) return code(lines);
  const heading = HEADING.exec(first);
  if (heading) return take(lines, () => h(level(heading[1].length), {}, ...inline(heading[2])));
  if (RULE.test(first)) return take(lines, () => h("hr"));
  if (first.includes("|") && TABLE_RULE.test(second)) return table(lines);
  if (ITEM.test(first)) return list(lines);
  if (QUOTE.test(first)) return h("blockquote", {}, ...markdown(takeWhile(lines, QUOTE).join("\n")));
  return paragraph(lines);
}

/** @param {number} depth  The page's own headings stand above those of a card. */
function level(depth) {
  return /** @type {const} */ (["h2", "h3", "h4"])[Math.min(depth, 3) - 1];
}

/**
 * @param {string[]} lines
 * @param {() => Node} node
 */
function take(lines, node) {
  lines.shift();
  return node();
}

/** @param {string[]} lines */
function code(lines) {
  lines.shift();
  const end = lines.findIndex((line) => FENCE.test(line));
  const content = lines.splice(0, end < 0 ? lines.length : end);
  lines.shift();
  return h("pre", { tabindex: 0 }, h("code", {}, content.join("\n")));
}

/** @param {string[]} lines */
function table(lines) {
  const [head, , ...rows] = takeWhile(lines, /^(.*\|.*)$/).map(cells);
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", { scope: "col" }, ...inline(cell))))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, ...inline(cell)))))),
    ),
  );
}

/** @param {string} line */
function cells(line) {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());
}

/** @param {string[]} lines */
function list(lines) {
  const tag = NUMBERED.test(lines[0]) ? "ol" : "ul";
  return h(tag, {}, ...takeWhile(lines, ITEM).map((item) => h("li", {}, ...inline(item))));
}

/** @param {string[]} lines */
function paragraph(lines) {
  const text = [lines.shift()];
  while (
    lines.length &&
    lines[0].trim() &&
    ![FENCE, HEADING, ITEM, QUOTE, RULE].some((start) => start.test(lines[0]))
  ) {
    text.push(lines.shift());
  }
  return h("p", { dir: "auto" }, ...inline(text.join(" ")));
}

/**
 * Takes the lines in front that match, as what the pattern's group holds.
 *
 * @param {string[]} lines
 * @param {RegExp} pattern
 */
function takeWhile(lines, pattern) {
  const end = lines.findIndex((line) => !pattern.test(line));
  return lines.splice(0, end < 0 ? lines.length : end).map((line) => pattern.exec(line)?.[1] ?? "");
}

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function inline(text) {
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(text.slice(at, match.index), styled(match));
    at = match.index + match[0].length;
  }
  return [...nodes, text.slice(at)];
}

/** @param {RegExpMatchArray} match */
function styled([, codeText, strong, emphasis, title, href]) {
  if (codeText !== undefined) return h("code", {}, codeText);
  if (strong !== undefined) return h("strong", {}, ...inline(strong));
  if (emphasis !== undefined) return h("em", {}, ...inline(emphasis));
  return h("a", { href, rel: "noreferrer noopener", target: "_blank" }, title);
}
