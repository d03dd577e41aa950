// What a session keeps besides its conversation: the files of its server workspace.
import { useRef, useState } from 'preact/hooks';
import { filePath, get, type Refused, remove, request, sessionPath } from './api';
import { refused, usePolled } from './hooks';
import { Empty, Pager, pageOf, Trouble } from './parts';
import { filter, type Place } from './route';
import { Ago } from './now';
import { count, Long, marked, plain } from './text';
import type { FileEntry } from './types';

const rows = 50;
const largest = 1 << 20; // bytes of a file that is shown here

interface Opened { path: string; text?: string; binary?: boolean; size: number }

export function FilesPage(p: { session: string; place: Place }) {
  const loaded = usePolled<FileEntry[]>((signal) => get(sessionPath(p.session, '/files'), signal), 5000, p.session);
  const [error, setError] = useState<Refused>();
  const [opened, setOpened] = useState<Opened>();
  const [note, setNote] = useState('');
  const [doomed, setDoomed] = useState(''); // the file whose deletion was asked for once
  const input = useRef<HTMLInputElement>(null);
  const q = p.place.query.get('q') ?? '';
  const files = (loaded.value ?? []).filter((f) => f.state === 'file' && f.id.toLowerCase().includes(q.toLowerCase()));
  const page = pageOf(files, Number(p.place.query.get('page')) || 1, rows);
  const attempt = (work: Promise<unknown>) => work.then(() => setError(undefined), (err) => setError(refused(err)));

  const bytes = async (f: FileEntry) => (await request('GET', filePath(p.session, f.id))).blob();
  const open = async (f: FileEntry) => {
    if (f.size > largest) return setOpened({ path: f.id, size: f.size });
    const text = await (await bytes(f)).text();
    setOpened({ path: f.id, size: f.size, ...(text.includes('\u0000') ? { binary: true } : { text }) });
  };
  const save = async (f: FileEntry) => {
    const url = URL.createObjectURL(await bytes(f));
    const a = document.createElement('a');
    a.href = url;
    a.download = f.id.split('/').at(-1) ?? 'file';
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  const upload = async () => {
    setNote('Waits until no agent works there.');
    try {
      for (const f of input.current?.files ?? []) await request('PUT', filePath(p.session, f.name), { body: f, type: 'application/octet-stream' });
    } finally {
      setNote('');
      if (input.current) input.current.value = '';
      loaded.again();
    }
  };
  const drop = async (f: FileEntry) => {
    setDoomed('');
    await remove(filePath(p.session, f.id));
    if (opened?.path === f.id) setOpened(undefined);
    loaded.again();
  };
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <label>Find <input type="search" value={q} onInput={(e) => filter({ q: e.currentTarget.value, page: '' })} /></label>
        <label>Put files <input type="file" multiple ref={input} onChange={() => void attempt(upload())} /></label>
      </form>
      {note && <p class="hint" role="status">{note}</p>}
      <Trouble error={error ?? loaded.error} />
      {loaded.value && !files.length && <Empty>{q ? 'No file matches.' : 'The session keeps no files yet. Its agents write here what later turns should find, and so may you.'}</Empty>}
      <ul class="rows" aria-label="files">
        {page.items.map((f) => (
          <li key={f.id} class="item file">
            <button type="button" class="plain name" dir="auto" onClick={() => void attempt(open(f))}>{marked(f.id, { strict: true })}</button>
            <span class="meta">{count(f.size)} bytes · <Ago at={f.modified_at} /></span>
            <span class="acts">
              <button type="button" aria-label={`save ${plain(f.id)}`} onClick={() => void attempt(save(f))}>Save</button>
              {doomed === f.id
                ? <button type="button" class="reject" onBlur={() => setDoomed('')} onClick={() => void attempt(drop(f))}>Delete for good</button>
                : <button type="button" aria-label={`delete ${plain(f.id)}`} onClick={() => setDoomed(f.id)}>Delete</button>}
            </span>
          </li>
        ))}
      </ul>
      <Pager of={page} what="files" go={(n) => filter({ page: n > 1 ? String(n) : '' })} />
      {opened && (
        <section class="opened" aria-label="file">
          <h2 dir="auto">{marked(opened.path, { strict: true })} <button type="button" onClick={() => setOpened(undefined)}>Close</button></h2>
          {opened.text !== undefined ? <Long text={opened.text} /> : <p>{opened.binary ? 'This is no text.' : `With ${count(opened.size)} bytes it is too large to be shown.`} Save it to look at it.</p>}
        </section>
      )}
    </>
  );
}
