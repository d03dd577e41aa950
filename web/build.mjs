// Builds dist/ from the sources: `make web`. What comes out depends on nothing but them and on the pinned esbuild.
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

process.chdir(import.meta.dirname);
rmSync('dist', { recursive: true, force: true });
mkdirSync('dist');

await build({
  entryPoints: { console: 'src/main.tsx' },
  outdir: 'dist',
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'utf8',
  legalComments: 'none',
  banner: { js: `/*! With Preact:\n${readFileSync('node_modules/preact/LICENSE', 'utf8').replaceAll('\r', '').trim()}\n*/` }, // its licence goes where it goes
  logLevel: 'warning',
});
cpSync('src/index.html', 'dist/index.html');
cpSync('src/icon.svg', 'dist/icon.svg');

// A test of the Go package compares these sums with the sources: who changes one and does not build hears of it without npm.
const made = ['build.mjs', 'package-lock.json', 'package.json', 'tsconfig.json', ...readdirSync('src').map((f) => `src/${f}`)];
const sum = (name) => createHash('sha256').update(readFileSync(name)).digest('hex');
writeFileSync('dist/sources.sha256', made.sort().map((name) => `${sum(name)}  ${name}\n`).join(''));
