// Keyboard shortcuts: / searches, ? shows the shortcuts, g and a letter opens a page.
let awaitingPageKey = false;

function isTyping(target) {
  return target.closest("input, select, textarea, [contenteditable]") !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (awaitingPageKey) {
    awaitingPageKey = false;
    const link = document.querySelector(`.navigation a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
  } else if (event.key === "g") {
    awaitingPageKey = true;
    setTimeout(() => (awaitingPageKey = false), 1500);
  } else if (event.key === "?") {
    document.getElementById("keys").showModal();
  } else if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});
