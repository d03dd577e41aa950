// Commands that a session's agents left running, and their end.
import { useState } from 'preact/hooks';
import { post, type Refused, sessionPath } from './api';
import { refused } from './hooks';
import { Trouble } from './parts';

export interface Jobs { running: number; waiting: number; background: number }

export function JobsView(p: { session: string; of: Jobs; again: () => void }) {
  const [error, setError] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const n = p.of.background;
  if (!n) return null;
  const end = async () => {
    setBusy(true);
    try {
      await post(sessionPath(p.session, '/cancel'), { by: 'console', reason: 'its jobs are ended', jobs: true });
      setError(undefined);
    } catch (err) { setError(refused(err)); } finally { setBusy(false); p.again(); }
  };
  return (
    <div class="jobs">
      {n === 1 ? 'One command runs' : `${n} commands run`} in the background.{' '}
      <button type="button" disabled={busy} onClick={() => void end()}>{n === 1 ? 'End it' : 'End them'}{p.of.running > 0 && ', and the turn'}</button>
      <Trouble error={error} />
    </div>
  );
}
