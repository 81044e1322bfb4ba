// Swagger UI over our own document, fetched when somebody wants to try something out; it carries the page's CSRF token,
// as a form would.
"use strict";

const place = document.getElementById("api"), begin = document.getElementById("try");
const vendor = "/static/vendor/swagger-ui/";
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);

// Resolves when the browser has it.
function fetched(tag, attributes) {
  return new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.addEventListener("load", resolve);
    element.addEventListener("error", reject);
    document.head.append(element);
  });
}

async function tryOut() {
  begin.ariaBusy = "true";
  begin.disabled = true;
  try {
    await Promise.all([
      fetched("link", {rel: "stylesheet", href: `${vendor}swagger-ui.css`}),
      fetched("script", {src: `${vendor}swagger-ui-bundle.js`}),
    ]);
  } catch {
    begin.ariaBusy = "false";
    begin.disabled = false;
    return;
  }
  document.getElementById("reference").hidden = true;
  begin.hidden = true;
  dark.addEventListener("change", follow);
  follow();
  SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    docExpansion: "list",
    defaultModelsExpandDepth: -1,
    validatorUrl: null,
    requestInterceptor(request) {
      request.headers["X-CSRF-Token"] = place.dataset.csrf;
      return request;
    },
  });
}

begin.addEventListener("click", tryOut);
begin.hidden = false;
