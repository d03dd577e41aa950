// Where one is: the address holds everything that a link should bring back.
import { useEffect, useState } from 'preact/hooks';
import type { ComponentChildren } from 'preact';

export interface Place { path: string[]; query: URLSearchParams; hash: string }

function here(): Place {
  return { path: location.pathname.split('/').filter(Boolean).map(decoded), query: new URLSearchParams(location.search), hash: location.hash.slice(1) };
}

function decoded(s: string): string {
  try { return decodeURIComponent(s); } catch { return s; }
}

const moved = 'troupe:moved';

/** go opens an address of the console. */
export function go(to: string, o: { replace?: boolean } = {}): void {
  if (o.replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  dispatchEvent(new Event(moved));
  if (!o.replace) scrollTo(0, 0);
}

/** filter changes parts of the query; empty ones are left out. */
export function filter(change: Record<string, string>): void {
  const q = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(change)) {
    if (v) q.set(k, v);
    else q.delete(k);
  }
  const s = q.toString();
  go(location.pathname + (s ? `?${s}` : ''), { replace: true });
}

export function usePlace(): Place {
  const [place, set] = useState(here);
  useEffect(() => {
    const f = () => set(here());
    addEventListener('popstate', f);
    addEventListener(moved, f);
    return () => { removeEventListener('popstate', f); removeEventListener(moved, f); };
  }, []);
  return place;
}

export function Link(p: { to: string; class?: string; current?: boolean; children: ComponentChildren; label?: string }) {
  const open = (e: MouseEvent) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    go(p.to);
  };
  return <a href={p.to} class={p.class ?? ''} aria-current={p.current ? 'page' : undefined} aria-label={p.label} onClick={open}>{p.children}</a>;
}

/** in an address: ids and names of other people's making. */
export const sessionLink = (id: string, rest = '') => `/sessions/${encodeURIComponent(id)}${rest}`;
