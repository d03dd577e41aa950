// The console: one page, whose address says what it shows.
import './console.css';
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, hasToken, setToken, whenLoginIsNeeded } from './api';
import { forgetDrafts, usePolled } from './hooks';
import { overText, Seen } from './approval';
import { Damage } from './damage';
import { Inbox } from './inbox';
import { Empty } from './parts';
import { Link, usePlace } from './route';
import { RunsPage } from './runs';
import { SessionPage } from './session';
import { Sessions } from './sessions';
import type { Approval } from './types';
import { WorkersPage } from './workers';

function App() {
  const place = usePlace();
  const [login, setLogin] = useState(false);
  const [answered, setAnswered] = useState<string[]>([]); // here, until the server's list has no more of them
  const [tries, setTries] = useState(0);
  whenLoginIsNeeded(() => setLogin(true));
  const loaded = usePolled<Approval[]>((signal) => get('/api/approvals', signal), 3000, `approvals ${tries}`);
  const waiting = loaded.value?.filter((a) => !answered.includes(a.id));
  const [told, setTold] = useState(''); // of the last question: that somebody else was first
  const seen = useRef<Approval | undefined>(undefined);
  const gone = (id: string, why = '') => {
    seen.current = undefined;
    setTold(why);
    setAnswered((old) => [...old.slice(-100), id]);
    loaded.again();
  };
  const ended = () => {
    const a = seen.current;
    if (!a || !loaded.value || loaded.value.some((x) => x.id === a.id)) return;
    seen.current = undefined;
    setTold(overText(a));
  };
  useEffect(ended, [loaded.value]);
  const n = waiting?.length ?? 0;
  const page = place.path[0] ?? '';
  const where = `${page} ${place.path[1] ?? ''}`;
  const first = useRef(where);
  useEffect(() => {
    if (first.current === where) return; // who has just come is nowhere yet
    first.current = '';
    seen.current = undefined;
    setTold('');
    document.getElementById('main')?.focus({ preventScroll: true }); // what was followed is gone, and a reader goes on from here
  }, [where]);
  useEffect(() => { if (page !== 'sessions') document.title = n ? `(${n}) troupe` : 'troupe'; }, [n, page]);
  return (
    <Seen.Provider value={(a) => { ended(); seen.current = a; } /* the next question is there before ended looks */}>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <Link to="/" class="brand" label="troupe: sessions"><img src="/console/icon.svg" alt="" width="24" height="24" /> troupe</Link>
        <nav aria-label="console">
          <Link to="/" current={page === '' || page === 'sessions'}>Sessions</Link>
          <Link to="/approvals" current={page === 'approvals'}>Approvals{n > 0 && <span class="badge">{n}</span>}</Link>
          <Link to="/workers" current={page === 'workers'}>Workers</Link>
          <Link to="/runs" current={page === 'runs'}>Runs</Link>
        </nav>
        <Theme />
        {hasToken() && <button type="button" onClick={() => { setToken(''); forgetDrafts(); setLogin(true); }}>Log out</button>}
      </header>
      <main id="main" tabIndex={-1}>
        {!login && <Damage tries={tries} />}
        {login
          ? <Login done={() => { setLogin(false); setTries(tries + 1); }} />
          : page === '' ? <Sessions place={place} />
          : page === 'sessions' && place.path[1] ? <SessionPage id={place.path[1]} place={place} approvals={waiting ?? []} again={loaded.again} answered={gone} />
          : page === 'approvals' ? <Inbox place={place} approvals={{ ...loaded, value: waiting }} answered={gone} />
          : page === 'runs' ? <RunsPage key={place.path[1] ?? ''} place={place} />
          : page === 'workers' ? <WorkersPage place={place} />
          : <Empty>There is no such page. <Link to="/">Sessions</Link></Empty>}
        <p class={told ? 'notice told' : 'hidden'} role="status">{told}{told && <> <button type="button" onClick={() => setTold('')}>Dismiss</button></>}</p>
        <p class="hidden" role="status">{n > 0 && (n === 1 ? 'One call waits for an answer' : `${n} calls wait for an answer`)}</p>
      </main>
    </Seen.Provider>
  );
}

function Login(p: { done: () => void }) {
  const [token, set] = useState('');
  const enter = () => { setToken(token.trim()); p.done(); };
  return (
    <form class="login" aria-label="log in" onSubmit={(e) => { e.preventDefault(); enter(); }}>
      <h1>Log in</h1>
      <p>This server wants a token. `troupe token create` makes one. It is kept until this tab is closed.</p>
      <label>Token <input type="password" autocomplete="off" value={token} onInput={(e) => set(e.currentTarget.value)} /></label>
      <button type="submit" class="main" disabled={!token.trim()}>Log in</button>
    </form>
  );
}

const themeKey = 'troupe.theme';

function Theme() {
  const [theme, set] = useState(localStorage.getItem(themeKey) ?? '');
  useEffect(() => {
    if (theme) localStorage.setItem(themeKey, theme);
    else localStorage.removeItem(themeKey);
    document.documentElement.dataset['theme'] = theme;
  }, [theme]);
  return (
    <label class="theme">
      <span class="hidden">Colours</span>
      <select value={theme} onChange={(e) => set(e.currentTarget.value)}>
        <option value="">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}

const root = document.getElementById('console');
if (root) render(<App />, root);
