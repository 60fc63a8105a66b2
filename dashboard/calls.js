// A list of calls, the newest first. The page's address has its filters: #calls&app=…&user=…&outcome=…&since=MINUTES.

import { badge, byId, callLink, count, el, empty, moment, show, table, words } from "./dom.js";

const spans = [[15, "15 minutes"], [60, "hour"], [360, "6 hours"], [1440, "day"], [10_080, "7 days"]];
const outcomes = ["ringing", "answered", "ended", "missed"];
/** Number of calls in an answer, at most: DashboardStatements.callsMax. */
const callsMax = 100;
/** The span without a filter, in minutes. */
export const sinceDefault = "60";

/**
 * Shows the calls that match `filters`, {app, user, outcome, since}: `calls` is null while nothing is known yet.
 * `apps`: names to choose from; `onFilter(filters)`: others were chosen.
 */
export function drawList(filters, calls, { fault, apps, onFilter }) {
  show(byId("calls"), [filters, calls, fault, apps], () => [
    el("div", { class: "top-row" }, el("a", { href: "#", class: "back", "data-key": "back" }, "← Overview"), el("h1", { tabindex: "-1", id: "calls-title" }, "Calls")),
    form(filters, apps, onFilter),
    el("section", { class: "card" }, ...(fault ? [empty(fault)] : calls === null ? [empty("Looking…")] : rows(calls))),
  ]);
}

function form(filters, apps, onFilter) {
  const choice = (name, title, options) => el("label", {}, title, el("select", { name, "data-key": name }, options.map(([value, text]) =>
    el("option", { value, selected: value === (filters[name] ?? "") }, text))));
  const node = el("form", { class: "filters", role: "search", "aria-label": "Filters of the list" },
    choice("app", "App ", [["", "all"], ...[...new Set([...apps, filters.app])].filter(Boolean).map((app) => [app, app])]),
    el("label", {}, "User ", el("input", { name: "user", "data-key": "user", value: filters.user ?? "", maxlength: 128, autocomplete: "off", spellcheck: "false", placeholder: "user id" })),
    choice("outcome", "Outcome ", [["", "all"], ...outcomes.map((word) => [word, word])]),
    choice("since", "Since the last ", spans.map(([minutes, text]) => [String(minutes), text])),
    el("button", { type: "submit", "data-key": "show" }, "Show"));
  const send = () => onFilter(Object.fromEntries([...new FormData(node)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value)));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  node.addEventListener("change", send);
  return node;
}

function rows(calls) {
  if (!calls.length) return [empty("No call matches.")];
  return [
    table([
      ["Call", "full", (call) => callLink(call.callId, `listed ${call.app} ${call.callId}`)],
      ["Enqueued", "", (call) => moment(call.createdAt)],
      ["App", "", (call) => call.app],
      ["Users", "", (call) => users(call.users)],
      ["Outcome", "", (call) => [badge(call.outcome), call.endReason && el("small", {}, words(call.endReason))]],
      ["Invites", "", (call) => call.pushes.map((push) => badge(...ofPush(push)))],
    ], calls),
    ...(calls.length >= callsMax ? [empty(`The newest ${callsMax} are shown: narrow the filters to see others.`)] : []),
  ];
}

const users = (names) => (names.length > 4 ? `${names.slice(0, 4).join(", ")}, and ${count(names.length - 4)} more` : names.join(", "));

/** "dead UNREGISTERED" as a badge's word and the rest. */
const ofPush = (push) => {
  const [state, ...reason] = push.split(" ");
  return [words(state), reason.length ? ` ${reason.join(" ")}` : ""];
};
