// One turn of a transcript: what was asked, what the model said and did, how it ended.
import { Component } from 'preact';
import { useState } from 'preact/hooks';
import { post, type Refused } from './api';
import { Diff, looksLikeDiff } from './diff';
import type { Call, Generation, Said, Step, Turn } from './fold';
import { refused } from './hooks';
import { Id, State, Trouble } from './parts';
import { Ago } from './now';
import { count, cut, Long, marked, plain, pretty, took } from './text';

const stepsShown = 40;

/** Speaker is what a shared conversation calls a turn's worker, and its own name. */
export interface Speaker { name: string; talk: string }

interface Props { turn: Turn; rev: number; several: boolean; speaker: Speaker | undefined }

/** TurnView draws again only when its turn has changed: a long transcript streams as fast as a short one. */
export class TurnView extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return next.turn !== this.props.turn || next.rev !== this.props.rev || next.several !== this.props.several
      || next.speaker?.name !== this.props.speaker?.name || next.speaker?.talk !== this.props.speaker?.talk;
  }

  render() {
    const { turn: t, several, speaker } = this.props;
    return (
      <article class="turn" id={t.id} aria-label="turn">
        {t.inputs.map((s, i) => <SaidView key={i} of={s} talk={speaker?.talk} />)}
        <Steps steps={t.steps} speaker={speaker?.name} />
        <footer>
          {t.outcome ? <State of={t.outcome} /> : <State of="open" label="under way" />}
          {t.reason && <span class="why">{marked(cut(t.reason, 500))}</span>}
          {several && <span>{speaker?.name ? marked(cut(speaker.name, 80)) : 'worker'} <Id of={t.worker} /></span>}
          {t.usage && <span>{count(t.usage.input_tokens + t.usage.output_tokens)} tokens{t.usage.cost_usd > 0 && `, $${t.usage.cost_usd.toFixed(4)}`}</span>}
          <Ago at={t.at} />
          <a href={`#${t.id}`} aria-label="link to this turn">link</a>
        </footer>
      </article>
    );
  }
}

/** From says whose word an input is: of a person, a worker, a conversation that workers share, or the run of a pipeline. */
export function From(p: { of: string; talk?: string | undefined }) {
  if (!p.of) return <>You</>;
  if (p.of.startsWith('cnv_')) return <>Conversation {p.talk ? marked(cut(p.talk, 80)) : <Id of={p.of} />}</>;
  if (p.of.startsWith('run_')) return <>Run <Id of={p.of} /></>;
  return <>Worker <Id of={p.of} /></>;
}

function SaidView(p: { of: Said; talk?: string | undefined; joined?: boolean }) {
  return (
    <div class={`said ${p.of.from ? 'agent' : 'user'} ${p.joined ? 'joined' : ''}`}>
      <h3><From of={p.of.from} talk={p.talk} />{p.joined && <small> joined the turn here</small>}</h3>
      <Long text={p.of.text} />
    </div>
  );
}

function Steps(p: { steps: Step[]; speaker?: string | undefined }) {
  const [all, setAll] = useState(false);
  const hidden = all ? 0 : Math.max(0, p.steps.length - stepsShown);
  return (
    <>
      {hidden > 0 && <button type="button" class="more" onClick={() => setAll(true)}>Show {hidden} earlier steps</button>}
      {p.steps.slice(hidden).map((s) => {
        switch (s.kind) {
          case 'generation': return <Answer key={`g${s.id}`} of={s} speaker={p.speaker} />;
          case 'joined': return <SaidView key={`i${s.id}`} of={s.said} joined />;
          default: return <Called key={`c${s.id}`} of={s} />;
        }
      })}
    </>
  );
}

function Answer(p: { of: Generation; speaker?: string | undefined }) {
  const g = p.of;
  if (!g.text && !g.reasoning && !g.insteadOf && g.state === 'done') return null;
  return (
    <div class={`said model ${g.state}`} aria-busy={g.state === 'open'}>
      <h3>{p.speaker && <>{marked(cut(p.speaker, 80))} · </>}{g.model ? marked(cut(g.model, 80)) : 'Model'}{g.insteadOf && <small> stands in for {marked(cut(g.insteadOf, 80))}</small>}{g.scripted && <small> no language model is running</small>}</h3>
      {g.reasoning && <details><summary>Reasoning</summary><Long text={g.reasoning} /></details>}
      {g.text && <Long text={g.text} first={20_000} tail={g.state === 'open'} />}
      {g.state === 'open' && <span class="caret" role="img" aria-label="is writing" />}
      {g.cut && <p class="why">The answer was cut off here: the turn was cancelled.</p>}
      {g.state === 'suspended' && <p class="why">A stop cut this answer off here. It is asked for again when the session goes on.</p>}
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
