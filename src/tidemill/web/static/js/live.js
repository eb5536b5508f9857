// Shows the state of the live stream, and protects user input from live updates.
const state = document.querySelector(".live-state");

function setState(name) {
  if (!state || state.dataset.state === name) return;
  state.dataset.state = name;
  state.textContent = state.dataset[name];
}

document.addEventListener("htmx:sseOpen", () => setState("live"));
document.addEventListener("htmx:sseError", async (event) => {
  setState("reconnecting");
  if (event.detail.source.readyState !== EventSource.CLOSED) return;
  const response = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (response?.redirected || response?.status === 401) location.reload(); // the session has ended: sign in again
});

// A live update keeps what the user opened or checked.
const keptAttributes = { DETAILS: "open", DIALOG: "open", INPUT: "checked" };
document.addEventListener("DOMContentLoaded", () => {
  window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => keptAttributes[node.tagName] !== name;
});
