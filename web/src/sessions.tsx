// All sessions, newest first. The filters are in the address.
import { useState } from 'preact/hooks';
import { getList, post, type Refused } from './api';
import { refused, useDraft, usePolled } from './hooks';
import { Empty, Id, Pager, pageOf, State, Trouble } from './parts';
import { filter, go, Link, type Place, sessionLink } from './route';
import { Ago } from './now';
import { marked, plain } from './text';
import { type Session, workerStates } from './types';

const rows = 25;
const most = 2000;

export function Sessions(p: { place: Place }) {
  const { value, error } = usePolled<Session[]>((signal) => getList(`/api/sessions?limit=${most}`, signal), 4000, 'sessions');
  const q = p.place.query.get('q') ?? '';
  const state = p.place.query.get('state') ?? '';
  const list = (value ?? []).filter((s) => (!state || s.state === state) && matches(s, q));
  const page = pageOf(list, Number(p.place.query.get('page')) || 1, rows);
  return (
    <>
      <h1>Sessions</h1>
      <NewSession known={value ?? []} />
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>Find <input type="search" value={q} placeholder="title, folder, agent, model or id" onInput={(e) => filter({ q: e.currentTarget.value, page: '' })} /></label>
        <label>State
          <select value={state} onChange={(e) => filter({ state: e.currentTarget.value, page: '' })}>
            <option value="">any</option>
            {workerStates.map((s) => <option key={s} value={s}>{s}</option>)}
            <option value="closed">closed</option>
          </select>
        </label>
      </form>
      <Trouble error={error} />
      {!value && !error && <p class="hint" role="status">Loading</p>}
      {value && !list.length && <Empty>{value.length ? 'No session matches.' : 'There is no session yet. Begin one above, or with `troupe run "..."` in a folder.'}</Empty>}
      <ul class="rows" aria-label="sessions">
        {page.items.map((s) => (
          <li key={s.id}>
            <Link to={sessionLink(s.id)} class="item">
              <span class="name" dir="auto">{plain(s.title ?? '', 120) || <i>{s.turns > 0 ? 'untitled' : 'no prompt yet'}</i>} <State of={s.state} /></span>
              <span class="meta">
                {s.folder && <code>{marked(s.folder)}</code>} {plain(s.agent || 'default', 40)}{s.model && <> · {plain(s.model, 60)}</>} · {s.turns} {s.turns === 1 ? 'turn' : 'turns'} · <Ago at={s.updated_at || s.created_at} /> · <Id of={s.id} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
      <Pager of={page} what="sessions" go={(n) => filter({ page: n > 1 ? String(n) : '' })} />
      {value && value.length >= most && <p class="hint">Only the newest {most} sessions are here; `troupe ls sessions` has all of them.</p>}
    </>
  );
}

function matches(s: Session, q: string): boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [s.id, s.title, s.folder, s.agent, s.model].join('\n').toLowerCase();
  return words.every((w) => text.includes(w));
}

function NewSession(p: { known: Session[] }) {
  const [text, setText] = useDraft('new session');
  const [folder, setFolder] = useState('');
  const [trust, setTrust] = useState('restricted');
  const [agent, setAgent] = useState('');
  const [model, setModel] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refused>();
  const begin = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const uri = folder.trim().startsWith('/') ? `local:${folder.trim()}` : folder.trim();
      const made = await post<Session>('/api/sessions', {
        ask: true, agent: agent.trim(), model: model.trim(),
        ...(uri ? { workspaces: [{ uri, trust, primary: true }] } : {}),
        ...(text.trim() ? { input: { text, input_id: crypto.randomUUID() } } : {}),
      });
      setText('');
      go(sessionLink(made.id));
    } catch (err) {
      setError(refused(err));
      setBusy(false);
    }
  };
  const keys = (e: KeyboardEvent) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey) && !busy) void begin(); };
  return (
    <form class="new" aria-label="new session" onSubmit={(e) => { e.preventDefault(); void begin(); }}>
      <label>New session
        <textarea rows={2} value={text} placeholder="What is to be done?" onKeyDown={keys} onInput={(e) => setText(e.currentTarget.value)} />
      </label>
      <details>
        <summary>Folder, agent, model</summary>
        <div class="grid">
          <label>Folder or address <input list="folders" value={folder} placeholder="none: the session's own" onInput={(e) => setFolder(e.currentTarget.value)} /></label>
          <label>Trust
            <select value={trust} onChange={(e) => setTrust(e.currentTarget.value)}>
              <option value="restricted">restricted: ask first</option>
              <option value="full">full: run unasked</option>
            </select>
          </label>
          <label>Agent <input list="agents" value={agent} placeholder="default" onInput={(e) => setAgent(e.currentTarget.value)} /></label>
          <label>Model <input list="models" value={model} placeholder="the agent's" onInput={(e) => setModel(e.currentTarget.value)} /></label>
        </div>
        <Known id="folders" of={p.known.map((s) => s.folder)} />
        <Known id="agents" of={p.known.map((s) => s.agent)} />
        <Known id="models" of={p.known.map((s) => s.model)} />
      </details>
      <Trouble error={error} />
      <button type="submit" class="main" disabled={busy}>Begin</button> <small class="hint"><kbd>Ctrl</kbd> <kbd>Enter</kbd></small>
    </form>
  );
}

function Known(p: { id: string; of: (string | undefined)[] }) {
  const values = [...new Set(p.of.filter((v): v is string => !!v))].slice(0, 30);
  return <datalist id={p.id}>{values.map((v) => <option key={v} value={v} />)}</datalist>;
}
