// A unified diff, line by line. The signs stay, so that colour is not all that tells lines apart.
import { useState } from 'preact/hooks';
import { marked, count, cut } from './text';

const firstLines = 200;
const longestLine = 2000;

function kind(line: string): string {
  if (line.startsWith('+++') || line.startsWith('---')) return 'file';
  if (line.startsWith('@@')) return 'hunk';
  if (line.startsWith('+')) return 'add';
  if (line.startsWith('-')) return 'del';
  return '';
}

export function Diff(p: { text: string }) {
  const [most, setMost] = useState(firstLines);
  const [whole, setWhole] = useState(false);
  const lines = p.text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  const shown = lines.slice(0, most);
  const long = shown.some((l) => l.length > longestLine);
  return (
    <div class="diff">
      <pre tabIndex={0} aria-label="diff">
        {shown.map((l, i) => (
          <span key={i} class={`line ${kind(l)}`}>{marked(whole ? l : cut(l, longestLine), { strict: true })}{!whole && l.length > longestLine && '\u2026'}{'\n'}</span>
        ))}
      </pre>
      {lines.length > most && <button type="button" class="more" onClick={() => setMost(most * 4)}>Show more: {count(lines.length - most)} lines are left</button>}
      {long && !whole && <button type="button" class="more" onClick={() => setWhole(true)}>Show long lines whole</button>}
    </div>
  );
}

/** looksLikeDiff tells a diff from a command or arguments. */
export function looksLikeDiff(text: string): boolean { return /^(---|diff |@@) ?/m.test(text) && /^@@/m.test(text); }
