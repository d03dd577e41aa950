// Events of a session, read with fetch: an EventSource cannot send a token.
import { pause, Refused, request, sessionPath } from './api';
import type { Event, Problem } from './types';

export type StreamState = 'connecting' | 'live' | 'waiting' | 'ended';

export interface Listener {
  event(e: Event): void;
  state(s: StreamState, why?: Refused): void;
  /** Some deltas may have been missed; events with a seq never are. */
  gap(): void;
  /** Everything before this seq was trimmed away. */
  trimmed(before: number): void;
}

const firstPause = 500;
const longestPause = 10_000;

/** follow replays a session's events after a seq and goes on with the live ones, over lost connections, until the signal. It returns the
 * seq of the last event, with which another call goes on. */
export async function follow(session: string, after: number, to: Listener, signal: AbortSignal): Promise<number> {
  let seq = after;
  let wait = firstPause;
  while (!signal.aborted) {
    to.state('connecting');
    try {
      const answer = await request('GET', sessionPath(session, `/events?after=${seq}`), { signal, accept: 'text/event-stream' });
      to.state('live');
      wait = firstPause;
      await read(answer, (e) => {
        if (e.seq) {
          if (e.seq <= seq) return;
          seq = e.seq;
        }
        to.event(e);
      });
      to.state('waiting'); // the server ended it: it stops, or has dropped a slow reader
    } catch (err) {
      if (signal.aborted) break;
      const why = err instanceof Refused ? err : new Refused(0, 'unreachable', 'The connection was lost.');
      if (why.code === 'trimmed' && why.resumeAfter > seq) {
        seq = why.resumeAfter;
        to.trimmed(seq);
        continue;
      }
      if (why.status >= 400 && why.status < 500 && why.status !== 429) {
        to.state('ended', why);
        return seq;
      }
      to.state('waiting', why);
    }
    to.gap();
    await pause(wait, signal);
    wait = Math.min(wait * 2, longestPause);
  }
  return seq;
}

async function read(answer: Response, each: (e: Event) => void): Promise<void> {
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let type = '';
  let data: string[] = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop() ?? '';
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (data.length) dispatch(type, data.join('\n'), each);
        type = '';
        data = [];
      } else if (line.startsWith('event:')) type = line.slice(6).trim();
      else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}

function dispatch(type: string, data: string, each: (e: Event) => void): void {
  const body: unknown = JSON.parse(data);
  if (type === 'error') {
    const p = body as Problem;
    throw new Refused(p.status, p.code, p.detail, p.hint, p.resume_after);
  }
  each(body as Event);
}
