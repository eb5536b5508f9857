// Forms: adds the CSRF token, asks for confirmation, uploads files, and selects rows.
const dialog = document.getElementById("confirm");

function addCsrfToken(form) {
  if (form.method !== "post" || form.elements.csrf) return;
  const field = document.createElement("input");
  field.type = "hidden";
  field.name = "csrf";
  field.value = document.querySelector('meta[name="csrf"]').content;
  form.append(field);
}

function askForConfirmation(form, submitter) {
  const verb = dialog.querySelector("[data-confirm-label]");
  const typed = dialog.querySelector("#confirm-typed");
  const question = submitter?.dataset.confirm ?? form.dataset.confirm;
  dialog.classList.toggle("alarm", "danger" in form.dataset || "danger" in (submitter?.dataset ?? {}));
  dialog.querySelector("h2").textContent = form.dataset.selected === undefined ? question : question.replace("%", form.dataset.selected);
  verb.textContent = submitter?.dataset.confirmLabel ?? form.dataset.confirmLabel ?? submitter?.textContent ?? "";
  typed.value = "";
  typed.closest(".field").hidden = !form.dataset.confirmText;
  dialog.querySelector("code").textContent = form.dataset.confirmText ?? "";
  verb.disabled = Boolean(form.dataset.confirmText);
  typed.oninput = () => (verb.disabled = typed.value !== form.dataset.confirmText);
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue !== "yes") return;
    form.dataset.confirmed = "";
    form.requestSubmit(submitter);
  };
  dialog.showModal();
}

// A form with `data-upload` sends its file as the body, which the server streams, and then opens that path.
async function sendFile(form) {
  const [file] = form.querySelector('input[type="file"]').files;
  const failure = form.querySelector('[role="alert"]');
  const response = await fetch(form.action, {
    method: "POST",
    redirect: "manual",
    headers: {
      accept: "application/json",
      "content-type": file.type || "application/octet-stream",
      "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(file.name)}`,
      "x-csrf": document.querySelector('meta[name="csrf"]').content,
    },
    body: file,
  });
  if (response.ok || response.type === "opaqueredirect") location.assign(form.dataset.upload);
  else failure.textContent = (await response.json()).detail;
  failure.hidden = response.ok || response.type === "opaqueredirect";
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (question && !("confirmed" in form.dataset)) {
    event.preventDefault();
    askForConfirmation(form, event.submitter);
    return;
  }
  delete form.dataset.confirmed;
  if ("upload" in form.dataset) {
    event.preventDefault();
    sendFile(form);
    return;
  }
  addCsrfToken(form);
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens-dialog]");
  if (opener) document.getElementById(opener.dataset.opensDialog).showModal();
  if (event.target.closest("[data-closes-dialog]")) event.target.closest("dialog").close();
});

// The checkboxes of a table belong to one form; the checkbox in its head selects all rows.
function updateSelection(form) {
  const boxes = [...document.querySelectorAll(`input[name="ids"][form="${form.id}"]`)];
  const selected = boxes.filter((box) => box.checked).length;
  const all = document.querySelector(`[data-all="${form.id}"]`);
  if (all) {
    all.checked = boxes.length > 0 && selected === boxes.length;
    all.indeterminate = selected > 0 && selected < boxes.length;
  }
  const every = form.elements.every?.checked;
  form.dataset.selected = every ? form.dataset.matching : selected;
  form.hidden = !selected && !every;
  const counter = form.querySelector("[data-selected-count]");
  if (counter) counter.textContent = form.dataset.selected;
}

document.addEventListener("htmx:sseMessage", () => document.querySelectorAll("form[data-matching]").forEach(updateSelection));

document.addEventListener("change", (event) => {
  const all = event.target.dataset.all;
  if (all) {
    document.querySelectorAll(`input[name="ids"][form="${all}"]`).forEach((box) => (box.checked = event.target.checked));
  }
  const form = all ? document.getElementById(all) : event.target.form;
  if (form && "matching" in form.dataset) updateSelection(form);
});
