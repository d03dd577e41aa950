// Commands that a session's agents left running, each with its end.
import { useState } from 'preact/hooks';
import { post, type Refused, remove, sessionPath } from './api';
import { refused } from './hooks';
import { Ago } from './now';
import { Id, Trouble } from './parts';
import { cut, marked, plain } from './text';

export interface Job { id: string; worker: string; workspace?: string; command?: string; since: string }
export interface Jobs { running: number; waiting: number; background: number; jobs?: Job[] }

const jobsShown = 20;

export function JobsView(p: { session: string; of: Jobs; again: () => void }) {
  const [error, setError] = useState<Refused>();
  const [busy, setBusy] = useState(''); // what is being ended: the id of a job, or all
  const [told, setTold] = useState('');
  const n = p.of.background, all = p.of.jobs ?? [];
  const end = async (what: string, ask: () => Promise<string>) => {
    setBusy(what);
    setTold('');
    try {
      const done = await ask();
      setError(undefined);
      setTold(done);
    } catch (err) { setError(refused(err)); } finally {
      setBusy('');
      p.again();
      document.getElementById('main')?.focus({ preventScroll: true }); // the button is gone, or was disabled meanwhile
    }
  };
  const one = (j: Job) => end(j.id, async () => {
    await remove(sessionPath(p.session, `/jobs/${encodeURIComponent(j.id)}?by=console`));
    return `Ended: ${name(j)}`;
  });
  const every = () => end('all', async () => {
    const left = (await post<{ jobs?: number }>(sessionPath(p.session, '/cancel'), { by: 'console', reason: 'its jobs are ended', jobs: true })).jobs ?? 0;
    return left ? `Asked to end, and not over yet: ${left === 1 ? 'one command' : `${left} commands`}` : 'All commands in the background were ended';
  });
  return (
    <>
      <p class="hidden" role="status">{told}</p>
      <Trouble error={error} />
      {n > 0 && (
        <section class="jobs" aria-label="commands in the background">
          {n === 1 ? 'One command runs' : `${n} commands run`} in the background.{' '}
          <button type="button" disabled={!!busy} onClick={() => void every()}>{n === 1 ? 'End it' : 'End them'}{p.of.running > 0 && ', and the turn'}</button>
          {all.length > 0 && (
            <ul>
              {all.slice(0, jobsShown).map((j) => (
                <li key={j.id}>
                  <span><code dir="auto">{j.command ? marked(cut(j.command, 300)) : 'a call of another tool'}</code> <small>{j.workspace && <>{marked(cut(j.workspace, 120))} · </>}<Ago at={j.since} /> · <Id of={j.id} /></small></span>
                  <button type="button" disabled={!!busy} aria-label={`End ${name(j)}`} onClick={() => void one(j)}>{busy === j.id ? 'Ending' : 'End'}</button>
                </li>
              ))}
            </ul>
          )}
          {all.length > jobsShown && <small>{all.length - jobsShown} more are listed by troupe ls jobs</small>}
        </section>
      )}
    </>
  );
}

/** name is what a job is called where there is room for words alone. */
function name(j: Job): string { return plain(j.command || j.id, 80); }
