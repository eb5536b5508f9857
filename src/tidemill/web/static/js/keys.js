// The keyboard: / searches, ? explains, g and a letter goes to a page.
let going = false;

function typing(target) {
  return target.closest("input, select, textarea, [contenteditable]") !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (going) {
    going = false;
    const way = document.querySelector(`.ways a[data-key="${CSS.escape(event.key)}"]`);
    if (way) way.click();
  } else if (event.key === "g") {
    going = true;
    setTimeout(() => (going = false), 1500);
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
