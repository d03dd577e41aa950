// Workers with their states, in one session or in all.
import { get, post, type Refused, sessionPath } from './api';
import { refused, usePolled } from './hooks';
import { useState } from 'preact/hooks';
import { Empty, Id, Pager, pageOf, State, Trouble } from './parts';
import { filter, Link, type Place, sessionLink } from './route';
import { Ago } from './now';
import { count, cut, marked, plain } from './text';
import { type Worker, workerStates } from './types';

const rows = 50;

/** byParent puts those that were given work below who gave it, and says how deep: nobody is lost, also with parents that are elsewhere. */
function byParent(all: Worker[]): [Worker, number][] {
  const known = new Set(all.map((w) => w.id));
  const below = new Map<string, Worker[]>();
  for (const w of all) {
    const at = w.parent && w.parent !== w.id && known.has(w.parent) ? w.parent : '';
    below.set(at, [...(below.get(at) ?? []), w]);
  }
  const out: [Worker, number][] = [];
  const left = new Set(all);
  const add = (w: Worker, depth: number): void => {
    if (!left.delete(w)) return;
    out.push([w, depth]);
    for (const child of below.get(w.id) ?? []) add(child, depth + 1);
  };
  for (const w of below.get('') ?? []) add(w, 0);
  for (const w of left) add(w, 0);
  return out;
}

export function WorkersPage(p: { session?: string; place: Place }) {
  const loaded = usePolled<Worker[]>((signal) => get(p.session ? sessionPath(p.session, '/workers') : '/api/workers', signal), 3000, p.session ?? '*');
  const [error, setError] = useState<Refused>();
  const state = p.place.query.get('state') ?? '';
  const all = loaded.value ?? [];
  const list = all.filter((w) => !state || w.state === state);
  const page = pageOf(state ? list.map((w): [Worker, number] => [w, 0]) : byParent(list), Number(p.place.query.get('page')) || 1, rows);
  const act = (w: Worker, what: string) => (what === 'release'
    ? post(sessionPath(w.session, `/workers/${encodeURIComponent(w.id)}/release`), { by: 'console' })
    : post(sessionPath(w.session, '/cancel'), { worker: w.id, by: 'console' })).then(() => { setError(undefined); loaded.again(); }, (err) => setError(refused(err)));
  return (
    <>
      {!p.session && <h1>Workers</h1>}
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <label>State
          <select value={state} onChange={(e) => filter({ state: e.currentTarget.value, page: '' })}>
            <option value="">any ({all.length})</option>
            {workerStates.map((s) => <option key={s} value={s}>{s} ({all.filter((w) => w.state === s).length})</option>)}
          </select>
        </label>
      </form>
      <Trouble error={error ?? loaded.error} />
      {p.session && all.length > 1 && <p class="meta">{all.length} workers, {count(all.reduce((n, w) => n + w.usage.input_tokens + w.usage.output_tokens, 0))} tokens, ${all.reduce((n, w) => n + w.usage.cost_usd, 0).toFixed(4)}</p>}
      {loaded.value && !list.length && <Empty>No worker {state ? 'is in this state' : 'was made yet'}.</Empty>}
      <ul class="rows" aria-label="workers">
        {page.items.map(([w, depth]) => (
          <li key={w.id} class={`item deep-${Math.min(depth, 6)}`}>
            <span class="name">{plain(w.agent || 'default', 60)} <State of={w.state} />{w.quarantined && <State of="quarantined" />}</span>
            <span class="meta">
              <Id of={w.id} />{!p.session && <> · <Link to={sessionLink(w.session)}>session</Link></>}{w.model && <> · {plain(w.model, 60)}</>} · {w.turns} {w.turns === 1 ? 'turn' : 'turns'}{w.staged > 0 && <>, {w.staged} waiting</>} · {w.restarts} {w.restarts === 1 ? 'restart' : 'restarts'}
              {w.parent && <> · works for <Id of={w.parent} />{w.background && ', in the background'}</>}{w.waiting?.instead_of && <> · stands in for {plain(w.waiting.instead_of, 60)}</>} · {count(w.usage.input_tokens + w.usage.output_tokens)} tokens · <Ago at={w.updated_at} />
            </span>
            {w.waits_for && <span class="meta">waits for {marked(cut(w.waits_for, 300))}</span>}
            {w.last_error && <span class="meta bad" dir="auto">{marked(cut(w.last_error, 300))}</span>}
            {(w.turn || w.quarantined) && (
              <span>
                {w.turn && <button type="button" onClick={() => void act(w, 'cancel')}>Stop the turn</button>}
                {w.quarantined && <button type="button" onClick={() => void act(w, 'release')}>Release</button>}
              </span>
            )}
          </li>
        ))}
      </ul>
      <Pager of={page} what="workers" go={(n) => filter({ page: n > 1 ? String(n) : '' })} />
    </>
  );
}
