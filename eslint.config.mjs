import js from "@eslint/js";
import globals from "globals";

const pages = ["src/neuralcollapse/web/**/*.js", "docs/assets/*.js"];

export default [
  { ignores: [".venv", "node_modules", "site", "build", "dist"] },
  { files: ["**/*.js", "**/*.mjs"], ...js.configs.recommended },
  { files: pages, languageOptions: { globals: { ...globals.browser, Plotly: "readonly", module: "readonly" } } },
  { files: ["**/*.mjs"], languageOptions: { globals: globals.node } },
  {
    files: ["**/*.js", "**/*.mjs"],
    rules: {
      eqeqeq: "error",
      "no-implicit-globals": "error",
      "no-shadow": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
];
