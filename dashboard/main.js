// The page: what is shown when, and the keys.

import { ask, ofDatabase, Poll, Refusal } from "./live.js";
import { drawCalls } from "./call.js";
import { drawOverview } from "./overview.js";
import { byId, clockSeconds, length, say, setServerTime, tick } from "./dom.js";
import { confirmSwitch, mustLogIn, readSession, session, startSession } from "./session.js";

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

function draw() {
  if (!state) return;
  drawDatabases();
  drawOverview(state, { canAct: session.token !== null, onSwitch: confirmSwitch });
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
    }
    throw error;
  } finally {
    drawAge();
  }
});

/** How old it all is; old is said clearly. */
function drawAge() {
  const age = heardAt === null ? null : Date.now() - heardAt;
  const isOld = age === null ? fault !== null : age > staleAfterMs;
  byId("live").dataset.state = isOld ? "bad" : age === null ? "wait" : "ok";
  say(byId("live-text"), isOld ? "stale" : age === null ? "connecting" : "live");
  document.body.classList.toggle("old", isOld);
  byId("stale").hidden = !isOld;
  if (!isOld) return;
  document.title = "? No news – push-gateway";
  const why = fault ? ` (${fault})` : "";
  // An alert is read out when it changes: so it says since when, not for how long.
  say(byId("stale"), age === null ? `No data yet${why}.` : `This is old: nothing was heard since ${clockSeconds(heardAt)}${why}.`);
  byId("stale").title = age === null ? "" : length(age);
}

let cameFrom = null;

async function route() {
  const id = callID();
  byId("overview").hidden = id !== null;
  byId("call").hidden = id === null;
  if (id === null) {
    byId("query").value = "";
    if (cameFrom) [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === cameFrom)?.focus();
    return;
  }
  byId("query").value = id;
  document.title = `${id} – push-gateway`;
  drawCalls(id, null);
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
  drawCalls(id, calls, refusal);
  document.title = `${id} – push-gateway`;
  if (hadFocus) byId("call-title").focus();
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

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-key]");
  if (link) cameFrom = link.dataset.key;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    byId("query").select();
  } else if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else if (callID() !== null) location.hash = "";
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
