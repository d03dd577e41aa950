// Time that passes while a page stands there: one clock for all that shows it.
import { useEffect, useState } from 'preact/hooks';

const listeners = new Set<() => void>();
let clock = 0;

/** useClock draws again every second, in a tab that somebody may see. */
function useClock(): void {
  const [, set] = useState(0);
  useEffect(() => {
    const tick = () => set((n) => n + 1);
    listeners.add(tick);
    clock ||= setInterval(() => { if (document.visibilityState !== 'hidden') listeners.forEach((f) => f()); }, 1000);
    return () => {
      listeners.delete(tick);
      if (!listeners.size) { clearInterval(clock); clock = 0; }
    };
  }, []);
}

function words(s: number): string {
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** seconds from a time to now; NaN when it is none. */
function since(at: string): number { return Math.round((Date.now() - Date.parse(at)) / 1000); }

export function Ago(p: { at?: string | undefined }) {
  useClock();
  const s = p.at ? since(p.at) : NaN;
  return p.at && !Number.isNaN(s) ? <time dateTime={p.at} title={p.at}>{words(Math.max(0, s))} ago</time> : null;
}

/** Left counts down to a time. */
export function Left(p: { until: string }) {
  useClock();
  const s = -since(p.until);
  const text = Number.isNaN(s) ? p.until : s <= 0 ? 'now' : s < 600 ? `in ${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}` : `in ${words(s)}`;
  return <time dateTime={p.until} title={p.until}>{text}</time>;
}
