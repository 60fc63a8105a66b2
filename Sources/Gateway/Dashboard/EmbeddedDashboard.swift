// The files of dashboard/, made by scripts/embed-dashboard.sh: edit those, not this.
// swift-format-ignore-file

extension DashboardAsset {
  static let all: [DashboardAsset] = [
    DashboardAsset(path: "/ui/call.js", type: "text/javascript; charset=utf-8", text: call_js),
    DashboardAsset(path: "/ui/charts.js", type: "text/javascript; charset=utf-8", text: charts_js),
    DashboardAsset(path: "/ui/dashboard.css", type: "text/css; charset=utf-8", text: dashboard_css),
    DashboardAsset(path: "/ui/dom.js", type: "text/javascript; charset=utf-8", text: dom_js),
    DashboardAsset(path: "/ui/icon.svg", type: "image/svg+xml", text: icon_svg),
    DashboardAsset(path: "/", type: "text/html; charset=utf-8", text: index_html),
    DashboardAsset(path: "/ui/live.js", type: "text/javascript; charset=utf-8", text: live_js),
    DashboardAsset(path: "/ui/main.js", type: "text/javascript; charset=utf-8", text: main_js),
    DashboardAsset(path: "/ui/overview.js", type: "text/javascript; charset=utf-8", text: overview_js),
    DashboardAsset(path: "/ui/session.js", type: "text/javascript; charset=utf-8", text: session_js),
  ]
}

private let call_js = ###"""
// A call: its state, and for each device a line in time and a table.

import { badge, byId, clockSeconds, count, el, empty, length, show, svg, table } from "./dom.js";

const devicesShown = 100;
const outcomes = { delivered: "ok", delivered_late: "warn", void: "soft", expired: "bad", dead: "bad" };
const badges = { ok: "ok", warn: "warn", bad: "bad", soft: "idle" };
const words = (name) => (name ?? "").replaceAll("_", " ");

/** Shows the calls of an id; `calls` is null while nothing is known yet. */
export function drawCalls(id, calls, fault) {
  show(byId("call"), [id, calls, fault], () => [
    el("div", { class: "top-row" }, el("a", { href: "#", class: "back", "data-key": "back" }, "← Overview"), el("h1", { class: "mono", tabindex: "-1", id: "call-title" }, id)),
    ...(fault ? [el("div", { class: "card" }, empty(fault))]
      : calls === null ? [el("div", { class: "card" }, empty("Looking…"))]
      : calls.length === 0 ? [el("div", { class: "card" }, el("h2", {}, "There is no call with this id"),
        empty("It was never enqueued, or is older than what is kept."))]
      : calls.flatMap(drawCall)),
  ]);
}

function drawCall(call) {
  const devices = devicesOf(call);
  const end = Math.max(100, ...call.timeline.map((event) => event.ms)) * 1.04;
  const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
  const created = Date.parse(call.createdAt);
  return [
    el("section", { class: "card" }, el("dl", { class: "facts" },
      fact("State", badge(call.state === "missed" ? "bad" : call.state === "ringing" ? "warn" : "ok", call.state)),
      fact("App", call.app), fact("Kind", words(call.kind)),
      fact("Enqueued", `${clockSeconds(created)}, ${new Date(created).toLocaleDateString()}`),
      fact("Rings for", length(Date.parse(call.deadlineAt) - created)),
      call.endedAt ? fact("Ended", `after ${length(Date.parse(call.endedAt) - created)}`) : null,
      call.endReason ? fact("Because", words(call.endReason)) : null,
      call.answeredBy ? fact("Answered by", call.answeredBy) : null,
      fact("Devices", count(devices.length)))),
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
    device.state = outcomes[device.last.event] ?? "warn";
    if (device.kind !== "invite") continue;
    device.rang = call.timeline.find((event) => event.event === "ringing" && event.userId === device.userId);
  }
  const rank = { bad: 0, warn: 1, ok: 2, soft: 3 };
  return [...devices.values()].sort((a, b) => rank[a.state] - rank[b.state] || a.events[0].ms - b.events[0].ms);
}

function line(device, end) {
  const x = (ms) => Math.max(0, Math.min(1000, (ms / end) * 1000));
  const y = 13;
  const mark = (event, kind) => svg("path", { class: `mark s-${kind}`, d: `M${x(event.ms)} ${y}h0` }, svg("title", {}, told(event)));
  const first = device.events[0].event === "fallback" || device.events[0].event === "escalation" ? device.events[0].ms : 0;
  const marks = device.events.filter((event) => event.event === "attempt failed").map((event) => mark(event, "warn"));
  const sent = device.events.findLast((event) => event.event === "sent");
  const last = device.last;
  return el("div", { class: "device" },
    el("div", { class: "who" }, el("b", {}, device.userId), el("small", {}, `${device.provider} ${words(device.kind)} `, el("span", { class: "mono" }, device.device ?? ""))),
    svg("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", role: "img", "aria-label": device.events.map(told).join(", ") },
      svg("path", { class: "track", d: `M0 ${y}h1000` }),
      svg("path", { class: `span s-${device.state}`, d: `M${x(first)} ${y}H${x(Math.max(last.ms, first))}` }),
      sent ? mark(sent, "p50") : null, marks, mark(last, device.state), device.rang ? mark(device.rang, "p99") : null),
    el("div", {}, badge(badges[device.state], words(last.event)), el("small", {}, [last.reason, length(last.ms)].filter(Boolean).join(", "),
      device.rang ? `; rang after ${length(device.rang.ms)}` : "")));
}

function ruler(end) {
  return el("div", { class: "device ruler" }, el("span", {}),
    el("div", {}, [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, part === 0 ? "enqueued" : length(part * end)))),
    el("span", { class: "legend" }, [["p50", "sent"], ["warn", "failed try"], ["p99", "rang"]].map(([kind, name]) => el("span", {}, el("i", { class: `f-${kind}` }), name))));
}

const told = (event) => [words(event.event), event.status, event.reason, `after ${length(event.ms)}`].filter(Boolean).join(" ");

function steps(timeline) {
  return table([
    ["After", "n", (event) => length(event.ms)],
    ["Event", "", (event) => (outcomes[event.event] ? badge(badges[outcomes[event.event]], words(event.event)) : words(event.event))],
    ["Why", "", (event) => [event.status, event.reason, event.field].filter(Boolean).join(" ")],
    ["User", "", (event) => event.userId ?? ""],
    ["Over", "", (event) => [event.provider, words(event.kind)].filter(Boolean).join(" ")],
    ["Try", "n", (event) => event.attempt ?? ""],
    ["Device", "mono", (event) => event.device ?? ""],
  ], timeline);
}

"""###

private let charts_js = ###"""
// Small charts of the last minutes. A chart can be pointed at, or focused and read with the arrow keys.

import { byId, clock, count, el, length, percent, say, show, svg } from "./dom.js";

const width = 300;
const height = 96;
const minuteMs = 60_000;

/** Draws the three charts of a state. */
export function drawCharts(state) {
  const slots = minutes(state);
  show(byId("charts"), slots, () => [
    chart("Enqueued to accepted", [["p50", "p50"], ["p99", "p99"]], slots, {
      top: niceLength(Math.max(...slots.map((slot) => slot?.p99 ?? 0))), topText: length, bottomText: "0",
      series: [["p99", (slot) => slot.p99], ["p50", (slot) => slot.p50]],
      read: (slot) => `p50 ${length(slot.p50)}, p99 ${length(slot.p99)}`,
    }),
    successChart(slots),
    chart("Invites a minute", [["ok", "delivered"], ["bad", "not"]], slots, {
      top: niceCount(Math.max(...slots.map((slot) => slot?.invites ?? 0))), topText: count, bottomText: "0",
      bars: [["ok", (slot) => slot.delivered], ["bad", (slot) => slot.invites - slot.delivered]],
      read: (slot) => `${count(slot.invites)} invites, ${count(slot.invites - slot.delivered)} not delivered`,
    }),
  ]);
}

const share = (slot) => slot.delivered / slot.invites;

function successChart(slots) {
  const least = Math.min(1, ...slots.filter(Boolean).map(share));
  const bottom = least >= 0.9 ? 0.9 : least >= 0.5 ? 0.5 : 0;
  return chart("Delivered in time", [["ok", "share of invites"]], slots, {
    top: 1, bottom, topText: percent, bottomText: percent(bottom),
    series: [["ok", share]],
    read: (slot) => `${percent(share(slot))} of ${count(slot.invites)} invites`,
  });
}

/** A slot a minute, the present one last; null: nothing was settled. */
function minutes(state) {
  const byStart = new Map(state.minutes.map((minute) => [minute.at, minute]));
  return Array.from({ length: state.minutesShown }, (_, index) => {
    const slot = byStart.get(state.thisMinute - (state.minutesShown - 1 - index) * minuteMs);
    return slot ? { ...slot, index } : null;
  });
}

function chart(title, legend, slots, options) {
  const { top, bottom = 0 } = options;
  const y = (value) => height - ((value - bottom) / (top - bottom || 1)) * height;
  const x = (index) => ((index + 0.5) / slots.length) * width;
  const marks = svg("g");
  for (const [kind, value] of options.series ?? []) {
    marks.append(svg("path", { class: `line s-${kind}`, d: path(slots, value, x, y) }));
  }
  for (const slot of slots) {
    let base = height;
    for (const [kind, value] of slot ? options.bars ?? [] : []) {
      const size = (value(slot) / (top || 1)) * height;
      marks.append(svg("rect", { class: `f-${kind}`, x: x(slot.index) - width / slots.length * 0.38, y: base - size,
        width: width / slots.length * 0.76, height: size }));
      base -= size;
    }
  }
  const cursor = svg("line", { class: "cursor", y1: 0, y2: height, visibility: "hidden" });
  const left = el("span", {}, `${slots.length} min ago`);
  const plot = el("div", { class: "plot", tabindex: "0", role: "img", "data-key": title, "aria-label": spoken(title, slots, options) },
    el("div", { class: "scale" }, el("span", {}, options.topText(top)), el("span", {}, options.bottomText)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("line", { class: "grid", x1: 0, x2: width, y1: 0, y2: 0 }),
      svg("line", { class: "grid", x1: 0, x2: width, y1: height / 2, y2: height / 2 }),
      svg("line", { class: "grid", x1: 0, x2: width, y1: height, y2: height }), marks, cursor));
  const right = el("span", {}, "now");
  follow(plot, cursor, left, right, slots, x, options.read);
  return el("div", { class: "chart" },
    el("h2", {}, title, el("span", { class: "legend" }, legend.map(([kind, name]) => el("span", {}, el("i", { class: `f-${kind}` }), name)))),
    plot, el("div", { class: "axis" }, left, right));
}

/** A line through the minutes that have a value; a lone minute is a dot. */
function path(slots, value, x, y) {
  let path = "";
  let isDrawing = false;
  for (const slot of slots) {
    const now = slot ? value(slot) : null;
    if (now === null || now === undefined) {
      isDrawing = false;
      continue;
    }
    path += `${isDrawing ? "L" : "M"}${x(slot.index).toFixed(1)} ${y(now).toFixed(1)}${isDrawing ? "" : "h0"}`;
    isDrawing = true;
  }
  return path;
}

function spoken(title, slots, { read }) {
  const last = slots.findLast((slot) => slot);
  return `${title}, last ${slots.length} minutes. ${last ? `At ${clock(last.at)}: ${read(last)}.` : "No invites."} Arrow keys read each minute.`;
}

/** Pointing at a minute, or moving to it with the arrow keys, reads it. */
function follow(plot, cursor, left, right, slots, x, read) {
  const before = left.textContent;
  let at = null;
  const move = (index) => {
    at = index;
    if (index === null) {
      cursor.setAttribute("visibility", "hidden");
      say(left, before);
      say(right, "now");
      return;
    }
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(index));
    cursor.setAttribute("x2", x(index));
    const slot = slots[index];
    const minutesAgo = slots.length - 1 - index;
    say(left, slot ? read(slot) : "no invites");
    say(right, minutesAgo === 0 ? "this minute" : `${minutesAgo} min ago`);
    if (document.activeElement === plot) say(byId("said"), `${right.textContent}: ${left.textContent}`);
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.querySelector("svg").getBoundingClientRect();
    move(Math.min(slots.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * slots.length))));
  });
  plot.addEventListener("pointerleave", () => move(null));
  plot.addEventListener("blur", () => move(null));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -slots.length, End: slots.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move(Math.min(slots.length - 1, Math.max(0, (at ?? slots.length - (step < 0 ? 0 : 1)) + step)));
  });
}

function niceLength(ms) {
  return [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000].find((top) => top >= ms) ?? ms;
}

function niceCount(number) {
  let top = 10;
  while (top < number) top *= String(top).startsWith("2") ? 2.5 : 2;
  return top;
}

"""###

private let dashboard_css = ###"""
/* The dashboard's looks: dense, calm, and readable at three in the morning. */
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #fff; --line: #e1e4ea; --text: #1b1f27; --soft: #5c6575; --accent: #2463d1;
  --ok: #1a7f4b; --warn: #9a5b00; --bad: #c22b33; --ok-tint: #e5f5ec; --warn-tint: #fdf1dc; --bad-tint: #fdeaea;
  --idle-tint: #eceff4; --p50: #2463d1; --p99: #a052c8; --hover: #f2f5fb;
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1a1f28; --line: #2b323e; --text: #e6e9ef; --soft: #98a2b3; --accent: #7aa7f7;
    --ok: #54c98a; --warn: #eab04c; --bad: #f37a7d; --ok-tint: #16291f; --warn-tint: #2d2413; --bad-tint: #331c20;
    --idle-tint: #20262f; --p50: #7aa7f7; --p99: #cf93ea; --hover: #212833;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere; }
h1, h2, h3, p, dl, dd, ul { margin: 0; padding: 0; }
h1 { font-size: 1.55rem; line-height: 1.2; letter-spacing: -0.01em; }
h2 { font-size: 0.95rem; font-weight: 650; }
h2 small { font-weight: 400; color: var(--soft); margin-left: 0.25rem; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
main:focus, #call-title:focus { outline: none; }
.skip { position: absolute; left: 8px; top: -60px; z-index: 3; background: var(--card); padding: 8px 14px; border-radius: 6px; }
.skip:focus { top: 8px; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
kbd { font: inherit; font-size: 0.75rem; border: 1px solid var(--line); border-radius: 4px; padding: 0 5px; color: var(--soft); background: var(--card); }

header, main, footer, .stale { max-width: 1280px; margin-inline: auto; padding-inline: 20px; }
header { display: flex; align-items: center; gap: 14px; padding-block: 12px; }
.brand { display: flex; align-items: center; gap: 9px; font-weight: 650; font-size: 1rem; color: inherit; }
.brand:hover { text-decoration: none; }
#search { position: relative; flex: 1 1 auto; max-width: 460px; margin-left: auto; }
#search kbd { position: absolute; right: 9px; top: 50%; translate: 0 -50%; pointer-events: none; }
#search:focus-within kbd { display: none; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 7px 11px; width: 100%; }
input:focus-visible { outline-offset: 0; border-radius: 8px; }
button { font: inherit; font-weight: 550; color: var(--text); background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 6px 13px; cursor: pointer; white-space: nowrap; }
button:hover { border-color: var(--accent); }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--card); }
button.danger { background: var(--bad); border-color: var(--bad); color: var(--card); }
button.small { padding: 2px 10px; font-size: 0.85rem; border-radius: 6px; }
.who-am-i { max-width: 16ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft); font-size: 0.85rem; }
.who-am-i:empty { display: none; }
.live { display: flex; align-items: center; gap: 7px; color: var(--soft); white-space: nowrap; font-size: 0.85rem; min-width: 62px; justify-content: flex-end; }
.dot { width: 8px; height: 8px; border-radius: 50%; background: var(--soft); }
.live[data-state="ok"] .dot { background: var(--ok); }
.live[data-state="bad"] .dot { background: var(--bad); }
.stale { background: var(--bad-tint); color: var(--bad); padding-block: 9px; border-radius: 10px; font-weight: 550; margin-bottom: 12px; width: calc(100% - 40px); padding-inline: 16px; }
body.old #overview { opacity: 0.6; }

.card, .verdict, .chart { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; min-width: 0; }
.card > h2 { margin-bottom: 8px; }
.verdict { display: flex; align-items: center; justify-content: space-between; gap: 16px 32px; flex-wrap: wrap; border-left: 6px solid var(--soft); padding: 16px 20px; }
.verdict[data-state="ok"] { border-left-color: var(--ok); } .verdict[data-state="ok"] h1 { color: var(--ok); }
.verdict[data-state="warn"] { border-left-color: var(--warn); } .verdict[data-state="warn"] h1 { color: var(--warn); }
.verdict[data-state="bad"] { border-left-color: var(--bad); background: var(--bad-tint); } .verdict[data-state="bad"] h1 { color: var(--bad); }
.verdict p { color: var(--soft); margin-top: 2px; }
#numbers { display: flex; gap: 32px; }
#numbers dt { color: var(--soft); font-size: 0.8rem; }
#numbers dd { font-size: 1.35rem; font-weight: 600; white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 12px; margin-block: 12px; }
.columns { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 1fr); gap: 12px; align-items: start; }
.column { display: flex; flex-direction: column; gap: 12px; min-width: 0; }

.chart h2 { display: flex; justify-content: space-between; gap: 8px; }
.legend { display: flex; gap: 12px; font-weight: 400; font-size: 0.8rem; color: var(--soft); }
.legend i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 5px; }
.plot { display: flex; gap: 8px; margin-top: 10px; border-radius: 4px; }
.plot svg { display: block; flex: 1 1 0; min-width: 0; height: 96px; overflow: visible; }
.scale { display: flex; flex-direction: column; justify-content: space-between; width: 46px; font-size: 0.72rem; line-height: 1; color: var(--soft); text-align: right; margin-block: -4px; }
.axis { display: flex; justify-content: space-between; font-size: 0.75rem; color: var(--soft); margin: 6px 0 0 54px; min-height: 1.2em; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.line { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; vector-effect: non-scaling-stroke; }
.s-p50 { stroke: var(--p50); } .s-p99 { stroke: var(--p99); } .s-ok { stroke: var(--ok); }
.f-ok { fill: var(--ok); background: var(--ok); } .f-bad { fill: var(--bad); background: var(--bad); }
.f-warn { fill: var(--warn); background: var(--warn); } .f-p50 { fill: var(--p50); background: var(--p50); }
.f-p99 { fill: var(--p99); background: var(--p99); } .f-soft { fill: var(--soft); background: var(--soft); }

table { width: 100%; border-collapse: collapse; }
th { text-align: left; font-weight: 500; font-size: 0.8rem; color: var(--soft); padding: 2px 16px 4px 0; white-space: nowrap; }
td { padding: 6px 16px 6px 0; border-top: 1px solid var(--line); vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
th.mono { font-family: inherit; font-size: 0.8rem; }
td a.mono { display: inline-block; max-width: 24ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: bottom; }
.steps th:first-child, .steps td:first-child { width: 1%; }
tbody tr:hover { background: var(--hover); }
.n { text-align: right; white-space: nowrap; }
.soft, td small { color: var(--soft); }
td small { display: block; font-size: 0.8rem; }
.badge { display: inline-block; border-radius: 999px; padding: 0 9px; font-size: 0.8rem; font-weight: 550; white-space: nowrap; vertical-align: 1px; background: var(--idle-tint); color: var(--soft); }
.badge[data-state="ok"] { background: var(--ok-tint); color: var(--ok); }
.badge[data-state="warn"] { background: var(--warn-tint); color: var(--warn); }
.badge[data-state="bad"] { background: var(--bad-tint); color: var(--bad); }
.meter { display: inline-block; width: 46px; height: 6px; border-radius: 3px; background: var(--line); margin-left: 8px; vertical-align: 1px; }
.meter svg { display: block; width: 100%; height: 100%; border-radius: 3px; }
.list { list-style: none; }
.list li { padding: 7px 0; border-top: 1px solid var(--line); }
.list li:first-child { border-top: 0; padding-top: 0; }
.list .head { display: flex; justify-content: space-between; gap: 10px; align-items: baseline; }
.list small { color: var(--soft); display: block; }
.empty { color: var(--soft); }
.mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.88em; }

#call .top-row { display: flex; gap: 12px; align-items: center; flex-wrap: wrap; margin-bottom: 12px; }
#call h1 { font-size: 1.2rem; }
#call .card { margin-bottom: 12px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px 20px; }
.facts dt { color: var(--soft); font-size: 0.8rem; }
.device { display: grid; grid-template-columns: minmax(130px, 210px) minmax(0, 1fr) minmax(110px, 190px); gap: 2px 14px; align-items: center; padding: 7px 0; border-top: 1px solid var(--line); }
.device:first-of-type { border-top: 0; }
.device svg { width: 100%; height: 26px; overflow: visible; display: block; }
.device .who b { font-weight: 600; }
.device small { color: var(--soft); display: block; }
.track { stroke: var(--line); stroke-width: 6; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.span { stroke-width: 6; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.mark { stroke-width: 13; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.s-bad { stroke: var(--bad); } .s-warn { stroke: var(--warn); } .s-soft { stroke: var(--soft); }
.ruler { color: var(--soft); font-size: 0.75rem; }
.ruler div { display: flex; justify-content: space-between; }

dialog { border: 1px solid var(--line); border-radius: 14px; background: var(--card); color: inherit; padding: 20px 22px; width: min(440px, calc(100vw - 32px)); box-shadow: 0 12px 40px rgb(0 0 0 / 25%); }
dialog::backdrop { background: rgb(10 14 20 / 45%); }
dialog h2 { font-size: 1.1rem; }
dialog p { color: var(--soft); margin: 6px 0 14px; }
dialog label { display: block; font-size: 0.85rem; color: var(--soft); }
dialog input { margin-top: 4px; color: var(--text); background: var(--page); }
dialog .fault { color: var(--bad); margin: 8px 0 0; min-height: 1.4em; }
.buttons { display: flex; justify-content: flex-end; gap: 10px; margin-top: 8px; }
footer { display: flex; justify-content: space-between; gap: 12px; color: var(--soft); font-size: 0.8rem; padding-block: 16px 24px; flex-wrap: wrap; }
.keys kbd { margin-left: 8px; }

@media (max-width: 900px) {
  .charts { grid-template-columns: minmax(0, 1fr); }
  .columns { display: flex; flex-direction: column; align-items: stretch; }
  .column { display: contents; }
  .first { order: -1; }
  .plot svg { height: 72px; }
}
@media (max-width: 640px) {
  header { flex-wrap: wrap; gap: 10px; }
  header, main, footer { padding-inline: 12px; }
  .stale { width: calc(100% - 24px); }
  #search { order: 5; flex-basis: 100%; max-width: none; }
  .live { margin-left: auto; min-width: 0; }
  td a.mono { max-width: calc(100% - 8ch); }
  .keys, #search kbd, .meter { display: none; }
  #numbers { gap: 22px; } #numbers dd { font-size: 1.15rem; }
  button, input { min-height: 40px; } button.small { min-height: 36px; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 2px 12px; border-top: 1px solid var(--line); padding: 8px 0; }
  tbody tr:first-child { border-top: 0; }
  td { border: 0; padding: 0; text-align: left !important; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--soft); font-size: 0.8rem; }
  td.full { grid-column: 1 / -1; }
  td:empty { display: none; }
  .device { grid-template-columns: minmax(0, 1fr) auto; }
  .device svg { grid-column: 1 / -1; grid-row: 2; }
  .ruler > :first-child, .ruler > :last-child { display: none; }
}
@media (prefers-reduced-motion: no-preference) {
  .live[data-state="ok"] .dot { animation: beat 2s ease-in-out infinite; }
  @keyframes beat { 50% { opacity: 0.35; } }
}

"""###

private let dom_js = ###"""
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

"""###

private let icon_svg = ###"""
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2f6fde"/><path d="M16 7a6 6 0 0 1 6 6v4.5l2 3.5H8l2-3.5V13a6 6 0 0 1 6-6zm-2.5 16h5a2.5 2.5 0 0 1-5 0z" fill="#fff"/></svg>

"""###

private let index_html = ###"""
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>push-gateway</title>
<link rel="icon" href="/ui/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/ui/dashboard.css">
<script type="module" src="/ui/main.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the state of things</a>
<header>
  <a class="brand" href="#" aria-label="push-gateway, overview"><img src="/ui/icon.svg" alt="" width="22" height="22"><span>push-gateway</span></a>
  <form id="search" role="search">
    <input id="query" type="search" name="id" maxlength="128" autocomplete="off" spellcheck="false" placeholder="Call id" aria-label="Find a call by its id" aria-keyshortcuts="/">
    <kbd aria-hidden="true">/</kbd>
  </form>
  <p id="live" class="live" data-state="wait"><span class="dot" aria-hidden="true"></span><span id="live-text">connecting</span></p>
  <span id="who" class="who-am-i"></span>
  <button id="session" type="button" hidden>Log in</button>
</header>
<p id="stale" class="stale" role="alert" hidden></p>
<noscript><p class="stale">This page needs JavaScript. Without it: push-gateway status.</p></noscript>
<main id="main" tabindex="-1">
  <div id="overview">
    <section id="verdict" class="verdict" data-state="wait" aria-labelledby="verdict-word">
      <div><div role="status"><h1 id="verdict-word">Looking…</h1></div><p id="verdict-why"></p></div>
      <dl id="numbers"></dl>
    </section>
    <section id="charts" class="charts" aria-label="The last 30 minutes"></section>
    <div class="columns">
      <div class="column">
        <section class="card" aria-labelledby="lanes-title"><h2 id="lanes-title">Lanes</h2><div id="lanes"></div></section>
        <section class="card" aria-labelledby="failures-title"><h2 id="failures-title">Failures <small>last hour</small></h2><div id="failures"></div></section>
        <section class="card" aria-labelledby="stuck-title"><h2 id="stuck-title">Stuck</h2><div id="stuck"></div></section>
      </div>
      <div class="column">
        <section class="card first" aria-labelledby="health-title"><h2 id="health-title">Not ok</h2><div id="health" aria-live="polite"></div></section>
        <section class="card" aria-labelledby="replicas-title"><h2 id="replicas-title">Replicas</h2><div id="replicas"></div></section>
        <section class="card" aria-labelledby="audit-title"><h2 id="audit-title">Interventions</h2><div id="audit"></div></section>
      </div>
    </div>
  </div>
  <div id="call" hidden></div>
</main>
<footer><span id="version"></span><span class="keys"><kbd>/</kbd> find a call <kbd>↑</kbd><kbd>↓</kbd> rows <kbd>←</kbd><kbd>→</kbd> minutes <kbd>Esc</kbd> back</span></footer>
<p id="said" class="unseen" role="status"></p>

<dialog id="login" aria-labelledby="login-title">
  <form method="dialog">
    <h2 id="login-title">Log in</h2>
    <p>With an ops key you see everything, and may pause and resume lanes.</p>
    <input type="text" name="username" value="ops" autocomplete="username" hidden>
    <label>Ops key <input type="password" name="key" required maxlength="1024" autocomplete="current-password"></label>
    <p class="fault" role="alert"></p>
    <div class="buttons"><button type="button" value="cancel">Cancel</button><button type="submit" class="primary">Log in</button></div>
  </form>
</dialog>
<dialog id="switch" aria-labelledby="switch-title">
  <form method="dialog">
    <h2 id="switch-title"></h2>
    <p class="what"></p>
    <label>Note, for whoever looks next <input type="text" name="note" required maxlength="500" autocomplete="off"></label>
    <p class="fault" role="alert"></p>
    <div class="buttons"><button type="button" value="cancel">Cancel</button><button type="submit" class="primary"></button></div>
  </form>
</dialog>
</body>
</html>

"""###

private let live_js = ###"""
// Asking the gateway: once, and again and again.

const timeoutMs = 8_000;

/** What the gateway refused, in its own words. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the gateway answered ${status}`);
    this.status = status;
  }
}

/** JSON of a path. `body`: makes it a POST; `token`: of the session. */
export async function ask(path, { body, token } = {}) {
  const options = { signal: AbortSignal.timeout(timeoutMs), credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...(token ? { "X-CSRF-Token": token } : {}) };
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "the gateway did not answer in time" : "the gateway cannot be reached");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Refusal(response.status, answer);
  if (answer === null) throw new Error("the answer was not understood");
  return answer;
}

/** Calls `round()` every two seconds: less often while the page is hidden, or while it throws. */
export class Poll {
  #round;
  #timer;
  #isUnderWay = false;
  #failures = 0;

  constructor(round) {
    this.#round = round;
    document.addEventListener("visibilitychange", () => document.hidden || this.now());
    window.addEventListener("online", () => this.now());
  }

  async now() {
    if (this.#isUnderWay) return;
    clearTimeout(this.#timer);
    this.#isUnderWay = true;
    try {
      await this.#round();
      this.#failures = 0;
    } catch {
      this.#failures += 1;
    }
    this.#isUnderWay = false;
    this.#timer = setTimeout(() => this.now(), document.hidden ? 30_000 : Math.min(2_000 * 2 ** this.#failures, 15_000));
  }
}

"""###

private let main_js = ###"""
// The page: what is shown when, and the keys.

import { ask, Poll, Refusal } from "./live.js";
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
  drawOverview(state, { canAct: session.token !== null, onSwitch: confirmSwitch });
}

const poll = new Poll(async () => {
  try {
    if (!session.isKnown) await readSession();
    state = await ask("/ui/state");
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
    calls = await ask("/ui/calls?id=" + encodeURIComponent(id));
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

"""###

private let overview_js = ###"""
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

const laneName = (lane) => `${lane.app} / ${lane.provider}`;
const providerNames = { apns: "APNs", fcm: "FCM", expo: "Expo" };
const provider = (name) => providerNames[name] ?? name;

// The verdict.

/** The worst that is true now: [state, a word, why]. */
export function verdict(state) {
  const { recent, minutesRecent } = state;
  const { lanes, health } = state.overview;
  const unhealthy = new Map(health.filter((item) => item.state === "bad").map((item) => [item.item, item]));
  const span = `in the last ${minutesRecent} minutes`;
  const share = recent.invites ? recent.delivered / recent.invites : null;
  const failed = recent.invites - recent.delivered;
  const down = lanes.filter((lane) => lane.circuit === "open");
  const paused = lanes.filter((lane) => lane.paused);
  const list = (some) => some.map(laneName).join(", ");
  const numbers = `${count(failed)} of ${count(recent.invites)} invites were not delivered in time ${span}.`;

  if (unhealthy.has("replicas alive")) return ["bad", "Nothing is sent", "No replica of the gateway is alive."];
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
    ["Lane", "full", (lane) => [el("b", {}, lane.app), " ", el("span", { class: "soft" }, provider(lane.provider)), ...notes(lane)]],
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

"""###

private let session_js = ###"""
// Logging in, and the dialogs that change something.

import { ask, Refusal } from "./live.js";
import { byId, say } from "./dom.js";

/** `token`: null while nobody is logged in; `name`: who is; `mustLogIn`: nothing can be read before; `isKnown`: whether the gateway has said so. */
export const session = { canLogIn: false, canLogOut: false, mustLogIn: false, name: null, token: null, isKnown: false };
const nobody = { name: null, token: null };

let onChange = () => {};

function take(answer) {
  Object.assign(session, answer, { isKnown: true });
  byId("session").hidden = session.token ? !session.canLogOut : !session.canLogIn;
  say(byId("session"), session.token ? "Log out" : "Log in");
  say(byId("who"), session.name ?? "");
  onChange();
}

/** The gateway wants to know who looks: asks for a key, once. */
export function mustLogIn() {
  const wasLoggedIn = session.token !== null;
  if (wasLoggedIn) take(nobody);
  if (session.canLogIn && !document.querySelector("dialog[open]") && (wasLoggedIn || !byId("login").wasShown)) open(byId("login"));
  byId("login").wasShown = true;
}

/** Asks whether somebody is logged in. */
export const readSession = async () => take(await ask("/ui/session"));

/** Makes the buttons work; `changed()` is called whenever somebody logged in or out, or a lane was switched. */
export function startSession(changed) {
  onChange = changed;
  byId("session").addEventListener("click", async () => {
    if (!session.token) return open(byId("login"));
    try {
      take(await ask("/ui/session/end", { body: {}, token: session.token }));
    } catch (error) {
      if (error instanceof Refusal) take(nobody);
      else say(byId("said"), `Still logged in: ${error.message}.`);
    }
  });
  prepare(byId("login"), async (form) => take(await ask("/ui/session", { body: { key: form.elements.key.value } })));
  prepare(byId("switch"), async (form) => {
    const { app, provider, paused } = byId("switch").lane;
    try {
      const answer = await ask("/ui/lanes", { token: session.token, body: { app, provider, paused: !paused, note: form.elements.note.value } });
      say(byId("said"), answer.message);
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) take(nobody);
      throw error;
    }
    onChange();
  });
}

/** Asks whether a lane is to be paused, or to go on. */
export function confirmSwitch(lane) {
  const dialog = byId("switch");
  const verb = lane.paused ? "Resume" : "Pause";
  const button = dialog.querySelector("button[type=submit]");
  dialog.lane = lane;
  say(byId("switch-title"), `${verb} ${lane.app} / ${lane.provider}?`);
  say(dialog.querySelector(".what"), lane.paused
    ? "It sends again at once, what has been waiting first."
    : "Nothing more is sent over it until it is resumed: its calls wait, and expire at their deadlines.");
  say(button, `${verb} ${lane.app} / ${lane.provider}`);
  button.className = lane.paused ? "primary" : "danger";
  open(dialog);
}

function open(dialog) {
  dialog.querySelector("form").reset();
  say(dialog.querySelector(".fault"), "");
  dialog.showModal();
  dialog.querySelector("input:not([hidden])").focus();
}

/** Enter does it, Escape and Cancel do not; a refusal is shown where it was asked. */
function prepare(dialog, act) {
  const form = dialog.querySelector("form");
  dialog.querySelector("[value=cancel]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    try {
      await act(form);
      form.reset();
      dialog.close();
    } catch (error) {
      say(dialog.querySelector(".fault"), `${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
    }
    button.disabled = false;
  });
}

"""###
