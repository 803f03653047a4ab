/** Bundles the page into dist/: `node build.ts`. */

import { copyFile, mkdir, rm } from "node:fs/promises";
import { build } from "esbuild";

const DIST = "dist";

/** The terms of the packages in the bundle, which go with it into the wheel. */
const LICENSES = [
  ["monaco-editor", "LICENSE"],
  ["monaco-editor", "ThirdPartyNotices.txt"],
  ["vscode-jsonrpc", "License.txt"],
  ["vscode-languageserver-protocol", "License.txt"],
] as const;

await rm(DIST, { recursive: true, force: true });
await mkdir(DIST, { recursive: true });
await build({
  entryPoints: { playground: "src/main.ts", "editor.worker": "monaco-editor/editor/editor.worker.js" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2023",
  outdir: DIST,
  assetNames: "[name]",
  loader: { ".ttf": "file" },
  legalComments: "linked",
  logLevel: "warning",
});
await copyFile("src/index.html", `${DIST}/index.html`);
for (const [name, file] of LICENSES) {
  await copyFile(`node_modules/${name}/${file}`, `${DIST}/${name}.${file}`);
}
