// What every part of the page builds with: nodes, numbers as text, work that waits a moment.

export const $ = (id) => document.getElementById(id);

/** A node with its properties, listeners (`onclick`) and children. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "role") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** `Midnight Harbor (Mystery)` as a name and what stands in brackets at its end. */
export function split(title) {
  const match = /^(.*\S)\s*\(([^()]{2,40})\)$/.exec(title);
  return match ? { name: match[1], tag: match[2] } : { name: title, tag: "" };
}

export function hue(text) {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return (hash * 47) % 360;
}

export const thousands = (value) => Number(value).toLocaleString("en-US");
export const short = (value) => (Math.abs(value) < 1 ? value.toFixed(4) : value.toPrecision(4));

/** `work`, once nothing has asked for it for so long. */
export function later(work, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}
