// What the store has lost, above every page: what is listed may lack it.
import { get } from './api';
import { usePolled } from './hooks';
import { cut, marked } from './text';

interface Finding { stream?: string; seq?: number; problem: string }

const shown = 10;

export function Damage(p: { tries: number }) {
  const found = usePolled<Finding[]>((signal) => get('/api/damage', signal), 60_000, `damage ${p.tries}`).value ?? [];
  if (!found.length) return null;
  return (
    <aside class="trouble damage" aria-label="damage">
      <strong role="alert">The store is damaged: what stands here may lack what was lost.</strong>
      <details>
        <summary>{found.length === 1 ? 'What is missing' : `What is missing: ${found.length} parts`}</summary>
        <ul>
          {found.slice(0, shown).map((f, i) => <li key={i}>{f.stream && <code>{marked(cut(f.stream, 200))}</code>}{f.seq ? <> record {f.seq}</> : null} {marked(cut(f.problem, 400))}</li>)}
        </ul>
        {found.length > shown && <p>and {found.length - shown} more</p>}
      </details>
      <p>All that is wrong: <code>troupe verify</code>. What could be saved: <code>troupe repair</code>, once the server is stopped, or a backup: <code>troupe restore</code>.</p>
    </aside>
  );
}
