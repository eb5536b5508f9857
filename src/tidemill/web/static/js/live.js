// Whether what is seen is what is: the stream of a live page, and what a redraw must leave alone.
const state = document.querySelector(".live-state");

function tell(name) {
  if (!state || state.dataset.state === name) return;
  state.dataset.state = name;
  state.textContent = state.dataset[name];
}

document.addEventListener("htmx:sseOpen", () => tell("live"));
document.addEventListener("htmx:sseError", async (event) => {
  tell("reconnecting");
  if (event.detail.source.readyState !== EventSource.CLOSED) return;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (answer?.redirected || answer?.status === 401) location.reload(); // the session has ended: sign in again
});

// What somebody opened, chose or marked stays so when the part around it is drawn again.
const theirs = { DETAILS: "open", DIALOG: "open", INPUT: "checked" };
document.addEventListener("DOMContentLoaded", () => {
  window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => theirs[node.tagName] !== name;
});
