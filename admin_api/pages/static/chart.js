// The chart of write bursts and the drain: samples of the history, then live figures.
"use strict";

const figure = document.querySelector("[data-chart]");
const canvas = figure.querySelector(".canvas");
const caption = figure.querySelector("figcaption");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const timeZone = figure.dataset.zone; // the gateway's, as in all other places of the pages
let chart = null;
let seconds = 3600;

// The form of gateway.common.units.size: the figures beside the chart have it.
function size(bytes) {
  let at = 0;
  while (bytes >= (at ? 1023.95 : 1024) && at < UNITS.length - 1) { bytes /= 1024; at += 1; }
  return `${bytes.toFixed(at ? 1 : 0)} ${UNITS[at]}`;
}

// The colours are those of the stylesheet, which knows light from dark.
function colour(name) {
  const probe = document.createElement("span");
  probe.className = `chart-${name}`;
  figure.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function series(label, name, scale, unit, fill) {
  return {
    label, scale, stroke: colour(name), width: 2, spanGaps: false, points: { show: false },
    fill: fill ? colour(`${name}-area`) : undefined,
    value: (_chart, value) => (value == null ? "–" : size(value) + unit),
  };
}

function axis(scale, side, unit, grid) {
  return {
    scale, side, stroke: colour("text"), size: 74, font: "12px system-ui",
    grid: { show: grid, stroke: colour("grid"), width: 1 }, ticks: { show: false },
    values: (_chart, values) => values.map((value) => (value == null ? "" : size(value).replace(".0 ", " ") + unit)),
    splits: (_chart, _axis, _low, high) => steps(high),
  };
}

// Four steps of a power of two each, so that their labels are short.
function steps(high) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(high, 4) / 4));
  const found = [];
  for (let value = 0; value <= high; value += step) found.push(value);
  return found;
}

// The whole time that was asked for, also if there are samples of a part of it only.
const whole = () => [Date.now() / 1000 - seconds, Date.now() / 1000];
const upTo = (_chart, _low, high) => [0, Math.max(1, (high ?? 1) * 1.1)];

function draw(data) {
  chart?.destroy();
  chart = null;
  canvas.textContent = "";
  if (data[0].length === 0) {
    canvas.textContent = "There are no samples yet. One is taken every minute.";
    return;
  }
  const isNarrow = canvas.clientWidth < 560;
  chart = new uPlot({
    width: canvas.clientWidth, height: canvas.clientHeight,
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    legend: { show: false },
    hooks: { setCursor: [(drawn) => legend(drawn, drawn.cursor.idx)] },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), timeZone),
    scales: { x: { range: whole }, rate: { range: upTo }, bytes: { range: upTo } },
    axes: [
      { stroke: colour("text"), font: "12px system-ui", grid: { show: false }, ticks: { show: false },
        size: 30, space: isNarrow ? 70 : 90,
        values: (_chart, values, _at, _space, step) => values.map((value) => clock(value, step)) },
      axis("rate", 3, "/s", true),
      ...(isNarrow ? [] : [axis("bytes", 1, "", false)]),
    ],
    series: [
      { label: "Time", value: (_chart, value) => (value == null ? "–" : clock(value, 1)) },
      series("Only here", "dirty", "bytes", "", true), // below the lines
      series("Written", "written", "rate", "/s", false),
      series("Sent", "sent", "rate", "/s", false),
    ],
  }, data, canvas);
  legend(chart, null);
}

// The values under the pointer, or the newest ones. A sample is up to a minute old, and may be the
// most of a step: it is shown with its time, because the figures above it are of now.
function legend(drawn, index) {
  const at = index ?? drawn.data[0].length - 1;
  for (const value of document.querySelectorAll("[data-value]")) {
    const found = drawn.data[Number(value.dataset.value)][at];
    value.textContent = found == null ? "" : size(found) + value.dataset.unit;
  }
  const time = document.querySelector("[data-time]");
  time.textContent = moment(drawn.data[0][at]);
}

const moment = (at) => (seconds > 86400 ? `${clock(at, 86400)} ` : "") + clock(at, 1);

function clock(at, step) {
  const date = new Date(at * 1000);
  const day = { month: "2-digit", day: "2-digit", timeZone };
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone };
  return step >= 86400 ? date.toLocaleDateString("sv", day) : date.toLocaleTimeString("sv", time);
}

function tell(data) {
  const most = (column) => Math.max(0, ...data[column].filter((value) => value != null));
  caption.textContent = data[0].length === 0
    ? "There are no samples yet."
    : `At most ${size(most(2))} per second were written, ${size(most(3))} per second were sent, `
      + `and ${size(most(1))} were only on this gateway.`;
}

async function load() {
  const answer = await fetch(`${figure.dataset.chart}?seconds=${seconds}`);
  if (!answer.ok) return;
  const data = await answer.json();
  tell(data);
  draw(data);
}

document.querySelector("[data-chart-ranges]").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  for (const other of button.parentElement.children) other.setAttribute("aria-pressed", other === button);
  seconds = Number(button.dataset.seconds);
  load();
});
new ResizeObserver(() => chart?.setSize({ width: canvas.clientWidth, height: canvas.clientHeight })).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", load);
let loaded = Date.now();
document.body.addEventListener(figure.dataset.live, () => {
  if (seconds > 3600 || Date.now() - loaded < 15000) return; // a sample is taken every minute
  loaded = Date.now();
  load();
});
load();
