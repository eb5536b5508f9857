// Charts over time, drawn by uPlot from a JSON address: {"at": […], "lines": [{"name", "tone", "values": […]}]}.
const MINUTE = 60_000;

const locale = navigator.languages.find((tag) => tag.startsWith(document.documentElement.lang)) ?? document.documentElement.lang;
const hour = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const moment = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "short" });

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function options(figure, lines) {
  const ink = colour("ink-soft");
  const grid = { stroke: colour("line"), width: 1 };
  return {
    width: figure.clientWidth,
    height: 240,
    series: [
      { label: figure.dataset.time, value: (_, at) => (at === null ? "–" : moment.format(at * 1000)) },
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.tone),
        fill: line.fill ? colour("water-soft") : undefined,
        dash: line.dash,
        width: 2,
        points: { show: false },
      })),
    ],
    axes: [
      { stroke: ink, grid, ticks: grid, values: (_, times) => times.map((at) => hour.format(at * 1000)) },
      { stroke: ink, grid, ticks: grid, size: 56 },
    ],
    scales: { y: { range: (_, __, largest) => [0, Math.max(largest, 1)] } },
  };
}

async function draw(figure) {
  const response = await fetch(figure.dataset.chart, { headers: { accept: "application/json" } });
  if (!response.ok) return;
  const { at, lines } = await response.json();
  figure.replaceChildren();
  new window.uPlot(options(figure, lines), [at, ...lines.map((line) => line.values)], figure);
}

function drawAll() {
  document.querySelectorAll("[data-chart]").forEach(draw);
}

document.addEventListener("DOMContentLoaded", drawAll);
document.addEventListener("tidemill:theme", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawAll();
  width = innerWidth;
});
setInterval(() => document.hidden || drawAll(), MINUTE);
