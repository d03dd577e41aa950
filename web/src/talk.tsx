// Conversations that workers share: who said what, in the order in which they had the word.
import { useState } from 'preact/hooks';
import { get, sessionPath } from './api';
import { usePolled } from './hooks';
import { Empty, State, Trouble } from './parts';
import { Ago } from './now';
import { Link, sessionLink } from './route';
import { count, cut, Long, marked, plain } from './text';
import type { Session, Talk } from './types';

const turnsShown = 50;

/** memberName is what the others of a shared conversation call a worker; '' where that is not known. */
export function memberName(talks: Talk[], talk: string, worker: string): string {
  return talks.find((t) => t.id === talk)?.members?.find((m) => m.worker === worker)?.name ?? '';
}

export function TalkPage(p: { session: string }) {
  const loaded = usePolled<Session>((signal) => get<{ session: Session }>(sessionPath(p.session), signal).then((s) => s.session), 3000, p.session);
  const talks = loaded.value?.conversations ?? [];
  return (
    <>
      <Trouble error={loaded.error} />
      {loaded.value && !talks.length && <Empty>The workers of this session share no conversation.</Empty>}
      {talks.map((t) => <TalkView key={t.id} session={p.session} of={t} />)}
    </>
  );
}

function TalkView(p: { session: string; of: Talk }) {
  const t = p.of, turns = t.turns ?? [];
  const [most, setMost] = useState(turnsShown);
  const hidden = Math.max(0, turns.length - most);
  return (
    <section aria-label={`conversation ${plain(t.name, 80)}`}>
      <h2>{marked(cut(t.name, 200))}</h2>
      <p class="meta">
        {(t.members ?? []).map((m, i) => <span key={m.worker}>{i > 0 && ' · '}<b>{marked(cut(m.name, 80))}</b>, {m.turns} {m.turns === 1 ? 'turn' : 'turns'}{m.worker === t.speaking && ', has the word'}{m.left && <>, left: {marked(cut(m.left, 200))}</>}</span>)}
      </p>
      {!turns.length && <Empty>Nobody has said anything yet.</Empty>}
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
