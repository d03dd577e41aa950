// Runs of pipelines: their steps, what waits for somebody, and what failed.
import { useEffect, useState } from 'preact/hooks';
import { get, getList, post, type Refused } from './api';
import { refused, usePolled } from './hooks';
import { Ago } from './now';
import { Empty, Id, Pager, pageOf, State, Trouble } from './parts';
import { filter, Link, type Place, sessionLink } from './route';
import { count, cut, marked, plain } from './text';
import type { Run, RunItem, RunStep } from './types';

const rows = 25;
const itemRows = 20;

const runPath = (id: string, rest = '') => `/api/pipelines/runs/${encodeURIComponent(id)}${rest}`;
const over = (state: string) => !['running', 'waiting'].includes(state);

export function RunsPage(p: { place: Place }) {
  const id = p.place.path[1];
  return id ? <RunPage id={id} /> : <Runs place={p.place} />;
}

function Runs(p: { place: Place }) {
  const loaded = usePolled<Run[]>((signal) => getList('/api/pipelines/runs', signal), 4000, 'runs');
  const page = pageOf(loaded.value ?? [], Number(p.place.query.get('page')) || 1, rows);
  return (
    <>
      <h1>Runs</h1>
      <Trouble error={loaded.error} />
      {!loaded.value && !loaded.error && <p class="hint" role="status">Loading</p>}
      {loaded.value && !page.total && <Empty>No pipeline has run yet. <code>troupe pipeline run FILE</code> runs one.</Empty>}
      <ul class="rows" aria-label="runs">
        {page.items.map((r) => (
          <li key={r.id}>
            <Link to={`/runs/${encodeURIComponent(r.id)}`} class="item">
              <span class="name" dir="auto">{plain(r.name, 120)} <State of={r.state} /></span>
              <span class="meta">{r.scripted && <>answered by a script or a recording · </>}{r.steps_done} of {r.steps} steps · {count(r.items_done)} of {count(r.items)} items · <Ago at={r.started_at} /> · <Id of={r.id} /></span>
            </Link>
          </li>
        ))}
      </ul>
      <Pager of={page} what="runs" go={(n) => filter({ page: n > 1 ? String(n) : '' })} />
    </>
  );
}

function RunPage(p: { id: string }) {
  // With items=asking, ten thousand items that ask nobody stay where they are; a revision above 0 there always is.
  const loaded = usePolled<Run>((signal) => get(runPath(p.id, '?wait=change&after=0&items=asking'), signal), 2000, p.id);
  const [error, setError] = useState<Refused>();
  const r = loaded.value;
  const title = plain(r?.name ?? '', 120) || 'Run';
  useEffect(() => { document.title = `${title} · troupe`; }, [title]);
  const say = (word: string) => void post(runPath(p.id, `/${word}`), { by: 'console' }).then(() => { setError(undefined); loaded.again(); }, (err) => setError(refused(err)));
  return (
    <>
      <h1 dir="auto">{title}</h1>
      <Trouble error={error ?? loaded.error} />
      {r && (
        <>
          <p class="meta">
            <State of={r.state} /> {r.steps_done} of {r.steps} steps · {count(r.usage.input_tokens + r.usage.output_tokens)} tokens{r.usage.cost_usd > 0 && `, $${r.usage.cost_usd.toFixed(4)}`} · <Ago at={r.started_at} /> · <Link to={sessionLink(r.session)}>session</Link> · <Id of={r.id} />
          </p>
          {r.scripted && <p class="notice">No language model is running: a script or a recording answers.</p>}
          {r.error && <p class="trouble">{marked(cut(r.error, 2000))}</p>}
          <div class="answers">
            {!over(r.state) && <button type="button" class="stop" onClick={() => say('cancel')}>Cancel the run</button>}
            {['failed', 'cancelled'].includes(r.state) && <button type="button" onClick={() => say('resume')}>Try again what has not succeeded</button>}
          </div>
          <ol class="rows steps" aria-label="steps">
            {(r.step_list ?? []).map((s) => <StepView key={s.step} run={r} of={s} />)}
          </ol>
        </>
      )}
    </>
  );
}

function StepView(p: { run: Run; of: RunStep }) {
  const s = p.of;
  const [open, setOpen] = useState(false);
  const asking = (s.items ?? []).filter((i) => i.approval);
  return (
    <li class="item">
      <span class="name" dir="auto">{plain(s.step, 120)} <State of={s.state} /></span>
      <span class="meta">
        {s.kind}{s.needs?.length ? <> · after {plain(s.needs.join(', '), 200)}</> : null}{s.total > 1 && <> · {count(s.done)} of {count(s.total)} items</>}{s.failed > 0 && <> · {count(s.failed)} failed</>}
        {s.per_second ? <> · {s.per_second.toFixed(s.per_second < 10 ? 1 : 0)} a second</> : null}{s.left_ms ? <> · about {count(Math.ceil(s.left_ms / 1000))} s left</> : null}
      </span>
      {s.total > 1 && !['succeeded', 'skipped'].includes(s.state) && <progress max={s.total} value={s.done} aria-label={`items of ${plain(s.step, 80)} that are done`} />}
      {s.error && <span class="meta bad" dir="auto">{marked(cut(s.error, 1000))}</span>}
      {asking.map((i) => <span key={i.index}><Link to={`/approvals?id=${encodeURIComponent(i.approval ?? '')}`}>{s.total > 1 ? `${plain(i.key, 80)} waits` : 'It waits'} for {i.waiting ? plain(i.waiting.text, 200) : 'an answer'}</Link></span>)}
      {s.waiting && !s.waiting.approval && <span class="meta" dir="auto">{s.waits === 1 ? 'It waits' : `${count(s.waits ?? 0)} items wait, one`} for {plain(s.waiting.text, 300)}{s.waiting.command && <>: <code>{plain(s.waiting.command, 300)}</code></>}</span>}
      {s.total > 0 && (
        <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
          <summary>Items</summary>
          {open && <Items run={p.run} step={s.step} />}
        </details>
      )}
    </li>
  );
}

/** Items are asked for whole, and only while somebody looks at them. */
function Items(p: { run: Run; step: string }) {
  const loaded = usePolled<Run>((signal) => get(runPath(p.run.id), signal), over(p.run.state) ? 0 : 4000, `${p.run.id} ${p.run.state}`);
  const [at, setAt] = useState(1);
  const all: RunItem[] = loaded.value?.step_list?.find((s) => s.step === p.step)?.items ?? [];
  const page = pageOf(all, at, itemRows);
  return (
    <>
      <Trouble error={loaded.error} />
      {loaded.value && !all.length && <Empty>It has none yet.</Empty>}
      <ul>
        {page.items.map((i) => (
          <li key={i.index} class="meta">
            <span dir="auto">{plain(i.key || String(i.index + 1), 120)}</span> <State of={i.state} />{i.attempt && i.attempt > 1 ? <> attempt {i.attempt}</> : null}{i.worker && <> · worker <Id of={i.worker} /></>}
            {i.error && <span class="bad" dir="auto"> {marked(cut(i.error, 400))}</span>}
          </li>
        ))}
      </ul>
      <Pager of={page} what="items" go={setAt} />
    </>
  );
}
