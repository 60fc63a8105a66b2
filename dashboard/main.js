// The page: what is shown when, and the keys.

import { ask, ofDatabase, Poll, Refusal } from "./live.js";
import { drawCalls } from "./call.js";
import { drawList, sinceDefault } from "./calls.js";
import { drawFault, drawOverview } from "./overview.js";
import { byId, length, moment, say, setServerTime, show, tick } from "./dom.js";
import { confirmCall, confirmSwitch, mustLogIn, readSession, session, startSession } from "./session.js";

const staleAfterMs = 7_000;
let state = null;
let heardAt = null;
let fault = null;

// What is shown.

const callID = () => {
  const match = /^#call=(.+)$/.exec(location.hash);
  try {
    return match ? decodeURIComponent(match[1]) : null;
  } catch {
    return null;
  }
};

/** The filters that the address has: of the list of calls, or the app of the overview. */
const filters = () => Object.fromEntries(["app", "user", "outcome", "since"].map((name) => [name, new URLSearchParams(location.hash.slice(1)).get(name)]));
const isList = () => /^#calls(&|$)/.test(location.hash);
const address = (page, chosen) => "#" + [page, ...Object.entries(chosen).map(([name, value]) => `${name}=${encodeURIComponent(value)}`)].filter(Boolean).join("&");
const apps = () => (state ? [...new Set(state.overview.lanes.map((lane) => lane.app))].toSorted() : []);

function draw() {
  if (!state) return;
  drawDatabases();
  drawApps();
  drawOverview(state, { app: isList() ? null : filters().app, canAct: session.token !== null, onSwitch: confirmSwitch });
}

/** The choice of an app, if there are several. */
function drawApps() {
  const select = byId("app");
  const wanted = filters().app ?? "";
  const names = [...new Set(["", ...apps(), wanted])];
  byId("apps").hidden = byId("overview").hidden || names.length < 3 && !wanted;
  show(select, names, () => names.map((name) => new Option(name || "all", name)));
  select.value = wanted;
}

/** The choice of a database, if there are several. */
function drawDatabases() {
  const select = byId("database");
  byId("databases").hidden = !state.databases;
  if (!state.databases || select.options.length === state.databases.length) return;
  select.replaceChildren(...state.databases.map((name) => new Option(name, name, false, name === state.database)));
}

const poll = new Poll(async () => {
  try {
    if (!session.isKnown) await readSession();
    state = await ask(ofDatabase("/ui/state"));
    heardAt = Date.now();
    fault = null;
    setServerTime(state.overview.now);
    draw();
    const id = callID();
    if (id) await drawCall(id);
  } catch (error) {
    fault = error.message;
    if (error instanceof Refusal && error.status === 401) {
      if (!state) say(byId("verdict-word"), "Log in to see how calls are");
      mustLogIn();
    } else if (error instanceof Refusal && error.problem === "database-unavailable") {
      drawFault("The database does not answer: nothing is sent", "database-failed-over");
    } else if (!state) {
      drawFault("The gateway does not answer", "nothing-is-delivered");
    }
    throw error;
  } finally {
    drawAge();
  }
});

/** How old it all is; old is said clearly. */
function drawAge() {
  const age = heardAt === null ? null : Date.now() - heardAt;
  const isPaused = poll.isPaused;
  const isOld = !isPaused && (age === null ? fault !== null : age > staleAfterMs);
  byId("live").dataset.state = isOld ? "bad" : age === null || isPaused ? "wait" : "ok";
  byId("live").setAttribute("aria-pressed", isPaused);
  byId("live").title = isPaused ? "Resume the refresh" : "Pause the refresh";
  say(byId("live-text"), isPaused ? `paused${heardAt === null ? "" : ` at ${moment(heardAt)}`}` : isOld ? "stale" : age === null ? "connecting" : "live");
  document.body.classList.toggle("old", isOld);
  byId("stale").hidden = !isOld;
  if (!isOld) return;
  document.title = heardAt === null ? `✗ ${byId("verdict-word").textContent} – push-gateway` : "? No news – push-gateway";
  const why = fault ? ` (${fault})` : "";
  // An alert is read out when it changes: so it says since when, not for how long.
  say(byId("stale"), age === null ? `No data yet${why}.` : `This is old: nothing was heard since ${moment(heardAt)}${why}.`);
  byId("stale").title = age === null ? "" : length(age);
}

let cameFrom = null;
/** The address of the overview or list that was shown last. */
let back = "#";

async function route() {
  const id = callID();
  byId("overview").hidden = id !== null || isList();
  byId("call").hidden = id === null;
  byId("calls").hidden = !isList();
  byId("apps").hidden ||= id !== null;
  if (id === null) {
    back = location.hash || "#";
    byId("query").value = "";
    draw();
    if (isList()) return listCalls();
    if (cameFrom) [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === cameFrom)?.focus();
    return;
  }
  byId("query").value = id;
  document.title = `${id} – push-gateway`;
  drawCalls(id, null, { back, onAct: null });
  byId("call-title").focus();
  window.scrollTo(0, 0);
  await drawCall(id);
}

async function drawCall(id) {
  let calls = null;
  let refusal;
  try {
    calls = await ask(ofDatabase("/ui/calls?id=" + encodeURIComponent(id)));
  } catch (error) {
    refusal = `The call could not be read: ${error.message}.`;
  }
  if (callID() !== id) return;
  const hadFocus = document.activeElement?.id === "call-title";
  drawCalls(id, calls, { fault: refusal, back, onAct: session.token === null ? null : confirmCall });
  document.title = `${id} – push-gateway`;
  if (hadFocus) byId("call-title").focus();
}

async function listCalls() {
  const chosen = { ...filters(), since: filters().since ?? sinceDefault };
  const asked = location.hash;
  document.title = "Calls – push-gateway";
  const options = { apps: apps(), onFilter: (other) => { location.hash = address("calls", other); } };
  drawList(chosen, null, options);
  let calls = null;
  let refusal;
  try {
    const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
    calls = await ask(ofDatabase(`/ui/calls?${query}`));
  } catch (error) {
    refusal = `The calls could not be read: ${error.message}.`;
  }
  if (location.hash !== asked) return;
  drawList(chosen, calls, { ...options, fault: refusal, apps: apps() });
  if (cameFrom) [...document.querySelectorAll("#calls [data-key]")].find((node) => node.dataset.key === cameFrom)?.focus();
}

// The keys.

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = byId("query").value.trim();
  if (id) location.hash = "#call=" + encodeURIComponent(id);
});

byId("database").addEventListener("change", (event) => {
  location.search = "?database=" + encodeURIComponent(event.target.value);
});

byId("app").addEventListener("change", (event) => {
  location.hash = event.target.value ? address("", { app: event.target.value }) : "";
});

const togglePause = () => {
  poll.isPaused = !poll.isPaused;
  drawAge();
};
byId("live").addEventListener("click", togglePause);

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-key]");
  if (link) cameFrom = link.dataset.key;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input, select");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    byId("query").select();
  } else if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else if (callID() !== null) location.hash = back;
    else location.hash = "";
  } else if (event.key === "p" && !isTyping) {
    togglePause();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping) {
    const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
    if (!rows.length) return;
    event.preventDefault();
    const at = rows.indexOf(document.activeElement);
    const step = event.key === "ArrowDown" ? 1 : -1;
    rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))].focus();
  }
});

window.addEventListener("hashchange", route);
setInterval(() => {
  tick();
  drawAge();
}, 1000);
startSession(() => {
  draw();
  poll.now();
});
route();
poll.now();
