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

// One color for each word, wherever it is shown. Words that are not here are neither good nor bad.
const states = {
  ok: ["sends", "alive", "delivered", "answered"],
  warn: ["paused", "throttled", "trying again", "delivered late", "attempt failed", "silent for", "some fail", "credentials: some refused"],
  bad: ["circuit open", "no connection", "no replica serves it", "credentials refused", "fails", "expired", "dead", "missed", "silent"],
};
const stateOfWord = new Map(Object.entries(states).flatMap(([state, words]) => words.map((word) => [word, state])));

/** The state of a word: ok, warn, bad or idle. */
export const stateOf = (word) => stateOfWord.get(word) ?? "idle";
/** A word in the color of its state, and what is more to say. */
export const badge = (word, more = "", state = stateOf(word)) => el("span", { class: "badge", "data-state": state }, word + more);
/** A name as words: missed_call, missed call. */
export const words = (name) => (name ?? "").replaceAll("_", " ");
const opened = new Set();

/** Content behind a summary. What was opened stays open when the page is drawn again. */
export function fold(key, summary, content) {
  const node = el("details", { open: opened.has(key) }, el("summary", { "data-row": true, "data-key": `fold ${key}` }, summary), content);
  node.addEventListener("toggle", () => (node.open ? opened.add(key) : opened.delete(key)));
  return node;
}

/** A table whose first rows are shown, and the others folded. */
export const longTable = (key, columns, rows, max = 8) => [
  table(columns, rows.slice(0, max)),
  ...(rows.length > max ? [fold(key, `${count(rows.length - max)} more`, table(columns, rows.slice(max)))] : []),
];

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

/** A time as the log and psql have it: 12:47:19 UTC, with the date unless it is today. */
export const moment = (ms) => {
  const [date, time] = new Date(ms).toISOString().split("T");
  return `${date === new Date(serverTime()).toISOString().slice(0, 10) ? "" : `${date} `}${time.slice(0, 8)} UTC`;
};

/** What Postgres wrote, with its intervals and times as they are written here. */
export const readable = (text) => text
  .replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d)(:\d\d)?/g,
    (_, date, time, zone, minutes = ":00") => moment(Date.parse(`${date}T${time}${zone}${minutes}`)))
  .replace(/\b(\d+) s\b/g, (_, seconds) => length(seconds * 1000))
  .replace(/(?:(\d+) days? )?\b(\d+):(\d\d):(\d\d(?:\.\d+)?)\b(?! UTC)/g,
    (_, days = 0, hours, minutes, seconds) => length(days * day + hours * 3_600_000 + minutes * 60_000 + seconds * 1000));

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
  el("time", { datetime: new Date(ms).toISOString(), title: moment(ms), "data-at": ms }, ago(ms));

export function tick() {
  for (const node of document.querySelectorAll("time[data-at]")) say(node, ago(Number(node.dataset.at)));
}
