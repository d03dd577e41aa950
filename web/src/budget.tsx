// What a session and all whom it gave work may spend, what they have, and more of it.
import { useRef, useState } from 'preact/hooks';
import { post, type Refused, sessionPath } from './api';
import { refused } from './hooks';
import { Trouble } from './parts';
import { count } from './text';
import type { Amounts, Budget } from './types';

const kinds = ['tokens', 'usd', 'tool_calls', 'wall_ms'] as const;
type Kind = (typeof kinds)[number];
const labels: Record<Kind, string> = { tokens: 'tokens', usd: 'US dollars', tool_calls: 'tool calls', wall_ms: 'seconds' };

function amount(kind: Kind, n: number): string {
  switch (kind) {
    case 'usd': return `$${n.toFixed(n > 0 && n < 0.01 ? 4 : 2)}`;
    case 'wall_ms': return `${count(Math.round(n / 1000))} s`;
    default: return `${count(n)} ${labels[kind]}`;
  }
}

/** amounts says what a budget or a part of it comes to. */
export function amounts(a: Amounts): string {
  return kinds.filter((k) => a[k]).map((k) => amount(k, a[k] ?? 0)).join(', ') || 'nothing';
}

/** BudgetView shows how much of each limit is spent or set aside for what is under way, and adds to it. */
export function BudgetView(p: { session: string; of: Budget; changed: (b: Budget) => void }) {
  const { spent, reserved } = p.of;
  const limited = kinds.filter((k) => p.of.limits[k]);
  return (
    <details class="budget" open={!!p.of.waiting}>
      <summary>
        Budget{' '}
        {limited.map((k) => {
          const most = p.of.limits[k] ?? 0, used = spent[k] ?? 0, held = reserved[k] ?? 0;
          return (
            <span class="limit" key={k}>
              <progress aria-label={`${labels[k]} spent`} max={most} value={Math.min(most, used + held)} /> {amount(k, used)} of {amount(k, most)}{held > 0 && <small> ({amount(k, held)} set aside)</small>}
            </span>
          );
        })}
      </summary>
      <p class="hint">It holds for the session and everybody whom it gives work. What passes it {p.of.on_exceed === 'pause' ? 'waits for more' : 'ends the turn'}.{p.of.waiting ? ` ${p.of.waiting === 1 ? 'One worker waits' : `${p.of.waiting} workers wait`} for more.` : ''}</p>
      <Add session={p.session} kinds={limited} changed={p.changed} />
    </details>
  );
}

function Add(p: { session: string; kinds: Kind[]; changed: (b: Budget) => void }) {
  const [more, setMore] = useState<Partial<Record<Kind, string>>>({});
  const [error, setError] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const sent = useRef({ body: '', id: '' }); // the same amounts after a lost answer are the same change
  const wanted: Amounts = {};
  for (const k of p.kinds) {
    const n = Number(more[k]);
    if (n > 0) wanted[k] = k === 'wall_ms' ? Math.round(n * 1000) : n;
  }
  const add = async () => {
    const body = JSON.stringify(wanted);
    if (busy || body === '{}') return;
    if (sent.current.body !== body) sent.current = { body, id: crypto.randomUUID() };
    setBusy(true);
    try {
      p.changed(await post<Budget>(sessionPath(p.session, '/budget'), { ...wanted, by: 'console', change_id: sent.current.id }));
      sent.current = { body: '', id: '' };
      setMore({});
      setError(undefined);
    } catch (err) { setError(refused(err)); } finally { setBusy(false); }
  };
  return (
    <form aria-label="add to the budget" onSubmit={(e) => { e.preventDefault(); void add(); }}>
      <Trouble error={error} />
      <div class="grid">
        {p.kinds.map((k) => (
          <label key={k}>More {labels[k]}
            <input type="number" min="0" step={k === 'usd' ? 'any' : '1'} value={more[k] ?? ''} onInput={(e) => { const v = e.currentTarget.value; setMore((old) => ({ ...old, [k]: v })); }} />
          </label>
        ))}
      </div>
      <div class="answers"><button type="submit" disabled={busy || !Object.keys(wanted).length}>Add</button></div>
    </form>
  );
}
