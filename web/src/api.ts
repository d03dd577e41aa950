// The HTTP API, as the console needs it. Every request stays on this origin.
import type { Problem } from './types';

const tokenKey = 'troupe.token';

/** Refused is what the server says no with, or why it could not be reached. */
export class Refused extends Error {
  constructor(readonly status: number, readonly code: string, detail: string, readonly hint = '', readonly resumeAfter = 0) {
    super(detail);
  }
}

let onLogin: () => void = () => {};
/** whenLoginIsNeeded says what to do when the server wants a token. */
export function whenLoginIsNeeded(f: () => void): void { onLogin = f; }

/** setToken keeps a token until the tab is closed; '' forgets it. */
export function setToken(token: string): void {
  if (token) sessionStorage.setItem(tokenKey, token);
  else sessionStorage.removeItem(tokenKey);
  lists.clear();
}
export function hasToken(): boolean { return !!sessionStorage.getItem(tokenKey); }

function headers(extra: Record<string, string>): Record<string, string> {
  const token = sessionStorage.getItem(tokenKey);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

/** request sends one request and gives back an answer of status 2xx, or throws Refused. */
export async function request(method: string, path: string, o: { body?: BodyInit; type?: string; signal?: AbortSignal; accept?: string; tag?: string } = {}): Promise<Response> {
  const h: Record<string, string> = {};
  if (o.tag) h['If-None-Match'] = o.tag;
  if (o.type) h['Content-Type'] = o.type;
  if (o.accept) h['Accept'] = o.accept;
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers: headers(h), body: o.body ?? null, signal: o.signal ?? null, cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
  } catch (err) {
    if (o.signal?.aborted) throw err;
    throw new Refused(0, 'unreachable', 'The server cannot be reached.', 'Is it still running? The console goes on by itself when it is back.');
  }
  if (answer.ok || (o.tag && answer.status === 304)) return answer;
  if (answer.status === 401) onLogin();
  const p = (await answer.json().catch(() => null)) as Problem | null;
  throw new Refused(answer.status, p?.code ?? '', p?.detail ?? `${answer.status} ${answer.statusText}`, p?.hint ?? '', p?.resume_after ?? 0);
}

async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const o: { body?: string; type?: string; signal?: AbortSignal } = {};
  if (body !== undefined) { o.body = JSON.stringify(body); o.type = 'application/json'; }
  if (signal) o.signal = signal;
  const answer = await request(method, path, o);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

export const get = <T>(path: string, signal?: AbortSignal) => json<T>('GET', path, undefined, signal);
export const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) => json<T>('POST', path, body, signal);
export const put = <T>(path: string, body: unknown) => json<T>('PUT', path, body);
export const remove = <T>(path: string) => json<T>('DELETE', path);

const lists = new Map<string, { tag: string; value: unknown }>(); // by path, as they were answered last

/** getList is get for a list that is asked for again and again: one that has not changed is not sent again. */
export async function getList<T>(path: string, signal: AbortSignal): Promise<T> {
  const known = lists.get(path);
  const answer = await request('GET', path, known ? { signal, tag: known.tag } : { signal });
  if (known && answer.status === 304) return known.value as T;
  const value = (await answer.json()) as T, tag = answer.headers.get('ETag');
  if (tag) lists.set(path, { tag, value });
  return value;
}

/** sessionPath is where the routes of a session begin. */
export const sessionPath = (id: string, rest = '') => `/api/sessions/${encodeURIComponent(id)}${rest}`;

/** filePath names a file that a session keeps. */
export const filePath = (id: string, path: string) => sessionPath(id, '/files/' + path.split('/').map(encodeURIComponent).join('/'));

/** pause waits, or ends early with the signal. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const t = setTimeout(done, ms);
    signal.addEventListener('abort', () => { clearTimeout(t); done(); }, { once: true });
  });
}
