// A call: its state, and for each device a line in time and a table.

import { badge, byId, count, el, empty, length, moment, show, stateOf, svg, table, words } from "./dom.js";

const devicesShown = 100;
const outcomes = ["delivered", "delivered_late", "void", "expired", "dead"];

/** Shows the calls of an id; `calls` is null while nothing is known yet. `back`: where from; `onAct(call, action)`: null without a login. */
export function drawCalls(id, calls, { fault, back, onAct }) {
  show(byId("call"), [id, calls, fault, back, onAct !== null], () => [
    el("div", { class: "top-row" }, el("a", { href: back, class: "back", "data-key": "back" }, back.startsWith("#calls") ? "← Calls" : "← Overview"), el("h1", { class: "mono", tabindex: "-1", id: "call-title" }, id)),
    ...(fault ? [el("div", { class: "card" }, empty(fault))]
      : calls === null ? [el("div", { class: "card" }, empty("Looking…"))]
      : calls.length === 0 ? [el("div", { class: "card" }, el("h2", {}, "There is no call with this id"),
        empty("It was never enqueued, or is older than what is kept."))]
      : calls.flatMap((call) => drawCall(call, onAct))),
  ]);
}

function drawCall(call, onAct) {
  const devices = devicesOf(call);
  const end = Math.max(100, ...call.timeline.map((event) => event.ms)) * 1.04;
  const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
  const created = Date.parse(call.createdAt);
  return [
    el("section", { class: "card" }, el("dl", { class: "facts" },
      fact("State", badge(call.state)),
      fact("App", call.app), fact("Kind", words(call.kind)),
      fact("Enqueued", moment(created)),
      fact("Rings for", length(Date.parse(call.deadlineAt) - created)),
      call.endedAt ? fact("Ended", `after ${length(Date.parse(call.endedAt) - created)}`) : null,
      call.endReason ? fact("Because", words(call.endReason)) : null,
      call.answeredBy ? fact("Answered by", call.answeredBy) : null,
      fact("Devices", count(devices.length))),
      onAct && call.state === "ringing" ? el("div", { class: "buttons" },
        el("button", { type: "button", "data-key": `requeue ${call.app}`, onclick: () => onAct(call, "requeue") }, "Try again"),
        el("button", { type: "button", class: "danger", "data-key": `void ${call.app}`, onclick: () => onAct(call, "void") }, "End the call")) : null),
    el("section", { class: "card" }, el("h2", {}, "By device"),
      devices.length ? [ruler(end), ...devices.slice(0, devicesShown).map((device) => line(device, end))] : empty("It goes to no device."),
      devices.length > devicesShown ? empty(`And ${count(devices.length - devicesShown)} more, below.`) : null),
    el("section", { class: "card steps" }, el("h2", {}, "Step by step"), steps(call.timeline)),
  ];
}

/** The pushes of a call, each with its events in order; those that failed first. */
function devicesOf(call) {
  const devices = new Map();
  for (const event of call.timeline) {
    if (!event.provider) continue;
    const key = JSON.stringify([event.userId, event.provider, event.kind, event.device]);
    if (!devices.has(key)) devices.set(key, { ...event, events: [] });
    devices.get(key).events.push(event);
  }
  for (const device of devices.values()) {
    device.last = device.events.at(-1);
    device.state = outcomes.includes(device.last.event) ? stateOf(words(device.last.event)) : "warn";
    if (device.kind !== "invite") continue;
    device.rang = call.timeline.find((event) => event.event === "ringing" && event.userId === device.userId);
  }
  const rank = { bad: 0, warn: 1, ok: 2, idle: 3 };
  return [...devices.values()].sort((a, b) => rank[a.state] - rank[b.state] || a.events[0].ms - b.events[0].ms);
}

function line(device, end) {
  const x = (ms) => Math.max(0, Math.min(1000, (ms / end) * 1000));
  const y = 13;
  const mark = (event, kind) => svg("path", { class: `mark s-${kind}`, d: `M${x(event.ms)} ${y}h0` }, svg("title", {}, eventText(event)));
  const first = device.events[0].event === "fallback" || device.events[0].event === "escalation" ? device.events[0].ms : 0;
  const marks = device.events.filter((event) => event.event === "attempt failed").map((event) => mark(event, "warn"));
  const sent = device.events.findLast((event) => event.event === "sent");
  const last = device.last;
  return el("div", { class: "device" },
    el("div", { class: "who" }, el("b", {}, device.userId), el("small", {}, `${device.provider} ${words(device.kind)} `, el("span", { class: "mono" }, device.device ?? ""))),
    svg("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", role: "img", "aria-label": device.events.map(eventText).join(", ") },
      svg("path", { class: "track", d: `M0 ${y}h1000` }),
      svg("path", { class: `span s-${device.state}`, d: `M${x(first)} ${y}H${x(Math.max(last.ms, first))}` }),
      sent ? mark(sent, "p50") : null, marks, mark(last, device.state), device.rang ? mark(device.rang, "p99") : null),
    el("div", {}, badge(words(last.event)), el("small", {}, [last.reason, length(last.ms)].filter(Boolean).join(", "),
      device.rang ? `; rang after ${length(device.rang.ms)}` : "")));
}

function ruler(end) {
  return el("div", { class: "device ruler" }, el("span", {}),
    el("div", {}, [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, part === 0 ? "enqueued" : length(part * end)))),
    el("span", { class: "legend" }, [["p50", "sent"], ["warn", "failed try"], ["p99", "rang"]].map(([kind, name]) => el("span", {}, el("i", { class: `f-${kind}` }), name))));
}

const eventText = (event) => [words(event.event), event.status, event.reason, `after ${length(event.ms)}`].filter(Boolean).join(" ");

function steps(timeline) {
  return table([
    ["After", "n", (event) => length(event.ms)],
    ["Event", "", (event) => (outcomes.includes(event.event) ? badge(words(event.event)) : words(event.event))],
    ["Why", "", (event) => [event.status, event.reason, event.field].filter(Boolean).join(" ")],
    ["User", "", (event) => event.userId ?? ""],
    ["Over", "", (event) => [event.provider, words(event.kind)].filter(Boolean).join(" ")],
    ["Try", "n", (event) => event.attempt ?? ""],
    ["Device", "mono", (event) => event.device ?? ""],
  ], timeline);
}
