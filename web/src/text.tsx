// Text of models, tools and people. All of it becomes text nodes, never markup; what would hide or reorder it is shown as a mark.
import { useState } from 'preact/hooks';
import type { ComponentChildren } from 'preact';

// Controls, bidirectional overrides, invisible characters, tags. The joiners have their place in emoji and in some scripts: only
// strict text, which somebody decides about, shows them.
const loose = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]+/gu;
const strict = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}]+/gu;

/** named writes characters that cannot be seen: U+001B for an escape, U+202E for an override. */
function named(run: string): string {
  return [...run].map((c) => `U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`).join(' ');
}

/** marked is a text with marks where something could not be seen. */
export function marked(text: string, o: { strict?: boolean } = {}): ComponentChildren {
  const clean = text.replaceAll('\r\n', '\n');
  const out: ComponentChildren[] = [];
  let from = 0;
  for (const m of clean.matchAll(o.strict ? strict : loose)) {
    if (m.index > from) out.push(clean.slice(from, m.index));
    out.push(<span class="mark" title="characters that cannot be seen">{named(m[0])}</span>);
    from = m.index + m[0].length;
  }
  if (!out.length) return clean;
  out.push(clean.slice(from));
  return out;
}

/** plain is marked for places that take no elements, such as titles. */
export function plain(text: string, most = 200): string {
  const s = text.replace(/\s+/g, ' ').replace(strict, (run) => named(run)).trim();
  return s.length > most ? cut(s, most) + '\u2026' : s;
}

/** cut shortens without halving a character. */
export function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last < 0xdc00 ? most - 1 : most);
}

const firstPiece = 6000;
const nextPiece = 100_000;

/** end is the end of a text, without half a character. */
function end(text: string, most: number): string {
  if (text.length <= most) return text;
  const first = text.charCodeAt(text.length - most);
  return text.slice(text.length - most + (first >= 0xdc00 && first < 0xe000 ? 1 : 0));
}

/** Long shows a text of any length, the rest of it on demand; of one that still grows, the end. */
export function Long(p: { text: string; strict?: boolean; class?: string; first?: number; tail?: boolean }) {
  const [most, setMost] = useState(p.first ?? firstPiece);
  const shown = p.tail ? end(p.text, most) : cut(p.text, most);
  const left = p.text.length - shown.length;
  const more = left > 0 && <button type="button" class="more" onClick={() => setMost(most + nextPiece)}>{p.tail ? `Show more: ${count(left)} characters came before` : `Show more: ${count(left)} characters are left`}</button>;
  return (
    <>
      {p.tail && more}
      <pre class={`text ${p.class ?? ''}`} dir="auto">{marked(shown, { strict: !!p.strict })}</pre>
      {!p.tail && more}
    </>
  );
}

export function count(n: number): string { return n.toLocaleString('en'); }

export function took(us: number): string {
  if (us < 1000) return `${us} µs`;
  if (us < 1_000_000) return `${Math.round(us / 1000)} ms`;
  return `${(us / 1_000_000).toFixed(1)} s`;
}

/** pretty lays JSON out; what is no JSON stays as it is. */
export function pretty(text: string): string {
  if (text.length > 200_000) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
