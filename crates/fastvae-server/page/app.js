// The page at `/`: state in the address, one function that draws from it, one that asks the service.
"use strict";

const $ = (id) => document.getElementById(id);
const DEFAULTS = { items: [], user: "", n: 12, penalty: 0, diversity: 0, temperature: 0, seed: 1, approximate: false };
const state = { ...DEFAULTS };
const titles = new Map();
let model = null;

// --- elements ---------------------------------------------------------------------------------------------------

function element(tag, properties = {}, ...children) {
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
function split(title) {
  const match = /^(.*\S)\s*\(([^()]{2,40})\)$/.exec(title);
  return match ? { name: match[1], tag: match[2] } : { name: title, tag: "" };
}

function hue(text) {
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return (hash * 47) % 360;
}

const thousands = (value) => Number(value).toLocaleString("en-US");
const called = (entry) => entry.title ?? `Item ${entry.item}`;

function remember(entry) {
  titles.set(entry.item, called(entry));
}

// --- the service --------------------------------------------------------------------------------------------------

async function ask(path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem("api-key");
  if (key) headers["x-api-key"] = key;
  const options = { headers, signal };
  if (body) {
    options.method = "POST";
    headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  if (response.status === 401) {
    await askForKey();
    return ask(path, body, signal);
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

let waitingForKey = null;
function askForKey() {
  waitingForKey ??= new Promise((done) => {
    sessionStorage.removeItem("api-key");
    const dialog = $("key");
    $("key-form").onsubmit = () => {
      sessionStorage.setItem("api-key", $("key-input").value);
      waitingForKey = null;
      done();
    };
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
  });
  return waitingForKey;
}

// --- state in the address -------------------------------------------------------------------------------------------

function readAddress() {
  const from = new URLSearchParams(location.hash.slice(1));
  const number = (name, least, most) => {
    const value = Number(from.get(name));
    return from.has(name) && Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : DEFAULTS[name];
  };
  state.items = [...new Set(from.getAll("item"))].slice(0, 200);
  state.user = from.get("user") ?? "";
  state.n = number("n", 1, 100);
  state.penalty = number("penalty", 0, 1);
  state.diversity = number("diversity", 0, 1);
  state.temperature = number("temperature", 0, 3);
  state.seed = number("seed", 0, 2 ** 31);
  state.approximate = from.get("approximate") === "1";
}

function writeAddress() {
  const to = new URLSearchParams();
  state.items.forEach((item) => to.append("item", item));
  for (const name of ["user", "n", "penalty", "diversity", "temperature"]) {
    if (state[name] !== DEFAULTS[name]) to.set(name, state[name]);
  }
  if (state.temperature > 0) to.set("seed", state.seed);
  if (state.approximate) to.set("approximate", "1");
  const hash = to.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
}

function requestBody() {
  const body = { n: state.n };
  if (state.items.length) body.history = state.items;
  if (state.user) body.user = state.user;
  if (state.penalty) body.popularity_penalty = state.penalty;
  if (state.diversity) body.diversity = state.diversity;
  if (state.temperature) Object.assign(body, { temperature: state.temperature, seed: state.seed });
  if (state.approximate) body.approximate = true;
  body.explain = true;
  return body;
}

// --- recommendations ------------------------------------------------------------------------------------------------

let running = null;
async function update() {
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
    const time = performance.now() - started;
    const many = answer.recommendations.length;
    $("status").textContent = `${many} ${many === 1 ? "item" : "items"} · ${answer.method} · ${time < 10 ? time.toFixed(1) : time.toFixed(0)} ms`;
    const unknown = answer.unknown.length ? `The model does not know ${answer.unknown.join(", ")}.` : "";
    show(unknown);
  } catch (error) {
    if (mine.signal.aborted) return;
    $("cards").replaceChildren();
    $("status").textContent = "";
    show(error instanceof TypeError ? "The service cannot be reached." : error.message);
  }
  if (running === mine) $("cards").setAttribute("aria-busy", "false");
}

function show(problem) {
  $("notice").hidden = !problem;
  $("notice").textContent = problem;
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
  const score = element("div", { className: "score" }, meter, element("span", { title: "Score: the logit of the item" }, entry.score.toFixed(2)));
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

// --- picks ----------------------------------------------------------------------------------------------------------

function add(item) {
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
  $("results-title").textContent = fresh ? "Popular for newcomers" : "Recommended for you";
}

async function nameItems() {
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

// --- search: a combobox ---------------------------------------------------------------------------------------------

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

// --- knobs, request, similar items ------------------------------------------------------------------------------------

function drawKnobs() {
  for (const name of ["n", "penalty", "diversity", "temperature"]) {
    const value = state[name];
    $(name).value = value;
    $(`${name}-value`).textContent = name === "n" ? value : value === 0 ? "off" : value.toFixed(2).replace(/0$/, "");
  }
  $("approximate").checked = state.approximate;
}

function drawRequest() {
  const body = JSON.stringify(requestBody()).replaceAll("'", "'\\''");
  const key = sessionStorage.getItem("api-key") ? " \\\n  -H 'x-api-key: '\"$API_KEY\"" : "";
  $("curl").textContent = `curl ${location.origin}/v1/recommend${key} \\\n  -H 'content-type: application/json' \\\n  -d '${body}'`;
}

async function showSimilar(entry) {
  try {
    const answer = await ask(`/v1/items/${encodeURIComponent(entry.item)}/similar?n=10`);
    answer.similar.forEach(remember);
    $("similar-title").textContent = `Similar to ${called(answer)}`;
    $("similar-list").replaceChildren(...answer.similar.map((near) => element("li", {},
      element("span", {}, called(near)), element("span", { className: "meta", title: "Cosine of the items' vectors" }, near.score.toFixed(2)),
      element("button", { type: "button", className: "quiet", "aria-label": `Add ${called(near)} to your picks`, onclick: () => { $("similar").close(); add(near.item); } }, "+ Add"))));
    $("similar").showModal();
  } catch (error) {
    show(error.message);
  }
}

// --- the model's card ---------------------------------------------------------------------------------------------------

function drawModel() {
  $("model-name").textContent = model.model;
  document.title = `${model.model} · fastvae`;
  const statistics = model.statistics ?? {};
  const facts = [["Items", thousands(model.n_items)]];
  if (statistics.users) facts.push(["Users trained on", thousands(statistics.users)]);
  if (statistics.interactions) facts.push(["Interactions", thousands(statistics.interactions)]);
  facts.push(["Learned values", thousands(model.n_parameters)], ["Shape", `${model.hidden} – ${model.latent}`], ["Epochs", thousands(model.epochs.length)]);
  if (model.search) facts.push(["Approximate recall", `${(model.search.recall * 100).toFixed(1)} %`]);
  facts.push(["Loaded", new Date(model.loaded_at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })]);
  $("facts").replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  drawCharts();
  drawMetrics();
  const settings = flat(model.config);
  $("settings").replaceChildren(...settings.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, `${value}`))));
  $("user-row").hidden = !model.stored_users;
  $("approximate").disabled = !model.search;
  $("approximate-hint").textContent = model.search
    ? `Looks at ${(model.search.scored_share * 100).toFixed(0)} % of the items and finds ${(model.search.recall * 100).toFixed(0)} % of the best ${model.search.k}.`
    : "This model has no index.";
}

function flat(object, prefix = "") {
  return Object.entries(object).flatMap(([name, value]) =>
    value !== null && typeof value === "object" ? flat(value, `${prefix}${name}.`) : value === null ? [] : [[prefix + name, typeof value === "number" ? +value.toPrecision(4) : value]]);
}

function drawCharts() {
  const of = (name) => model.epochs.filter((epoch) => typeof epoch[name] === "number").map((epoch) => [epoch.epoch, epoch[name]]);
  const charts = [["Loss per user", of("loss")], ["NDCG@50 on validation users", of("validation")]].filter(([, points]) => points.length > 1);
  $("charts").replaceChildren(...charts.map(([name, points]) => {
    const last = points[points.length - 1];
    const figure = element("figure", {}, element("figcaption", {}, `${name} by epoch; ${short(last[1])} at the end`));
    figure.append(chart(name, points));
    return figure;
  }));
}

const short = (value) => (Math.abs(value) < 1 ? value.toFixed(4) : value.toPrecision(4));

function chart(name, points) {
  const make = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const [width, height, left, bottom, top, right] = [360, 180, 48, 24, 10, 10];
  const [xs, ys] = [points.map((point) => point[0]), points.map((point) => point[1])];
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - bottom - top);
  const svg = make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: from ${short(ys[0])} at epoch ${x0} to ${short(ys[ys.length - 1])} at epoch ${x1}` });
  for (let step = 0; step <= 3; step++) {
    const value = y0 + ((y1 - y0) * step) / 3;
    svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  svg.append(make("text", { x: left, y: height - 6 }, x0), make("text", { x: width - right, y: height - 6, "text-anchor": "end" }, x1));
  const path = points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" L");
  svg.append(make("path", { class: "area", d: `M${path} L${x(x1)},${height - bottom} L${x(x0)},${height - bottom}Z` }));
  svg.append(make("path", { class: "line", d: `M${path}` }));
  if (points.length <= 40) points.forEach((point) => svg.append(make("circle", { class: "dot", cx: x(point[0]), cy: y(point[1]), r: 2.5 })));
  return svg;
}

function drawMetrics() {
  const metrics = model.evaluation?.metrics;
  if (!metrics) return $("metrics").replaceChildren();
  const names = Object.keys(metrics).map((key) => key.split("@"));
  const measures = [...new Set(names.map(([measure]) => measure))];
  const cutOffs = [...new Set(names.map(([, k]) => +k))].sort((a, b) => a - b);
  const cell = (measure, k) => metrics[`${measure}@${k}`]?.mean.toFixed(4) ?? "";
  const head = element("tr", {}, element("th", { scope: "col" }, "Measure"), ...cutOffs.map((k) => element("th", { scope: "col" }, `@${k}`)));
  const rows = measures.map((measure) => element("tr", {}, element("th", { scope: "row" }, measure), ...cutOffs.map((k) => element("td", {}, cell(measure, k)))));
  const caption = element("caption", {}, `On held-out interactions of ${thousands(model.evaluation.n_users)} users`);
  $("metrics").replaceChildren(element("div", { className: "table" }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows))));
}

// --- start ----------------------------------------------------------------------------------------------------------------

function later(work, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

function listen() {
  $("search").addEventListener("input", later(search, 80));
  $("search").addEventListener("keydown", searchKey);
  $("search").addEventListener("blur", closeFound);
  $("search").addEventListener("focus", () => $("search").value && search());
  const soon = later(update, 60);
  for (const name of ["n", "penalty", "diversity", "temperature"]) {
    $(name).addEventListener("input", () => {
      state[name] = Number($(name).value);
      drawKnobs();
      soon();
    });
  }
  $("approximate").addEventListener("change", () => {
    state.approximate = $("approximate").checked;
    update();
  });
  $("user").addEventListener("input", later(() => {
    state.user = $("user").value.trim();
    update();
  }, 250));
  $("clear").addEventListener("click", () => {
    state.items = [];
    state.user = "";
    update();
    $("search").focus();
  });
  $("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText($("curl").textContent);
      $("copy").textContent = "Copied";
    } catch {
      getSelection().selectAllChildren($("curl"));
      $("copy").textContent = "Selected";
    }
    setTimeout(() => ($("copy").textContent = "Copy"), 1500);
  });
  $("to-model").addEventListener("click", (event) => {
    // The address holds the state, so the link must not replace it.
    event.preventDefault();
    $("model").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("results").focus();
  });
  $("similar-close").addEventListener("click", () => $("similar").close());
  $("similar").addEventListener("click", (event) => event.target === $("similar") && $("similar").close());
  $("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
  addEventListener("hashchange", () => {
    readAddress();
    update();
    nameItems();
  });
}

async function start() {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  if (matchMedia("(max-width: 900px)").matches) $("knobs").open = false;
  listen();
  readAddress();
  update();
  nameItems();
  try {
    model = await ask("/v1/model");
    drawModel();
    const popular = await ask("/v1/items?n=6");
    popular.items.forEach(remember);
    $("starters").replaceChildren(...popular.items.map((entry) => element("li", {}, element("button", { type: "button", onclick: () => add(entry.item) }, called(entry)))));
  } catch (error) {
    show(error.message);
  }
}

start();
