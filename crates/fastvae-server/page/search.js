// The search: a combobox that adds what is chosen to the picks.

import { $, element, later, thousands } from "./elements.js";
import { add, show } from "./list.js";
import { ask } from "./service.js";
import { called, remember } from "./state.js";

let found = [];
let active = -1;
let searching = null;

async function search() {
  const query = $("search").value.trim();
  searching?.abort();
  if (!query) return closeFound();
  const mine = (searching = new AbortController());
  try {
    const answer = await ask(`/v1/items?n=8&query=${encodeURIComponent(query)}`, null, mine.signal);
    found = answer.items;
    found.forEach(remember);
    drawFound(query);
  } catch (error) {
    if (!mine.signal.aborted) show(error.message);
  }
}

function marked(text, query) {
  const at = text.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return [text];
  return [text.slice(0, at), element("mark", {}, text.slice(at, at + query.length)), text.slice(at + query.length)];
}

function drawFound(query) {
  active = found.length ? 0 : -1;
  const rows = found.map((entry, at) => element("li",
    { id: `found-${at}`, role: "option", onmousedown: (event) => event.preventDefault(), onclick: () => choose(at) },
    element("span", {}, ...marked(called(entry), query)), element("span", { className: "meta" }, `${thousands(entry.count)} users`)));
  if (!rows.length) rows.push(element("li", { className: "none", role: "option", "aria-disabled": "true" }, "Nothing found"));
  $("found").replaceChildren(...rows);
  $("found").hidden = false;
  $("search").setAttribute("aria-expanded", "true");
  markActive();
}

function markActive() {
  [...$("found").children].forEach((row, at) => {
    row.setAttribute("aria-selected", at === active);
    if (at === active) row.scrollIntoView({ block: "nearest" });
  });
  if (active < 0) $("search").removeAttribute("aria-activedescendant");
  else $("search").setAttribute("aria-activedescendant", `found-${active}`);
}

function closeFound() {
  $("found").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
}

function choose(at) {
  const entry = found[at];
  if (!entry) return;
  $("search").value = "";
  closeFound();
  add(entry.item);
}

function searchKey(event) {
  const open = !$("found").hidden;
  if (event.key === "Escape") closeFound();
  else if (event.key === "Enter" && open) choose(active);
  else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && open && found.length) {
    active = (active + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
    markActive();
    event.preventDefault();
  }
}

export function listenToSearch() {
  $("search").addEventListener("input", later(search, 80));
  $("search").addEventListener("keydown", searchKey);
  $("search").addEventListener("blur", closeFound);
  $("search").addEventListener("focus", () => $("search").value && search());
}
