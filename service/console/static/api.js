// Loads Swagger UI for the OpenAPI document on demand. Its requests carry the page's CSRF token, as forms do.
"use strict";

const container = document.getElementById("api"), button = document.getElementById("try");
const vendor = new URL("vendor/swagger-ui/", document.currentScript.src).href;
const dark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);

// Adds an element to the head; resolves when the browser has loaded it.
function load(tag, attributes) {
  return new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.addEventListener("load", resolve);
    element.addEventListener("error", reject);
    document.head.append(element);
  });
}

async function tryOut() {
  button.ariaBusy = "true";
  button.disabled = true;
  try {
    await Promise.all([
      load("link", {rel: "stylesheet", href: `${vendor}swagger-ui.css`}),
      load("script", {src: `${vendor}swagger-ui-bundle.js`}),
    ]);
  } catch {
    button.ariaBusy = "false";
    button.disabled = false;
    return;
  }
  document.getElementById("reference").hidden = true;
  button.hidden = true;
  dark.addEventListener("change", applyTheme);
  applyTheme();
  SwaggerUIBundle({
    url: container.dataset.document,
    domNode: container,
    docExpansion: "list",
    defaultModelsExpandDepth: -1,
    validatorUrl: null,
    requestInterceptor(request) {
      request.headers["X-CSRF-Token"] = container.dataset.csrf;
      return request;
    },
  });
}

button.addEventListener("click", tryOut);
button.hidden = false;
