// Shows times in the viewer's time zone and updates relative times every second.
const labels = document.documentElement.dataset;
const units = labels.units.split(" ");
const sizes = [86400, 3600, 60, 1];
const locale = navigator.languages.find((tag) => tag.startsWith(document.documentElement.lang)) ?? document.documentElement.lang;
const near = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const far = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });
const HALF_A_YEAR = 183 * 86_400_000;
const minute = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const second = new Intl.DateTimeFormat(locale, { timeStyle: "medium" });
const whole = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });

function duration(seconds) {
  let left = Math.floor(seconds);
  const parts = sizes.map((size, index) => {
    const many = Math.floor(left / size);
    left %= size;
    return many ? `${many} ${units[index]}` : "";
  });
  const first = parts.findIndex((part) => part);
  if (first < 0) return `0 ${units[3]}`;
  return parts.slice(first, first + 2).filter((part) => part).join(" ");
}

function format(element, at) {
  const now = Date.now();
  const past = (now - at) / 1000;
  if ("when" in element.dataset) {
    if (new Date(at).toDateString() !== new Date(now).toDateString()) return (Math.abs(at - now) < HALF_A_YEAR ? near : far).format(at);
    return (at % 60_000 ? second : minute).format(at);
  }
  if ("since" in element.dataset) return duration(Math.max(past, 0));
  if ("until" in element.dataset) return past >= 0 ? labels.due : duration(-past);
  if (past < -1) return labels.ahead.replace("%", duration(-past));
  return past < 1 ? labels.now : labels.ago.replace("%", duration(past));
}

function update(element) {
  const at = Date.parse(element.dateTime);
  if (Number.isNaN(at)) return;
  const text = format(element, at);
  if (element.textContent !== text) element.textContent = text;
  if (!element.title) element.title = whole.format(at);
}

function tick() {
  document.querySelectorAll("time[data-when], time[data-ago], time[data-since], time[data-until]").forEach(update);
}

tick();
setInterval(tick, 1000);
document.addEventListener("htmx:sseMessage", tick);
