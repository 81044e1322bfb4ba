// Swagger UI over our own document; what is tried out carries the page's CSRF token, as a form would.
"use strict";

const place = document.getElementById("api");
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  domNode: place,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
  requestInterceptor(request) {
    request.headers["X-CSRF-Token"] = place.dataset.csrf;
    return request;
  },
});
