// Conversations that workers share: who said what, in the order in which they had the word.
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, type Refused, sessionPath } from './api';
import { refused, usePolled } from './hooks';
import { Empty, State, Trouble } from './parts';
import { Ago } from './now';
import { Link, sessionLink } from './route';
import { count, cut, Long, marked, plain } from './text';
import type { Talk, TalkTurn } from './types';

const turnsShown = 50;

/** memberName is what the others of a shared conversation call a worker; '' where that is not known. */
export function memberName(talks: Talk[], talk: string, worker: string): string {
  return talks.find((t) => t.id === talk)?.members?.find((m) => m.worker === worker)?.name ?? '';
}

export function TalkPage(p: { session: string }) {
  const loaded = usePolled<Talk[]>((signal) => get(sessionPath(p.session, '/conversations'), signal), 3000, p.session);
  const talks = loaded.value ?? [];
  return (
    <>
      <Trouble error={loaded.error} />
      {loaded.value && !talks.length && <Empty>The workers of this session share no conversation.</Empty>}
      {talks.map((t) => <TalkView key={t.id} session={p.session} of={t} />)}
    </>
  );
}

/** useTurns reads the turns of a conversation, page by page, and after each change those that are new. */
function useTurns(session: string, t: Talk): { turns: TalkTurn[]; error: Refused | undefined } {
  const turns = useRef<TalkTurn[]>([]);
  const [error, setError] = useState<Refused>();
  const [, drawn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const read = async () => {
      for (let more = true; more && !stop.signal.aborted;) {
        const after = turns.current.at(-1)?.seq ?? 0;
        const page = await get<Talk>(sessionPath(session, `/conversations/${encodeURIComponent(t.id)}?after=${after}&limit=500`), stop.signal);
        if (stop.signal.aborted) return;
        turns.current.push(...(page.turns ?? []).filter((x) => x.seq > after));
        more = !!page.next && !!page.turns?.length;
        drawn((n) => n + 1);
      }
      setError(undefined);
    };
    read().catch((err) => { if (!stop.signal.aborted) setError(refused(err)); });
    return () => stop.abort();
  }, [session, t.id, t.revision, error && t]); // what could not be read is tried again with the next listing
  return { turns: turns.current, error };
}

function TalkView(p: { session: string; of: Talk }) {
  const t = p.of;
  const { turns, error } = useTurns(p.session, t);
  const [most, setMost] = useState(turnsShown);
  const hidden = Math.max(0, turns.length - most);
  return (
    <section aria-label={`conversation ${plain(t.name, 80)}`}>
      <h2>{marked(cut(t.name, 200))}</h2>
      <p class="meta">
        {(t.members ?? []).map((m, i) => <span key={m.worker}>{i > 0 && ' · '}<b>{marked(cut(m.name, 80))}</b>, {m.turns} {m.turns === 1 ? 'turn' : 'turns'}{m.worker === t.speaking && ', has the word'}{m.left && <>, left: {marked(cut(m.left, 200))}</>}</span>)}{!!t.waiting && ` · ${t.waiting} wait for the word`}
      </p>
      <Trouble error={error} />
      {!t.count && <Empty>Nobody has said anything yet.</Empty>}
      {hidden > 0 && <button type="button" class="more" onClick={() => setMost(most * 4)}>Show earlier turns: {count(hidden)}</button>}
      {turns.slice(hidden).map((x) => (
        <div class={`said ${x.member ? 'model' : 'user'} ${x.cut ? 'discarded' : ''}`} key={x.number}>
          <h3>{x.member ? marked(cut(x.member, 80)) : <>From outside{x.said?.by && <> ({marked(cut(x.said.by, 80))})</>}</>} <small>{x.number} · <Ago at={x.at} />{(x.said ?? x.cut)?.turn && x.member && <> · <Link to={sessionLink(p.session, `#${encodeURIComponent((x.said ?? x.cut)?.turn ?? '')}`)}>turn</Link></>}</small></h3>
          {x.said && <Long text={x.said.text} />}
          {x.cut && <p class="why"><State of={x.cut.outcome || 'cut off'} /> cut off{(x.cut.reason || x.cut.code) && <>: {marked(cut(x.cut.reason || x.cut.code || '', 400))}</>}</p>}
        </div>
      ))}
    </section>
  );
}
