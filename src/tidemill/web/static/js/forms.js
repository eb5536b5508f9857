// Forms: the value that shows they come from this page, the question before what cannot be undone, and choosing rows.
const ask = document.getElementById("confirm");

function token(form) {
  if (form.method !== "post" || form.elements.csrf) return;
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = "csrf";
  field.value = document.querySelector('meta[name="csrf"]').content;
  form.append(field);
}

function question(form, submitter) {
  const verb = ask.querySelector("[data-verb]");
  const typed = ask.querySelector("#confirm-typed");
  const said = submitter?.dataset.confirm ?? form.dataset.confirm;
  ask.classList.toggle("alarm", "danger" in form.dataset || "danger" in (submitter?.dataset ?? {}));
  ask.querySelector("h2").textContent = form.dataset.many === undefined ? said : said.replace("%", form.dataset.many);
  verb.textContent = submitter?.dataset.verb ?? form.dataset.verb ?? submitter?.textContent ?? "";
  typed.value = "";
  typed.closest(".field").hidden = !form.dataset.typed;
  ask.querySelector("code").textContent = form.dataset.typed ?? "";
  verb.disabled = Boolean(form.dataset.typed);
  typed.oninput = () => (verb.disabled = typed.value !== form.dataset.typed);
  ask.returnValue = "";
  ask.onclose = () => {
    if (ask.returnValue !== "yes") return;
    form.dataset.confirmed = "";
    form.requestSubmit(submitter);
  };
  ask.showModal();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const asks = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (asks && !("confirmed" in form.dataset)) {
    event.preventDefault();
    question(form, event.submitter);
    return;
  }
  delete form.dataset.confirmed;
  token(form);
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens).showModal();
  if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
});

// Rows are chosen by boxes that belong to one form; the box in the head means all of them.
function count(form) {
  const boxes = [...document.querySelectorAll(`input[name="ids"][form="${form.id}"]`)];
  const chosen = boxes.filter((box) => box.checked).length;
  const all = document.querySelector(`[data-all="${form.id}"]`);
  if (all) {
    all.checked = boxes.length > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
  const every = form.elements.every?.checked;
  form.dataset.many = every ? form.dataset.matching : chosen;
  form.hidden = !chosen && !every;
  const told = form.querySelector("[data-told]");
  if (told) told.textContent = form.dataset.many;
}

document.addEventListener("htmx:sseMessage", () => document.querySelectorAll("form[data-matching]").forEach(count));

document.addEventListener("change", (event) => {
  const all = event.target.dataset.all;
  if (all) {
    document.querySelectorAll(`input[name="ids"][form="${all}"]`).forEach((box) => (box.checked = event.target.checked));
  }
  const form = all ? document.getElementById(all) : event.target.form;
  if (form && "matching" in form.dataset) count(form);
});
