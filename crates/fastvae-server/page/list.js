// The list and the picks that it comes from: `update` draws both from the state.

import { $, element, hue, split } from "./elements.js";
import { drawKnobs, drawRequest } from "./knobs.js";
import { ask } from "./service.js";
import { called, remember, requestBody, state, titles, writeAddress } from "./state.js";

let running = null;
export async function update() {
  writeAddress();
  drawPicks();
  drawKnobs();
  drawRequest();
  running?.abort();
  const mine = (running = new AbortController());
  $("cards").setAttribute("aria-busy", "true");
  const started = performance.now();
  try {
    const answer = await ask("/v1/recommend", requestBody(), mine.signal);
    answer.recommendations.forEach(remember);
    drawCards(answer);
    drawFallback(answer.fallback);
    const time = performance.now() - started;
    const many = answer.recommendations.length;
    $("status").textContent = `${many} ${many === 1 ? "item" : "items"} · ${answer.method} · ${time < 10 ? time.toFixed(1) : time.toFixed(0)} ms`;
    const unknown = answer.unknown.length ? `The model does not know ${answer.unknown.join(", ")}.` : "";
    show(unknown);
  } catch (error) {
    if (mine.signal.aborted) return;
    $("cards").replaceChildren();
    drawFallback(null);
    $("status").textContent = "";
    show(error instanceof TypeError ? "The service cannot be reached." : error.message);
  }
  if (running === mine) $("cards").setAttribute("aria-busy", "false");
}

export function show(problem) {
  $("notice").hidden = !problem;
  $("notice").textContent = problem;
}

function drawFallback(fallback) {
  const why = state.items.length || state.user ? "None of the history is known to the model" : "Nothing is picked yet";
  const what = fallback === "nobody" ? "the items that the model recommends to somebody unknown" : "the items that most users took";
  $("results-title").textContent = fallback ? "Popular for newcomers" : "Recommended for you";
  $("fallback").hidden = !fallback;
  $("fallback").textContent = fallback ? `${why}, so these are ${what}.` : "";
}

function drawCards(answer) {
  const scores = answer.recommendations.map((entry) => entry.score);
  const [best, worst] = [Math.max(...scores), Math.min(...scores)];
  const cards = answer.recommendations.map((entry, at) => card(entry, at, best, worst));
  if (!cards.length) cards.push(element("li", { className: "empty" }, "Nothing is left to recommend."));
  $("cards").replaceChildren(...cards);
}

function card(entry, at, best, worst) {
  const { name, tag } = split(called(entry));
  const cover = element("div", { className: "cover" }, element("span", { className: "rank" }, `${at + 1}`), element("span", {}, tag));
  cover.style.setProperty("--hue", hue(tag || name));
  const bar = element("i");
  bar.style.width = `${best > worst ? 8 + (92 * (entry.score - worst)) / (best - worst) : 100}%`;
  const meter = element("span", { className: "meter", "aria-hidden": "true" }, bar);
  const score = element("div", { className: "score" }, meter, element("span", { title: "The model's score of the item" }, entry.score.toFixed(2)));
  const body = element("div", { className: "body" }, element("h3", {}, name), score);
  if (entry.because?.length) body.append(because(entry.because));
  const actions = element("div", { className: "actions" },
    element("button", { type: "button", className: "add", onclick: () => add(entry.item), "aria-label": `Add ${called(entry)} to your picks` }, "+ Add"),
    element("button", { type: "button", onclick: () => showSimilar(entry), "aria-label": `Items similar to ${called(entry)}` }, "Similar"));
  body.append(actions);
  return element("li", { className: "card", "data-item": entry.item }, cover, body);
}

function because(reasons) {
  const parts = [];
  reasons.slice(0, 2).forEach((reason, at) => {
    if (at) parts.push(" and ");
    parts.push(element("b", {}, split(called(reason)).name), ` (${Math.round(reason.share * 100)} %)`);
  });
  const verb = state.user ? "liked" : "picked";
  return element("p", { className: "because" }, `Because you ${verb} `, ...parts);
}

export function add(item) {
  if (!state.items.includes(item)) state.items = [...state.items, item];
  update();
}

function remove(item) {
  const at = state.items.indexOf(item);
  state.items = state.items.filter((other) => other !== item);
  update();
  const next = $("chips").querySelectorAll("button")[Math.min(at, state.items.length - 1)];
  (next ?? $("search")).focus();
}

function drawPicks() {
  const chips = state.items.map((item) => {
    const title = titles.get(item) ?? item;
    const button = element("button", { type: "button", onclick: () => remove(item), "aria-label": `Remove ${title}` }, "✕");
    return element("li", { className: "chip", title }, element("span", {}, title), button);
  });
  $("chips").replaceChildren(...chips);
  const fresh = !state.items.length && !state.user;
  $("no-picks").hidden = $("starters").hidden = !fresh;
  $("clear").disabled = fresh;
  if (document.activeElement !== $("user")) $("user").value = state.user;
}

export async function nameItems() {
  const unnamed = state.items.filter((item) => !titles.has(item));
  await Promise.all(unnamed.map(async (item) => {
    try {
      remember(await ask(`/v1/items/${encodeURIComponent(item)}`));
    } catch {
      titles.set(item, `${item} (unknown)`);
    }
  }));
  if (unnamed.length) drawPicks();
}

async function showSimilar(entry) {
  try {
    const answer = await ask(`/v1/items/${encodeURIComponent(entry.item)}/similar?n=10`);
    answer.similar.forEach(remember);
    $("similar-title").textContent = `Similar to ${called(answer)}`;
    $("similar-list").replaceChildren(...answer.similar.map((near) => element("li", {},
      element("span", {}, called(near)), element("span", { className: "meta", title: "How alike the items are" }, near.score.toFixed(2)),
      element("button", { type: "button", className: "quiet", "aria-label": `Add ${called(near)} to your picks`, onclick: () => { $("similar").close(); add(near.item); } }, "+ Add"))));
    $("similar").showModal();
  } catch (error) {
    show(error.message);
  }
}
