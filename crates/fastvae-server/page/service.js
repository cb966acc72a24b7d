// Asking the service, with its key where it wants one.

import { $ } from "./elements.js";

export async function ask(path, body, signal) {
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
