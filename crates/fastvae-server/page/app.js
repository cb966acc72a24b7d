// The page at `/`: state in the address, one function that draws from it, one that asks the service.

import { $, element, later } from "./elements.js";
import { drawKnobs } from "./knobs.js";
import { add, nameItems, show, update } from "./list.js";
import { drawModel } from "./model.js";
import { listenToSearch } from "./search.js";
import { ask } from "./service.js";
import { called, readAddress, remember, state } from "./state.js";

function listen() {
  listenToSearch();
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
    const model = await ask("/v1/model");
    drawModel(model);
    if (model.learned_users) return;
    const popular = await ask("/v1/items?n=6");
    popular.items.forEach(remember);
    $("starters").replaceChildren(...popular.items.map((entry) => element("li", {}, element("button", { type: "button", onclick: () => add(entry.item) }, called(entry)))));
  } catch (error) {
    show(error.message);
  }
}

start();
