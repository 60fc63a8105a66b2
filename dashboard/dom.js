// Making elements, and words for numbers. Data becomes text, never markup.

const svgNamespace = "http://www.w3.org/2000/svg";

/** An element: attributes by name, `on…` for listeners, children as nodes or text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNamespace, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const byId = (id) => document.getElementById(id);

const shown = new WeakMap();

/** Shows `nodes()` in a place if `data` is not what it shows already. What had the focus keeps it, by its `data-key`. */
export function show(place, data, nodes) {
  const signature = JSON.stringify(data);
  if (shown.get(place) === signature) return;
  shown.set(place, signature);
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...[nodes()].flat());
  if (key) [...place.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key)?.focus();
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A table; a column is [title, class, cell of a row]. On a phone a row becomes a block, and a title a label. */
export function table(columns, rows) {
  return el("table", {},
    el("thead", {}, el("tr", {}, columns.map(([title, kind]) => el("th", { class: kind, scope: "col" }, title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, columns.map(([title, kind, cell]) => {
      const content = cell(row);
      return el("td", { class: kind, "data-label": title && !kind?.includes("full") ? title : null }, content);
    })))));
}

export const badge = (state, text) => el("span", { class: "badge", "data-state": state }, text);
export const empty = (text) => el("p", { class: "empty" }, text);

export const callLink = (id, key, text = id) =>
  el("a", { href: "#call=" + encodeURIComponent(id), class: "mono", title: id, "data-row": true, "data-key": key }, text);

// Words for numbers.

const whole = new Intl.NumberFormat("en");
const day = 86_400_000;

export const count = (number) => whole.format(number ?? 0);

/** A length of time: 7 ms, 1.2 s, 3 min, 2 h. */
export function length(ms) {
  if (ms === null || ms === undefined) return "–";
  const size = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (size < 1000) return `${sign}${Math.round(size)} ms`;
  if (size < 10_000) return `${sign}${(size / 1000).toFixed(1)} s`;
  if (size < 120_000) return `${sign}${Math.round(size / 1000)} s`;
  if (size < 7_200_000) return `${sign}${Math.round(size / 60_000)} min`;
  return size < 2 * day ? `${sign}${Math.round(size / 3_600_000)} h` : `${sign}${Math.round(size / day)} days`;
}

export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const floor = Math.floor(share * 1000) / 10;
  return `${Number.isInteger(floor) ? floor : floor.toFixed(1)} %`;
}

const two = (number) => String(number).padStart(2, "0");
export const clock = (ms) => {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
};
export const clockSeconds = (ms) => `${clock(ms)}:${two(new Date(ms).getSeconds())}`;

// The server's clock, for "12 s ago".

let ahead = 0;
export const setServerTime = (ms) => { ahead = ms - Date.now(); };
export const serverTime = () => Date.now() + ahead;

export const ago = (ms) => {
  const past = serverTime() - ms;
  return past < 1500 ? "now" : `${length(Math.floor(past / 1000) * 1000).replace(".0", "")} ago`;
};

/** "12 s ago", kept true by tick(). */
export const since = (ms) =>
  el("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toLocaleString(), "data-at": ms }, ago(ms));

export function tick() {
  for (const node of document.querySelectorAll("time[data-at]")) say(node, ago(Number(node.dataset.at)));
}
