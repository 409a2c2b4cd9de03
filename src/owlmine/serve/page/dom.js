/** Elements without markup: text always arrives as text. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | false | null | undefined} Child
 * @typedef {string | number | boolean | null | undefined | EventListener | Record<string, string | number>} Attribute
 * @typedef {Record<string, Attribute>} Attributes  `onclick` and the like are listeners; `style` sets custom properties.
 */

/**
 * Creates an HTML element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/**
 * Creates an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (typeof value === "object") setProperties(element, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/**
 * Sets CSS custom properties through the object model, which a strict policy allows.
 *
 * @param {HTMLElement | SVGElement} element
 * @param {Record<string, string | number>} properties
 */
export function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, String(value));
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function present(children) {
  return /** @type {(Node | string)[]} */ (
    children.filter((child) => child !== null && child !== undefined && child !== false)
  );
}

/**
 * Replaces what is in an element.
 *
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/**
 * The element of the page with that id.
 *
 * @template {typeof HTMLElement} [Kind=typeof HTMLElement]
 * @param {string} id
 * @param {Kind} [kind]
 * @returns {InstanceType<Kind>}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof (kind ?? HTMLElement)))
    throw new TypeError(`the page has no ${kind?.name ?? "element"} #${id}`);
  return /** @type {InstanceType<Kind>} */ (element);
}
