// SPDX-License-Identifier: Apache-2.0
// Descriptions of elements, and the smallest change that makes the document match them, so that focus, open details and
// scroll positions stay. Text is only ever set as text, so that no name can be markup.

const SVG = "http://www.w3.org/2000/svg";

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Describe an HTML element; the attribute `key` distinguishes it from its neighbors. */
export function h(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children: flat(children), space: null };
}

/** Describe an SVG element. */
export function svg(tag, attributes, ...children) {
  return { tag, attributes: attributes ?? {}, children: flat(children), space: SVG };
}

/** Make the children of an element match their descriptions. */
export function render(parent, ...wanted) {
  const nodes = flat(wanted);
  const keyed = new Map();
  const plain = [];
  for (const child of parent.childNodes) {
    if (child.described?.key !== undefined) keyed.set(child.described.key, child);
    else plain.push(child);
  }
  const placed = new Set();
  nodes.forEach((node, index) => {
    const found = take(node, keyed, plain);
    const element = found === null ? create(node) : found;
    if (found !== null) update(found, node);
    placed.add(element);
    const there = parent.childNodes[index];
    if (there !== element) parent.insertBefore(element, there ?? null);
  });
  for (const child of [...parent.childNodes]) if (!placed.has(child)) child.remove();
}

function take(node, keyed, plain) {
  if (typeof node !== "object") {
    const place = plain.findIndex((child) => child.nodeType === Node.TEXT_NODE);
    return place < 0 ? null : plain.splice(place, 1)[0];
  }
  if (node.attributes.key !== undefined) {
    const found = keyed.get(node.attributes.key);
    keyed.delete(node.attributes.key);
    return found !== undefined && found.described.tag === node.tag ? found : null;
  }
  const place = plain.findIndex((child) => child.described?.tag === node.tag);
  return place < 0 ? null : plain.splice(place, 1)[0];
}

function create(node) {
  if (typeof node !== "object") return document.createTextNode(String(node));
  const element =
    node.space === null ? document.createElement(node.tag) : document.createElementNS(node.space, node.tag);
  element.described = { tag: node.tag, key: node.attributes.key, attributes: {} };
  update(element, node);
  return element;
}

function update(element, node) {
  if (typeof node !== "object") {
    if (element.data !== String(node)) element.data = String(node);
    return;
  }
  const before = element.described.attributes;
  for (const name of Object.keys(before)) if (!(name in node.attributes)) set(element, name, null);
  for (const [name, value] of Object.entries(node.attributes)) {
    if (before[name] !== value || name === "style") set(element, name, value);
  }
  element.described.attributes = node.attributes;
  render(element, node.children);
}

function set(element, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) element[name] = value;
  // Not as an attribute, because the dashboard's content policy permits no inline style.
  else if (name === "style") for (const [key, setting] of Object.entries(value ?? {})) element.style.setProperty(key, setting);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}
