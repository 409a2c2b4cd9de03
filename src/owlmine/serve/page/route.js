/** What the page shows, as a fragment of its address that can be shared: `#/sample/search?text=ldap&k=10`. */

export const VIEWS = /** @type {const} */ (["search", "many", "about"]);
export const SIZES = [1, 3, 5, 10, 20, 50];

/**
 * @typedef {object} Route
 * @property {string} model  empty: the first one
 * @property {typeof VIEWS[number]} view
 * @property {string} text  the query
 * @property {number} k
 * @property {number} least  the least probability of a class
 * @property {number} tail  how much rare classes are lifted
 * @property {string} key  the class whose reasons are open; empty: none
 */

/** @type {Route} */
const DEFAULTS = { model: "", view: "search", text: "", k: 5, least: 0, tail: 0, key: "" };

// Longer addresses are cut by programs that pass them on.
const LONGEST_TEXT = 4000;

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parseRoute(hash) {
  const [path = "", search = ""] = split(hash.replace(/^#?\/?/, ""), "?");
  const [model = "", view = ""] = split(path, "/");
  const given = new URLSearchParams(search);
  return {
    model: decoded(model),
    view: VIEWS.find((name) => name === view) ?? DEFAULTS.view,
    text: given.get("text") ?? DEFAULTS.text,
    k: SIZES.find((size) => size === Number(given.get("k"))) ?? DEFAULTS.k,
    least: number(given.get("least"), 0.95) ?? DEFAULTS.least,
    tail: number(given.get("tail"), 1) ?? DEFAULTS.tail,
    key: given.get("class") ?? DEFAULTS.key,
  };
}

/** @param {Route} route */
export function formatRoute(route) {
  const search = new URLSearchParams();
  if (route.text && route.text.length <= LONGEST_TEXT) search.set("text", route.text);
  if (route.k !== DEFAULTS.k) search.set("k", String(route.k));
  if (route.least !== DEFAULTS.least) search.set("least", String(route.least));
  if (route.tail !== DEFAULTS.tail) search.set("tail", String(route.tail));
  if (route.key) search.set("class", route.key);
  const query = search.toString();
  return `#/${encodeURIComponent(route.model)}/${route.view}${query ? `?${query}` : ""}`;
}

/**
 * @param {string} text
 * @param {string} mark
 */
function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {string | null} text
 * @param {number} most
 */
function number(text, most) {
  const value = Number(text);
  return text !== null && value >= 0 && value <= most ? value : undefined;
}
