// The sliders, and the request that they make.

import { $ } from "./elements.js";
import { requestBody, state } from "./state.js";

export function drawKnobs() {
  for (const name of ["n", "penalty", "diversity", "temperature"]) {
    const value = state[name];
    $(name).value = value;
    $(`${name}-value`).textContent = name === "n" ? value : value === 0 ? "off" : value.toFixed(2).replace(/0$/, "");
  }
  $("approximate").checked = state.approximate;
}

export function drawRequest() {
  const body = JSON.stringify(requestBody()).replaceAll("'", "'\\''");
  const key = sessionStorage.getItem("api-key") ? " \\\n  -H 'x-api-key: '\"$API_KEY\"" : "";
  $("curl").textContent = `curl ${location.origin}/v1/recommend${key} \\\n  -H 'content-type: application/json' \\\n  -d '${body}'`;
}
