import { useEffect, useRef, useState } from 'preact/hooks';
import { Refused } from './api';

/** useVisible says whether somebody may be looking. A hidden tab holds no connection: a browser has six per server. */
export function useVisible(): boolean {
  const [v, set] = useState(document.visibilityState !== 'hidden');
  useEffect(() => {
    const f = () => set(document.visibilityState !== 'hidden');
    document.addEventListener('visibilitychange', f);
    return () => document.removeEventListener('visibilitychange', f);
  }, []);
  return v;
}

const drafts = new Map<string, string>(); // what was typed and not sent, until the tab is closed or somebody logs out

/** useDraft keeps what is typed somewhere while that is not shown: a login form may take its place. */
export function useDraft(where: string): [text: string, set: (text: string) => void] {
  const [text, setText] = useState(drafts.get(where) ?? '');
  return [text, (text) => {
    if (text) drafts.set(where, text);
    else drafts.delete(where);
    setText(text);
  }];
}

/** forgetDrafts is for who logs out: the next one who logs in is somebody else. */
export function forgetDrafts(): void { drafts.clear(); }

export interface Loaded<T> { value: T | undefined; error: Refused | undefined; again: () => void }

/** usePolled loads now, again every few milliseconds while visible, and on demand. A slow answer makes the pauses longer. every 0: once. */
export function usePolled<T>(load: (signal: AbortSignal) => Promise<T>, every: number, key: string): Loaded<T> {
  const [state, set] = useState<{ key: string; value?: T; error?: Refused }>({ key });
  const [round, setRound] = useState(0);
  const visible = useVisible();
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (!visible) return;
    const stop = new AbortController();
    let timer = 0;
    const once = async () => {
      const began = performance.now();
      try {
        const value = await latest.current(stop.signal);
        if (!stop.signal.aborted) set({ key, value });
      } catch (err) {
        if (stop.signal.aborted) return;
        const error = refused(err);
        set((old) => (old.key === key && old.value !== undefined ? { key, value: old.value, error } : { key, error }));
      }
      if (every > 0 && !stop.signal.aborted) timer = setTimeout(once, Math.max(every, 20 * (performance.now() - began)));
    };
    void once();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [key, every, round, visible]);
  const current = state.key === key;
  return { value: current ? state.value : undefined, error: current ? state.error : undefined, again: () => setRound((n) => n + 1) };
}

/** useRedraw redraws at most every 30 ms, however many events come. */
export function useRedraw(): () => void {
  const [, set] = useState(0);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    if (timer.current) return;
    timer.current = setTimeout(() => { timer.current = 0; set((n) => n + 1); }, 30);
  };
}

/** refused is any error as something to show. */
export function refused(err: unknown): Refused {
  return err instanceof Refused ? err : new Refused(0, '', err instanceof Error ? err.message : String(err));
}
