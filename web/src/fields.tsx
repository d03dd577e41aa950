// What a workspace holds besides its files, with an editor that follows from its schema.
import { useState } from 'preact/hooks';
import { get, put, type Refused, sessionPath } from './api';
import { refused, usePolled } from './hooks';
import { Empty, Trouble } from './parts';
import { filter, type Place } from './route';
import { cut, marked, plain } from './text';
import type { Field, Fields, Schema, Workspace } from './types';

export function FieldsPage(p: { session: string; workspaces: Workspace[]; place: Place }) {
  const where = p.place.query.get('workspace') ?? '';
  const query = where ? `?workspace=${encodeURIComponent(where)}` : '';
  const loaded = usePolled<Fields>((signal) => get(sessionPath(p.session, `/fields${query}`), signal), 3000, `${p.session} ${where}`);
  const f = loaded.value;
  const [done, setDone] = useState({ where, rev: 0 }); // the newest revision of an edit from here: nothing came between it and the list
  const rev = Math.max(f?.rev ?? 0, done.where === where ? done.rev : 0);
  const saved = (at: number) => { setDone({ where, rev: at }); loaded.again(); };
  return (
    <>
      {p.workspaces.length > 1 && (
        <form class="filters" onSubmit={(e) => e.preventDefault()}>
          <label>Workspace
            <select value={where} onChange={(e) => filter({ workspace: e.currentTarget.value })}>
              <option value="">primary</option>
              {p.workspaces.map((w) => <option key={w.uri} value={w.uri}>{plain(w.name || w.uri)}</option>)}
            </select>
          </label>
        </form>
      )}
      <Trouble error={loaded.error} />
      {f && <p class="meta">of <code>{marked(f.workspace)}</code>, revision {f.rev}</p>}
      {f && !f.fields.length && <Empty>No fields are declared. `troupe workspace fields SESSION --schema FILE` declares some.</Empty>}
      {f?.fields.map((x) => <FieldEditor key={x.name} of={x} rev={rev} session={p.session} workspace={where} saved={saved} again={loaded.again} />)}
    </>
  );
}

/** shape is how a field is edited. */
export function shape(s: Schema | undefined): 'enum' | 'boolean' | 'integer' | 'number' | 'string' | 'json' {
  if (s?.enum) return 'enum';
  const types = (Array.isArray(s?.type) ? s.type : [s?.type]).filter((t) => t && t !== 'null');
  const one = types.length === 1 ? types[0] : '';
  return one === 'boolean' || one === 'integer' || one === 'number' || one === 'string' ? one : 'json';
}

/** draftOf is a value as text in an input; value is the way back. */
function draftOf(v: unknown, s: Schema | undefined): string {
  if (v === null || v === undefined) return '';
  return shape(s) === 'string' && typeof v === 'string' ? v : JSON.stringify(v, null, shape(s) === 'json' ? 2 : 0);
}

function value(draft: string, s: Schema | undefined): unknown {
  return shape(s) === 'string' ? draft : JSON.parse(draft);
}

function FieldEditor(p: { of: Field; rev: number; session: string; workspace: string; saved: (rev: number) => void; again: () => void }) {
  const f = p.of;
  const stored = draftOf(f.value, f.takes);
  const [draft, setDraft] = useState<string>();
  const [base, setBase] = useState<number>(); // the revision that the draft was begun on; after a conflict, the newest that is shown
  const [error, setError] = useState<Refused>();
  const [saved, setSaved] = useState(false);
  const id = `field-${f.name}`;

  const edit = (text: string) => {
    if (draft === undefined) setBase(p.rev);
    setSaved(false);
    setDraft(text);
  };
  const set = async (v: unknown) => {
    try {
      const done = await put<{ rev: number }>(sessionPath(p.session, `/fields/${encodeURIComponent(f.name)}`), { value: v, rev: base ?? p.rev, by: 'console', ...(p.workspace ? { workspace: p.workspace } : {}) });
      setDraft(undefined);
      setBase(undefined);
      setError(undefined);
      setSaved(true);
      return p.saved(done.rev);
    } catch (err) {
      const e = refused(err);
      setError(e);
      if (e.code === 'conflict') setBase(undefined);
    }
    p.again();
  };
  const save = () => {
    let v: unknown;
    try { v = value(draft ?? stored, f.takes); } catch {
      setError(refused(new Error(shape(f.takes) === 'json' ? 'This is no JSON.' : `This is no ${shape(f.takes)}.`)));
      return;
    }
    void set(v);
  };
  return (
    <form class="field" aria-label={`field ${plain(f.name)}`} onSubmit={(e) => { e.preventDefault(); save(); }}>
      <label for={id}><code>{marked(f.name)}</code>{f.required && <small> required</small>}{!f.set && !f.derived && f.value !== null && <small> default</small>}{f.derived && <small> follows from others</small>}</label>
      {f.description && <p class="hint" dir="auto">{marked(cut(f.description, 600))}</p>}
      {f.editable ? <Input id={id} of={f} draft={draft ?? stored} edit={edit} /> : <output id={id} dir="auto">{f.value === null ? <i>unset</i> : marked(cut(stored, 4000))}</output>}
      {f.editable && (
        <div class="answers">
          <button type="submit" class="main" disabled={draft === undefined || draft === stored}>Save</button>
          <button type="button" disabled={f.value === null || !f.set} onClick={() => void set(null)}>Clear</button>
          {draft !== undefined && <button type="button" onClick={() => { setDraft(undefined); setError(undefined); }}>Undo</button>}
          {saved && <small role="status">Saved.</small>}
        </div>
      )}
      {error?.code === 'conflict' && <p class="why">Somebody changed the fields meanwhile; this one is now {stored ? <code>{marked(cut(stored, 200))}</code> : 'unset'}. Save again to set yours.</p>}
      <Trouble error={error} />
    </form>
  );
}

function Input(p: { id: string; of: Field; draft: string; edit: (text: string) => void }) {
  const s = p.of.takes;
  const choices = shape(s) === 'boolean' ? [true, false] : s?.enum;
  const common = { id: p.id, value: p.draft };
  if (choices) {
    return (
      <select {...common} onChange={(e) => p.edit(e.currentTarget.value)}>
        {p.of.value === null && <option value="">unset</option>}
        {choices.map((c) => <option key={JSON.stringify(c)} value={draftOf(c, s)}>{typeof c === 'string' ? c : JSON.stringify(c)}</option>)}
      </select>
    );
  }
  switch (shape(s)) {
    case 'integer': return <input {...common} type="number" step="1" min={s?.minimum} max={s?.maximum} onInput={(e) => p.edit(e.currentTarget.value)} />;
    case 'number': return <input {...common} type="number" step="any" min={s?.minimum} max={s?.maximum} onInput={(e) => p.edit(e.currentTarget.value)} />;
    case 'string': return p.draft.length > 60 || p.draft.includes('\n')
      ? <textarea {...common} rows={4} onInput={(e) => p.edit(e.currentTarget.value)} />
      : <input {...common} type="text" maxLength={s?.maxLength} onInput={(e) => p.edit(e.currentTarget.value)} />;
    default: return <textarea {...common} class="code" rows={5} spellcheck={false} onInput={(e) => p.edit(e.currentTarget.value)} />;
  }
}
