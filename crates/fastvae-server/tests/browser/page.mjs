// The page as a person uses it, in headless Chromium: node page.mjs ADDRESS FOLDER_FOR_SCREENSHOTS
// Needs playwright-core, which is looked for from the working directory, and Chromium at $CHROMIUM.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const { chromium } = createRequire(`${process.cwd()}/`)("playwright-core");
const [address, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
const problems = [];

async function open(options, hash = "") {
  const page = await (await browser.newContext({ reducedMotion: "reduce", ...options })).newPage();
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => request.url().startsWith(address) || problems.push(`loads ${request.url()}`));
  await page.goto(address + hash);
  await settled(page);
  return page;
}

async function settled(page) {
  await page.locator('#cards[aria-busy="false"] .card').first().waitFor();
}

const covers = (page) => page.locator(".card .cover span:last-child").allTextContents();

try {
  // Somebody new sees recommendations, the model's card and its curves.
  const page = await open({ viewport: { width: 1360, height: 940 } });
  assert.equal(await page.locator(".card").count(), 12);
  assert.match(await page.locator("#status").textContent(), /12 items · exact/);
  await page.locator("svg.chart").first().waitFor();
  assert.ok((await page.locator("#facts div").count()) >= 6);
  assert.match(await page.locator("#learned").textContent(), /learned|trained/);
  assert.match(await page.locator("#fallback").textContent(), /^Nothing is picked yet, so these are/);
  await page.screenshot({ path: `${folder}/desktop-new.png` });

  // Three items of one genre, found by typing and taken by the keyboard alone.
  const genre = "Mystery";
  for (let at = 0; at < 3; at++) {
    await page.locator("#search").fill(genre);
    const options = page.locator("#found [role=option]");
    await options.nth(at).waitFor();
    for (let step = 0; step < at; step++) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await settled(page);
    await page.waitForFunction((n) => document.querySelectorAll("#chips .chip").length === n, at + 1);
  }
  await page.locator(".card .because").first().waitFor();
  assert.ok(await page.locator("#fallback").isHidden());
  const genres = await covers(page);
  const same = genres.filter((one) => one === genre).length;
  assert.ok(same >= 9, `${same} of ${genres.length} recommendations are of the genre picked: ${genres}`);
  const picked = (await page.locator("#chips .chip span").allTextContents()).map((title) => title.replace(/ \(.*/, ""));
  const because = await page.locator(".card .because b").allTextContents();
  assert.ok(because.length >= 12 && because.every((title) => picked.includes(title)), `${because} are of ${picked}`);
  await page.screenshot({ path: `${folder}/desktop.png`, fullPage: true });

  // The request shown is the one that made the list.
  const curl = await page.locator("#curl").textContent();
  const body = JSON.parse(/-d '(.*)'$/s.exec(curl)[1]);
  const answer = await (await fetch(`${address}/v1/recommend`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();
  const shown = await page.locator(".card").evaluateAll((cards) => cards.map((card) => card.dataset.item));
  assert.deepEqual(answer.recommendations.map((entry) => entry.item), shown);

  // The address holds the state: opened anew, it shows the same.
  const again = await open({ viewport: { width: 1360, height: 940 } }, new URL(page.url()).hash);
  assert.deepEqual(await again.locator(".card").evaluateAll((cards) => cards.map((card) => card.dataset.item)), shown);
  assert.deepEqual(await again.locator("#chips .chip span").allTextContents(), await page.locator("#chips .chip span").allTextContents());

  // A history of which nothing is known gets a list that says what it is.
  const unknown = await (await fetch(`${address}/v1/recommend`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"history": ["no such item"]}' })).json();
  assert.equal(unknown.fallback, "nobody");

  // Knobs change the list at once.
  for (const [knob, value] of [["diversity", "0.9"], ["penalty", "1"], ["temperature", "3"]]) {
    await again.locator(`#${knob}`).fill(value);
    await again.waitForFunction((before) => [...document.querySelectorAll(".card")].map((card) => card.dataset.item).join() !== before, shown.join());
    await again.locator(`#${knob}`).fill("0");
    await again.waitForFunction((before) => [...document.querySelectorAll(".card")].map((card) => card.dataset.item).join() === before, shown.join());
  }
  await again.locator("#approximate").check();
  await again.waitForFunction(() => document.getElementById("status").textContent.includes("approximate"));
  await again.locator("#approximate").uncheck();

  // Similar items, in a dialog that the keyboard closes.
  await again.locator(".card .actions button").nth(1).click();
  await again.locator("#similar[open] li").first().waitFor();
  assert.equal(await again.locator("#similar-list li").count(), 10);
  await again.screenshot({ path: `${folder}/similar.png` });
  await again.keyboard.press("Escape");
  assert.equal(await again.locator("#similar[open]").count(), 0);

  // A pick is taken back.
  await again.locator("#chips .chip button").first().click();
  await again.waitForFunction(() => document.querySelectorAll("#chips .chip").length === 2);

  // Every control has a name that a screen reader can say.
  const unnamed = await again.evaluate(() => [...document.querySelectorAll("button, input, a")].filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length || node.getAttribute("aria-labelledby"))).map((node) => node.outerHTML));
  assert.deepEqual(unnamed, []);

  // On a phone, in the dark: nothing is wider than the screen, and everything works by touch.
  const phone = await open({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true, colorScheme: "dark" }, new URL(page.url()).hash);
  assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is as wide as the phone");
  await phone.locator(".card .add").first().tap();
  await phone.waitForFunction(() => document.querySelectorAll("#chips .chip").length === 4);
  await settled(phone);
  await phone.evaluate(() => scrollTo(0, 0));
  await phone.screenshot({ path: `${folder}/phone.png` });
  await phone.screenshot({ path: `${folder}/phone-whole.png`, fullPage: true });
  const small = await phone.evaluate(() => [...document.querySelectorAll(".actions button, .chip button, #theme")].filter((node) => Math.min(node.getBoundingClientRect().width, node.getBoundingClientRect().height) < 24).length);
  assert.equal(small, 0, "buttons are large enough to touch");

  // The description of the routes.
  const docs = await (await browser.newContext({ viewport: { width: 1100, height: 900 } })).newPage();
  docs.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  await docs.goto(`${address}/docs`);
  await docs.locator("details.route").first().waitFor();
  await docs.locator("details.route summary").first().click();
  assert.ok((await docs.locator("details.route").count()) >= 13);
  await docs.screenshot({ path: `${folder}/docs.png` });

  assert.deepEqual(problems, [], "no errors on the console, nothing from outside");
  console.log("the page works");
} finally {
  await browser.close();
}
