// One approval: what would run, and the three answers. What is approved is what is shown: its hash goes with the answer.
import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { pause, post, type Refused } from './api';
import { Diff } from './diff';
import { refused, useVisible } from './hooks';
import { Id, State, Trouble } from './parts';
import { Link, sessionLink } from './route';
import { Ago, Left } from './now';
import { Long, marked, plain, pretty } from './text';
import type { Approval } from './types';

export type Decision = 'approved' | 'rejected' | 'cancelled';
export const scopes = ['once', 'session', 'agent', 'always'] as const;
type Scope = (typeof scopes)[number];

const scopeText: Record<Scope, string> = {
  once: 'this call', session: 'for this session', agent: 'for this agent, in every session', always: 'for every agent, in every session',
};

/** Seen is told which approval stands in front of somebody: who is about to answer it hears when it is over. */
export const Seen = createContext<(a: Approval) => void>(() => {});

/** overText says that a question is over without an answer from here. */
export function overText(a: Approval): string { return `The question about ${plain(a.tool, 60)} was answered elsewhere, or waits no longer.`; }

/** useShown tells the server that somebody sees an approval, for as long as it is on the screen of a visible tab. */
function useShown(id: string, gone: () => void): void {
  const visible = useVisible();
  const done = useRef(gone);
  done.current = gone;
  useEffect(() => {
    if (!visible) return;
    const stop = new AbortController();
    const hold = async () => {
      while (!stop.signal.aborted) {
        try {
          await post(`/api/approvals/${encodeURIComponent(id)}/shown`, { by: 'console' }, stop.signal);
          if (!stop.signal.aborted) done.current();
          return;
        } catch (err) {
          if (stop.signal.aborted) return;
          if ([404, 409, 410].includes(refused(err).status)) return done.current();
          await pause(3000, stop.signal);
        }
      }
    };
    void hold();
    return () => stop.abort();
  }, [id, visible]);
}

/** keyed says whether a key is meant for a page rather than for what has the focus. */
export function keyed(e: KeyboardEvent): boolean {
  const t = e.target as HTMLElement;
  return !e.defaultPrevented && !e.repeat && !e.metaKey && !e.ctrlKey && !e.altKey && !t.closest('input:not([type=radio]), textarea, select, [contenteditable]');
}

// A question that has just come in front of somebody takes no answer for this long: the key, or the click, was meant for what stood there before.
const settle = 400;

export function ApprovalCard(p: { of: Approval; gone: (why?: string) => void; inSession?: boolean }) {
  const a = p.of;
  const [scope, setScope] = useState<Scope>('once');
  const [rule, setRule] = useState('');
  const [message, setMessage] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refused>();
  const box = useRef<HTMLElement>(null);
  const [settled, setSettled] = useState(false);
  const answering = useRef(false);
  const seen = useContext(Seen);
  useEffect(() => {
    seen(a);
    const t = setTimeout(() => setSettled(true), settle);
    return () => clearTimeout(t);
  }, []);
  useShown(a.id, () => { if (!answering.current) p.gone(overText(a)); });

  const question = asked(a);
  const answer = async (decision: Decision, choice = '') => {
    if (answering.current || !settled) return;
    setBusy(answering.current = true);
    try {
      await post(`/api/approvals/${encodeURIComponent(a.id)}`, {
        decision, args_hash: a.args_hash, by: 'console', message: choice || message,
        ...(decision === 'cancelled' ? {} : { scope, ...(scope !== 'once' && rule ? { rule } : {}) }),
      });
      p.gone();
      document.getElementById('main')?.focus({ preventScroll: true }); // what had the focus is gone
    } catch (err) {
      const e = refused(err);
      if (e.code === 'already_resolved' || e.status === 404) return p.gone(`Your answer came too late, and changes nothing: ${plain(e.message, 300)}`);
      setError(e);
      setBusy(answering.current = false);
    }
  };

  useEffect(() => {
    const f = (e: KeyboardEvent) => {
      if (!keyed(e) || !settled) return;
      const n = Number(e.key);
      if (e.key === 'a') void answer('approved');
      else if (e.key === 'r') void answer('rejected');
      else if (e.key === 'c' && !question) void answer('cancelled');
      else if (e.key === 'm') box.current?.querySelector('input')?.focus();
      else if (!question && n >= 1 && n <= scopes.length && (n === 1 || a.rules?.length)) setScope(scopes[n - 1] ?? 'once');
      else return;
      e.preventDefault();
    };
    addEventListener('keydown', f);
    return () => removeEventListener('keydown', f);
  });

  const title = `approval-${a.id}`;
  return (
    <section class="approval" role="dialog" aria-modal="false" aria-labelledby={title} ref={box}>
      <header>
        <h3 id={title}>{question ? <>Step {marked(question.step)} of a pipeline asks</> : <><code class="tool">{marked(a.tool)}</code> of agent {marked(a.agent || 'default')} wants to run</>}</h3>
        <p>
          <State of={a.state} /> <Ago at={a.at} />{a.workspace && <> in <code>{marked(a.workspace)}</code></>}
          {!p.inSession && <> · <Link to={sessionLink(a.session, `#${encodeURIComponent(a.turn)}`)}>session</Link></>}
          {a.parent && <> · worker <Id of={a.worker} />, to which <Id of={a.parent} /> delegated</>}
          {a.expires_at && <> · expires <Left until={a.expires_at} /></>}
          {others(a).length > 0 && <> · also seen by {marked(others(a).join(', '))}</>}
        </p>
        {a.reason && !question && <p class="why">{marked(a.reason)}</p>}
      </header>
      <Preview of={a} />
      {question && (
        <form aria-label="answers" onSubmit={(e) => e.preventDefault()}>
          <Trouble error={error} />
          <div class="answers">
            {question.choices.map((c, i) => <button key={c} type="button" disabled={busy || !settled} onClick={() => void answer(i > 0 && i === question.choices.length - 1 ? 'rejected' : 'approved', c)}>{marked(c, { strict: true })}</button>)}
            <small class="keys"><kbd>a</kbd> the first <kbd>r</kbd> the last</small>
          </div>
        </form>
      )}
      {!question && <form onSubmit={(e) => e.preventDefault()}>
        <fieldset class="scopes">
          <legend>An answer holds</legend>
          {scopes.map((s, i) => (
            <label key={s} class={s !== 'once' && !a.rules?.length ? 'off' : ''}>
              <input type="radio" name={title} checked={scope === s} disabled={s !== 'once' && !a.rules?.length} onChange={() => setScope(s)} />
              <b>{s}</b> <small>{scopeText[s]} <kbd>{i + 1}</kbd></small>
            </label>
          ))}
          {!a.rules?.length && a.unremembered && <p class="why">It cannot be remembered: {marked(a.unremembered)}</p>}
        </fieldset>
        {scope !== 'once' && !!a.rules?.length && (
          <label class="row">Rule that it leaves behind
            <select value={rule || a.rules.at(-1)} onChange={(e) => setRule(e.currentTarget.value)}>
              {a.rules.map((r) => <option key={r} value={r}>{r}</option>)}
            </select>
          </label>
        )}
        <label class="row">Message to the model <kbd>m</kbd>
          <input value={message} onInput={(e) => setMessage(e.currentTarget.value)} placeholder="for instance: use the other file" autocomplete="off" />
        </label>
        <Trouble error={error} />
        <div class="answers">
          <button type="button" class="approve" disabled={busy || !settled} aria-keyshortcuts="a" onClick={() => void answer('approved')}>Approve</button>
          <button type="button" class="reject" disabled={busy || !settled} aria-keyshortcuts="r" onClick={() => void answer('rejected')}>Reject</button>
          <button type="button" class="cancel" disabled={busy || !settled} aria-keyshortcuts="c" title="cancels the turn" onClick={() => void answer('cancelled')}>Cancel</button>
          <small class="keys"><kbd>a</kbd> approve <kbd>r</kbd> reject <kbd>c</kbd> cancel the turn</small>
        </div>
      </form>}
    </section>
  );
}

/** asked is what a step of a pipeline asks a person, with what may be answered; undefined for a call. */
function asked(a: Approval): { step: string; choices: string[] } | undefined {
  if (!a.worker.startsWith('run_')) return undefined; // a tool may have any name, and a model writes its arguments
  try {
    const v = JSON.parse(a.arguments) as { step?: unknown; choices?: unknown };
    const choices = Array.isArray(v.choices) ? v.choices.filter((c): c is string => typeof c === 'string') : [];
    return choices.length ? { step: String(v.step), choices } : undefined;
  } catch { return undefined; }
}

function others(a: Approval): string[] { return (a.shown ?? []).map((v) => v.by).filter((by) => by !== 'console'); }

function Preview(p: { of: Approval }) {
  const a = p.of;
  const args = asked(a) || (a.kind === 'arguments' && a.preview === a.arguments) ? null : <details><summary>Arguments</summary><Long text={pretty(a.arguments)} strict /></details>;
  return (
    <div class="preview">
      {a.kind === 'diff' ? <Diff text={a.preview} /> : <Long text={a.kind === 'arguments' ? pretty(a.preview) : a.preview} strict class={a.kind === 'command' ? 'command' : ''} />}
      {args}
    </div>
  );
}
