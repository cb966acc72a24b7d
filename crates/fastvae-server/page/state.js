// What is picked and how the knobs stand: kept in the address, so that a link shows the same.

const DEFAULTS = { items: [], user: "", n: 12, penalty: 0, diversity: 0, temperature: 0, seed: 1, approximate: false };
export const state = { ...DEFAULTS };
/** Titles of the items that were ever shown. */
export const titles = new Map();

export const called = (entry) => entry.title ?? `Item ${entry.item}`;

export function remember(entry) {
  titles.set(entry.item, called(entry));
}

export function readAddress() {
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

export function writeAddress() {
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

export function requestBody() {
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
