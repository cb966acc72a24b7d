// The model's card: its data, its curves, its metrics.

import { $, element, short, thousands } from "./elements.js";

export function drawModel(model) {
  $("model-name").textContent = model.model;
  document.title = `${model.model} · fastvae`;
  drawFacts("facts", facts(model));
  const chosen = model.chosen ? `Chosen: ${model.chosen}.` : "";
  $("learned").textContent = [model.learned ? seen(model.learned) : "", chosen].filter(Boolean).join(" ");
  drawCharts(model.epochs.filter((epoch) => !epoch.refit));
  const held = model.measured_on ?? "held-out interactions";
  $("metrics").replaceChildren(...[
    [model.evaluation, `Measured on ${held}`],
    [model.validation, "Measured on the validation part, which the epochs were chosen by"],
  ].filter(([measured]) => measured).map(([measured, text]) => metrics(measured, text)));
  drawFacts("settings", flat(model.config));
  $("user-row").hidden = !model.stored_users && !model.learned_users;
  if (model.learned_users) {
    $("user-label").textContent = "A known user";
    $("no-picks").textContent = `${model.kind} knows the ${thousands(model.learned_users)} users that it learned from and nobody else: give the id of one.`;
  }
  $("approximate").disabled = !model.search;
  $("approximate-hint").textContent = model.search
    ? `Looks at ${(model.search.scored_share * 100).toFixed(0)} % of the items and finds ${(model.search.recall * 100).toFixed(0)} % of the best ${model.search.k}.`
    : "This model has no index.";
}

function drawFacts(id, facts) {
  $(id).replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, `${value}`))));
}

const percent = (share) => `${(share * 100).toFixed(1).replace(".0", "")} %`;

/** What of the data the model has seen, in a sentence. */
function seen({ interactions, of, refit, pair }) {
  if (pair) return "Its epochs were chosen by a part of the data; then a second network was trained on everything, and it is the mean of both. What is measured below is from before that.";
  if (refit) return "Its epochs were chosen by a part of the data; then it was trained again on everything. What is measured below is from before that.";
  if (interactions === of) return "It has learned from everything that was given.";
  return `It has learned from ${thousands(interactions)} of ${thousands(of)} interactions and has not seen the rest.`;
}

function facts(model) {
  const { statistics, learned, search } = model;
  const epochs = learned?.epochs ?? model.epochs.length;
  return [
    ["Method", model.kind],
    ["Items", thousands(model.n_items)],
    statistics?.users && ["Users", thousands(statistics.users)],
    statistics?.interactions && ["Interactions", thousands(statistics.interactions)],
    learned && ["Learned from", percent(learned.interactions / learned.of)],
    model.n_parameters && ["Learned values", thousands(model.n_parameters)],
    model.latent && ["Shape", model.hidden ? `${model.hidden} – ${model.latent}` : `${model.latent} factors`],
    epochs && ["Epochs", thousands(epochs)],
    search && ["Approximate recall", percent(search.recall)],
    ["Loaded", new Date(model.loaded_at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })],
  ].filter(Boolean);
}

function flat(object, prefix = "") {
  return Object.entries(object).flatMap(([name, value]) =>
    value !== null && typeof value === "object" ? flat(value, `${prefix}${name}.`) : value === null ? [] : [[prefix + name, typeof value === "number" ? +value.toPrecision(4) : value]]);
}

function drawCharts(epochs) {
  const of = (name) => epochs.filter((epoch) => typeof epoch[name] === "number").map((epoch) => [epoch.epoch, epoch[name]]);
  const charts = [["Loss per user", of("loss")], ["NDCG@50 on validation users", of("validation")]].filter(([, points]) => points.length > 1);
  $("charts").replaceChildren(...charts.map(([name, points]) => {
    const last = points[points.length - 1];
    const figure = element("figure", {}, element("figcaption", {}, `${name} by epoch; ${short(last[1])} at the end`));
    figure.append(chart(name, points));
    return figure;
  }));
}

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

function metrics({ metrics, n_users }, text) {
  const names = Object.keys(metrics).map((key) => key.split("@"));
  const measures = [...new Set(names.map(([measure]) => measure))];
  const cutOffs = [...new Set(names.map(([, k]) => +k))].sort((a, b) => a - b);
  const cell = (metric) => metric ? metric.mean.toFixed(4) + (typeof metric.standard_error === "number" ? ` ± ${metric.standard_error.toFixed(4)}` : "") : "";
  const head = element("tr", {}, element("th", { scope: "col" }, "Measure"), ...cutOffs.map((k) => element("th", { scope: "col" }, `@${k}`)));
  const rows = measures.map((measure) => element("tr", {}, element("th", { scope: "row" }, measure), ...cutOffs.map((k) => element("td", {}, cell(metrics[`${measure}@${k}`])))));
  const caption = element("caption", {}, `${text}: ${thousands(n_users)} users`);
  return element("div", { className: "table" }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows)));
}
