// Small charts of the last minutes. A chart can be pointed at, or focused and read with the arrow keys.

import { byId, count, el, length, moment, percent, say, show, svg } from "./dom.js";

const width = 300;
const height = 96;
const minuteMs = 60_000;
/** The start of the last minute that is drawn, in milliseconds since 1970. */
let thisMinute = 0;
/** What is read by the keyboard, {title, minute}: the chart that has the focus, and the start of a minute. Null: none. */
let reading = null;

/** Draws the three charts of a state. */
export function drawCharts(state) {
  thisMinute = state.thisMinute;
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
  follow(plot, title, cursor, left, right, slots, x, options.read);
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
  return `${title}, last ${slots.length} minutes. ${last ? `At ${moment(last.at)}: ${read(last)}.` : "No invites."} Arrow keys read each minute.`;
}

/** Pointing at a minute, or moving to it with the arrow keys, reads it. When a chart is drawn again, it keeps the minute that keys have chosen. */
function follow(plot, title, cursor, left, right, slots, x, read) {
  const before = left.textContent;
  const end = thisMinute;
  let kept = reading?.title === title ? Math.max(0, slots.length - 1 - (end - reading.minute) / minuteMs) : null;
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
  };
  const choose = (index) => {
    reading = { title, minute: end - (slots.length - 1 - index) * minuteMs };
    move(index);
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.querySelector("svg").getBoundingClientRect();
    move(Math.min(slots.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * slots.length))));
  });
  plot.addEventListener("pointerleave", () => move(null));
  plot.addEventListener("blur", () => {
    kept = reading = null;
    move(null);
  });
  plot.addEventListener("focus", () => {
    if (kept !== null) choose(kept);
  });
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -slots.length, End: slots.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(Math.min(slots.length - 1, Math.max(0, (at ?? slots.length - (step < 0 ? 0 : 1)) + step)));
    say(byId("said"), `${right.textContent}: ${left.textContent}`);
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
