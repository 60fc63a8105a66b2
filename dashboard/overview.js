// The overview: one word on top, then what it rests on.

import { badge, byId, callLink, clock, count, el, empty, length, percent, say, serverTime, show, since, svg, table } from "./dom.js";
import { drawCharts } from "./charts.js";

/** Shows a state. `canAct`: whether lanes have buttons; `onSwitch(lane)`: one was pressed. */
export function drawOverview(state, { canAct, onSwitch }) {
  const { lanes, health, failures, stuck, replicas, audit } = state.overview;
  drawVerdict(state);
  drawCharts(state);
  const rows = Math.floor(serverTime() / 1000);
  show(byId("lanes"), [lanes, canAct, lanes.some((lane) => lane.throttledUntil) && rows], () => drawLanes(lanes, canAct, onSwitch));
  show(byId("health"), health, () => drawHealth(health));
  show(byId("failures"), failures, () => drawFailures(failures));
  show(byId("stuck"), stuck, () => drawStuck(stuck));
  show(byId("replicas"), replicas.map((replica) => ({ ...replica, silentMs: Math.floor(replica.silentMs / 3000) })), () => drawReplicas(replicas));
  show(byId("audit"), audit, () => drawAudit(audit));
  say(byId("version"), `push-gateway ${state.version}`);
}

const laneName = (lane) => `${lane.app} / ${lane.channel}`;
const providerNames = { apns: "APNs", fcm: "FCM", expo: "Expo", webpush: "Web push" };
const provider = (name) => {
  const [kind, service] = name.split("/");
  return [providerNames[kind] ?? kind, service].filter(Boolean).join(", ");
};

// The verdict.

/** The worst that is true now: [state, a word, why]. */
export function verdict(state) {
  const { recent, minutesRecent } = state;
  const { lanes, health } = state.overview;
  const unhealthy = new Map(health.filter((item) => item.state === "bad").map((item) => [item.item, item]));
  const span = `in the last ${minutesRecent} minutes`;
  const share = recent.invites ? recent.delivered / recent.invites : null;
  const failed = recent.invites - recent.delivered;
  const refused = lanes.filter((lane) => lane.refused === "all");
  const down = lanes.filter((lane) => lane.circuit === "open");
  const paused = lanes.filter((lane) => lane.paused);
  const list = (some) => some.map(laneName).join(", ");
  const numbers = `${count(failed)} of ${count(recent.invites)} invites were not delivered in time ${span}.`;

  if (unhealthy.has("replicas alive")) return ["bad", "Nothing is sent", "No replica of the gateway is alive."];
  if (refused.length) {
    const others = refused.length > 1 ? ` (and ${list(refused.slice(1))})` : "";
    return ["bad", "Credentials are refused", `${refused[0].refusal}${others}.`];
  }
  if (unhealthy.has("oldest ready invite")) {
    return ["bad", "Calls ring late", `The oldest invite has been waiting for ${unhealthy.get("oldest ready invite").value}.`];
  }
  if (share !== null && share < 0.8) return ["bad", "Calls fail", numbers];
  if (recent.p99 > 5000) return ["bad", "Calls ring late", `One in a hundred takes ${length(recent.p99)} or more ${span}.`];
  if (down.length) return ["bad", "A provider is down", `Nothing is sent over ${list(down)}: the circuit is open.`];
  if (paused.length) return ["warn", "A lane is paused", `Nothing is sent over ${list(paused)}.`];
  if (share !== null && share < 0.97) return ["warn", "Some calls fail", numbers];
  if (recent.p99 > 2000) return ["warn", "Some calls ring late", `One in a hundred takes ${length(recent.p99)} or more ${span}.`];
  if (!recent.invites) return ["idle", "No calls", `Nobody has called ${span}.`];
  return ["ok", "Calls are ringing", `${count(recent.invites)} invites ${span}.`];
}

function drawVerdict(state) {
  const { recent } = state;
  const [kind, word, why] = verdict(state);
  byId("verdict").dataset.state = kind;
  say(byId("verdict-word"), word);
  say(byId("verdict-why"), why);
  if (!byId("overview").hidden) document.title = `${{ ok: "✓", warn: "!", bad: "✗" }[kind] ?? "·"} ${word} – push-gateway`;
  show(byId("numbers"), recent, () => [
    number("p50 to accepted", length(recent.p50)), number("p99 to accepted", length(recent.p99)),
    number("delivered", percent(recent.invites ? recent.delivered / recent.invites : null)),
  ]);
}

const number = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

// Lanes.

function laneState(lane) {
  if (lane.paused) return ["warn", "paused"];
  if (lane.circuit === "open") return ["bad", "circuit open"];
  if (lane.circuit === "half_open") return ["warn", "trying again"];
  if (lane.throttledUntil > serverTime()) return ["warn", `throttled, ${length(lane.throttledUntil - serverTime())}`];
  return lane.circuit === null ? ["idle", "not served"] : ["ok", "sends"];
}

function drawLanes(lanes, canAct, onSwitch) {
  if (!lanes.length) return empty("There is no lane yet.");
  const notes = (lane) => [
    lane.note && el("small", {}, `Note: ${lane.note}`),
    lane.heldSince && el("small", {}, `Dead tokens are on hold since ${clock(lane.heldSince)}: ${lane.heldNote ?? "no note"}`),
  ];
  return table([
    ["Lane", "full", (lane) => [el("b", {}, lane.app), " ", el("span", { class: "soft" }, provider(lane.channel)), ...notes(lane)]],
    ["State", "", (lane) => badge(...laneState(lane))],
    ["Rate", "n", (lane) => (lane.rate === null ? "" : `${count(lane.rate)}/s`)],
    ["In flight", "n", (lane) => (lane.window === null ? "" : [`${count(lane.inFlight)} of ${count(lane.window)}`, meter(lane.inFlight / (lane.window || 1))])],
    ["Backlog", "n", (lane) => backlog(lane)],
    ...(canAct ? [["", "n", (lane) => el("button", {
      class: "small", type: "button", "data-row": true, "data-key": `switch ${laneName(lane)}`,
      "aria-label": `${lane.paused ? "Resume" : "Pause"} ${laneName(lane)}`, onclick: () => onSwitch(lane),
    }, lane.paused ? "Resume" : "Pause")]] : []),
  ], lanes);
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
  const wrong = health.filter((item) => item.state !== "ok").sort((a) => (a.state === "bad" ? -1 : 1));
  if (!wrong.length) return empty(`All ${health.length} checks are ok.`);
  return el("ul", { class: "list" },
    wrong.map((item) => el("li", {}, el("div", { class: "head" }, el("b", {}, item.item), badge(item.state, item.value)), el("small", {}, item.hint))),
    el("li", { class: "empty" }, `${health.length - wrong.length} other checks are ok.`));
}

// Failures and what is stuck, each with a call to look at.

const words = (name) => name.replaceAll("_", " ");

function drawFailures(failures) {
  if (!failures.length) return empty("Nothing failed.");
  return table([
    ["Reason", "full", (failure) => [el("b", {}, failure.reason), el("small", {}, `${failure.app} ${provider(failure.provider)}, ${words(failure.kind)}`)]],
    ["Outcome", "", (failure) => badge(failure.outcome === "delivered_late" ? "warn" : "bad", words(failure.outcome))],
    ["Count", "n", (failure) => count(failure.count)],
    ["Last", "n", (failure) => since(failure.lastAt)],
    ["Example", "", (failure) => (failure.callId ? callLink(failure.callId, `failure ${failure.app} ${failure.provider} ${failure.kind} ${failure.outcome} ${failure.reason}`) : failure.device)],
  ], failures);
}

function drawStuck(stuck) {
  if (!stuck.length) return empty("Nothing is stuck.");
  return table([
    ["What", "full", (row) => [el("b", {}, row.why), el("small", {}, `${row.app} ${provider(row.provider)}, ${words(row.kind)}${row.reason ? `, ${row.reason}` : ""}`)]],
    ["Age", "n", (row) => length(row.ageMs)],
    ["Left", "n", (row) => length(row.leftMs)],
    ["Replica", "n", (row) => row.replica ?? ""],
    ["Call", "", (row) => callLink(row.callId, `stuck ${row.app} ${row.callId} ${row.userId} ${row.kind}`)],
  ], stuck);
}

// Replicas and interventions.

function drawReplicas(replicas) {
  if (!replicas.length) return empty("None is alive, or was in the last hour.");
  return el("ul", { class: "list" }, replicas.map((replica) => el("li", {},
    el("div", { class: "head" }, el("span", {}, el("b", {}, replica.name), el("span", { class: "soft" }, ` #${replica.id}`)),
      replica.alive ? (replica.silentMs > 3000 ? badge("warn", `silent for ${length(replica.silentMs)}`) : badge("ok", "alive"))
        : badge(replica.endedReason === "silent" ? "bad" : "idle", replica.endedReason)),
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
