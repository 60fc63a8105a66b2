// The overview: what is wrong on top, the worst first, then what that rests on.

import { drawCharts } from "./charts.js";
import { badge, byId, callLink, count, el, empty, fold, length, longTable, moment, percent, readable, say, serverTime, show, since, svg, table, words } from "./dom.js";
import { pageLink, pageOf, pageTitle, provider, rankLanes, troubles } from "./troubles.js";

const headlinesMax = 5;
/** Up to this number of lanes, those that send are not folded. */
const lanesUnfolded = 8;

/** Shows a state. `app`: only this one, or null; `canAct`: whether lanes have buttons; `onSwitch(lane)`: one was pressed. */
export function drawOverview(state, { app, canAct, onSwitch }) {
  const { health, failures, stuck, replicas, audit } = state.overview;
  const isWanted = (row) => !app || row.app === app;
  const ranked = rankLanes(state, serverTime());
  const lanes = ranked.filter(isWanted);
  drawVerdict(state, troubles(state, ranked, app), app);
  drawCharts(state);
  const seconds = lanes.some((lane) => lane.condition?.[0] === "throttled") && Math.floor(serverTime() / 1000);
  show(byId("lanes"), [lanes, app, canAct, seconds], () => drawLanes(lanes, app, canAct, onSwitch));
  show(byId("health"), health, () => drawHealth(health));
  show(byId("failures"), [failures, app], () => drawFailures(failures.filter(isWanted)));
  show(byId("stuck"), [stuck, app], () => drawStuck(stuck.filter(isWanted)));
  show(byId("replicas"), replicas.map((replica) => ({ ...replica, silentMs: Math.floor(replica.silentMs / 3000) })), () => drawReplicas(replicas));
  show(byId("audit"), audit, () => drawAudit(audit));
  say(byId("version"), `push-gateway ${state.version}`);
}

const laneName = (lane) => `${lane.app} / ${lane.channel}`;
const appLink = (app) => el("a", { href: "#app=" + encodeURIComponent(app), title: `Only ${app}` }, app);
const toPage = (page) => el("a", { href: pageLink(page), target: "_blank", rel: "noopener" }, pageTitle(page));

// The headline.

/** The headline, and whether it is bad: [state, text, what is below]. */
export function headline(state, found, app) {
  if (found.length) return [found[0].state, found[0].text, ["What to do: ", toPage(found[0].page)]];
  const span = `in the last ${state.minutesRecent} minutes`;
  const invites = state.overview.recent.reduce((sum, row) => (app && row.app !== app ? sum : sum + row.count), 0);
  const of = app ? ` of ${app}` : "";
  if (!invites) return ["idle", "No calls", [`Nobody has called${of && ` a user${of}`} ${span}.`]];
  return ["ok", "Calls are ringing", [`${count(invites)} invites${of} ${span}.`]];
}

function drawVerdict(state, found, app) {
  const [kind, text, below] = headline(state, found, app);
  byId("verdict").dataset.state = kind;
  say(byId("verdict-word"), text);
  show(byId("verdict-why"), [below, found[0]?.page], () => below);
  if (!byId("overview").hidden) document.title = `${{ ok: "✓", warn: "!", bad: "✗" }[kind] ?? "·"} ${text} – push-gateway`;
  const others = found.slice(1);
  byId("troubles").hidden = !others.length;
  show(byId("troubles"), others, () => [
    ...others.slice(0, headlinesMax - 1).map((trouble) => el("li", { "data-state": trouble.state }, trouble.text, ". ", toPage(trouble.page))),
    ...(others.length >= headlinesMax ? [el("li", {}, `And ${count(others.length - headlinesMax + 1)} more, below.`)] : []),
  ]);
  const { recent } = state;
  show(byId("numbers"), recent, () => [
    number("p50 to accepted", length(recent.p50)), number("p99 to accepted", length(recent.p99)),
    number("delivered", percent(recent.invites ? recent.delivered / recent.invites : null)),
  ]);
}

/** The headline while no state can be read. `page`: of operations. */
export function drawFault(text, page) {
  byId("verdict").dataset.state = "bad";
  byId("troubles").hidden = true;
  say(byId("verdict-word"), text);
  show(byId("verdict-why"), text, () => ["What to do: ", toPage(page)]);
}

const number = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

// Lanes.

function drawLanes(lanes, app, canAct, onSwitch) {
  if (!lanes.length) return empty(app ? `${app} has no lane.` : "There is no lane yet.");
  const notes = (lane) => [
    ...lane.ills.map((ill) => el("small", { class: `is-${ill.state}` }, ill.text)),
    lane.note && el("small", {}, `Note: ${lane.note}`),
    lane.heldSince && el("small", {}, `Dead tokens are on hold since ${moment(lane.heldSince)}: ${lane.heldNote ?? "no note"}`),
  ];
  const columns = [
    ["Lane", "full", (lane) => [el("b", {}, appLink(lane.app)), " ", el("span", { class: "soft" }, provider(lane.channel)), ...notes(lane)]],
    ["State", "", (lane) => (lane.condition ? badge(...lane.condition.slice(0, 2)) : badge(lane.ills.length ? (lane.state === "bad" ? "fails" : "some fail") : lane.circuit === null ? "not served" : "sends"))],
    ["Rate", "n", (lane) => (lane.rate === null ? "" : `${count(lane.rate)}/s`)],
    ["In flight", "n", (lane) => (lane.window === null ? "" : [`${count(lane.inFlight)} of ${count(lane.window)}`, meter(lane.inFlight / (lane.window || 1))])],
    ["Backlog", "n", (lane) => backlog(lane)],
    ...(canAct ? [["", "n", (lane) => el("button", {
      class: "small", type: "button", "data-row": true, "data-key": `switch ${laneName(lane)}`,
      "aria-label": `${lane.paused ? "Resume" : "Pause"} ${laneName(lane)}`, onclick: () => onSwitch(lane),
    }, lane.paused ? "Resume" : "Pause")]] : []),
  ];
  if (lanes.length <= lanesUnfolded) return table(columns, lanes);
  const well = lanes.filter((lane) => lane.state === "ok" || lane.state === "idle");
  const [ill, sending] = [lanes.slice(0, lanes.length - well.length), well.filter((lane) => lane.state === "ok").length];
  return [
    ...(ill.length ? longTable("ill lanes", columns, ill, 12) : []),
    ...(well.length ? [fold("lanes", [`${count(sending)} lanes send`, well.length > sending && `${count(well.length - sending)} are not served`].filter(Boolean).join(", "), table(columns, well))] : []),
  ];
}

function meter(share) {
  return el("span", { class: "meter", "aria-hidden": "true" }, svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none" },
    svg("rect", { class: share > 0.9 ? "f-warn" : "f-p50", width: Math.min(100, share * 100), height: 6 })));
}

function backlog(lane) {
  const owed = lane.ready + lane.waiting + lane.claimed;
  if (!owed) return "0";
  const parts = [["ready", lane.ready], ["waiting", lane.waiting], ["held", lane.claimed]].filter(([, number]) => number);
  return [count(owed), el("small", {}, parts.map(([name, number]) => `${count(number)} ${name}`).join(", ") + `; oldest ${length(lane.oldestMs)}`)];
}

// Health.

function drawHealth(health) {
  const wrong = health.filter((item) => item.state !== "ok").sort((a, b) => (a.state === "bad" ? 0 : 1) - (b.state === "bad" ? 0 : 1));
  if (!wrong.length) return empty(`All ${health.length} checks are ok.`);
  return el("ul", { class: "list" },
    wrong.map((item) => el("li", {}, el("div", { class: "head" }, el("b", {}, item.item), badge(readable(item.value), "", item.state)),
      el("small", {}, item.hint, " ", toPage(pageOf(item.item, item.value))))),
    el("li", { class: "empty" }, `${health.length - wrong.length} other checks are ok.`));
}

// Failures and what is stuck, each with a call to look at.

const invitesFirst = (a, b) => (a.kind === "invite" ? 0 : 1) - (b.kind === "invite" ? 0 : 1);

function drawFailures(failures) {
  if (!failures.length) return empty("Nothing failed.");
  return longTable("failures", [
    ["Reason", "full", (failure) => [el("b", {}, failure.reason), el("small", {}, `${failure.app} ${provider(failure.provider)}, ${words(failure.kind)}`)]],
    ["Outcome", "", (failure) => badge(words(failure.outcome))],
    ["Count", "n", (failure) => count(failure.count)],
    ["Last", "n", (failure) => since(failure.lastAt)],
    ["Example", "", (failure) => (failure.callId ? callLink(failure.callId, `failure ${failure.app} ${failure.provider} ${failure.kind} ${failure.outcome} ${failure.reason}`) : failure.device)],
  ], failures.toSorted((a, b) => invitesFirst(a, b) || b.count - a.count));
}

function drawStuck(stuck) {
  if (!stuck.length) return empty("Nothing is stuck.");
  return longTable("stuck", [
    ["What", "full", (row) => [el("b", {}, row.why), el("small", {}, `${row.app} ${provider(row.provider)}, ${words(row.kind)}${row.reason ? `, ${row.reason}` : ""}`)]],
    ["Count", "n", (row) => count(row.count)],
    ["Least left", "n", (row) => length(row.leftMs)],
    ["Oldest", "n", (row) => length(row.ageMs)],
    ["Replica", "n", (row) => row.replica ?? ""],
    ["Call", "", (row) => callLink(row.callId, `stuck ${row.app} ${row.provider} ${row.kind} ${row.why} ${row.reason}`)],
  ], stuck);
}

// Replicas and interventions.

function drawReplicas(replicas) {
  if (!replicas.length) return empty("None is alive, or was in the last hour.");
  return el("ul", { class: "list" }, replicas.map((replica) => el("li", {},
    el("div", { class: "head" }, el("span", {}, el("b", {}, replica.name), el("span", { class: "soft" }, ` #${replica.id}`)),
      replica.alive ? (replica.silentMs > 3000 ? badge("silent for", ` ${length(replica.silentMs)}`) : badge("alive")) : badge(replica.endedReason)),
    el("small", {}, `version ${replica.version}, `, replica.alive ? ["started ", since(replica.startedAt)] : ["ended ", since(replica.endedAt)],
      replica.claimed ? `, holds ${count(replica.claimed)}` : ""))));
}

function drawAudit(audit) {
  if (!audit.length) return empty("None yet.");
  return el("ul", { class: "list" }, audit.map((entry) => el("li", {},
    el("div", { class: "head" }, el("span", {}, el("b", {}, words(entry.action)), " ", entry.target), el("span", { class: "soft" }, since(entry.at))),
    entry.note ? el("div", {}, `“${entry.note}”`) : null,
    el("small", {}, [entry.operator && `${entry.operator},`, entry.via ?? "unnamed program", `as ${entry.who}`].filter(Boolean).join(" ")))));
}
