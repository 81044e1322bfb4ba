// Progressive enhancement of links and forms. Everything works without it except live updates.
"use strict";

// Fills hidden fields with the browser's time zone, and offers it as a button next to the visible field.
function offerZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of document.querySelectorAll("input[data-zone]")) if (zone) field.value = zone;
  const offer = document.querySelector("button[data-zone]");
  if (!offer || !zone || offer.form.querySelector("input[name=zone]").value === zone) return;
  offer.textContent = `Use browser time zone: ${zone}`;
  offer.value = zone;
  offer.hidden = false;
}

// Checks or unchecks all checkboxes of a name.
function checkAll(event) {
  const name = event.target.dataset?.checks;
  if (!name) return;
  for (const box of event.target.form.querySelectorAll(`input[name="${name}"]`)) box.checked = event.target.checked;
}

// Polls a channel and shows the steps, which the console streams as lines of JSON.
async function trace(event) {
  const form = event.target, url = form.dataset?.trace;
  if (!url) return;
  event.preventDefault();
  const section = document.getElementById("trace"), list = document.createElement("ol");
  const button = form.querySelector("button");
  section.replaceChildren(list);
  section.hidden = false;
  button.ariaBusy = "true";
  const add = (text, className) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (className) item.className = className;
    list.append(item);
  };
  try {
    const response = await fetch(url, {method: "POST", body: new URLSearchParams(new FormData(form))});
    if (!response.ok) throw new Error(`The console answered with status ${response.status}. Reload the page.`);
    let rest = "";
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const step = JSON.parse(line);
        const ms = step.after_s * 1000;
        const after = ms ? ` (${ms < 1000 ? `${ms.toFixed()} ms` : `${step.after_s.toFixed(1)} s`})` : "";
        add(step.text + after, step.success === undefined ? "" : step.success ? "state good" : "state bad");
      }
    }
  } catch (error) {
    add(String(error.message ?? error), "state bad");
  }
  button.ariaBusy = "false";
  document.getElementById("live")?.dispatchEvent(new Event("refresh"));
}

document.addEventListener("change", checkAll);
document.addEventListener("submit", trace);
document.addEventListener("DOMContentLoaded", () => {
  offerZone();
  for (const box of document.querySelectorAll("[data-checks]")) box.hidden = false;
});
