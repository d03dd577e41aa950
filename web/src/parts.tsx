// Small parts that several pages have.
import type { ComponentChildren } from 'preact';
import type { Refused } from './api';
import { marked, plain } from './text';

/** State is a word of the server, as it is: colour only repeats it. */
export function State(p: { of: string; label?: string }) {
  return <span class={`state s-${/^[a-z_]+$/.test(p.of) ? p.of : 'other'}`} title={p.label}>{marked(p.of)}</span>;
}

export function Trouble(p: { error: Refused | undefined; children?: ComponentChildren }) {
  if (!p.error) return null;
  return (
    <div class="trouble" role="alert">
      <strong>{marked(p.error.message)}</strong> {p.error.hint && <span>{marked(p.error.hint)} </span>}
      {p.error.code && <code>{marked(p.error.code)}</code>} {p.children}
    </div>
  );
}

export function Empty(p: { children: ComponentChildren }) { return <p class="empty">{p.children}</p>; }

export interface Page<T> { items: T[]; page: number; pages: number; from: number; total: number }

/** pageOf is one page of a list; a page that is not there is the nearest one. */
export function pageOf<T>(all: T[], page: number, size: number): Page<T> {
  const pages = Math.max(1, Math.ceil(all.length / size));
  const at = Math.min(Math.max(1, Number.isFinite(page) ? Math.floor(page) : 1), pages);
  return { items: all.slice((at - 1) * size, at * size), page: at, pages, from: (at - 1) * size, total: all.length };
}

export function Pager(p: { of: Page<unknown>; go: (page: number) => void; what: string }) {
  const { page, pages, from, items, total } = p.of;
  if (pages <= 1) return null;
  return (
    <nav class="pager" aria-label={`pages of ${p.what}`}>
      <button type="button" disabled={page <= 1} onClick={() => p.go(page - 1)}>Previous</button>
      <span>{from + 1} to {from + items.length} of {total}</span>
      <button type="button" disabled={page >= pages} onClick={() => p.go(page + 1)}>Next</button>
    </nav>
  );
}

/** short is an id as far as it helps to tell it from others. */
export function Id(p: { of: string }) { return <code class="id" title={plain(p.of)}>{marked(p.of.length > 14 ? `${p.of.slice(0, 4)}\u2026${p.of.slice(-6)}` : p.of)}</code>; }
