// Swagger UI over our own document; what is tried out carries the page's CSRF token, as a form would.
"use strict";

const operations = document.getElementById("operations");

SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  domNode: operations,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
  requestInterceptor(request) {
    request.headers["X-CSRF-Token"] = operations.dataset.csrf;
    return request;
  },
});
