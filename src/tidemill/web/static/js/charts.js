// Charts over time, drawn by uPlot from a JSON address: {"at": […], "lines": [{"name", "tone", "values": […]}]}.
const MINUTE = 60_000;

const place = navigator.languages.find((tag) => tag.startsWith(document.documentElement.lang)) ?? document.documentElement.lang;
const hour = new Intl.DateTimeFormat(place, { timeStyle: "short" });
const moment = new Intl.DateTimeFormat(place, { dateStyle: "short", timeStyle: "short" });

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
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
    scales: { y: { range: (_, __, most) => [0, Math.max(most, 1)] } },
  };
}

async function draw(figure) {
  const answer = await fetch(figure.dataset.chart, { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const { at, lines } = await answer.json();
  figure.replaceChildren();
  new window.uPlot(options(figure, lines), [at, ...lines.map((line) => line.values)], figure);
}

function all() {
  document.querySelectorAll("[data-chart]").forEach(draw);
}

document.addEventListener("DOMContentLoaded", all);
document.addEventListener("tidemill:theme", all);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide) all();
  wide = innerWidth;
});
setInterval(() => document.hidden || all(), MINUTE);
