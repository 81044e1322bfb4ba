// What the pages do beyond links and forms. Everything works without this, but for what is live.
"use strict";

// Where a form may take the browser's time zone: a hidden field is filled, a field of its own is offered it.
function offerZone() {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of document.querySelectorAll("input[data-zone]")) if (here) field.value = here;
  const offer = document.querySelector("button[data-zone]");
  if (!offer || !here || offer.form.zone.value === here) return;
  offer.textContent = `This browser’s: ${here}`;
  offer.value = here;
  offer.hidden = false;
}

// A box that ticks all boxes of a name.
function tickAll(event) {
  const name = event.target.dataset?.ticks;
  if (!name) return;
  for (const box of event.target.form.querySelectorAll(`input[name="${name}"]`)) box.checked = event.target.checked;
}

// A poll that tells its steps, a line of JSON each.
async function trace(event) {
  const form = event.target, where = form.dataset?.trace;
  if (!where) return;
  event.preventDefault();
  const section = document.getElementById("trace"), list = document.createElement("ol");
  const button = form.querySelector("button");
  section.replaceChildren(list);
  section.hidden = false;
  button.ariaBusy = "true";
  const add = (words, look) => {
    const item = document.createElement("li");
    item.textContent = words;
    if (look) item.className = look;
    list.append(item);
  };
  try {
    const answer = await fetch(where, {method: "POST", body: new URLSearchParams(new FormData(form))});
    if (!answer.ok) throw new Error(`The console answered ${answer.status}. Reload the page.`);
    let rest = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const told = JSON.parse(line);
        const ms = told.after_s * 1000;
        const after = ms ? ` (${ms < 1000 ? `${ms.toFixed()} ms` : `${told.after_s.toFixed(1)} s`})` : "";
        add(told.words + after, told.well === undefined ? "" : told.well ? "state good" : "state bad");
      }
    }
  } catch (error) {
    add(String(error.message ?? error), "state bad");
  }
  button.ariaBusy = "false";
  document.getElementById("live")?.dispatchEvent(new Event("refresh"));
}

document.addEventListener("change", tickAll);
document.addEventListener("submit", trace);
document.addEventListener("DOMContentLoaded", () => {
  offerZone();
  for (const box of document.querySelectorAll("[data-ticks]")) box.hidden = false;
});
