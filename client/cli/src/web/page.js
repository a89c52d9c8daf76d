"use strict";
// Text from the nodes gets into the page only as textContent, never as HTML.

const REFRESH_MS = 2000;
const ANSWER_MS = 15000;
const SLOW_S = 10;
const byId = (id) => document.getElementById(id);

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function counted(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const next = parts[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

// A table whose rows stay the same elements from one state to the next, so that selected text stays selected.
class LiveTable {
  constructor(table, columns, onSort) {
    this.columns = columns;
    this.rows = new Map();
    this.headings = columns.map((column) => {
      const heading = element("th");
      heading.scope = "col";
      if (onSort) {
        const button = element("button", "", column.title);
        button.type = "button";
        button.addEventListener("click", () => onSort(column));
        heading.append(button);
      } else {
        heading.textContent = column.title;
      }
      return heading;
    });
    const head = element("thead");
    const line = element("tr");
    line.append(...this.headings);
    head.append(line);
    this.body = element("tbody");
    table.append(head, this.body);
  }

  showOrder(sorted, descending) {
    this.columns.forEach((column, index) => {
      const order = column === sorted ? (descending ? "descending" : "ascending") : "none";
      this.headings[index].setAttribute("aria-sort", order);
    });
  }

  // Each item has an id, and each column makes a text and a class of an item.
  show(items) {
    const wanted = new Set(items.map((item) => item.id));
    for (const [id, row] of this.rows) {
      if (!wanted.has(id)) {
        row.remove();
        this.rows.delete(id);
      }
    }
    items.forEach((item, index) => {
      let row = this.rows.get(item.id);
      if (!row) {
        row = element("tr");
        for (const column of this.columns) {
          const cell = element("td");
          cell.dataset.label = column.title;
          row.append(cell);
        }
        this.rows.set(item.id, row);
      }
      this.columns.forEach((column, place) => {
        const cell = row.children[place];
        setText(cell, column.text(item));
        cell.className = column.tone ? column.tone(item) : "";
      });
      if (this.body.children[index] !== row) this.body.insertBefore(row, this.body.children[index] ?? null);
    });
  }
}

function nodeState(node) {
  if (!node.up) return [`down: ${node.error}`, "bad"];
  if (node.state === "quarantine") return [`quarantine for ${duration(node.quarantine_ms)}`, "doubtful"];
  if (node.state === "grants") return ["grants", "good"];
  return [`${node.state}, see Findings`, "bad"];
}

const whenUp = (text) => (node) => (node.up ? text(node) : "");
const nodes = new LiveTable(byId("nodes"), [
  { title: "node", text: (node) => node.node },
  { title: "state", text: (node) => nodeState(node)[0], tone: (node) => nodeState(node)[1] },
  { title: "latency", text: whenUp((node) => `${node.latency_ms.toFixed(1)} ms`) },
  { title: "server", text: whenUp((node) => (node.server ? `${node.server} ${node.server_version}` : "")) },
  { title: "module", text: whenUp((node) => node.version) },
  { title: "locks", text: whenUp((node) => String(node.locks)) },
  { title: "waiters", text: whenUp((node) => String(node.waiters)) },
  { title: "largest fence", text: whenUp((node) => node.fence) },
]);

const byNumber = (name) => (one, other) => one[name] - other[name];
const byText = (name) => (one, other) => (one[name] < other[name] ? -1 : one[name] > other[name] ? 1 : 0);
// A fence is a string, because a JavaScript number cannot hold every fence.
function byFence(one, other) {
  const difference = BigInt(one.fence) - BigInt(other.fence);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}
const lockColumns = [
  { title: "resource", text: (lock) => lock.resource, compare: byText("resource") },
  { title: "label", text: (lock) => (lock.shared_by > 0 ? `shared by ${lock.shared_by}: ${lock.label}` : lock.label), compare: byText("label") },
  { title: "fence", text: (lock) => lock.fence, compare: byFence },
  {
    title: "nodes",
    text: (lock) => `${lock.holders} of ${lock.of}${lock.held ? "" : ", no majority"}`,
    tone: (lock) => (lock.held ? "" : "doubtful"),
    compare: byNumber("holders"),
  },
  { title: "held for", text: (lock) => duration(lock.held_ms), compare: byNumber("held_ms"), largestFirst: true },
  { title: "time left", text: (lock) => duration(lock.left_ms), compare: byNumber("left_ms") },
  { title: "waiters", text: (lock) => String(lock.waiters), compare: byNumber("waiters"), largestFirst: true },
];
const order = { column: lockColumns[0], descending: false };
const locks = new LiveTable(byId("locks"), lockColumns, (column) => {
  order.descending = column === order.column ? !order.descending : Boolean(column.largestFirst);
  order.column = column;
  showLocks();
});

let state = null;
let seenAt = null;

function showLocks() {
  locks.showOrder(order.column, order.descending);
  if (!state) return;
  const filter = byId("filter").value;
  const all = state.ls.locks.map((lock) => ({ ...lock, id: lock.key, of: state.ls.nodes.length }));
  const shown = all.filter((lock) => lock.resource.includes(filter) || lock.label.includes(filter));
  const sign = order.descending ? -1 : 1;
  shown.sort((one, other) => sign * order.column.compare(one, other) || byText("key")(one, other));
  locks.show(shown);
  setText(byId("lock-count"), shown.length === all.length ? String(all.length) : `${shown.length} of ${all.length}`);
  const empty = byId("locks-empty");
  empty.hidden = shown.length > 0;
  const none = state.ls.error ? `The locks are unknown: ${state.ls.error}` : "No lock is held.";
  setText(empty, all.length > 0 ? "No lock matches the filter." : none);
  const omission = byId("omission");
  const refused = state.ls.refused.map((refusal) => `${refusal.node}: ${refusal.error}`);
  const cut = state.ls.cut.length > 0 ? [`the list of ${state.ls.cut.join(", ")} is cut (see --limit)`] : [];
  const few = state.ls.error && all.length > 0 ? [state.ls.error] : [];
  const reasons = [...few, ...refused, ...cut];
  omission.hidden = reasons.length === 0;
  setText(omission, `Not all locks are shown: ${reasons.join("; ")}`);
}

function showVerdict(status) {
  const counts = `${status.granting} of ${status.nodes.length} nodes grant, ${status.needed} are needed`;
  const verdict = byId("verdict");
  verdict.className = status.can_grant ? "good" : "bad";
  setText(verdict, status.can_grant ? `Locks can be granted: ${counts}` : `No lock can be granted: ${counts}`);
}

const rate = (value) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)}/s`;
const percent = (value) => `${value.toFixed(0)} %`;
const charts = [
  { title: "Grants", name: "grants", show: rate },
  { title: "Hand-offs", name: "handoffs", show: rate },
  { title: "Contended acquires", name: "contention", show: percent, top: 100 },
].map((chart) => {
  const figure = element("figure");
  const caption = element("figcaption");
  const value = element("b");
  const most = element("span");
  caption.append(element("span", "", chart.title), value, most);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 600 64");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  picture.append(line);
  figure.append(caption, picture);
  byId("charts").append(figure);
  return { ...chart, value, most, picture, line };
});

// Samples that are further apart are not connected: the nodes showed no counters in between.
const GAP_S = 20;

function showActivity(activity) {
  const samples = activity.rates;
  byId("no-activity").hidden = samples.length > 0;
  const last = samples.length > 0 ? samples[samples.length - 1] : null;
  for (const chart of charts) {
    const now = last && last.age_s < GAP_S ? chart.show(last[chart.name]) : "–";
    const largest = Math.max(0, ...samples.map((sample) => sample[chart.name]));
    const top = chart.top ?? Math.max(largest, 1);
    const point = (sample, index) => {
      const x = 600 * (1 - sample.age_s / activity.covers_s);
      const y = 62 - (60 * sample[chart.name]) / top;
      const isConnected = index > 0 && samples[index - 1].age_s - sample.age_s < GAP_S;
      return `${isConnected ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`;
    };
    chart.line.setAttribute("d", samples.map(point).join(""));
    setText(chart.value, now);
    setText(chart.most, samples.length > 0 ? `at most ${chart.show(largest)}` : "");
    chart.picture.setAttribute("aria-label", `${chart.title}: now ${now}, at most ${chart.show(largest)}`);
  }
}

let shownFindings = "";

function showFindings(doctor) {
  if (!doctor) return;
  setText(byId("findings-age"), `of ${duration(doctor.age_s * 1000)} ago`);
  const text = JSON.stringify(doctor.findings);
  if (text === shownFindings) return;
  shownFindings = text;
  const tones = { error: "bad", warning: "doubtful" };
  const list = doctor.findings.map((finding) => {
    const item = element("li");
    const reason = element("p");
    reason.append(
      element("b", tones[finding.severity] ?? "", finding.severity),
      ` [${finding.check}] ${finding.node ?? "all nodes"}: ${finding.reason}`,
    );
    item.append(reason, element("p", "", finding.remedy));
    return item;
  });
  byId("findings").replaceChildren(...list);
  const empty = byId("findings-empty");
  empty.hidden = doctor.findings.length > 0;
  setText(empty, "No problems found.");
}

function showFreshness(problem) {
  const seen = seenAt ? `The page shows the state of ${seenAt.toLocaleTimeString()}` : "";
  document.body.classList.toggle("stale", Boolean(problem));
  byId("freshness").className = problem ? "bad" : "";
  setText(byId("freshness"), problem ? `${problem}. ${seen}` : seen);
}

async function refresh() {
  try {
    const response = await fetch("state.json", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (!response.ok) throw new Error((await response.text()).trim());
    state = await response.json();
    seenAt = new Date(Date.now() - state.age_s * 1000);
    showVerdict(state.status);
    nodes.show(state.status.nodes.map((node) => ({ ...node, id: node.node })));
    showLocks();
    showActivity(state.activity);
    showFindings(state.doctor);
    showFreshness(state.age_s > SLOW_S ? "The nodes answer slowly" : "");
  } catch (error) {
    showFreshness(`No answer from redlock ui (${error.message})`);
  }
}

let timer = null;

// A page that nobody sees asks nothing.
async function keepFresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  await refresh();
  clearTimeout(timer);
  timer = setTimeout(keepFresh, REFRESH_MS);
}

byId("filter").addEventListener("input", showLocks);
document.addEventListener("visibilitychange", keepFresh);
showLocks();
keepFresh();
