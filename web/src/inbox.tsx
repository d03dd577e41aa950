// The inbox: what waits for an answer, in all sessions. j and k move; the card has the answers.
import { useEffect } from 'preact/hooks';
import { ApprovalCard, keyed } from './approval';
import type { Loaded } from './hooks';
import { Empty, Pager, pageOf, State, Trouble } from './parts';
import { filter, type Place } from './route';
import { Ago } from './now';
import { plain } from './text';
import type { Approval } from './types';

const rows = 20;

export function Inbox(p: { place: Place; approvals: Loaded<Approval[]>; answered: (id: string, why?: string) => void }) {
  const all = p.approvals.value;
  const chosen = p.place.query.get('id') ?? '';
  const session = p.place.query.get('session') ?? '';
  const list = (all ?? []).filter((a) => !session || a.session === session);
  const at = Math.max(0, list.findIndex((a) => a.id === chosen));
  const current = list[at];

  const choose = (i: number) => {
    const a = list[Math.min(Math.max(0, i), list.length - 1)];
    if (a) filter({ id: a.id, page: '' });
  };
  useEffect(() => {
    const f = (e: KeyboardEvent) => {
      if (!keyed(e) || (e.key !== 'j' && e.key !== 'k')) return;
      choose(e.key === 'j' ? at + 1 : at - 1);
      e.preventDefault();
    };
    addEventListener('keydown', f);
    return () => removeEventListener('keydown', f);
  });

  // An answered one makes room for the next in line, which gets the address.
  const gone = (a: Approval, why?: string) => {
    const next = list[at + 1] ?? list[at - 1];
    filter({ id: next ? next.id : '' });
    p.answered(a.id, why);
  };
  const asked = Number(p.place.query.get('page'));
  const page = pageOf(list, asked || Math.floor(at / rows) + 1, rows);
  return (
    <>
      <h1>Approvals</h1>
      <Trouble error={p.approvals.error} />
      {session && <p>Of one session only. <button type="button" onClick={() => filter({ session: '' })}>Show all</button></p>}
      {all && !list.length && <Empty>Nothing waits for an answer. What an agent may not do unasked comes here, and in its session.</Empty>}
      {list.length > 0 && (
        <div class="split">
          <div>
            <ul class="rows" aria-label="what waits">
              {page.items.map((a) => (
                <li key={a.id}>
                  <button type="button" class="item" aria-current={a === current} onClick={() => filter({ id: a.id, page: asked ? String(page.page) : '' })}>
                    <span class="name"><code class="tool">{plain(a.tool, 60)}</code> <State of={a.state} /></span>
                    <span class="meta" dir="auto">{plain(firstLine(a), 90)}</span>
                    <span class="meta">{plain(a.agent || 'default', 40)} · <Ago at={a.at} /></span>
                  </button>
                </li>
              ))}
            </ul>
            <Pager of={page} what="approvals" go={(n) => filter({ page: String(n) })} />
            <p class="hint keys"><kbd>j</kbd> next <kbd>k</kbd> previous</p>
          </div>
          {current && <ApprovalCard key={current.id} of={current} gone={(why) => gone(current, why)} />}
        </div>
      )}
    </>
  );
}

function firstLine(a: Approval): string {
  const line = a.preview.split('\n').find((l) => (a.kind === 'diff' ? l.startsWith('+++') : l.trim() !== '')) ?? '';
  return line.replace(/^\+\+\+ (b\/)?/, '');
}
