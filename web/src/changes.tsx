// What a session, or one of its workers, has changed in a copy of a folder, and how it gets back there.
import { useState } from 'preact/hooks';
import { get, post, type Refused, sessionPath } from './api';
import { Diff } from './diff';
import { refused, usePolled } from './hooks';
import { Empty, Id, State, Trouble } from './parts';
import { filter, type Place } from './route';
import { cut, marked, plain } from './text';
import type { Changes, Workspace } from './types';

const filesShown = 50;

/** copies are those of a session's workspaces that stand in for a folder. */
export function copies(all: Workspace[]): Workspace[] { return all.filter((w) => w.project_dir); }

export function ChangesPage(p: { session: string; of: Workspace[]; place: Place }) {
  const worker = p.place.query.get('worker') ?? p.of[0]?.worker ?? '';
  const loaded = usePolled<Changes>((signal) => get(sessionPath(p.session, `/changes?worker=${encodeURIComponent(worker)}`), signal), 5000, `${p.session} ${worker}`);
  const [error, setError] = useState<Refused>();
  const [done, setDone] = useState('');
  const [busy, setBusy] = useState(false);
  const [most, setMost] = useState(filesShown);
  const files = loaded.value?.files ?? [];
  const conflicts = files.filter((f) => f.conflict).length;
  const apply = async () => {
    setBusy(true);
    setDone('');
    try {
      const was = await post<Changes>(sessionPath(p.session, '/changes'), { by: 'console', worker });
      setDone(`${was.files.length} ${was.files.length === 1 ? 'file was' : 'files were'} brought back to ${was.folder}.`);
      setError(undefined);
      loaded.again();
    } catch (err) { setError(refused(err)); } finally { setBusy(false); }
  };
  return (
    <>
      {p.of.length > 1 && (
        <form class="filters" onSubmit={(e) => e.preventDefault()}>
          <label>Copy of
            <select value={worker} onChange={(e) => { setDone(''); filter({ worker: e.currentTarget.value }); }}>
              {p.of.map((w) => <option key={w.worker ?? ''} value={w.worker ?? ''}>{w.worker ? `worker ${plain(w.worker, 60)}` : 'the session'}</option>)}
            </select>
          </label>
        </form>
      )}
      {loaded.value && <p class="meta">Works in a copy of <code>{marked(loaded.value.folder)}</code>{worker && <> of its own, worker <Id of={worker} /></>}.</p>}
      <Trouble error={error ?? loaded.error} />
      <p class="live" role="status">{done && marked(done)}</p>
      {loaded.value && !files.length && <Empty>Nothing was changed that is not in the folder.</Empty>}
      {files.length > 0 && (
        <div class="answers">
          <button type="button" class="approve" disabled={busy || conflicts > 0} onClick={() => void apply()}>Apply {files.length} {files.length === 1 ? 'file' : 'files'} to the folder</button>
          <small class="why">{conflicts > 0 ? `${conflicts} were changed in the folder in the same places: nothing can be applied until that is settled.` : 'All of them, or none.'}</small>
        </div>
      )}
      {files.slice(0, most).map((f) => (
        <section class="opened" key={f.path} aria-label={plain(f.path)}>
          <h3><code dir="auto">{marked(cut(f.path, 500), { strict: true })}</code> <State of={f.state} />{f.merged && <small> the folder has changed in other places, which stays</small>}</h3>
          {f.conflict && <p class="why bad">{marked(cut(f.conflict, 500))}</p>}
          {f.diff ? <Diff text={f.diff} /> : <p class="why">There is no text to show.</p>}
        </section>
      ))}
      {files.length > most && <button type="button" class="more" onClick={() => setMost(most + filesShown)}>Show {Math.min(filesShown, files.length - most)} more of {files.length} files</button>}
    </>
  );
}
