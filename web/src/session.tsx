// One session: its transcript with what it asks, its files, fields and workers.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { get, post, type Refused, remove, sessionPath } from './api';
import { ApprovalCard } from './approval';
import { BudgetView } from './budget';
import { ChangesPage, copies } from './changes';
import { FieldsPage } from './fields';
import { FilesPage } from './files';
import { type Jobs, JobsView } from './jobs';
import { memberName, TalkPage } from './talk';
import { type Entry, Transcript } from './fold';
import { refused, useDraft, usePolled, useRedraw, useVisible } from './hooks';
import { Empty, Id, State, Trouble } from './parts';
import { Link, type Place, sessionLink } from './route';
import { follow, type StreamState } from './stream';
import { Ago } from './now';
import { cut, Long, marked, plain } from './text';
import { From, TurnView } from './turn';
import type { Approval, Budget, Session, Talk, Worker, Workspace } from './types';
import { WorkersPage } from './workers';

const views = ['', 'talk', 'changes', 'files', 'fields', 'workers'] as const;
const names: Record<string, string> = { '': 'Transcript', talk: 'Conversations', changes: 'Changes', files: 'Files', fields: 'Fields', workers: 'Workers' };

export function SessionPage(p: { id: string; place: Place; approvals: Approval[]; again: () => void; answered: (id: string, why?: string) => void }) {
  const view = p.place.path[2] ?? '';
  // What does not change is asked for once: it comes with all turns. The workers say the rest.
  const shown = usePolled<Session>((signal) => get<{ session: Session }>(sessionPath(p.id), signal).then((s) => s.session), 0, p.id);
  const workers = usePolled<Worker[]>((signal) => get(sessionPath(p.id, '/workers'), signal), 3000, p.id);
  const places = usePolled<Workspace[]>((signal) => get(sessionPath(p.id, '/workspaces'), signal), 10_000, p.id);
  const [first, setFirst] = useState(''); // what was asked first, of a session that was made without
  const jobs = usePolled<Jobs>((signal) => get(sessionPath(p.id, '/jobs'), signal), 0, p.id);
  const s = shown.value;
  const shared = usePolled<Talk[]>((signal) => get(sessionPath(p.id, '/conversations'), signal), 0, p.id);
  const talks = shared.value ?? [];
  const [budget, setBudget] = useState<Budget>();
  useEffect(() => setBudget(s?.budget), [s]);
  // What is spent comes with the whole session: it is asked for again once things are quiet for a moment.
  const later = useRef(0);
  const moved = () => {
    workers.again();
    jobs.again();
    clearTimeout(later.current);
    if (budget) later.current = setTimeout(shown.again, 700);
  };
  useEffect(() => () => clearTimeout(later.current), [p.id]);
  // Whoever speaks in a shared conversation and is not known there has joined since.
  const asked = useRef(new Set<string>());
  const spoke = (talk: string, worker: string) => {
    if (memberName(talks, talk, worker) || asked.current.has(`${talk} ${worker}`)) return;
    asked.current.add(`${talk} ${worker}`);
    shared.again();
  };
  // A command that runs in the background ends without an event.
  const left = jobs.value?.background ?? 0;
  useEffect(() => {
    if (!left) return;
    const t = setTimeout(jobs.again, 5000);
    return () => clearTimeout(t);
  }, [jobs.value, jobs.error]);
  const title = plain(s?.title || first, 120) || 'Session';
  const all = workers.value ?? s?.workers ?? [];
  const copied = copies(places.value ?? s?.workspaces ?? []);
  const waits = all.find((w) => w.state === 'waiting' && w.waits_for && !w.approvals)?.waits_for;
  useEffect(() => { document.title = `${title} · troupe`; }, [title]);
  return (
    <>
      <header class="session">
        <h1 dir="auto">{title}</h1>
        {s && (
          <p class="meta">
            <State of={busiest(all) || s.state} /> {s.folder && <code>{marked(s.folder)}</code>} {plain(s.agent || 'default', 40)}{s.model && <> · {plain(s.model, 60)}</>} · <Ago at={all.map((w) => w.updated_at ?? '').sort().at(-1) || s.updated_at} /> · <Id of={s.id} />
          </p>
        )}
        {waits && <p class="notice">It waits for {marked(cut(waits, 300))}</p>}
        {budget && <BudgetView session={p.id} of={budget} changed={setBudget} />}
        {jobs.value && <JobsView session={p.id} of={jobs.value} again={jobs.again} />}
        <Trouble error={shown.error ?? workers.error} />
        <nav class="tabs" aria-label="parts of the session">
          {views.filter((v) => v === view || (v === 'changes' ? copied.length > 0 : v !== 'talk' || talks.length > 0)).map((v) => <Link key={v} to={sessionLink(p.id, v && `/${v}`)} current={v === view}>{names[v]}</Link>)}
        </nav>
      </header>
      {view === 'talk' && <TalkPage session={p.id} />}
      {view === 'changes' && <ChangesPage session={p.id} of={copied} place={p.place} />}
      {view === 'files' && <FilesPage session={p.id} place={p.place} />}
      {view === 'fields' && <FieldsPage session={p.id} workspaces={s?.workspaces ?? []} place={p.place} />}
      {view === 'workers' && <WorkersPage session={p.id} place={p.place} />}
      {view === '' && <Conversation key={p.id} id={p.id} place={p.place} workers={all.length} talks={talks} spoke={spoke} approvals={p.approvals} again={p.again} moved={moved} begun={setFirst} answered={p.answered} />}
    </>
  );
}

const idle = ['inactive', 'inactive_failed'];

/** busiest is the state of a session: that of a worker that works, or of the first one. */
function busiest(workers: Worker[]): string { return (workers.find((w) => !idle.includes(w.state)) ?? workers[0])?.state ?? ''; }

const entriesShown = 30;

function Conversation(p: { id: string; place: Place; workers: number; talks: Talk[]; spoke: (talk: string, worker: string) => void; approvals: Approval[]; again: () => void; moved: () => void; begun: (text: string) => void; answered: (id: string, why?: string) => void }) {
  const transcript = useRef(new Transcript());
  const seq = useRef(0);
  const redraw = useRedraw();
  const visible = useVisible();
  const [state, setState] = useState<StreamState>('connecting');
  const [why, setWhy] = useState<Refused>();
  const [most, setMost] = useState(entriesShown);
  const latest = useRef(p);
  latest.current = p;

  useEffect(() => {
    if (!visible) return;
    const stop = new AbortController();
    const t = transcript.current;
    void follow(p.id, seq.current, {
      event(e) {
        if (e.seq) seq.current = e.seq;
        t.take(e);
        if (e.type.startsWith('approval.')) latest.current.again();
        if (e.type.startsWith('turn.') || e.type.startsWith('budget.')) latest.current.moved();
        if (e.type === 'input.accepted' && e.from?.startsWith('cnv_')) latest.current.spoke(e.from, e.worker ?? '');
        if (e.type === 'input.accepted' && t.staged.length === 1 && !t.running().length && t.entries.length < 2) latest.current.begun(e.text ?? '');
        redraw();
      },
      state(s, error) { setState(s); setWhy(error); },
      gap() { t.gap(); redraw(); },
      trimmed(before) { t.entries.unshift({ kind: 'note', at: '', id: 'trimmed', rev: 0, text: `The events up to ${before} were trimmed away.` }); redraw(); },
    }, stop.signal);
    return () => { stop.abort(); t.gap(); };
  }, [p.id, visible]);

  const t = transcript.current;
  const wanted = t.entries.findIndex((e) => e.id === p.place.hash);
  const hidden = Math.max(0, Math.min(t.entries.length - most, wanted >= 0 ? wanted : Infinity));
  useFollow(p.place.hash, t.entries.length > 0);
  const pending = p.approvals.filter((a) => a.session === p.id);
  const running = t.running().length > 0;
  return (
    <>
      <p class="live" role="status">{state === 'live' ? '' : state === 'connecting' ? 'Connecting' : state === 'waiting' ? 'Connection lost; trying again' : 'Not connected'}</p>
      {state === 'ended' && <Trouble error={why} />}
      {t.scripted && <p class="notice">No language model is running: a script or a recording answers.</p>}
      <div class="transcript" role="log" aria-live="off" aria-label="transcript">
        {hidden > 0 && <button type="button" class="more" onClick={() => setMost(most + 100)}>Show {Math.min(100, hidden)} earlier of {hidden} entries</button>}
        {t.entries.slice(hidden).map((e) => <EntryView key={e.id} of={e} several={p.workers > 1} talks={p.talks} />)}
        {state === 'live' && !t.entries.length && !t.staged.length && <Empty>Nothing was said yet.</Empty>}
        {t.staged.map((s) => <StagedView key={s.id} session={p.id} of={s} gone={redraw} />)}
      </div>
      {pending[0] && <ApprovalCard key={pending[0].id} of={pending[0]} inSession gone={(why) => p.answered(pending[0]?.id ?? '', why)} />}
      {pending.length > 1 && <p class="hint">{pending.length - 1} more wait after this one: <Link to={`/approvals?session=${encodeURIComponent(p.id)}`}>all of them</Link>.</p>}
      {!t.closed && <Prompt key={p.id} session={p.id} running={running} />}
    </>
  );
}

function EntryView(p: { of: Entry; several: boolean; talks: Talk[] }) {
  const e = p.of;
  const talk = e.kind === 'turn' ? p.talks.find((t) => t.id === e.inputs[0]?.from) : undefined;
  return e.kind === 'turn'
    ? <TurnView turn={e} rev={e.rev} several={p.several} speaker={talk && { name: memberName(p.talks, talk.id, e.worker), talk: talk.name }} />
    : <p class="note" id={e.id} dir="auto">{plain(e.text, 600)} <Ago at={e.at} /></p>;
}

function StagedView(p: { session: string; of: { id: string; worker: string; text: string; from: string }; gone: () => void }) {
  const [error, setError] = useState<Refused>();
  const withdraw = () => remove(sessionPath(p.session, `/inputs/${encodeURIComponent(p.of.id)}?worker=${encodeURIComponent(p.of.worker)}&by=console`)).then(p.gone, (err) => setError(refused(err)));
  return (
    <div class={`said ${p.of.from ? 'agent' : 'user'} staged`}>
      <h3><From of={p.of.from} /> <small>waits for its turn</small> <button type="button" onClick={() => void withdraw()}>Withdraw</button></h3>
      <Long text={p.of.text} />
      <Trouble error={error} />
    </div>
  );
}

/** useFollow keeps the newest in sight, as long as one has not scrolled away from it, and a linked turn once it is there. */
function useFollow(hash: string, ready: boolean): void {
  const atEnd = useRef(true);
  const linked = useRef('');
  const last = useRef(0);
  useEffect(() => {
    const f = () => {
      const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
      if (end || scrollY < last.current) atEnd.current = end; // what is written meanwhile moves the end away, and nobody up
      last.current = scrollY;
    };
    addEventListener('scroll', f, { passive: true });
    return () => removeEventListener('scroll', f);
  }, []);
  // Before anybody can be told of it, what is drawn may have moved everybody up: where entries at the beginning went.
  useLayoutEffect(() => {
    if (hash && linked.current !== hash) {
      const at = ready && document.getElementById(hash);
      if (at) {
        linked.current = hash;
        atEnd.current = false;
        at.scrollIntoView({ block: 'start' });
      }
    } else if (atEnd.current) scrollTo(0, document.documentElement.scrollHeight);
    last.current = scrollY;
  });
}

function Prompt(p: { session: string; running: boolean }) {
  const [text, setText] = useDraft(`prompt ${p.session}`);
  const [error, setError] = useState<Refused>();
  const sent = useRef({ text: '', id: '' }); // the same words after a lost answer are the same input
  const [busy, setBusy] = useState(false);
  const send = async (mode: 'queue' | 'steer' = 'queue') => {
    if (!text.trim() || busy) return;
    if (sent.current.text !== mode + text) sent.current = { text: mode + text, id: crypto.randomUUID() };
    setBusy(true);
    try {
      await post(sessionPath(p.session, '/inputs'), { text, mode, input_id: sent.current.id, people: 'asked' });
      sent.current = { text: '', id: '' };
      setText('');
      setError(undefined);
    } catch (err) { setError(refused(err)); } finally { setBusy(false); }
  };
  const cancel = () => post(sessionPath(p.session, '/cancel'), { by: 'console' }).catch((err) => setError(refused(err)));
  const keys = (e: KeyboardEvent) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      void send();
    }
  };
  return (
    <form class="prompt" aria-label="prompt" onSubmit={(e) => { e.preventDefault(); void send(); }}>
      <Trouble error={error} />
      <textarea rows={2} aria-label="prompt" value={text} onKeyDown={keys} onInput={(e) => setText(e.currentTarget.value)} placeholder={p.running ? 'Waits until this turn is done' : 'What next?'} />
      <div class="answers">
        <button type="submit" class="main" disabled={busy || !text.trim()}>Send</button>
        {p.running && <button type="button" disabled={busy || !text.trim()} title="the model reads it with its next request" onClick={() => void send('steer')}>Send into the turn</button>}
        {p.running && <button type="button" class="stop" onClick={() => void cancel()}>Stop the turn</button>}
        <small class="keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> begins a line</small>
      </div>
    </form>
  );
}
