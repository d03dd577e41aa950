// One turn of a transcript: what was asked, what the model said and did, how it ended.
import { Component } from 'preact';
import { useState } from 'preact/hooks';
import { post, type Refused } from './api';
import { Diff, looksLikeDiff } from './diff';
import type { Call, Generation, Step, Turn } from './fold';
import { refused } from './hooks';
import { Id, State, Trouble } from './parts';
import { Ago, count, cut, Long, marked, plain, pretty, took } from './text';

const stepsShown = 40;

interface Props { turn: Turn; rev: number; several: boolean }

/** TurnView draws again only when its turn has changed: a long transcript streams as fast as a short one. */
export class TurnView extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return next.turn !== this.props.turn || next.rev !== this.props.rev || next.several !== this.props.several;
  }

  render() {
    const { turn: t, several } = this.props;
    return (
      <article class="turn" id={t.id} aria-label="turn">
        {t.inputs.map((s, i) => <div class={`said ${s.from ? 'agent' : 'user'}`} key={i}><h3>{s.from ? <>Worker <Id of={s.from} /></> : 'You'}</h3><Long text={s.text} /></div>)}
        <Steps steps={t.steps} />
        <footer>
          {t.outcome ? <State of={t.outcome} /> : <State of="open" label="under way" />}
          {t.reason && <span class="why">{marked(cut(t.reason, 500))}</span>}
          {several && <span>worker <Id of={t.worker} /></span>}
          {t.usage && <span>{count(t.usage.input_tokens + t.usage.output_tokens)} tokens{t.usage.cost_usd > 0 && `, $${t.usage.cost_usd.toFixed(4)}`}</span>}
          <Ago at={t.at} />
          <a href={`#${t.id}`} aria-label="link to this turn">link</a>
        </footer>
      </article>
    );
  }
}

function Steps(p: { steps: Step[] }) {
  const [all, setAll] = useState(false);
  const hidden = all ? 0 : Math.max(0, p.steps.length - stepsShown);
  return (
    <>
      {hidden > 0 && <button type="button" class="more" onClick={() => setAll(true)}>Show {hidden} earlier steps</button>}
      {p.steps.slice(hidden).map((s) => (s.kind === 'generation' ? <Said key={`g${s.id}`} of={s} /> : <Called key={`c${s.id}`} of={s} />))}
    </>
  );
}

function Said(p: { of: Generation }) {
  const g = p.of;
  if (!g.text && !g.reasoning && !g.insteadOf && g.state === 'done') return null;
  return (
    <div class={`said model ${g.state}`} aria-busy={g.state === 'open'}>
      <h3>{g.model ? marked(cut(g.model, 80)) : 'Model'}{g.insteadOf && <small> stands in for {marked(cut(g.insteadOf, 80))}</small>}{g.scripted && <small> no language model is running</small>}</h3>
      {g.reasoning && <details><summary>Reasoning</summary><Long text={g.reasoning} /></details>}
      {g.text && <Long text={g.text} first={g.state === 'open' ? 40_000 : 20_000} />}
      {g.state === 'open' && <span class="caret" role="img" aria-label="is writing" />}
      {g.state === 'discarded' && <p class="why">This answer broke off{g.note && <>: {marked(cut(g.note, 300))}</>}. It is asked for again, unless the turn ended.</p>}
    </div>
  );
}

/** Doubt asks a person what became of a call that a crash cut off. */
function Doubt(p: { exec: string }) {
  const [error, setError] = useState<Refused>();
  const [note, setNote] = useState('');
  const say = (resolution: string) => void post(`/api/calls/${encodeURIComponent(p.exec)}`, { resolution, note, by: 'console' }).catch((err) => setError(refused(err)));
  return (
    <div class="doubt">
      <p class="why">It was cut off, and nobody knows whether it ran. Look, and say:</p>
      <label class="row">Note to the model <input value={note} autocomplete="off" onInput={(e) => setNote(e.currentTarget.value)} /></label>
      <Trouble error={error} />
      <div class="answers">
        <button type="button" onClick={() => say('retry')}>Run it again</button>
        <button type="button" onClick={() => say('done')}>It was done</button>
        <button type="button" onClick={() => say('fail')}>It failed</button>
      </div>
    </div>
  );
}

function argument(args: string, name: string): string {
  if (args.length > 200_000) return '';
  try {
    const v = (JSON.parse(args) as Record<string, unknown>)[name];
    return typeof v === 'string' ? v : '';
  } catch { return ''; }
}

/** subject is the one argument that says most about a call. */
function subject(args: string): string {
  for (const name of ['command', 'path', 'pattern', 'url', 'field_name', 'task', 'uri']) {
    const v = argument(args, name);
    if (v) return v;
  }
  return '';
}

function Called(p: { of: Call }) {
  const c = p.of;
  const failed = c.status !== '' && c.status !== 'ok';
  const state = c.status || (c.asked && !c.decision ? 'asks' : c.state || 'planned');
  const about = subject(c.args);
  const diff = c.diff && looksLikeDiff(c.diff) ? c.diff : '';
  const doubt = c.state === 'in_doubt' && !c.status;
  const [open, setOpen] = useState(false);
  return (
    <details class={`call ${failed ? 'failed' : ''}`} open={doubt || open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <code class="tool">{marked(cut(c.tool, 100))}</code> <span class="subject" dir="auto">{plain(about, 160)}</span>
        <span class="end">{c.us > 0 && <small>{took(c.us)}</small>} <State of={state} /></span>
        {c.total > 0 && !c.status && <progress max={c.total} value={c.done}>{c.done} of {c.total} {marked(c.unit)}</progress>}
      </summary>
      {doubt && <Doubt exec={c.id} />}
      {(open || doubt) && (
        <>
          {c.decision && <p class="why">{marked(c.decision)}{c.note && <>: {marked(cut(c.note, 500))}</>}</p>}
          {diff && <Diff text={diff} />}
          {!diff && argument(c.args, 'command') && <><h4>Command</h4><Long text={argument(c.args, 'command')} strict /></>}
          {c.text && <><h4>Result{c.code && <> <code>{marked(c.code)}</code></>}{c.truncated && <small> (shortened for the model)</small>}</h4><Long text={c.text} /></>}
          <details><summary>Arguments</summary><Long text={pretty(c.args)} /></details>
          <p class="ids">call <Id of={c.callID} /> run <Id of={c.id} />{c.workspace && <> in <code>{marked(c.workspace)}</code></>}</p>
        </>
      )}
    </details>
  );
}
