// The page at `/docs`, drawn from `/openapi.json`.
"use strict";

function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

const nameOf = (reference) => reference.split("/").pop();

function typeOf(schema) {
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" or ");
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "any");
  return schema.items ? `array of ${typeOf(schema.items)}` : type;
}

function bounds(schema) {
  const parts = [];
  if (schema.minimum !== undefined && schema.maximum !== undefined && schema.maximum < 1e6) parts.push(`${schema.minimum} to ${schema.maximum}`);
  if (schema.maxItems !== undefined) parts.push(`at most ${schema.maxItems}`);
  if (schema.default !== undefined && schema.default !== null && !Array.isArray(schema.default)) parts.push(`default ${schema.default}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

function table(rows) {
  const body = element("tbody", "", ...rows.map(([name, type, text]) => element("tr", "", element("td", "", element("code", "", name)), element("td", "", type), element("td", "", text))));
  const head = element("thead", "", element("tr", "", ...["Name", "Type", "What"].map((name) => element("th", "", name))));
  return element("div", "table", element("table", "", head, body));
}

function properties(schema, all) {
  if (schema.$ref) return properties(all[nameOf(schema.$ref)], all);
  if (schema.items) return properties(schema.items, all);
  return Object.entries(schema.properties ?? {}).map(([name, value]) => [name, typeOf(value), (value.description ?? "") + bounds(value)]);
}

function route(path, method, operation, all) {
  const details = element("details", "panel route");
  details.append(element("summary", "", element("span", "method", method.toUpperCase()), element("code", "", path), element("span", "hint", operation.summary ?? "")));
  const parameters = (operation.parameters ?? []).map((one) => [one.name, `${typeOf(one.schema)}, in ${one.in}`, (one.description ?? "") + bounds(one.schema)]);
  if (parameters.length) details.append(element("h3", "", "Parameters"), table(parameters));
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  if (body) details.append(element("h3", "", "Body"), table(properties(body, all)));
  for (const [status, answer] of Object.entries(operation.responses)) {
    const schema = answer.content?.["application/json"]?.schema;
    const rows = status === "200" && schema ? properties(schema, all) : [];
    details.append(element("p", "", element("code", "", status), ` ${answer.description}${schema && status === "200" ? `: ${typeOf(schema)}` : ""}`));
    if (rows.length) details.append(table(rows));
  }
  return details;
}

async function start() {
  document.getElementById("example").textContent = `curl ${location.origin}/v1/recommend \\\n  -H 'content-type: application/json' \\\n  -d '{"history": ["17", "42"], "n": 5, "explain": true}'`;
  const description = await (await fetch("/openapi.json")).json();
  const all = description.components.schemas;
  const sections = description.tags.map((tag) => {
    const routes = Object.entries(description.paths).flatMap(([path, methods]) => Object.entries(methods).filter(([, operation]) => operation.tags.includes(tag.name)).map(([method, operation]) => route(path, method, operation, all)));
    return element("section", "", element("h2", "", tag.description), ...routes);
  });
  document.getElementById("routes").replaceChildren(...sections);
}

start();
